"""What loops carry and stack is among the choices: the plan of an assignment does as it says."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, tree
from meshjit.core.plan import Plan
from meshjit.core.program import Program
from meshjit.core.region import run_regions, without_sharing
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic import descend
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.make import make_automatic_plan
from meshjit.plan.automatic.prescribe import Prescribed, prescribe
from meshjit.plan.automatic.saved import replay, saved_of
from meshjit.plan.automatic.start import starts
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft, first_draft
from meshjit.plan.graph import programs_in
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import PartitionSpec as P
from meshjit.targets import target_of
from sharding.mesh import AbstractMesh
from sharding.placement import Placement
from tests.tools.every_plan import check_law, drafted, searched
from tests.tools.wire import traced

MESH = AbstractMesh((2,), ("x",))
ROWS, WHOLE, SUM = Placement((("x",), ())), Placement(((),)), Placement(((),), (("x", "sum"),))


def collected(long: int) -> Draft:
    """Sums over rows, collected as parts of an array that is longer than they are."""

    def fun(x: Any) -> Any:
        def add(total: Any, rows: Any) -> Any:
            return total + mnp.pad(mnp.sum(rows, 0), [(0, long)]), None

        return lax.scan(add, mnp.zeros(64 + long), x)[0]

    return drafted(traced(fun, ["f32[4, 512, 64]"]), MESH)


def body_of(plan: Plan) -> Plan:
    (body,) = [body for step in plan.equations for body in step.bodies]
    return body


def chosen(draft: Draft, carry: Placement) -> Draft:
    """The draft whose rows are summed in parts, with the carry there."""
    model = searched(draft).model
    choices = {d.number: 0 for d in model.decisions}
    for decision in model.decisions:
        if decision.spreads and decision.eqns[0][0].op.name == "reduce_sum":
            choices[decision.number] = next(i for i, plan in enumerate(decision.spreads) if plan.operands[0] == ROWS)
    (collector,) = {*model.collectors.values()}
    choices[collector.number] = collector.placements.index(carry)
    return prescribe(draft, model, choices)


@pytest.mark.parametrize("long", [0, 4096])
def test_a_carry_collects_where_that_is_chosen(long: int) -> None:
    """However dear it is: a long array sends more after the loop than its parts do in four iterations."""
    draft = collected(long)
    late, soon = chosen(draft, SUM), chosen(draft, WHOLE)
    assert body_of(late.plan).inputs[0] == SUM and body_of(soon.plan).inputs[0] == WHOLE
    assert (late.cost.wire_bytes < soon.cost.wire_bytes) == (long == 0)
    for each in (late, soon):
        check_law(draft.program, each.plan, MESH)


@pytest.mark.parametrize("carry", [SUM, WHOLE], ids=str)
@pytest.mark.parametrize("long", [0, 4096])
def test_a_saved_plan_collects_as_it_did(carry: Placement, long: int) -> None:
    draft = collected(long)
    before = chosen(draft, carry)
    saved = json.loads(json.dumps(saved_of(before, "")))
    assert [*saved["collected"].values()] == [carry == SUM]
    again = replay(draft, saved)
    assert again.cost == before.cost and body_of(again.plan).inputs == body_of(before.plan).inputs
    del saved["collected"]  # of a file from before there was such a choice: prices say
    older = replay(draft, saved)
    assert isinstance(older.assigner, Prescribed) and body_of(older.plan).inputs[0] == (SUM if long == 0 else WHOLE)


def test_what_a_loop_stacks_lies_as_is_chosen() -> None:
    """The carry is stacked where a product needs it, which has brought it there already."""

    def fun(x: Any, w: Any) -> Any:
        return lax.scan(lambda c, _: (mnp.tanh(c @ w), c), x, None, length=4)[1]

    draft = drafted(traced(fun, ["f32[64, 32]", "f32[32, 32]"]), MESH)
    model, eqn = searched(draft).model, draft.program.eqns[-1]
    (region,) = run_regions(eqn)
    (carry, _), (stack,) = next(iter(region.carried)), region.stacked
    result = region.results[stack]
    assert result is not None
    makers = model.values[region.program.inputs[carry]].maker, model.values[eqn.outputs[result]].maker
    assert makers[0] is not makers[1]
    for choice in itertools.product(range(3), repeat=2):
        choices = {d.number: 0 for d in model.decisions} | {d.number: c for d, c in zip(makers, choice, strict=True)}
        plan = prescribe(draft, model, choices).plan
        body = body_of(plan)
        assert (body.inputs[carry], body.outputs[stack]) == tuple(d.placements[choices[d.number]] for d in makers)
        check_law(draft.program, plan, MESH)


def recurrent(layers: int) -> Program:
    """A training step of layers with a loop over places each, computed again in the backward pass."""

    def layer(x: Any, weight: Any, decay: Any) -> Any:
        def cell(state: Any, row: Any) -> tuple[Any, Any]:
            state = state * mnp.tanh(decay) + row * mnp.exp(-state)
            return state, mnp.tanh(state)

        rows = mnp.swapaxes(mnp.dot(x, weight), 0, 1)
        return x + mnp.swapaxes(lax.scan(cell, mnp.zeros_like(rows[0]), rows)[1], 0, 1)

    def loss(weights: Any, x: Any) -> Any:
        for weight, decay in weights:
            x = mj.checkpoint(layer)(x, weight, decay)
        return mnp.mean(x * x)

    def step(*leaves: Any) -> Any:
        weights = list(zip(leaves[:-1:2], leaves[1:-1:2], strict=True))
        return tree.map(lambda w, g: w - 0.1 * g, weights, mj.grad(loss)(weights, leaves[-1]))

    return traced(step, [*["f32[64, 64]", "f32[64]"] * layers, "f32[32, 512, 64]"])


def test_loops_that_are_computed_again_have_vars_of_their_own() -> None:
    """Dead code elimination leaves of one body two with Vars in common: loops were priced as one, and sent 40 times as much."""
    program = without_sharing(recurrent(2))
    every = [v for part in programs_in(program) for v in part.vars()]
    assert len(every) == len({*every}) and sum(eqn.op.name == "scan" for eqn in program.eqns) == 6
    check_law(program, make_plan(program, MESH, Annotations([None] * 5, [None] * 4)), MESH)


def test_a_descent_begins_at_a_batch_over_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elimination that is too wide keeps something of where it began: from nothing that took a quarter longer here."""
    program, mesh = recurrent(2), AbstractMesh((2, 4), ("x", "y"))
    nobody, ties = Annotations([None] * 5, [None] * 4), {i: i for i in range(4)}
    parallel = make_plan(program, mesh, Annotations([*[P()] * 4, P(("x", "y"))], [P()] * 4)).cost
    monkeypatch.setattr(descend, "LARGEST", 64)
    plan = make_automatic_plan(program, mesh, nobody, ties=ties, limits=Limits(effort=0.0)).cost
    assert parallel is not None and plan is not None and plan.seconds <= parallel.seconds
    monkeypatch.setattr(descend, "starts", lambda *_: [])
    plan = make_automatic_plan(program, mesh, nobody, ties=ties, limits=Limits(effort=0.0)).cost
    assert plan is not None and plan.seconds > 1.2 * parallel.seconds


