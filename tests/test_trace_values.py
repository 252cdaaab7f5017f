"""What a traced value is to Python: a sequence with shape and dtype, and without elements or a place."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.errors import ConcretizationTypeError
from meshjit.sharding import SingleDeviceSharding

pytestmark = pytest.mark.device

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def seen(use: Callable[[Any], Any]) -> Any:
    found: list[Any] = []
    mj.jit(lambda x: found.append(use(x)) or x)(X)
    return found[0]


def test_sequences() -> None:
    assert seen(len) == 2
    assert seen(lambda x: [v.shape for v in reversed(x)]) == [(3,), (3,)]
    assert seen(lambda x: [v.shape for v in [*x]]) == [(3,), (3,)]
    np.testing.assert_array_equal(mj.jit(lambda x: mnp.stack(list(reversed(x))))(X), X[::-1])
    with pytest.raises(TypeError, match=r"len\(\) of Traced<f32\[\]>, which has no dims; computed at"):
        seen(lambda x: len(x[0, 0]))


@pytest.mark.parametrize("name", ["devices", "addressable_shards", "committed", "is_fully_replicated", "delete", "tobytes"])
def test_what_only_concrete_arrays_have(name: str) -> None:
    with pytest.raises(ConcretizationTypeError) as error:
        seen(lambda x: getattr(x, name))
    text = str(error.value)
    assert text.startswith(f"Traced<f32[2,3]> has no value while lambda is traced: .{name} was asked for at ")
    assert "fix: ask the result of the call; jit(f).lower(...).compile().output_shardings says where" in text
    with pytest.raises(AttributeError, match="'Tracer' object has no attribute 'foo'"):
        seen(lambda x: x.foo)
    assert seen(lambda x: hasattr(x, "foo")) is False


def test_pickling_axes_and_ranges() -> None:
    with pytest.raises(ConcretizationTypeError, match="it was pickled at"):
        seen(pickle.dumps)
    with pytest.raises(ConcretizationTypeError, match="it was used as an axis"):
        seen(lambda x: x.sum(axis=x[0, 0].astype(int)))
    with pytest.raises(ConcretizationTypeError, match="arange needs it to know how many there are"):
        seen(lambda x: mnp.arange(x[0, 0]))


def test_to_device_is_a_constraint() -> None:
    device = mj.devices()[1]
    for move in (lambda x, place: x.to_device(place), mj.device_put):
        assert mj.jit(lambda x, move=move: move(x, SingleDeviceSharding(device)) * 1)(X).devices() == {device}
    with pytest.raises(NotImplementedError, match="stream"):
        seen(lambda x: x.to_device(device, stream=1))


def test_masked_arrays_are_refused() -> None:
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    with pytest.raises(ValueError, match="argument x is a masked array, and arrays have no masks\n  fix: x.filled"):
        mj.jit(lambda x: x)(masked)
    for use in (mnp.asarray, mnp.sin, mj.device_put):
        with pytest.raises(ValueError, match="is a masked array, and arrays have no masks"):
            use(masked)


def test_traced_functions_can_be_called_and_values_have_types() -> None:
    traced = mj.jit(lambda x, n: x * n, static_argnums=1).trace(X, 2)
    for _ in range(2):
        np.testing.assert_array_equal(traced(X), 2 * X)
    assert str(mj.typeof(X)) == "float32[2,3]" == str(seen(mj.typeof)) and str(mj.typeof(1)) == "~int32[]"


def test_scalars_of_numpy_are_not_weak() -> None:
    x = mnp.ones(2, "bfloat16")
    for scalar in (np.float64(2), np.float32(2)):
        for found in (x * scalar, scalar * x, mj.jit(lambda a, s=scalar: a * s)(x), mj.jit(lambda a, b: a * b)(x, scalar)):
            assert found.dtype == np.float32 and not found.weak_type
    assert (x * 2.0).dtype == x.dtype and not mnp.asarray(np.complex128(1)).weak_type
    assert not mj.jit(lambda: np.float64(1))().weak_type and mj.jit(lambda: 1.0)().weak_type
    assert mnp.result_type(x, np.float64(1)) == np.float32


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="ShapeDtypeStruct: sharding is 'x' of type str\n  fix: use a NamedSharding"):
        mj.ShapeDtypeStruct((2,), np.float32, sharding="x")
    with pytest.raises(ValueError, match="ShapeDtypeStruct: dtype is None"):
        mj.ShapeDtypeStruct((2,), None)


def test_device_get_leaves_traced_values() -> None:
    np.testing.assert_array_equal(mj.jit(lambda x: mj.device_get({"a": x, "b": 1})["a"] * 2)(X), 2 * X)


def test_values_being_traced_have_all_methods_of_arrays() -> None:
    from meshjit.numpy.methods import _METHODS
    from meshjit.trace import Tracer

    assert all(callable(getattr(Tracer, name)) for name in _METHODS)
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    spread, trace = mj.jit(lambda x: (x.var(0), x.trace(1)))(x)
    np.testing.assert_allclose(np.asarray(spread), x.var(0))
    assert float(trace) == 6
