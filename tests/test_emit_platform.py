"""What is written for one platform in another way than for others."""

from __future__ import annotations

import types

import numpy as np
import pytest

from meshjit.core.types import TensorType
from meshjit.emit.module import emit
from meshjit.ops.cumulative import cumsum
from sharding import AbstractMesh, Mesh
from tests.op_harness import build, called


@pytest.mark.parametrize(("platform", "block"), [("tpu", 128), ("cpu", 16), ("cuda", 16), (None, 16)])
def test_running_totals_come_in_blocks_as_wide_as_the_machine_likes(platform, block):
    device = types.SimpleNamespace(id=0, process_index=0, platform=platform)
    mesh = AbstractMesh((1,), ("x",)) if platform is None else Mesh([device], ("x",))
    program = build([TensorType((1000,), np.dtype(np.float32))], lambda x: called(cumsum, x, {"axis": 0, "reverse": False}))
    text = emit(program, mesh)
    count = -(-1000 // block)
    assert f"tensor<{count}x{block}xf32>" in text and f"window_dimensions = array<i64: 1, {block}>" in text
