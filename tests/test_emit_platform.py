"""What is written for one platform in another way than for others."""

from __future__ import annotations

import os
import types
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import lax
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


def products(text: str) -> list[str]:
    """The types of each product in the text, `i8 x i8 -> i32`-like."""
    return [line.rsplit(" : ", 1)[1] for line in text.splitlines() if "dot_general" in line]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_text_for_gpus_adds_products_of_int8_in_int32(dtype: type) -> None:
    drawn = np.random.default_rng(0)
    info = np.iinfo(dtype)
    x = drawn.integers(info.min, info.max, (3, 16, 304), dtype, endpoint=True)
    y = drawn.integers(info.min, info.max, (3, 304, 32), dtype, endpoint=True)
    traced = mj.jit(lambda x, y: x @ y).trace(x, y)
    assert "i32>" not in traced.lower(lowering_platforms=("cpu",)).as_text()
    lowered = traced.lower(lowering_platforms=("cuda", "cpu"))
    assert products(lowered.as_text()) == ["(tensor<3x16x304xi8>, tensor<3x304x32xi8>) -> tensor<3x16x32xi32>"]
    np.testing.assert_array_equal(lowered.compile()(x, y), np.einsum("bij,bjk->bik", x, y, dtype=dtype))


LEVEL_0 = "--xla_gpu_autotune_level=0"
LONG = (5, 2050), (2050, 7), (((1,), (0,)), ((), ()))
SEVERAL = (2, 3, 60, 40), (40, 5, 60, 2), (((3, 2), (0, 2)), ((0,), (3,)))


@pytest.mark.parametrize(
    ("left", "right", "dims", "flags", "text"),
    [
        ((4, 6), (6, 8), (((1,), (0,)), ((), ())), "", "(tensor<4x6xbf16>, tensor<6x8xbf16>) -> tensor<4x8xf32>"),
        ((16, 48), (48, 32), (((1,), (0,)), ((), ())), "", "(tensor<16x48xi8>, tensor<48x32xi8>) -> tensor<16x32xi32>"),
        ((16, 48), (48, 32), (((1,), (0,)), ((), ())), LEVEL_0, "(tensor<16x48xbf16>, tensor<48x32xbf16>) -> tensor<16x32xf32>"),
        ((2, 8, 2, 48), (2, 48, 4, 4), (((3,), (1,)), ((0,), (0,))), "",
         "(tensor<2x8x2x48xi8>, tensor<2x48x4x4xi8>) -> tensor<2x8x2x4x4xi32>"),
        (*LONG, "", "(tensor<16x2064xi8>, tensor<2064x16xi8>) -> tensor<16x16xi32>"),
        (*LONG, LEVEL_0, "(tensor<5x2050xi32>, tensor<2050x7xi32>) -> tensor<5x7xi32>"),
        (*SEVERAL, "", "(tensor<2x16x60x40xi8>, tensor<40x16x60x2xi8>) -> tensor<2x16x16xi32>"),
        ((4100,), (4100, 3), (((0,), (0,)), ((), ())), "", "(tensor<4100xi32>, tensor<4100x3xi32>) -> tensor<3xi32>"),
        ((0, 4100), (4100, 3), (((1,), (0,)), ((), ())), "", "(tensor<0x4100xi8>, tensor<4100x3xi8>) -> tensor<0x3xi32>"),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("out", [np.int8, np.int32])
def test_text_for_gpus_avoids_kernels_that_double_products_of_int8(
    left: Any, right: Any, dims: Any, flags: str, text: str, out: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} {flags}")
    drawn = np.random.default_rng(0)
    x, y = (drawn.integers(-128, 127, shape, np.int8, endpoint=True) for shape in (left, right))
    traced = mj.jit(lambda x, y: lax.dot_general(x, y, dims, preferred_element_type=out)).trace(x, y)
    lowered = traced.lower(lowering_platforms=("cuda", "cpu"))
    assert products(lowered.as_text()) == [text]
    expected = traced.lower(lowering_platforms=("cpu",)).compile()(x, y)
    np.testing.assert_array_equal(lowered.compile()(x, y), expected)
    assert expected.dtype == out
