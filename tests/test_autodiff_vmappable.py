"""`register_vmappable`: values of classes that say themselves how vmap takes them apart, as JAX 0.10.2 treats them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit
from meshjit import numpy as mnp
from meshjit.autodiff.vmappable import RULES, register_vmappable


class Scene:
    """Bodies that members have their own of; a floor that they share."""

    def __init__(self, bodies: Any, floor: Any) -> None:
        self.bodies, self.floor = bodies, floor


def to_elt(cont: Any, get_index: Any, scene: Scene, axis: int | None) -> Scene:
    return Scene(cont(scene.bodies, axis), scene.floor)


def from_elt(cont: Any, size: int, scene: Scene, axis: int | None) -> Scene:
    return Scene(cont(size, scene.bodies, axis), scene.floor)


@pytest.fixture(autouse=True)
def registered() -> Any:
    register_vmappable(Scene, int, int, to_elt, from_elt, None)
    yield
    RULES.clear()


meshjit.tree_util.register_pytree_node(Scene, lambda s: ((s.bodies, s.floor), None), lambda _, xs: Scene(*xs))
BODIES, FLOOR = np.arange(6.0, dtype=np.float32).reshape(3, 2), np.float32(10)


def step(scene: Scene, speed: Any = 1.0) -> Scene:
    return Scene(scene.bodies * speed + scene.floor, scene.floor)


def test_members_share_what_the_class_does_not_hand_on() -> None:
    result = meshjit.vmap(step)(Scene(BODIES, FLOOR), np.arange(3.0, dtype=np.float32))
    np.testing.assert_array_equal(result.bodies, BODIES * np.arange(3.0)[:, None] + 10)
    assert result.floor is FLOOR
    other = meshjit.vmap(step, in_axes=(1,), out_axes=1)(Scene(BODIES, FLOOR))
    np.testing.assert_array_equal(other.bodies, BODIES + 10)


def test_a_function_may_make_one_that_was_given_none() -> None:
    made = meshjit.vmap(lambda x: (x, {"scene": Scene(x * 2, FLOOR)}), out_axes=(0, {"scene": 1}))(BODIES)
    np.testing.assert_array_equal(made[1]["scene"].bodies, BODIES.T * 2)
    assert made[1]["scene"].floor is FLOOR


def test_within_other_transformations() -> None:
    def loss(bodies: Any) -> Any:
        return meshjit.vmap(meshjit.vmap(step))(Scene(bodies, 1.0)).bodies.sum()

    np.testing.assert_array_equal(meshjit.jit(meshjit.grad(loss))(BODIES), np.ones_like(BODIES))
    shared = meshjit.jit(meshjit.vmap(step, in_axes=(None, 0), out_axes=0))(Scene(BODIES[0], FLOOR), np.ones(2, np.float32))
    np.testing.assert_array_equal(shared.bodies, np.broadcast_to(BODIES[0] + 10, (2, 2)))


class Named:
    def __init__(self, scene: Any) -> None:
        self.scene = scene


def test_a_class_may_hold_another_and_ask_for_the_number() -> None:
    numbered = lambda cont, get, named, spec: Named(step(cont(named.scene, 0), get()))  # noqa: E731
    register_vmappable(Named, str, int, numbered, lambda cont, size, named, spec: Named(cont(size, named.scene, 0)))
    result = meshjit.vmap(lambda named: named, in_axes=("rows",), out_axes="rows")(Named(Scene(BODIES, FLOOR)))
    np.testing.assert_array_equal(result.scene.bodies, BODIES * np.arange(3.0)[:, None] + 10)


def test_results_have_the_axes_of_ints_where_others_are_registered() -> None:
    np.testing.assert_array_equal(meshjit.vmap(mnp.sum)(BODIES), BODIES.sum(1))
    with pytest.raises(NotImplementedError, match="axis_size_type is str"):
        register_vmappable(Scene, int, str, to_elt, from_elt)
