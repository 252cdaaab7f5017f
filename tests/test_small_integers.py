"""Integers of 2 and 4 bits: stored, moved and computed with as JAX does where XLA lets it, on one device and on several."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, numpy as mnp
from meshjit.core.parser import parse_program
from meshjit.core.types import SMALL_INTEGERS, bits_of
from meshjit.sharding import NamedSharding, PartitionSpec as P

NAMES = [dtype.name for dtype in SMALL_INTEGERS]
PLACED = [((8, 4), P("x")), ((5, 3), P("y", "x")), ((1, 1), P("x")), ((0, 4), P(None, "x")), ((3, 7), P(None, ("x", "y")))]


@pytest.fixture
def mesh() -> Any:
    return mj.make_mesh((4, 2), ("x", "y"), axis_types=(mj.sharding.AxisType.Auto,) * 2)


def limits(name: str) -> tuple[int, int]:
    info = ml_dtypes.iinfo(name)
    return int(info.min), int(info.max)


def numbers(name: str, shape: tuple[int, ...] = (8, 4), seed: int = 0) -> np.ndarray[Any, Any]:
    """Any numbers of the dtype, as int32."""
    low, high = limits(name)
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(np.int32)


def wrapped(values: Any, name: str) -> Any:
    """What is left of integers in so few bits."""
    low, high = limits(name)
    return (np.asarray(values) - low) % (high - low + 1) + low


def equal(got: Any, want: Any, name: str) -> None:
    assert got.dtype == np.dtype(name)
    np.testing.assert_array_equal(np.asarray(got).astype(np.int32), want)


@pytest.mark.parametrize("name", NAMES)
def test_arrays(name: str) -> None:
    dtype, (low, high) = getattr(mnp, name), limits(name)
    x = mnp.array([low, 0, 1, high], dtype=name)
    assert x.dtype == np.dtype(name) == dtype.dtype and x.itemsize == 1 and x.nbytes == 4
    assert repr(x) == f"Array([{low}, 0, 1, {high}], dtype={name})" and x.tolist() == [low, 0, 1, high]
    assert [5, 6, 7][x[2]] == 6 and x[3].item() == int(x[3]) == high
    equal(mj.device_put(np.asarray(x), mj.devices()[1]), [low, 0, 1, high], name)
    equal(mnp.arange(high + 1, dtype=name), np.arange(high + 1), name)
    equal(mnp.full((2,), high, name), [high, high], name)
    assert mnp.zeros((0, 3), name).shape == (0, 3)
    info = mnp.iinfo(name)
    assert (info.min, info.max, info.bits) == (low, high, bits_of(np.dtype(name))) == (low, high, mj.dtypes.itemsize_bits(name))
    assert mnp.issubdtype(name, np.integer) and mnp.issubdtype(name, np.signedinteger) == (low < 0)
    assert mnp.isdtype(np.dtype(name), "integral") and not mnp.issubdtype(name, np.inexact)


@pytest.mark.parametrize("name", NAMES)
def test_conversions(name: str) -> None:
    (low, high), many = limits(name), np.arange(-20, 20, dtype=np.int32)
    equal(mnp.asarray(many).astype(name), wrapped(many, name), name)
    equal(mj.jit(lambda v: v.astype(name))(many), wrapped(many, name), name)
    floats = np.array([-100, -3.5, -0.4, 0.6, 1.6, 200, np.nan], np.float32)
    equal(mnp.asarray(floats).astype(name), np.clip(np.trunc(np.nan_to_num(floats, nan=0)), low, high), name)
    x = mnp.asarray(wrapped(many, name)).astype(name)
    for other in (np.float32, "bfloat16", np.int8, np.int32, bool, *NAMES):
        want = wrapped(many, name).astype(bool) if other is bool else wrapped(many, name)
        want = wrapped(want, str(other)) if other in NAMES else want
        np.testing.assert_array_equal(np.asarray(x.astype(other)).astype(np.int32), want)


@pytest.mark.parametrize("name", NAMES)
def test_promotion(name: str) -> None:
    x = mnp.asarray(numbers(name)).astype(name)
    for y in (x + 1, x * np.True_, x + x, mnp.where(x > 0, x, 0), x.at[0].set(1), -x, x // (x | 1)):
        assert y.dtype == np.dtype(name)
    for other in (
        1.5,
        np.int8(1),
        mnp.ones((), np.float32),
        mnp.ones((), "bfloat16"),
        mnp.ones((), NAMES[NAMES.index(name) - 1]),
    ):
        with pytest.raises(mj.dtypes.TypePromotionError):
            x + other
    assert (x / x).dtype == x.mean().dtype == mnp.sqrt(x).dtype == np.float32
    assert x.sum().dtype == (np.int32 if limits(name)[0] < 0 else np.uint32)


def functions(name: str) -> dict[str, Any]:
    """A function of an array of the dtype → what it is of the same numbers as int32, with results as wide as they get."""
    bits, unsigned = bits_of(np.dtype(name)), limits(name)[0] == 0
    few = lambda v: v & (2**bits - 1)  # noqa: E731
    return {
        "sum": (lambda v: v * v + v - 3, lambda v: v * v + v - 3),
        "quotient": (lambda v: v // (v | 1), lambda v: v // np.asarray(wrapped(v | 1, name))),
        "bits": (lambda v: (v & 1) ^ ~v | (v << 1), lambda v: (v & 1) ^ ~v | (v << 1)),
        "shifted": (lambda v: v >> 1, lambda v: few(v) >> 1 if unsigned else v >> 1),
        "logical": (lambda v: lax.shift_right_logical(v, mnp.ones_like(v)), lambda v: few(v) >> 1),
        "ones": (lax.population_count, lambda v: np.vectorize(lambda n: int(n).bit_count(), otypes=[int])(few(v))),
        "zeros": (lax.clz, lambda v: np.vectorize(lambda n: bits - int(n).bit_length(), otypes=[int])(few(v))),
        "order": (lambda v: mnp.sort(v, 0)[::-1], lambda v: np.sort(v, 0)[::-1]),
        "places": (lambda v: mnp.roll(mnp.concatenate([v.T, v.T], 1), 1, 0), lambda v: np.roll(np.concatenate([v.T, v.T], 1), 1, 0)),
        "flat": (lambda v: mnp.pad(v.reshape(-1), (1, 2)), lambda v: np.pad(v.reshape(-1), (1, 2))),
        "cumulative": (lambda v: lax.cumsum(v, 0), lambda v: np.cumsum(v, 0)),
        "greatest": (lambda v: lax.reduce_max(v, (0,)), lambda v: v.max(0, initial=limits(name)[0])),
        "least": (lambda v: lax.reduce_min(v, (1,)), lambda v: v.min(1, initial=limits(name)[1])),
        "product": (lambda v: v.T @ v, lambda v: v.T @ v),
        "looked up": (lambda v: v[mnp.array([0, -1])] if v.shape[0] else v, lambda v: v[[0, -1]] if v.shape[0] else v),
        "added": (lambda v: v.at[mnp.array([0, 0])].add(1) if v.shape[0] else v, lambda v: v + (np.arange(len(v)) == 0)[:, None] * 2),
        "windows": (
            lambda v: lax.reduce_window(v, np.asarray(limits(name)[0], name), lax.max, (2, 1), (1, 1), ((1, 1), (0, 0))),
            lambda v: np.maximum(*[np.pad(v, p, constant_values=limits(name)[0]) for p in (((1, 0), (0, 0)), ((0, 1), (0, 0)))]),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("shape", "spec"), PLACED)
def test_ops_on_one_device_and_on_several(name: str, shape: tuple[int, ...], spec: P, mesh: Any) -> None:
    values, both = numbers(name, shape), functions(name)
    x = values.astype(np.int8).astype(name)
    every = mj.jit(lambda v: {what: f(v) for what, (f, _) in both.items()})
    for there in (x, mj.device_put(x, NamedSharding(mesh, spec))):
        results = every(there)
        for what, (_, f) in both.items():
            assert results[what].dtype == np.dtype(name), what
            np.testing.assert_array_equal(np.asarray(results[what]).astype(np.int32), wrapped(f(values), name), what)


@pytest.mark.parametrize("name", NAMES)
def test_sums_and_places_of_the_greatest(name: str, mesh: Any) -> None:
    values = numbers(name, (7, 3))
    x = mj.device_put(values.astype(np.int8).astype(name), NamedSharding(mesh, P("x")))
    f = mj.jit(lambda v: (v.sum(0), v.mean(), mnp.argmax(v, 0), mnp.cumsum(v, 0), lax.top_k(v.T, 2)[0], mnp.unique(v, size=3)))
    total, mean, place, running, top, unique = f(x)
    np.testing.assert_array_equal(total, values.sum(0))
    np.testing.assert_allclose(mean, values.mean(), rtol=1e-6)
    np.testing.assert_array_equal(place, values.argmax(0))
    equal(running, wrapped(np.cumsum(values, 0), name), name)
    equal(top, -np.sort(-values.T)[:, :2], name)
    assert unique.dtype == np.dtype(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_as_another_dtype(name: str) -> None:
    bits = bits_of(np.dtype(name))
    values = numbers(name, (3, 8 // bits))
    x = mnp.asarray(values).astype(name)
    packed = lax.bitcast_convert_type(x, np.uint8)
    np.testing.assert_array_equal(packed, ((values & (2**bits - 1)) << bits * np.arange(8 // bits)).sum(1))  # the first is lowest
    equal(lax.bitcast_convert_type(packed, name), values, name)
    np.testing.assert_array_equal(x.view(np.uint8)[:, 0], packed)
    equal(packed.view(name), values.reshape(-1), name)
    other = name[1:] if name[0] == "u" else f"u{name}"
    equal(lax.bitcast_convert_type(x, other), wrapped(values, other), other)
    with pytest.raises(ValueError, match=f"uint8 takes {8 // bits} elements of {name}"):
        lax.bitcast_convert_type(x[:, :1], np.uint8)


def test_float4_and_int4_share_their_bits() -> None:
    x = mnp.array([0, 0.5, 1, -6], "float4_e2m1fn")
    equal(lax.bitcast_convert_type(x, "uint4"), [0, 1, 2, 15], "uint4")
    np.testing.assert_array_equal(x.view(np.uint8), [0x10, 0xF2])


@pytest.mark.parametrize("name", NAMES)
def test_loops_branches_and_batches(name: str, mesh: Any) -> None:
    values = numbers(name, (6, 3))
    x = values.astype(np.int8).astype(name)
    for there in (x, mj.device_put(x, NamedSharding(mesh, P("x", "y")))):
        last, kept = mj.jit(lambda v: lax.scan(lambda c, row: (c + row, c * row), v[0], v))(there)
        equal(last, wrapped(values[0] + values.sum(0), name), name)
        assert kept.dtype == np.dtype(name) and kept.shape == (6, 3)
        equal(mj.vmap(lambda row: row * row[0])(there), wrapped(values * values[:, :1], name), name)
        chosen = mj.jit(lambda v: lax.cond(v[0, 0] > 0, lambda: v + v, lambda: -v))(there)
        equal(chosen, wrapped(values + values if values[0, 0] > 0 else -values, name), name)
        equal(lax.fori_loop(0, 3, lambda i, v: v + i.astype(v.dtype), there), wrapped(values + 3, name), name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("activations", ["bfloat16", "float32"])
def test_quantized_weights(name: str, activations: str, mesh: Any) -> None:
    low, high = limits(name)
    full = np.random.default_rng(1).normal(size=(12, 6)).astype(np.float32)
    scale = np.abs(full).max(0) / high
    weights = np.clip(np.round(full / scale), low, high).astype(np.int8).astype(name)
    x = numbers("int4", (5, 12)).astype(activations)

    def layer(w: Any, x: Any) -> Any:
        return mnp.matmul(x, w, preferred_element_type=np.float32) * scale, x @ w.astype(x.dtype), lax.dot(x, w)

    products = x.astype(np.float32) @ weights.astype(np.float32)
    for spec in (P(), P("x"), P("y", "x")):
        scaled, product, mixed = mj.jit(layer)(mj.device_put(weights, NamedSharding(mesh, spec)), x)
        np.testing.assert_allclose(scaled, products * scale, rtol=1e-5, atol=1e-5)
        assert product.dtype == mixed.dtype == np.dtype(activations)
        np.testing.assert_allclose(np.asarray(mixed, np.float32), products, rtol=1e-2, atol=0.5)
    gradient = mj.grad(lambda x: layer(weights, x)[0].sum())(x)
    np.testing.assert_allclose(
        np.asarray(gradient, np.float32), np.tile(weights.astype(np.float32) @ scale, (5, 1)), rtol=2e-2, atol=2e-2
    )
    with pytest.raises(mj.dtypes.TypePromotionError):
        mnp.matmul(x, weights)


@pytest.mark.parametrize(
    ("left", "right", "preferred", "result"),
    [("int4", "uint4", None, "int4"), ("int4", "uint4", "int32", "int32"), ("int2", "int8", None, "int8"), ("int4", "int4", "int4", "int4"),
     ("uint2", "bool", None, "uint2"), ("int4", "complex64", None, "complex64"), ("float16", "bfloat16", None, "bfloat16")],
)  # fmt: skip
def test_products_of_two_dtypes(left: str, right: str, preferred: Any, result: str) -> None:
    a, b = np.array([[1, 0], [1, 1]]).astype(left), np.array([[1, 1], [0, 0]]).astype(right)
    product = lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=preferred)
    assert product.dtype == np.dtype(result)
    np.testing.assert_array_equal(np.asarray(product).astype(np.complex64), np.ones((2, 2)))


@pytest.mark.parametrize("name", NAMES)
def test_random_integers(name: str) -> None:
    """JAX's numbers: drawn in 32 bits, and narrowed."""
    low, high = limits(name)
    want = {"int4": [3, -5, 5, 2, 4, 0, 7, 4], "uint4": [11, 3, 13, 10, 12, 8, 15, 12], "int2": [1, 1, -1, 0, -2, -2, 1, -2],
            "uint2": [3, 3, 1, 2, 0, 0, 3, 0]}  # fmt: skip
    assert mj.random.randint(mj.random.key(3), (12,), low, high + 1, dtype=name).tolist()[:8] == want[name]


def test_programs_show_the_bytes_and_read_back() -> None:
    traced = mj.jit(lambda x: x + x).trace(mj.ShapeDtypeStruct((3,), "int4"))
    text = str(traced.program)
    assert "i4[3]" in text and "dtype=dtype(i8)" in text and "add" in text
    assert str(parse_program(text)) == text


def test_a_constraint_names_the_bits() -> None:
    with pytest.raises(TypeError, match="indices must be integers"):
        mnp.arange(4)[mnp.ones(1, np.float32)]
    assert mnp.arange(10)[mnp.array([1, -1], "int2")].tolist() == [1, 9]
    with pytest.raises(BufferError, match="S4 has no DLPack equivalent"):
        np.from_dlpack(mnp.ones(3, "int4"))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ("int2", "uint2", "int4", "uint4", "int8"))
def test_upper_halves_of_products(name: str) -> None:
    """Of as many bits as the dtype has."""
    low, high = limits(name)
    values = np.arange(low, high + 1)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    bits = int(name.lstrip("uint"))
    result = lax.mulhi(mnp.asarray(x.astype(name)), mnp.asarray(y.astype(name)))
    assert result.dtype == name
    np.testing.assert_array_equal(np.asarray(result).astype(int), (x * y) >> bits)
