"""Floats of 8 bits and fewer: arrays of them, what is computed, sent and derived, on one device and on several; functions of
floats of 16 bits that compute in 32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.fft as scipy_fft

import meshjit as mj
from meshjit import lax, nn, numpy as mnp
from meshjit.core.types import SMALL_FLOATS
from meshjit.scipy import fft
from meshjit.sharding import NamedSharding, PartitionSpec as P

NAMES = [dtype.name for dtype in SMALL_FLOATS]
VALUES = np.array([0.0, 0.3, -1.7, 2.5, 7, -8, 100, 1e6, np.nan, -np.inf, 0.01, 1.0], np.float32)


@pytest.fixture
def mesh() -> Any:
    return mj.make_mesh((4, 2), ("x", "y"))


def small(name: str, shape: tuple[int, ...] = (8, 4), seed: int = 0) -> np.ndarray[Any, Any]:
    """Numbers that the dtype has: powers of 2, between 1/2 and 2."""
    exponents = np.random.default_rng(seed).integers(-1, 2, shape)
    return (2.0**exponents).astype(np.float32).astype(name)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_and_conversions(name: str) -> None:
    dtype = np.dtype(name)
    assert getattr(mnp, name).dtype == dtype and mnp.finfo(name).bits in (4, 8)
    with np.errstate(all="ignore"):
        expected = VALUES.astype(dtype)
    for x in (mnp.asarray(VALUES).astype(name), mj.jit(lambda v: v.astype(name))(VALUES), mnp.array(VALUES, dtype=name)):
        assert x.dtype == dtype
        if name != "float4_e2m1fn":  # of NaN and infinity, which it does not have, XLA's and NumPy's make different numbers
            np.testing.assert_array_equal(np.asarray(x).astype(np.float32), expected.astype(np.float32))
    x = mnp.asarray(small(name))
    np.testing.assert_array_equal(np.asarray(x.astype(np.float32)), small(name).astype(np.float32))
    np.testing.assert_array_equal(np.asarray(mj.device_put(np.asarray(x))), small(name))
    assert mnp.zeros((0, 3), name).shape == (0, 3) and repr(mnp.asarray(small(name, (2,)))).endswith(f"dtype={name})")
    assert mj.jit(lambda v: v)(x).astype(np.float32).sum() == small(name).astype(np.float32).sum()


@pytest.mark.parametrize("name", NAMES)
def test_promotion(name: str) -> None:
    x = mnp.asarray(small(name))
    for y in (x + 1, x * 1.5, x + np.int8(1), x + x, mnp.where(x == x, x, x), x * np.True_):
        assert y.dtype == np.dtype(name)
    for other in (np.float32(1) * mnp.ones((), np.float32), mnp.ones((), "bfloat16"), mnp.ones((), NAMES[NAMES.index(name) - 1])):
        with pytest.raises(mj.dtypes.TypePromotionError if hasattr(mj.dtypes, "TypePromotionError") else TypeError):
            x + other


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(8, 4), (5, 3), (1, 1), (0, 4)])
def test_ops_on_several_devices_give_what_one_gives(name: str, shape: tuple[int, ...], mesh: Any) -> None:
    x = small(name, shape)
    fs = {
        "elementwise": lambda v: v * v + v,
        "shape": lambda v: mnp.concatenate([v.T, v.T], 1).reshape(-1)[::-1],
        "choice": lambda v: mnp.where(v > v.astype(np.float32).mean().astype(v.dtype), v, mnp.full_like(v, 2)),
        "maximum": lambda v: v.max(0) if v.shape[0] else v,
        "sort": lambda v: mnp.sort(v, 0),
        "product": lambda v: (v.astype(np.float32) @ v.astype(np.float32).T).astype(v.dtype),
        "window": lambda v: lax.pad(v, np.ones((), v.dtype), [(1, 1, 0), (0, 2, 0)]),
        "gather": lambda v: v[mnp.array([0, 0])] if v.shape[0] else v,
        "sum": lambda v: v.astype(np.float32).sum(1).astype(v.dtype),
        "negative": lambda v: -v,
        "update": lambda v: v.at[0].set(np.ones((), v.dtype)) if v.shape[0] else v,
    }
    every = mj.jit(lambda v: {what: f(v) for what, f in fs.items()})
    expected = every(x)
    for spec in (P("x"), P("y", "x"), P(None, ("x", "y"))):
        results = every(mj.device_put(x, NamedSharding(mesh, spec)))
        for what, result in results.items():
            assert result.dtype == np.dtype(name), what
            np.testing.assert_array_equal(np.asarray(result).astype(np.float32), np.asarray(expected[what]).astype(np.float32), what)


@pytest.mark.parametrize("name", NAMES)
def test_sums_among_devices(name: str, mesh: Any) -> None:
    x = np.zeros((8, 3), np.float32)
    x[[0, 3, 6]] = np.eye(3)
    x = x.astype(name)
    there = mj.device_put(x, NamedSharding(mesh, P("x")))
    for f in (lambda v: v.sum(0), lambda v: v.sum(), lambda v: v.max(0), lambda v: v.min(0), lambda v: mnp.cumsum(v, 0)):
        expected = np.asarray(mj.jit(f)(x)).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(mj.jit(f)(there)).astype(np.float32), expected)
    gathered = mj.jit(lambda v: v * v, out_shardings=NamedSharding(mesh, P()))(there)
    np.testing.assert_array_equal(np.asarray(gathered), x)
    moved = mj.jit(lambda v: v + v, out_shardings=NamedSharding(mesh, P(None, "y")))(there)
    np.testing.assert_array_equal(np.asarray(moved).astype(np.float32), 2 * x.astype(np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_loops_and_batches(name: str) -> None:
    x = small(name)
    f = lambda v: (v * v).astype(np.float32).sum()  # noqa: E731
    np.testing.assert_array_equal(np.asarray(mj.grad(f)(x)).astype(np.float32), np.asarray(x + x).astype(np.float32))
    quantized = mj.grad(lambda v: v.astype(name).astype(np.float32).sum())(np.ones(2, np.float32))
    np.testing.assert_array_equal(quantized, [1, 1])
    np.testing.assert_array_equal(np.asarray(mj.vmap(lambda v: v * v)(x)), np.asarray(mj.jit(lambda v: v * v)(x)))
    carried, kept = lax.scan(lambda c, v: (mnp.maximum(c, v), v * v), x[0], x)
    np.testing.assert_array_equal(np.asarray(carried), x.max(0))
    assert kept.dtype == np.dtype(name)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e3m4"])
def test_a_quantized_layer(name: str, mesh: Any) -> None:
    x, w = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32), np.random.default_rng(1).normal(size=(16, 8)).astype(np.float32)

    def layer(x: Any, w: Any) -> Any:
        scales = mnp.abs(x).max() / float(ml_dtypes.finfo(name).max), mnp.abs(w).max() / float(ml_dtypes.finfo(name).max)
        a, b = ((v / s).astype(name) for v, s in zip((x, w), scales, strict=True))
        product = lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=np.float32)
        return nn.relu(product * scales[0] * scales[1])

    one = mj.jit(layer)(x, w)
    many = mj.jit(layer)(mj.device_put(x, NamedSharding(mesh, P("x", "y"))), mj.device_put(w, NamedSharding(mesh, P("y"))))
    np.testing.assert_allclose(one, np.maximum(x @ w, 0), atol=0.9)
    np.testing.assert_allclose(many, one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_bits_can_be_read(name: str) -> None:
    if np.dtype(name) == np.dtype("float4_e2m1fn"):
        pytest.skip("its bits are an integer of 4 bits, of which there are no arrays")
    x = small(name)
    bits = lax.bitcast_convert_type(x, np.uint8)
    np.testing.assert_array_equal(np.asarray(bits), x.view(np.uint8))
    np.testing.assert_array_equal(np.asarray(lax.bitcast_convert_type(bits, name)), x)


@pytest.mark.parametrize(("name", "size"), [("float4_e2m1fn", 0.1), ("float8_e4m3fn", 200.0), ("float16", 40000.0)])
def test_sums_are_finished_before_a_conversion_to_a_smaller_range(name: str, size: float, mesh: Any) -> None:
    """Each device's addend would overflow there, or vanish."""
    x = np.full((8, 2), size, np.float32)
    x[1::2] *= -1 if size > 1 else 1
    x[0] += 1
    there = mj.device_put(x, NamedSharding(mesh, P("x")))
    f = mj.jit(lambda v: v.sum(0).astype(name))
    np.testing.assert_array_equal(np.asarray(f(there)).astype(np.float32), x.sum(0).astype(name).astype(np.float32))
    assert "tensor<2xf32>" in f.lower(there).as_text().split("all_reduce", 1)[1]


