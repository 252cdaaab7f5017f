"""zeros_like, full_like and kin: shape, dtype and place of another array. And where new arrays are put that name a device."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from sharding.spec import ShardingError

pytestmark = pytest.mark.device

LIKE: dict[str, Any] = {
    "zeros_like": (mnp.zeros_like, 0),
    "ones_like": (mnp.ones_like, 1),
    "empty_like": (mnp.empty_like, 0),
    "full_like": (lambda x, **kwargs: mnp.full_like(x, 3, **kwargs), 3),
    "lax.full_like": (lambda x, dtype=None, shape=None, device=None: lax.full_like(x, 3, dtype, shape, device), 3),
}


def on(spec: P, *sizes: int) -> NamedSharding:
    devices = np.array(mj.devices()[: int(np.prod(sizes))]).reshape(sizes)
    return NamedSharding(Mesh(devices, ("x", "y")[: len(sizes)]), spec)


def places() -> dict[str, Any]:
    return {
        "a device": SingleDeviceSharding(mj.devices()[3]),
        "sharded": on(P("x"), 4),
        "two axes": on(P(("y", "x")), 2, 2),
        "partly replicated": on(P("y"), 2, 4),
        "replicated": on(P(), 4),
    }


@pytest.mark.parametrize("name", LIKE)
@pytest.mark.parametrize("place", places())
@pytest.mark.parametrize("n", [8, 7, 3, 0])
def test_it_lies_where_the_array_was_put(name, place, n):
    function, fill = LIKE[name]
    sharding = places()[place]
    x = mj.device_put(np.ones(n, np.float32), sharding)
    for made, dtype in ((function(x), np.float32), (function(x, dtype="int8"), np.int8), (function(x, shape=(n,)), np.float32)):
        assert made.sharding == sharding and made.committed and made.dtype == dtype and not made.weak_type
        np.testing.assert_array_equal(made, np.full(n, fill))
        assert [s.data.shape for s in made.addressable_shards] == [s.data.shape for s in x.addressable_shards]
    elsewhere = function(x, device=mj.devices()[5])
    assert elsewhere.devices() == {mj.devices()[5]} and elsewhere.committed
    again = function(x, device=on(P("x"), 3))
    assert again.sharding == on(P("x"), 3)
    np.testing.assert_array_equal(again, np.full(n, fill))


@pytest.mark.parametrize("name", LIKE)
def test_another_shape_lies_there_too_unless_the_array_is_sharded(name):
    function, fill = LIKE[name]
    for place, sharding in places().items():
        made = function(mj.device_put(np.ones(8, np.float32), sharding), shape=(2, 3))
        np.testing.assert_array_equal(made, np.full((2, 3), fill))
        if place in ("a device", "replicated"):
            assert made.sharding == sharding and made.committed
        else:
            assert not made.committed
    one = mj.device_put(np.ones(8, np.float32), on(P("x"), 1))
    assert function(one, shape=()).devices() == one.devices()


@pytest.mark.parametrize("name", LIKE)
def test_where_nobody_put_the_array_nobody_puts_this_one(name):
    function, fill = LIKE[name]
    for x in (mnp.arange(3.0), np.arange(3.0), 2.0, mj.ShapeDtypeStruct((3,), np.float32)):
        made = function(x)
        assert not made.committed and made.devices() == mnp.zeros(1).devices() and made.shape == np.shape(x)
    assert function(2.0).weak_type and function(mnp.asarray(2)).weak_type and not function(2.0, dtype="float32").weak_type
    with mj.default_device(mj.devices()[2]):
        assert function(np.arange(3.0)).devices() == {mj.devices()[2]}


@pytest.mark.parametrize("name", LIKE)
def test_a_shape_dtype_struct_says_where(name):
    function, fill = LIKE[name]
    made = function(mj.ShapeDtypeStruct((7,), np.int32, sharding=on(P("x"), 4)))
    assert made.sharding == on(P("x"), 4) and made.dtype == np.int32
    np.testing.assert_array_equal(made, np.full(7, fill))


def test_the_value_may_be_an_array_of_another_place() -> None:
    x = mj.device_put(np.ones((8, 4), np.float32), on(P("x", "y"), 4, 2))
    fills = [2, np.float32(2), mnp.asarray(2), mj.device_put(np.float32(2), mj.devices()[7]), mj.device_put(np.float32(2), on(P(), 2))]
    for fill in fills:
        made = mnp.full_like(x, fill)
        assert made.sharding == x.sharding and made.dtype == np.float32
        np.testing.assert_array_equal(made, np.full((8, 4), 2))
    np.testing.assert_array_equal(mnp.full_like(x, np.arange(4)), np.tile(np.arange(4), (8, 1)))
    with pytest.raises(ValueError, match=r"a value of shape \(3,\) cannot be broadcast to \(8, 4\)"):
        mnp.full_like(x, np.arange(3))


def test_inside_a_trace_the_program_says_where() -> None:
    x = mj.device_put(np.ones(8, np.float32), on(P("x"), 4))
    assert "device_put" not in mj.jit(lambda: mnp.zeros_like(x)).lower().as_text("meshjit")
    np.testing.assert_array_equal(mj.jit(mnp.ones_like)(x), np.ones(8))
    np.testing.assert_array_equal(mj.grad(lambda y: (y * mnp.ones_like(y)).sum())(x), np.ones(8))
    np.testing.assert_array_equal(mj.vmap(mnp.zeros_like)(x), np.zeros(8))
    assert mj.jit(partial(mnp.zeros_like, device=on(P("x"), 4)))(mnp.ones(8)).sharding == on(P("x"), 4)


@pytest.mark.parametrize("place", places())
def test_new_arrays_are_made_on_a_device_or_under_a_sharding(place):
    sharding = places()[place]
    where = mj.devices()[3] if place == "a device" else sharding
    for made, want in [
        (mnp.zeros(5, device=where), np.zeros(5)),
        (mnp.ones(5, "int8", device=where), np.ones(5)),
        (mnp.empty((5, 2), device=where), np.zeros((5, 2))),
        (mnp.full(5, 1j, device=where), np.full(5, 1j)),
        (mnp.full((2, 5), np.arange(5), device=on(P(), 4) if where is sharding else where), np.tile(np.arange(5), (2, 1))),
        (lax.full((5,), 2, sharding=where), np.full(5, 2)),
        (mnp.fft.fftfreq(5, device=where), np.fft.fftfreq(5)),
        (mnp.fft.rfftfreq(9, device=where), np.fft.rfftfreq(9)),
    ]:
        assert made.committed and made.devices() == (sharding.device_set if made.shape != (2, 5) else made.devices())
        np.testing.assert_allclose(made, want, rtol=1e-6)


def test_a_spec_that_does_not_fit_says_so() -> None:
    with pytest.raises(ShardingError, match='has 2 entries but the array has 1 dims'):
        mnp.zeros(4, device=on(P("x", None), 4))
    with pytest.raises(TypeError, match="neither a device nor a sharding"):
        mnp.zeros(4, device="cpu")


def test_python_integers_become_the_floats_asked_for() -> None:
    for dtype in (float, mnp.float32, mnp.bfloat16, mnp.complex64):
        assert complex(mnp.asarray(2**32, dtype)) == 2.0**32
    assert mnp.asarray([2**33, 1], float).tolist() == [2.0**33, 1.0]
    assert float(mnp.asarray(16777217, float)) == 16777216.0
    with pytest.raises(OverflowError, match="the integer 4294967296 does not fit int32"):
        mnp.asarray(2**32)


def test_new_dims_at_any_iterable_of_places() -> None:
    x = mnp.ones(3)
    places = (range(2), {0, 1}, np.array([0, 2]), range(0), np.int64(1))
    for axis, shape in zip(places, ((1, 1, 3), (1, 1, 3), (1, 3, 1), (3,), (3, 1)), strict=True):
        assert mnp.expand_dims(x, axis).shape == shape


@pytest.mark.parametrize("find", [mnp.flatnonzero, lambda x: mnp.where(x > 0)[0], lambda x: mnp.argwhere(x)[:, 0]])
@pytest.mark.parametrize("count", [0, 8])
def test_places_of_what_is_not_zero_are_where_somebody_put_the_array(find: Any, count: int) -> None:
    x = np.arange(count, dtype=np.int32) % 3
    device = mj.devices()[3]
    for place, spec in ((device, None), (on(P("x"), 4), P()), (on(P(), 4), P())):
        found = find(mj.device_put(x, place))
        assert found.committed and found.devices() == mj.device_put(x, place).devices()
        assert spec is None or found.sharding.is_fully_replicated
        assert found.tolist() == np.flatnonzero(x).tolist()
    assert not find(mnp.asarray(x)).committed


def test_places_of_what_is_not_zero_can_index_what_a_function_computes() -> None:
    x = mj.device_put(mnp.asarray([0.0, 2.0, 0.0, 3.0]), on(P("x"), 4))
    slope = mj.grad(lambda y: (y[mnp.nonzero(y)] ** 2).sum())(x)
    assert slope.tolist() == [0, 4, 0, 6] and slope.devices() == x.devices()
