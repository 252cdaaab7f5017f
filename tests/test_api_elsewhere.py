"""Arrays that lie on other devices than the function that uses them runs on: which are moved, and which are errors, as in JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import NamedSharding, P
from meshjit.errors import ShardingError
from meshjit.sharding import Mesh, SingleDeviceSharding

pytestmark = pytest.mark.device
X = np.arange(16, dtype=np.float32)


def mesh(*places: int, axes: tuple[str, ...] = ("x",), shape: tuple[int, ...] | None = None) -> Mesh:
    devices = np.array(mj.devices())[list(places)]
    return Mesh(devices.reshape(shape or (len(places),)), axes)


ALL, FOUR, LAST = mesh(*range(8)), mesh(0, 1, 2, 3), mesh(4, 5, 6, 7)
BACK, GRID = mesh(*range(8)[::-1]), mesh(*range(8), axes=("a", "b"), shape=(2, 4))


def on(place: Any, *spec: Any) -> Any:
    return NamedSharding(place, P(*spec)) if isinstance(place, Mesh) else SingleDeviceSharding(mj.devices()[place])


ELSEWHERE = {"one device": on(3), "four": on(FOUR, "x"), "all": on(ALL, "x"), "whole": on(LAST)}


@pytest.mark.parametrize("place", ELSEWHERE)
@pytest.mark.parametrize("argument", [on(2), on(LAST, "x"), on(ALL, "x"), on(GRID, ("b", "a"))], ids=str)
def test_captured_arrays_go_where_the_arguments_are(place: str, argument: Any) -> None:
    """JAX takes them for constants of the program."""
    a, x = mj.device_put(X, ELSEWHERE[place]), mj.device_put(X, argument)
    f = mj.jit(lambda x: x * a + a)
    for _ in range(4):  # by Python, then by C++
        found = f(x)
        np.testing.assert_array_equal(found, X * X + X)
        assert found.sharding.device_set == x.sharding.device_set
    gradient = mj.jit(mj.grad(lambda x: (x * x * a).sum()))(x)
    np.testing.assert_array_equal(gradient, 2 * X * X)
    assert a.sharding == ELSEWHERE[place]


def test_captured_arrays_go_where_shardings_constraints_and_the_context_say() -> None:
    a, b = mj.device_put(X, on(3)), mj.device_put(X, on(FOUR, "x"))
    for out in (mj.jit(lambda x: x + a, in_shardings=on(LAST, "x"))(X), mj.jit(lambda x: x + a, out_shardings=on(LAST, "x"))(X)):
        assert out.sharding.device_set == {*mj.devices()[4:]}
        np.testing.assert_array_equal(out, X + X)
    shifted = mj.jit(mj.shard_map(lambda x: x + a.sum() + b[0], mesh=ALL, in_specs=P("x"), out_specs=P("x")))(X)
    np.testing.assert_array_equal(shifted, X + X.sum())
    with mj.set_mesh(ALL):
        np.testing.assert_array_equal(mj.jit(lambda x: x + a + b)(X), 3 * X)


def test_captured_arrays_alone_run_where_most_devices_are() -> None:
    a, b = mj.device_put(X, on(3)), mj.device_put(X, on(LAST, "x"))
    for f in (lambda: a + b, lambda: b + a, lambda: (a + b) + mnp.arange(16) * 0):
        found = mj.jit(f)()
        np.testing.assert_array_equal(found, X + X)
        assert found.sharding == on(LAST, "x")
    assert mj.jit(lambda: a + 1)().sharding == on(3)


SAME_PARTS = [
    (on(ALL, "x"), on(BACK, "x")),
    (on(FOUR, "x"), on(LAST, "x")),
    (on(0), on(3)),
    (on(3), on(ALL)),
    (on(ALL), on(3)),
    (on(FOUR), on(GRID)),
    (on(GRID, ("a", "b")), on(BACK, "x")),
]


@pytest.mark.parametrize(("here", "there"), SAME_PARTS, ids=str)
def test_arguments_go_to_other_devices_that_cut_them_alike(here: Any, there: Any) -> None:
    x, f = mj.device_put(X, here), mj.jit(lambda x, y: x * 2 + y, in_shardings=(there, None))
    for _ in range(3):
        found = f(x, X)
        np.testing.assert_array_equal(found, X * 3)
        assert found.sharding.device_set == there.device_set
    assert f.lower(x, X).compile().input_shardings[0][0] == there
    given = x.copy()
    mj.jit(lambda x: x + 1, in_shardings=there, donate_argnums=0)(given)
    assert x.sharding == here


@pytest.mark.parametrize(
    ("here", "there"),
    [(on(ALL, "x"), on(ALL)), (on(FOUR, "x"), on(ALL, "x")), (on(3), on(ALL, "x")), (on(GRID, ("b", "a")), on(BACK, "x"))],
    ids=str,
)
def test_arguments_that_are_cut_otherwise_are_errors(here: Any, there: Any) -> None:
    with pytest.raises(ShardingError, match="committed to .*, but in_shardings say|but argument x is on"):
        mj.jit(lambda x: x * 2, in_shardings=there)(mj.device_put(X, here))
    with pytest.raises(ShardingError, match="one compiled function runs on"):
        mj.jit(lambda x, y: x + y)(mj.device_put(X, on(3)), mj.device_put(X, on(ALL)))


def test_specs_are_on_the_mesh_of_the_context_wherever_arguments_are() -> None:
    """They were read on the mesh of an argument, which may lack their axes, or have others of the same names."""
    turned = mesh(*range(8), axes=("b", "a"), shape=(2, 4))
    for here in (on(GRID, ("a", "b")), on(GRID), on(turned, ("b", "a"))):
        x = mj.device_put(X, here)
        with mj.set_mesh(ALL):
            whole = here == on(GRID)
            assert mj.jit(lambda x: x * 2, in_shardings=P() if whole else P("x"))(x).sharding == on(ALL, *([] if whole else ["x"]))
            assert mj.jit(lambda x: x * 2, out_shardings=P("x"))(x).sharding == on(ALL, "x")
        with mj.set_mesh(turned):
            found = mj.jit(lambda x: x * 2, out_shardings=P("a"))(x)
            assert found.sharding == on(turned, "a") and found.addressable_shards[0].data.shape == (4,)
    with mj.set_mesh(GRID):
        assert mj.jit(lambda x: x + 1, in_shardings=P())(mj.device_put(X, on(3))).sharding == on(GRID)
        assert mj.jit(lambda x: x + 1, in_shardings=P(("a", "b")))(mj.device_put(X, on(BACK, "x"))).sharding == on(GRID, ("a", "b"))
        with pytest.raises(ShardingError, match="in_shardings for x is on Mesh.* but argument x is on Mesh"):
            mj.jit(lambda x: x + 1, in_shardings=P("a"))(mj.device_put(X, on(FOUR, "x")))