def test_sums_flow_through_a_conversion_that_keeps_the_range(mesh: Any) -> None:
    x = mj.device_put(np.ones((8, 2), np.float32), NamedSharding(mesh, P("x")))
    text = mj.jit(lambda v: v.sum(0).astype("bfloat16")).lower(x).as_text()
    assert text.index("stablehlo.convert") < text.index("all_reduce")  # half the bytes


_OF_WEIGHTS = [("float16", "float16"), ("bfloat16", "float32"), ("int32", "float16"), ("float32", "float32")]


@pytest.mark.parametrize(("weights", "result"), _OF_WEIGHTS)
def test_weighted_quantiles_have_the_dtype_that_values_and_weights_promote_to(weights: str, result: str) -> None:
    x, w = np.array([3, 1, 2, 0], np.float16), np.array([1, 1, 0, 0]).astype(mnp.dtype(weights))
    for wrap in (lambda f: f, mj.jit):
        value = wrap(lambda x, w: mnp.nanquantile(x, 0.75, weights=w, method="inverted_cdf"))(x, w)
        assert (value.dtype.name, float(value)) == (result, 3.0)


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf"])
@pytest.mark.parametrize("dtype", [np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)])
def test_quantiles_of_16_bits_find_their_places_in_32(dtype: np.dtype[Any], method: str) -> None:
    for shape in ((3, 5), (2, 3000)):
        x = np.random.default_rng(0).normal(size=shape).astype(dtype)
        holes = np.where(np.arange(shape[-1]) == 1, np.nan, x).astype(dtype)
        for name, share in (("quantile", 0.37), ("percentile", 37.0), ("percentile", dtype.type(37))):
            for values, function in ((x, name), (holes, "nan" + name)):
                found = getattr(mnp, function)(values, share, axis=-1, method=method)
                wanted = getattr(np, function)(values.astype(np.float64), float(share), axis=-1, method=method)
                assert found.dtype == dtype
                np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=2 * float(mnp.finfo(dtype).eps), atol=1e-4)


