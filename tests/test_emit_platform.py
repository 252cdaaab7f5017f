"""What is written for one platform in another way than for others."""

from __future__ import annotations

import types

import numpy as np
import pytest

import meshjit as mj
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


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_text_for_gpus_adds_products_of_int8_in_int32(dtype: type) -> None:
    drawn = np.random.default_rng(0)
    info = np.iinfo(dtype)
    x = drawn.integers(info.min, info.max, (3, 5, 300), dtype, endpoint=True)
    y = drawn.integers(info.min, info.max, (3, 300, 4), dtype, endpoint=True)
    traced = mj.jit(lambda x, y: x @ y).trace(x, y)
    assert "i32>" not in traced.lower(lowering_platforms=("cpu",)).as_text()
    lowered = traced.lower(lowering_platforms=("cuda", "cpu"))
    (product,) = (line for line in lowered.as_text().splitlines() if "dot_general" in line)
    assert product.endswith("(tensor<3x5x300xi8>, tensor<3x300x4xi8>) -> tensor<3x5x4xi32>")
    np.testing.assert_array_equal(lowered.compile()(x, y), np.einsum("bij,bjk->bik", x, y, dtype=dtype))
