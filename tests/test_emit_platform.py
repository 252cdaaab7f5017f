"""What is written for one platform in another way than for others."""

from __future__ import annotations

import types

import numpy as np
import pytest

from meshjit.core.types import TensorType
from meshjit.emit.module import emit
from meshjit.ops.reduce.cumulative import cumsum
from sharding import AbstractMesh, Mesh
from tests.tools.op_harness import build, called


@pytest.mark.parametrize(("platform", "blocks"), [("tpu", "1000"), ("cpu", "63x16"), ("cuda", "63x16"), (None, "63x16")])
def test_running_totals_come_in_blocks_unless_the_compiler_makes_its_own(platform, blocks):
    device = types.SimpleNamespace(id=0, process_index=0, platform=platform)
    mesh = AbstractMesh((1,), ("x",)) if platform is None else Mesh([device], ("x",))
    program = build([TensorType((1000,), np.dtype(np.float32))], lambda x: called(cumsum, x, {"axis": 0, "reverse": False}))
    text = emit(program, mesh)
    assert f"-> tensor<{blocks}xf32>" in text and text.count("stablehlo.reduce_window") == 1
    assert f"window_dimensions = array<i64: {'1000' if platform == 'tpu' else '1, 17'}>" in text