def test_medians_of_large_16_bit_floats_do_not_overflow() -> None:
    x = np.array([60000, 60064], np.float16)
    assert float(mnp.median(x)) == float(mnp.nanmedian(x)) == 60032


@pytest.mark.parametrize("norm", [None, "ortho"])
@pytest.mark.parametrize("name", ["dct", "idct", "dctn", "idctn"])
def test_cosine_transforms_of_16_bits_are_of_32(name: str, norm: str | None) -> None:
    for dtype in (ml_dtypes.bfloat16, np.float16):
        x = np.random.default_rng(0).normal(size=(3, 5)).astype(dtype)
        for kind in (2, 3):
            found = getattr(fft, name)(x, type=kind, norm=norm)
            assert found.dtype == np.float32
            wanted = getattr(scipy_fft, name)(x.astype(np.float64), type=kind, norm=norm)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_kinds_of_dtypes_are_among_kinds():
    small = [*SMALL_FLOATS, np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e8m0fnu)]
    assert all(mnp.issubdtype(d, k) for d in small for k in (np.floating, np.inexact, np.number, np.generic))
    assert not any(mnp.issubdtype(d, k) for d in small for k in (np.integer, np.complexfloating, np.float16))
    kinds = [np.generic, np.number, np.inexact, np.floating, np.integer, np.signedinteger, np.complexfloating, np.character]
    for a in kinds:
        for b in kinds:
            assert mnp.issubdtype(a, b) == np.issubdtype(a, b), (a, b)
