"""Views of arrays as other dtypes, against NumPy's; dtypes by name that make arrays; what counts as an array."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

GENERATOR = np.random.default_rng(3)
DTYPES = ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32", "complex64"]


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    if dtype == "bool":
        return GENERATOR.integers(0, 2, shape).astype(bool)
    size = np.dtype(dtype if dtype != "bfloat16" else ml_dtypes.bfloat16).itemsize
    raw = GENERATOR.integers(1, 50, (*shape[:-1], shape[-1] * size)).astype(np.uint8)
    return raw.view(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@pytest.mark.parametrize("source", DTYPES)
def test_views_are_numpys(source: str) -> None:
    for shape in ((3, 8), (8,), (0, 8), (2, 0)):
        values = numbers(shape, source)
        for target in ("int8", "uint16", "int32", "float32", "bfloat16", "complex64", None):
            kind = ml_dtypes.bfloat16 if target == "bfloat16" else target
            wanted = values.view(kind) if kind else values
            found = mnp.asarray(values).view(kind)
            assert found.shape == wanted.shape and found.dtype == wanted.dtype
            assert np.asarray(found).tobytes() == wanted.tobytes(), f"{source} {shape} as {target}"


def test_views_as_bool_and_of_scalars() -> None:
    np.testing.assert_array_equal(mnp.arange(3, dtype="uint8").view(bool), [False, True, True])
    assert mnp.asarray(np.float32(1)).view("int32") == 0x3F800000


def test_views_inside_of_functions_and_on_meshes() -> None:
    place = NamedSharding(Mesh(np.array(mj.devices()[:4]), ("x",)), P("x"))
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    found = mj.jit(lambda a: a.view("int8"))(mj.device_put(x, place))
    np.testing.assert_array_equal(found, x.view("int8"))
    assert found.sharding.is_equivalent_to(place, 2)
    np.testing.assert_array_equal(mj.vmap(lambda a: a.view("int16"))(x), x.view("int16"))


def test_views_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"view: the last dim of \(3,\) has 3 x 2 bytes, no multiple of the 4 of float32\n  at"):
        mnp.ones(3, "float16").view("float32")
    with pytest.raises(ValueError, match=r"an array of 0 dims has no last dim that could change\n  at .*\n  fix: x.reshape\(1\).view\(int8\)"):
        mnp.float32(1).view("int8")
    with pytest.raises(NotImplementedError, match="arrays are of one class"):
        mnp.ones(3).view("int32", type=np.ndarray)


def test_dtypes_make_arrays() -> None:
    for kind in (mnp.float32, mnp.int8, mnp.bfloat16, mnp.complex64, mnp.bool_, mnp.uint16):
        made = kind([1, 0])
        assert isinstance(made, mj.Array) and made.dtype == kind.dtype and made.shape == (2,) and not made.weak_type
        traced = mj.jit(lambda x, kind=kind: kind(x))(1)
        assert traced.dtype == kind.dtype
        assert kind == kind.dtype and kind == kind.dtype.type and np.dtype(kind) == kind.dtype
        assert {kind.dtype.type: 1}[kind] == 1 and pickle.loads(pickle.dumps(kind)) is kind
        assert np.zeros(2, kind).dtype == kind.dtype == mnp.zeros(2, kind).dtype
    assert mnp.float32 != mnp.int32 and mnp.float32 != "float32" and mnp.float32 != None  # noqa: E711
    assert repr(mnp.float32) == "<class 'meshjit.numpy.float32'>"
    assert isinstance(np.float32(1), mnp.float32)
    assert mnp.int_(3).dtype == np.int32 and mnp.finfo(mnp.bfloat16).bits == 16


def test_what_an_array_is() -> None:
    seen: list[bool] = []
    mj.jit(lambda x: seen.append(isinstance(x, mj.Array)) or x)(1.0)
    assert seen == [True]
    assert isinstance(mnp.ones(1), mj.Array) and isinstance(mj.random.key(0), mj.Array)
    assert not isinstance(np.ones(1), mj.Array) and not isinstance(1.0, mj.Array)
    assert issubclass(type(mnp.ones(1)), mj.Array) and not issubclass(np.ndarray, mj.Array)
    with pytest.raises(TypeError, match=r"it makes no arrays\n  fix: meshjit.numpy.asarray"):
        mj.Array([1])  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_subnormal_numbers_are_taken_apart_exactly(dtype: str) -> None:
    kind = mnp.dtype(dtype)
    info = ml_dtypes.finfo(kind)
    least = float(info.smallest_subnormal)
    values = np.array([least, -3 * least, info.smallest_normal - least, info.smallest_normal, 0, -0.0, np.inf, 0.3, -8]).astype(kind)
    expected = np.frexp(values.astype(np.float64))
    expected[1][6] = 0  # NumPy leaves that of infinity open
    mesh = Mesh(np.array(mj.devices()[:4]), ("x",))
    for wrap, x in ((lambda f: f, values), (mj.jit, mj.device_put(values, NamedSharding(mesh, P("x"))))):
        mantissa, exponent = wrap(mnp.frexp)(x)
        assert mantissa.dtype == kind and exponent.dtype == np.int32
        np.testing.assert_array_equal(np.asarray(mantissa).astype(np.float64), expected[0])
        np.testing.assert_array_equal(exponent, expected[1])
        np.testing.assert_array_equal(np.signbit(np.asarray(mantissa)), np.signbit(values))
    assert not np.isnan(np.asarray(mj.grad(lambda x: mnp.frexp(x)[0].astype(np.float32).sum())(values[:5]))).any()
