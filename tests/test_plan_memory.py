"""Where a plan does not fit the memory: what is held from when to when, and what is gathered again instead of kept."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import meshjit.numpy as mnp
from meshjit.autodiff import grad
from meshjit.core.plan import Plan
from meshjit.core.program import Program
from meshjit.partition.partition import write_locally
from meshjit.plan.cost import Machine
from meshjit.plan.lifetimes import Lifetimes
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import PartitionSpec as P
from meshjit.simulate.devices import gather, scatter, simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.targets import target_of
from tests.tools.laws import partitioned_as_predicted
from tests.tools.wire import MESH, traced

LAYERS, WIDTH, ROWS = 6, 64, 512
WEIGHT_BYTES = 4 * WIDTH * WIDTH
SHARDED = [P("data", None)] * LAYERS


def step(*arguments: Any) -> Any:
    """A step of gradient descent, its weights sharded for memory's sake."""
    *weights, x = arguments

    def loss(weights: Any) -> Any:
        y = x
        for w in weights:
            y = mnp.tanh(mnp.dot(y, w))
        return mnp.sum(y * y)

    return tuple([w - g / 8 for w, g in zip(weights, grad(loss)(weights), strict=True)])


def planned(program: Program, memory: float) -> Plan:
    target = target_of(MESH)
    target = dataclasses.replace(target, topology=dataclasses.replace(target.topology, memory=memory))
    return make_plan(program, MESH, Annotations([*SHARDED, P("data")], SHARDED), target)


@pytest.fixture(scope="module")
def program() -> Program:
    return traced(step, [f"f32[{WIDTH}, {WIDTH}]"] * LAYERS + [f"f32[{ROWS}, {WIDTH}]"])


def gathers(plan: Plan) -> int:
    return sum(each.kind == "all_gather" for each in plan.collectives)


def run(plan: Plan, arrays: list[Any]) -> Any:
    shards = [scatter(a, p, MESH) for a, p in zip(arrays, plan.inputs, strict=True)]
    return simulate(partitioned_as_predicted(plan), MESH, shards)


def most(plan: Plan) -> int:
    machine = Machine(plan.mesh, target_of(MESH))
    return max(Lifetimes(plan.program, machine, plan.equations, plan.inputs, plan.outputs).held_bytes())


def held_by_local(local: Program) -> int:
    """The most bytes of the local Program's values that are alive at a time."""
    ends = {v: n for n, eqn in enumerate(local.eqns) for v in (*eqn.inputs, *eqn.outputs)}
    ends |= dict.fromkeys(local.outputs, len(local.eqns))
    alive = {v for v in local.inputs if v in ends}
    peak = 0
    for n, eqn in enumerate(local.eqns):
        alive.update(eqn.outputs)
        peak = max(peak, sum(v.type.nbytes for v in alive))
        alive = {v for v in alive if ends[v] > n}
    return peak


def test_weights_are_kept_where_there_is_room(program: Program) -> None:
    plan = planned(program, 1e12)
    assert gathers(plan) == LAYERS
    assert not [trial for trial in plan.trials if trial.kind == "again"]


def test_versions_end_with_their_own_last_use(program: Program) -> None:
    """The weights' gathered versions do not last until the weights are updated. Constants are made when they are read."""
    plan = planned(program, 1e12)
    assert plan.target is not None and plan.cost is not None
    exact = held_by_local(write_locally(plan, plan.target))
    assert abs(most(plan) - exact) <= 2 * WEIGHT_BYTES
    assert most(plan) < plan.cost.peak_bytes


@pytest.mark.parametrize("fewer", [1, 2, 4])
def test_as_many_weights_are_gathered_again_as_do_not_fit(program: Program, fewer: int) -> None:
    room = most(planned(program, 1e12)) - fewer * WEIGHT_BYTES + WEIGHT_BYTES // 2
    plan = planned(program, room)
    assert most(plan) <= room
    assert gathers(plan) == LAYERS + fewer
    (trial,) = [trial for trial in plan.trials if trial.is_accepted]
    assert trial.text == f"move {fewer} values again, not keep {fewer * WEIGHT_BYTES:,} bytes of them"
    decision = next(d for d in plan.decisions if trial.text in d.subject)
    assert decision.choice == "kept" and "test_plan_memory.py" in decision.source


def test_what_is_gathered_again_has_the_same_values(program: Program) -> None:
    generator = np.random.default_rng(0)
    arrays = [(generator.integers(-4, 5, t.shape) / 64).astype(t.dtype) for t in program.input_types]
    plans = planned(program, 1e12), planned(program, most(planned(program, 1e12)) - 3 * WEIGHT_BYTES)
    assert gathers(plans[1]) > gathers(plans[0])
    kept, again = ([gather(r, p, (WIDTH, WIDTH), MESH) for r, p in zip(run(plan, arrays), plan.outputs, strict=True)] for plan in plans)
    for mine, its, whole in zip(again, kept, evaluate(program, arrays), strict=True):
        np.testing.assert_array_equal(mine, its)
        np.testing.assert_allclose(mine, whole, rtol=1e-4, atol=1e-5)


def test_a_plan_that_cannot_be_made_smaller_is_made_all_the_same() -> None:
    double = traced(lambda x: x + x, ["f32[64, 64]"])
    target = dataclasses.replace(target_of(MESH), topology=dataclasses.replace(target_of(MESH).topology, memory=1.0))
    plan = make_plan(double, MESH, Annotations([P("data")], [P("data")]), target)
    assert not plan.trials and not plan.collectives
