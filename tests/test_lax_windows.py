"""lax.reduce_window and pooling against numbers of JAX 0.10.2 and flax, ties, paddings and starts included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.core.op import Sample
from meshjit.core.types import TensorType
from meshjit.ops.window.select_and_gather import select_and_gather
from meshjit.ops.window.select_and_scatter import select_and_scatter
from tests.tools.op_harness import evaluated, module, out_types, run_xla

INF = float("inf")
ROW = np.array([[1, 2, 2, 2, 0, 3, 3]], np.float32)


def pooled(x: Any, init: Any, function: Any, **options: Any) -> Any:
    return lax.reduce_window(x, init, function, (1, 3), (1, 2), "SAME", **options)


@pytest.mark.parametrize(
    ("function", "init", "values", "tangents", "cotangents"),
    [
        (lax.max, -INF, [2, 2, 3, 3], [2, 2, 6, 6], [0, 3, 0, 0, 0, 7, 0]),
        (lax.min, INF, [1, 2, 0, 3], [1, 2, 5, 6], [1, 2, 0, 0, 3, 4, 0]),
        (lax.add, 0, [3, 6, 5, 6], [3, 9, 15, 13], [1, 3, 2, 5, 3, 7, 4]),
    ],
)
def test_the_first_of_equal_elements_is_chosen(
    function: Any, init: Any, values: Any, tangents: Any, cotangents: Any
) -> None:
    def run(x: Any) -> Any:
        return pooled(x, init, function)

    out, moved = mj.jvp(run, (ROW,), (np.arange(1, 8, dtype=np.float32)[None],))
    back = mj.grad(lambda x: (run(x) * np.arange(1, 5)).sum())(ROW)
    for got, want in ((out, values), (moved, tangents), (back, cotangents)):
        np.testing.assert_array_equal(got, np.array([want], np.float32))


def test_every_window_has_the_start_once() -> None:
    np.testing.assert_array_equal(pooled(ROW, 1.0, lax.add), [[4, 7, 6, 7]])
    np.testing.assert_array_equal(pooled(ROW, 1.0, lax.add, base_dilation=(1, 2)), [[2, 3, 3, 3, 1, 4, 4]])
    np.testing.assert_array_equal(pooled(ROW, 1.0, lambda a, b: a + b, base_dilation=(1, 2)), [[2, 3, 3, 3, 1, 4, 4]])
    line = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(lax.reduce_window(line, 0.0, lax.max, (2,), (1,), ((1, 1),)), [0, 1, 2, 3, 4, 4])


def test_products_have_a_derivative_with_zeros_too() -> None:
    def product(x: Any) -> Any:
        return lax.reduce_window(x, 1.0, lax.mul, (2,), (1,), "VALID").sum()

    np.testing.assert_array_equal(mj.grad(product)(np.array([2, 0, 3, 5], np.float32)), [0, 5, 5, 3])


def test_any_function_and_trees_of_arrays() -> None:
    def both(a: Any, b: Any) -> Any:
        return a[0] + b[0], mnp.maximum(a[1], b[1])

    x = np.arange(5, dtype=np.float32)
    found = lax.reduce_window((x, x), (0.0, 0.0), both, (2,), (1,), ((1, 1),))
    np.testing.assert_array_equal(found[0], [0, 1, 3, 5, 7, 4])
    np.testing.assert_array_equal(found[1], [0, 1, 2, 3, 4, 4])
    same = lax.reduce_window(x, 0.0, lambda a, b: a + b, (2,), (2,), "SAME")
    np.testing.assert_array_equal(same, lax.reduce_window(x, 0.0, lax.add, (2,), (2,), "SAME"))
    flags = np.array([True, False, False, True])
    np.testing.assert_array_equal(lax.reduce_window(flags, False, lax.bitwise_or, (2,), (1,), "VALID"), [True, False, True])


def test_windows_of_many_places_are_the_op() -> None:
    """Beyond 64 places the choice is not written out any more; the meaning stays."""
    text = {"window": (9, 9), "strides": (4, 3), "padding": ((2, 1), (-1, 4)), "window_dilation": (1, 1)}
    wide = TensorType.parse("f32[20,23]")
    out = TensorType.parse("f32[4,6]")
    generator = np.random.default_rng(0)
    for op, types in ((select_and_gather, (wide, wide)), (select_and_scatter, (wide, out))):
        for kind in ("max", "min"):
            sample = Sample(types, {**text, "kind": kind})
            arrays = sample.arrays(generator)
            arrays[0 if op is select_and_scatter else 1][:12, :12] = -INF if kind == "max" else INF
            results = out_types(op, sample)
            (got,) = run_xla(module([(op, types, results, sample.params)]), [[a] for a in arrays], results)
            np.testing.assert_array_equal(got[0], evaluated(op, arrays, sample.params)[0])


def test_errors_name_the_param() -> None:
    x = np.zeros((4, 6), np.float32)
    with pytest.raises(TypeError, match=r"reduce_window: window is \(2,\); an operand of shape \(4, 6\) needs 2 positive"):
        lax.reduce_window(x, 0.0, lax.add, (2,), (1, 1), "VALID")
    with pytest.raises(TypeError, match=r"reduce_window: strides is \(1, 0\)"):
        lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 0), "VALID")
    with pytest.raises(TypeError, match=r"reduce_window: padding is \(\(1, 1\),\); an operand of shape \(4, 6\) needs 2 pairs"):
        lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), ((1, 1),))
    with pytest.raises(ValueError, match="a window of 2500 places is too large for a function that is no op"):
        lax.reduce_window(x, 0.0, lambda a, b: a + b, (50, 50), (1, 1), "SAME")
    with pytest.raises(ValueError, match=r"strides \(1,\) and window_shape \(2, 2\) must name the same dims"):
        nn.max_pool(np.zeros((1, 4, 4, 3)), (2, 2), (1,))
    with pytest.raises(ValueError, match=r"a window of 2 dims needs an input of 3 dims or more, got shape \(4, 6\)"):
        nn.avg_pool(x, (2, 2))


# -- pooling in nn: flax.linen's conventions

IMAGE = np.arange(2 * 4 * 3, dtype=np.float32).reshape(1, 4, 3, 2) % 7


def test_pools() -> None:
    """[batch, height, width, features]; windows over height and width."""
    high = nn.max_pool(IMAGE, (2, 2), (2, 1))
    assert high.shape == (1, 2, 2, 2)
    blocks = np.array([[[IMAGE[0, i : i + 2, j : j + 2] for j in (0, 1)] for i in (0, 2)]])
    np.testing.assert_array_equal(high, blocks.max(axis=(3, 4)))
    np.testing.assert_array_equal(nn.min_pool(IMAGE, (2, 2), (2, 1)), blocks.min(axis=(3, 4)))
    np.testing.assert_array_equal(nn.avg_pool(IMAGE, (2, 2), (2, 1)), blocks.mean(axis=(3, 4)))


def test_the_mean_may_leave_padding_out() -> None:
    ones = mnp.ones((2, 3, 1))
    with_padding = nn.avg_pool(ones, (3,), padding="SAME")
    np.testing.assert_allclose(np.asarray(with_padding)[0, :, 0], [2 / 3, 1, 2 / 3], rtol=1e-6)
    np.testing.assert_array_equal(nn.avg_pool(ones, (3,), padding=[(1, 1)], count_include_pad=False), ones)


def test_an_image_without_a_batch() -> None:
    np.testing.assert_array_equal(nn.max_pool(IMAGE[0], (2, 2)), nn.max_pool(IMAGE, (2, 2))[0])


# -- what windows see, and kernels of their own at every place

NHWC = ("NHWC", "HWIO", "NHWC")


def test_patches() -> None:
    """Features are (feature, *place in the window), the last place fastest."""
    x = np.arange(2 * 4 * 5 * 3, dtype=np.float32).reshape(2, 4, 5, 3)
    found = np.asarray(lax.conv_general_dilated_patches(x, (2, 3), (1, 2), "VALID", dimension_numbers=NHWC))
    views = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (1, 2))[:, :, ::2]
    np.testing.assert_array_equal(found, views.reshape(2, 3, 2, 18))


def test_kernels_of_their_own() -> None:
    generator = np.random.default_rng(0)
    x, kernel = (generator.integers(-3, 4, shape).astype(np.float32) for shape in ((2, 5, 4, 3), (2, 3, 3, 6)))
    want = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=NHWC)
    flat = kernel.transpose(2, 0, 1, 3).reshape(18, 6)
    same = np.broadcast_to(flat, (5, 4, 18, 6))
    found = lax.conv_general_dilated_local(x, same, (1, 1), "SAME", (2, 3), dimension_numbers=NHWC)
    np.testing.assert_array_equal(found, want)
