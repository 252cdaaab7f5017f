"""float8_e8m0fnu, powers of 2 without a zero, and products of numbers with such a scale for every block, beside JAX's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, nn, numpy as mnp
from meshjit.nn.scaling import quantized
from meshjit.sharding import NamedSharding, PartitionSpec as P

SCALE = np.dtype("float8_e8m0fnu")


@pytest.fixture
def mesh() -> Any:
    return mj.make_mesh((2, 2), ("x", "y"), axis_types=(mj.sharding.AxisType.Auto,) * 2)


def powers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    return 2.0 ** np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def test_arrays_of_scales() -> None:
    x = mnp.array([1.5, 2, 3, -1, 300], SCALE)
    assert x.dtype == SCALE == mnp.float8_e8m0fnu.dtype and repr(x) == "Array([2, 2, 4, nan, 256], dtype=float8_e8m0fnu)"
    np.testing.assert_array_equal(x.view(np.uint8), [128, 128, 129, 255, 135])
    np.testing.assert_array_equal(np.asarray(mnp.zeros(2, SCALE)).astype(np.float32), [np.nan, np.nan])
    np.testing.assert_array_equal((x * x + 1).astype(np.float32), [4, 4, 16, np.nan, 65536])
    assert (x + 1.5).dtype == (x * np.int8(2)).dtype == SCALE and mnp.issubdtype(SCALE, np.floating)
    with pytest.raises(mj.dtypes.TypePromotionError):
        x + mnp.ones(5)
    with pytest.raises(TypeError, match=r"and: takes bits operands, was given f8e8m0fnu\[5\]"):
        x & x


@pytest.mark.parametrize(("shape", "spec"), [((8, 4), P("x")), ((5, 3), P("y", "x")), ((0, 4), P("x")), ((3, 7), P(None, ("x", "y")))])
def test_scales_on_several_devices(shape: tuple[int, ...], spec: P, mesh: Any) -> None:
    values = powers(shape)
    there = mj.device_put(values.astype(SCALE), NamedSharding(mesh, spec))
    functions: dict[str, tuple[Any, Any]] = {
        "places": (lambda v: mnp.roll(mnp.concatenate([v.T, v.T], 1), 1, 0), lambda v: np.roll(np.concatenate([v.T, v.T], 1), 1, 0)),
        "flat": (lambda v: v.reshape(-1)[::-1], lambda v: v.reshape(-1)[::-1]),
        "greatest": (lambda v: mnp.sort(v, 0), lambda v: np.sort(v, 0)),
        "product": (lambda v: v * v, lambda v: v * v),
        "looked up": (lambda v: v[mnp.array([-1, 0])] if v.shape[0] else v, lambda v: v[[-1, 0]] if v.shape[0] else v),
        "slice": (lambda v: lax.dynamic_slice_in_dim(v, 1, 1, 1), lambda v: v[:, 1:2]),
        "set": (lambda v: v.at[:, 0].set(2), lambda v: np.concatenate([np.full_like(v[:, :1], 2), v[:, 1:]], 1)),
        "sum": (lambda v: v.astype(np.float32).sum(1), lambda v: v.sum(1)),
    }
    results = mj.jit(lambda v: {name: f(v) for name, (f, _) in functions.items()})(there)
    for name, (_, f) in functions.items():
        np.testing.assert_array_equal(np.asarray(results[name]).astype(np.float32), f(values), name)
        assert results[name].dtype == (np.float32 if name == "sum" else SCALE)
    ones = mj.device_put(np.full((4, 2), 0.25).astype(SCALE), NamedSharding(mesh, P("x")))
    assert float(mj.jit(lambda v: v.sum())(ones)) == 2.0  # no device begins with a NaN
    last, _ = lax.scan(lambda c, row: (c * row, None), mnp.full((2,), 1, SCALE), ones)
    np.testing.assert_array_equal(np.asarray(last).astype(np.float32), [2.0**-8] * 2)


def test_scaled_dot(mesh: Any) -> None:
    a, b = powers((4, 64), 1), powers((64, 6), 2)
    sa, sb = powers((4, 2), 3), powers((4, 6), 4)
    exact = (a * sa.repeat(32, 1)) @ (b * sb.repeat(16, 0))
    operands = a.astype("float8_e4m3fn"), b.astype("float8_e4m3fn"), sa.astype(SCALE), sb.astype(SCALE)

    def f(a: Any, b: Any, sa: Any, sb: Any, **more: Any) -> Any:
        return lax.scaled_dot(a, b, lhs_scale=sa, rhs_scale=sb, **more)

    assert f(*operands).dtype == mnp.bfloat16
    wide = mj.jit(lambda *xs: f(*xs, preferred_element_type=np.float32))
    np.testing.assert_allclose(wide(*operands), exact, rtol=1e-6)
    placed = [mj.device_put(x, NamedSharding(mesh, s)) for x, s in zip(operands, (P("x", "y"), P("y"), P("x"), P()), strict=True)]
    np.testing.assert_allclose(wide(*placed), exact, rtol=1e-6)
    batched = mj.vmap(lambda x: f(x, *operands[1:], preferred_element_type=np.float32))(np.stack([operands[0]] * 2))
    np.testing.assert_allclose(batched, np.stack([exact] * 2), rtol=1e-6)
    three = [np.stack([x] * 2) for x in operands]
    np.testing.assert_allclose(f(three[0], three[1], three[2], three[3], preferred_element_type=np.float32)[1], exact, rtol=1e-6)
    assert lax.scaled_dot(a.astype("int4"), b.astype("bfloat16"), lhs_scale=sa.astype("bfloat16")).dtype == mnp.bfloat16
    for shape, text in (
        ((4, 3), "LHS contracting dim 1 of size 64 must be divisible by its scale's dim size 3."),
        ((3, 2), "LHS dim 0 of size 4 does not match scale dim size 3."),
        ((4, 64), r"The ratio of LHS contracting dim 1 to its scale's dim size \(1\) must be at least 2."),
        ((4,), "operands and scales need one rank of at least 2, got ranks 2, 2, 1"),
    ):
        with pytest.raises(TypeError, match=text):
            lax.scaled_dot(a, b, lhs_scale=np.ones(shape, np.float32))


def test_scaled_matmul(mesh: Any) -> None:
    a, b, sa, sb = powers((2, 4, 64), 1), powers((2, 5, 64), 2), powers((2, 4, 2), 3), powers((2, 5, 4), 4)
    exact = np.einsum("bmk,bnk->bmn", a * sa.repeat(32, 2), b * sb.repeat(16, 2))
    with pytest.raises(ValueError, match="requires scales to have matching batch"):
        nn.scaled_matmul(a, b, sa, sb)
    sb = sb[..., ::2]
    exact = np.einsum("bmk,bnk->bmn", a * sa.repeat(32, 2), b * sb.repeat(32, 2))
    operands = [a.astype("float8_e5m2"), b.astype("float8_e5m2"), sa.astype(SCALE), sb.astype(SCALE)]
    placed = [mj.device_put(x, NamedSharding(mesh, P("x", None, "y"))) for x in operands]
    for each in (operands, placed):
        np.testing.assert_allclose(mj.jit(nn.scaled_matmul)(*each), exact, rtol=1e-6)
    assert nn.scaled_matmul(*operands, preferred_element_type=mnp.bfloat16).dtype == mnp.bfloat16
    with pytest.raises(ValueError, match="requires all inputs to be 3-dimensional"):
        nn.scaled_matmul(a[0], b[0], sa[0], sb[0])
    with pytest.raises(ValueError, match="requires inputs a and b to have matching batch"):
        nn.scaled_matmul(a, b[..., :32], sa, sb)


NUMBERS = (((2,), (1,)), ((0,), (0,)))
X = np.random.default_rng(0).normal(size=(2, 32, 64)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(2, 64, 32)).astype(np.float32)


# JAX's scales of X[0, 0], and its numbers X[0, 0, :8], by its function that quantizes.
QUANTIZED = {
    "mxfp8": ([0.0078125, 0.0078125], [16, -16, 80, 13, -72, 48, 160, 120]),
    "nvfp4": ([0.375, 0.234375, 0.3125, 0.3125], [0.5, -0.5, 1.5, 0.5, -1.5, 1, 3, 3]),
}


@pytest.mark.parametrize("mode", ["mxfp8", "nvfp4"])
def test_quantized_products(mode: Any, mesh: Any) -> None:
    config = nn.get_scaled_dot_general_config(mode)
    numbers, scales = quantized(X, config)
    np.testing.assert_array_equal(np.asarray(scales).astype(np.float32)[0, 0], QUANTIZED[mode][0])
    np.testing.assert_array_equal(np.asarray(numbers).astype(np.float32)[0, 0, :8], QUANTIZED[mode][1])

    def f(x: Any, y: Any) -> Any:
        return nn.scaled_dot_general(x, y, NUMBERS, configs=[nn.get_scaled_dot_general_config(mode)] * 3)

    exact = X @ Y
    near = {"mxfp8": 0.04, "nvfp4": 0.15}[mode] * np.abs(exact).std()
    one = mj.jit(f)(X, Y)
    assert one.dtype == np.float32 and np.abs(one - exact).std() < near
    placed = mj.device_put(X, NamedSharding(mesh, P(None, "x", "y"))), mj.device_put(Y, NamedSharding(mesh, P(None, "y")))
    np.testing.assert_allclose(mj.jit(f)(*placed), one, rtol=1e-5, atol=1e-4)
    dx, dy = mj.jit(mj.grad(lambda x, y: f(x, y).sum(), (0, 1)))(X, Y)
    np.testing.assert_allclose(dx, np.ones((2, 32, 32)) @ Y.swapaxes(1, 2), atol=1)
    np.testing.assert_allclose(dy, X.swapaxes(1, 2) @ np.ones((2, 32, 32)), atol=1)
    assert f(X.astype("bfloat16"), Y.astype("bfloat16")).dtype == np.float32
    free = nn.scaled_dot_general(X[0], Y[0], (((1,), (0,)), ((), ())), configs=[config] * 3, preferred_element_type=mnp.bfloat16)
    assert free.shape == (32, 32) and free.dtype == mnp.bfloat16
    with pytest.raises(ValueError, match="50 elements are contracted, no multiple of (mxfp8|nvfp4)'s blocks"):
        f(X[..., :50], Y[:, :50])


def test_configurations() -> None:
    config = nn.get_scaled_dot_general_config("nvfp4", np.array([0.5], np.float32))
    assert (config.block_size, config.global_scale.tolist(), config.infer_only) == (16, [0.5], False)
    half = nn.scaled_dot_general(X, Y, NUMBERS, configs=[config] * 3)
    whole = nn.scaled_dot_general(X, Y, NUMBERS, configs=[nn.get_scaled_dot_general_config("nvfp4")] * 3)
    np.testing.assert_array_equal(half, whole)
    assert nn.scaled_dot_general(X, Y, NUMBERS).shape == (2, 32, 32)
    zeros = nn.scaled_dot_general(mnp.zeros((1, 2, 32)), mnp.zeros((1, 32, 2)), NUMBERS, configs=[config] * 3)
    np.testing.assert_array_equal(zeros, np.zeros((1, 2, 2)))
    with pytest.raises(ValueError, match="Unsupported mode: foo"):
        nn.get_scaled_dot_general_config("foo")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="Only support preferred_element_type in"):
        nn.scaled_dot_general(X, Y, NUMBERS, np.int32)