def test_the_batch_is_what_no_result_replaces() -> None:
    """Over axes that divide it together, all first, and those of equal sizes once; over another dim where that takes less."""

    def step(w: Any, x: Any, y: Any) -> Any:
        return w - mnp.dot(x.T, mnp.tanh(mnp.dot(x, w)) - y)

    def begun(types: list[str], *specs: Any, shape: tuple[int, ...] = (2, 4)) -> list[list[Any]]:
        program, mesh = traced(step, types), AbstractMesh(shape, ("x", "y"))
        annotations = Annotations([*specs, *[None] * (3 - len(specs))], [None])
        every = starts(first_draft(program, annotations, Assigner(Machine(mesh, target_of(mesh)))), {0: 0})
        return [[*start.draft.annotations.inputs, start.left] for start in every]

    large, both = ["f32[64, 32]", "f32[4096, 64]", "f32[4096, 32]"], ("x", "y")
    assert begun(large) == [[None, P(both), P(both), ()], [None, P("y"), P("y"), ("x",)], [None, P("x"), P("x"), ("y",)]]
    assert begun(large, shape=(4, 4)) == [[None, P(both), P(both), ()], [None, P("x"), P("x"), ("y",)]]
    assert begun(["f32[64, 32]", "f32[4098, 64]", "f32[4098, 32]"])[0] == [None, P("x"), P("x"), ("y",)]
    assert begun(["f32[8192, 32]", "f32[3, 8192]", "f32[3, 32]"])[0] == [None, P(None, both), P(None, both), ()]
    assert begun(["f32[5, 3]", "f32[7, 5]", "f32[7, 3]"]) == []
    assert begun(large, None, P("y"), P("y"))[0] == [P(None, both), P("y"), P("y"), ()]


def test_a_loop_over_nothing_is_proven() -> None:
    """Neither its plans nor their bounds take any time, and a bound of 0 s rose by nothing in a round: that divided by 0."""

    def body(a: Any, c: Any, x: Any) -> Any:
        c = mnp.maximum(c * x - a, c + x)
        c = mnp.where(c > 0, c + mnp.maximum(2 * c - a, 1), c)
        return c, c

    program = traced(lambda a, c, xs: lax.scan(lambda c, x: body(a, c, x), c, xs), ["f32[0, 1]"] * 2 + ["f32[0, 0, 1]"])
    annotations = Annotations([P("x"), P("x"), None], [None, None])
    plan = make_automatic_plan(program, AbstractMesh((2, 3), ("x", "y")), annotations, limits=Limits(effort=0.01))
    assert plan.optimum is not None and plan.cost is not None and plan.optimum.bound <= plan.cost.seconds
