"""Loops over a sharded dim: its axes go to another dim of the slices where that is cheaper than gathering."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.collective import collectives_in
from meshjit.partition.partition import partition
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import NamedSharding
from meshjit.targets import target_of
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec as P
from tests.tools.laws import check_law
from tests.tools.wire import traced

X4 = AbstractMesh((4,), ("x",))
XY = AbstractMesh((4, 2), ("x", "y"))
XS = 128 * 512 * 64 * 4  # bytes
CARRY = 512 * 64 * 4


def collect(c: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (mnp.tanh(c + x), None), c, xs)[0]


def both(c: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (mnp.tanh(c + x), c * x), c, xs)


def produced(c: Any) -> Any:
    return lax.scan(lambda c, _: (mnp.tanh(mnp.dot(c, c)), c), c, None, length=64)[1]


def moved(fun: Any, types: list[str], inputs: Any, outputs: Any, mesh: Any = X4, tpu: bool = True) -> dict[str, float]:
    """Bytes on the wire by collective."""
    target = target_of(mesh, ("tpu",) if tpu else ())
    plan = make_plan(traced(fun, types), mesh, Annotations(inputs, outputs), target)
    found: dict[str, float] = {}
    for each in collectives_in(partition(plan), mesh):
        found[each.kind] = found.get(each.kind, 0.0) + each.wire_bytes(mesh)
    return found


TYPES = ["f32[512, 64]", "f32[128, 512, 64]"]


@pytest.mark.parametrize("tpu", [True, False])
def test_slices_of_a_sharded_dim_are_exchanged_for_rows(tpu: bool) -> None:
    found = moved(collect, TYPES, [P(), P("x")], [P()], tpu=tpu)
    assert found == {"all_to_all": XS / 4 * 3 / 4, "all_gather": CARRY / 4 * 3}


def test_the_carry_stays_where_its_slices_are() -> None:
    assert moved(collect, TYPES, [None, P("x")], [None]) == {"all_to_all": XS / 4 * 3 / 4}


def test_stacked_results_go_home_the_same_way() -> None:
    found = moved(both, TYPES, [None, P("x")], [None, P("x")])
    assert found == {"all_to_all": 2 * XS / 4 * 3 / 4}


def test_stacked_results_are_made_whole_where_that_takes_less_time() -> None:
    assert moved(produced, ["f32[1024, 1024]"], [P()], [P("x")]) == {}
    found = moved(produced, ["f32[1024, 1024]"], [P()], [P("x")], tpu=False)
    assert found["all_to_all"] == 1024 * 1024 * 4 * 64 / 4 * 3 / 4


def test_other_axes_of_a_slice_stay() -> None:
    found = moved(collect, TYPES, [None, P("x", "y")], [None], XY)
    assert found == {"all_to_all": XS / 8 * 3 / 4}


def test_slices_that_no_dim_of_is_long_enough_are_gathered() -> None:
    types = ["f32[3, 2]", "f32[128, 3, 2]"]
    assert moved(collect, types, [P(), P("x")], [P()]) == {"all_gather": 128 * 6 * 4 / 4 * 3}


def test_what_the_user_placed_in_the_loop_stays() -> None:
    def run(c: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return mnp.tanh(c + lax.with_sharding_constraint(x, NamedSharding(X4, P(None, None)))), None

        return lax.scan(step, c, xs)[0]

    assert moved(run, TYPES, [P(), P("x")], [P()]) == {"all_gather": XS / 4 * 3}


@pytest.mark.parametrize("mesh", [X4, XY, AbstractMesh((3,), ("x",))])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length, rows", [(8, 16), (7, 13)])
def test_values_are_the_same(mesh: Any, reverse: bool, length: int, rows: int) -> None:
    def run(c: Any, xs: Any, zs: Any) -> Any:
        def step(c: Any, each: Any) -> Any:
            x, z = each
            return (c + x * z[:, None]) % 11, (c - x, z)

        return lax.scan(step, c, (xs, zs), reverse=reverse)

    generator = np.random.default_rng(0)
    shapes = [(rows, 6), (length, rows, 6), (length, rows)]
    arrays = [generator.integers(-3, 4, shape).astype(np.float32) for shape in shapes]
    types = [f"f32[{', '.join(map(str, shape))}]" for shape in shapes]
    for outputs in ([None, None, None], [P(), P("x"), P("x")], [P("x"), None, P()]):
        for inputs in ([None, P("x"), P("x")], [P(), P("x"), P()], [P("x"), P("x"), P(None, "x")]):
            check_law(traced(run, types), mesh, inputs, outputs, arrays)
