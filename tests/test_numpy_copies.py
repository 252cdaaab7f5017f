"""Copies have memory of their own: they outlive a deletion and a donation of what they were made from."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

COPIES = {
    "jnp.copy": mnp.copy,
    "jnp.array": mnp.array,
    "jnp.array of the same dtype": lambda x: mnp.array(x, x.dtype),
    "jnp.asarray(copy=True)": lambda x: mnp.asarray(x, copy=True),
    "jnp.astype(copy=True)": lambda x: mnp.astype(x, x.dtype, copy=True),
    "x.astype(copy=True)": lambda x: x.astype(x.dtype, copy=True),
    "x.copy": lambda x: x.copy(),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "tree.map": lambda x: mj.tree.map(mnp.copy, {"w": x})["w"],
    "device_put(may_alias=False)": lambda x: mj.device_put(x, may_alias=False),
    "device_put there": lambda x: mj.device_put(x, x.sharding, may_alias=False),
    "device_put of a tree": lambda x: mj.device_put({"w": x}, x.sharding, may_alias={"w": False})["w"],
    "jit of nothing": lambda x: mj.jit(lambda x: x)(x),
    "jit twice": lambda x: mj.jit(lambda x: (x, x))(x)[1],
    "jit of copy": lambda x: mj.jit(mnp.copy)(x),
    "jit of a closure": lambda x: mj.jit(lambda: mnp.array(x))(),
    "with_sharding_constraint": lambda x: lax.with_sharding_constraint(x, x.sharding),
    "flatten": lambda x: x.flatten(),
    "ravel": mnp.ravel,
    "squeeze": mnp.squeeze,
    "x.squeeze": lambda x: x.squeeze(),
    "expand_dims": lambda x: mnp.expand_dims(x, ()),
    "swapaxes": lambda x: mnp.swapaxes(x, 0, 0),
    "moveaxis": lambda x: mnp.moveaxis(x, 0, 0),
    "atleast_1d": mnp.atleast_1d,
    "atleast_1d of several": lambda x: mnp.atleast_1d(x, x)[0],
    "split": lambda x: mnp.split(x, 1)[0],
    "hsplit": lambda x: mnp.hsplit(x, 1)[0],
    "tile": lambda x: mnp.tile(x, 1),
    "roll": lambda x: mnp.roll(x, 0),
    "clip": mnp.clip,
    "sum": lambda x: mnp.sum(x, axis=(), dtype=x.dtype),
    "max": lambda x: x.max(()),
}
REAL_COPIES = {
    "real": mnp.real,
    "x.real": lambda x: x.real,
    "conj": lambda x: x.conj(),
    "plus": lambda x: +x,
    "nan_to_num of integers": lambda x: mnp.nan_to_num(x) if x.dtype == np.int32 else mnp.copy(x),
    "round of integers": lambda x: mnp.round(x) if x.dtype == np.int32 else mnp.copy(x),
    "abs of bools": lambda x: abs(x) if x.dtype.kind == "b" else mnp.copy(x),
}
ITSELF = {
    "jnp.asarray": mnp.asarray,
    "jnp.array(copy=False)": lambda x: mnp.array(x, copy=False),
    "jnp.array(copy=None)": lambda x: mnp.array(x, copy=None),
    "x.astype": lambda x: x.astype(x.dtype),
    "jnp.astype": lambda x: mnp.astype(x, x.dtype),
    "device_put": mj.device_put,
    "reshape": lambda x: x.reshape(x.shape),
    "transpose": lambda x: mnp.transpose(x, (0,)),
    "broadcast_to": lambda x: mnp.broadcast_to(x, x.shape),
    "concatenate": lambda x: mnp.concatenate([x]),
}


def mesh(*shape: int) -> Mesh:
    return Mesh(np.array(mj.devices()[: int(np.prod(shape))]).reshape(shape), ("x", "y")[: len(shape)])


PLACES = {
    "uncommitted": (8, lambda: None),
    "on device 1": (8, lambda: mj.devices()[1]),
    "sharded": (8, lambda: NamedSharding(mesh(4), P("x"))),
    "uneven": (7, lambda: NamedSharding(mesh(4), P("x"))),
    "fewer than devices": (3, lambda: NamedSharding(mesh(2, 4), P(("x", "y")))),
    "partly replicated": (5, lambda: NamedSharding(mesh(2, 2), P("y"))),
    "empty": (0, lambda: NamedSharding(mesh(4), P("x"))),
}


def make(n, place, dtype) -> mj.Array:
    return mj.device_put((np.arange(n) % 2 if dtype.kind == "b" else np.arange(n)).astype(dtype), place())


KINDS = [(place, "float32") for place in PLACES]
KINDS += [("uncommitted", "int32"), ("uneven", "bool"), ("uncommitted", "complex64")]


@pytest.mark.parametrize(("place", "dtype"), KINDS)
def test_a_copy_outlives_its_original_and_lies_where_it_lay(place, dtype):
    n, where = PLACES[place]
    dtype = mnp.dtype(dtype)
    for name, function in {**COPIES, **({} if dtype.kind == "c" else REAL_COPIES)}.items():
        x = make(n, where, dtype)
        want = np.array(x)
        copied = function(x)
        assert copied is not x, name
        mj.jit(lambda x: ~x if x.dtype.kind == "b" else x + 1, donate_argnums=0)(x)
        assert x.is_deleted() and not copied.is_deleted(), name
        np.testing.assert_array_equal(np.asarray(copied), want, name)
        if name not in ("sum", "tile"):  # which may place what they compute
            assert copied.sharding.is_equivalent_to(x.sharding, 1) and copied.dtype == dtype, name
        if name not in ("device_put there", "device_put of a tree", "with_sharding_constraint"):
            assert copied.committed == x.committed, name


@pytest.mark.parametrize("name", COPIES)
def test_the_original_outlives_the_copy(name):
    x = mj.device_put(np.arange(7.0, dtype=np.float32), NamedSharding(mesh(4), P("x")))
    COPIES[name](x).delete()
    np.testing.assert_array_equal(np.asarray(x + 0), np.arange(7))


@pytest.mark.parametrize("name", ITSELF)
def test_what_says_that_it_need_not_copy_gives_the_array_itself(name):
    x = mnp.arange(4.0)
    assert ITSELF[name](x) is x


def test_an_average_of_the_parameters_outlives_a_donated_step() -> None:
    params = {"w": mnp.ones(3), "b": mnp.zeros(())}
    ema = mj.tree.map(mnp.copy, params)
    mj.jit(lambda p: mj.tree.map(lambda a: a + 1, p), donate_argnums=0)(params)
    np.testing.assert_array_equal(ema["w"], [1, 1, 1])
    assert params["w"].is_deleted() and float(ema["b"]) == 0


def test_weak_types_stay_weak() -> None:
    x = mnp.asarray(2.0)
    for function in (mnp.copy, mnp.array, lambda x: x.copy(), mnp.squeeze, lambda x: mj.device_put(x, may_alias=False)):
        assert function(x).weak_type and function(x) is not x


@pytest.mark.parametrize("n", [4, 1 << 20])
@pytest.mark.parametrize(
    "function",
    [mnp.array, mnp.copy, mnp.asarray, lambda a: mnp.asarray(a, copy=True), mj.device_put,
     lambda a: mj.device_put(a, may_alias=False), lambda a: mj.device_put(a, NamedSharding(mesh(4), P("x"))),
     lambda a: mj.jit(lambda v: v)(a)],
)  # fmt: skip
def test_a_numpy_array_that_changes_later_changes_no_array(function, n):
    mine = np.zeros(n, np.float32)
    array = function(mine)
    mine[:] = -1
    assert not np.asarray(array).any()


def test_inside_a_trace_nothing_is_copied() -> None:
    x = mnp.arange(4.0)

    def function(y):
        return mnp.copy(y) + mnp.array(x) + y.astype(y.dtype, copy=True) + mnp.squeeze(y) + mj.device_put(y, may_alias=False)

    lowered = mj.jit(function).lower(x)
    assert "copy" not in lowered.as_text("meshjit")
    np.testing.assert_array_equal(mj.jit(function)(x), 5 * np.arange(4))
    np.testing.assert_array_equal(mj.vmap(mj.grad(lambda y: mnp.copy(y) ** 2))(x), 2 * np.arange(4))


def test_arrays_are_made_on_a_device_or_under_a_sharding() -> None:
    place, device = NamedSharding(mesh(4), P("x")), mj.devices()[3]
    x = mnp.arange(6.0)
    for function in (
        lambda d: mnp.array(x, device=d), lambda d: mnp.asarray(np.arange(6.0), device=d), lambda d: mnp.array([*range(6)], float, device=d),
        lambda d: x.astype(np.int32, device=d), lambda d: mnp.astype(x, float, device=d),
    ):  # fmt: skip
        for where in (place, device):
            made = function(where)
            assert made.committed and made.devices() == ({device} if where is device else place.device_set)
            np.testing.assert_array_equal(made, np.arange(6))
    assert mj.jit(lambda x: mnp.asarray(x * 2, device=place))(x).sharding == place
