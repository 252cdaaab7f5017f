"""What automatic plans say of themselves: no plan that somebody else makes, by whatever specs, takes less than the bound."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.plan import Plan
from meshjit.core.program import Program
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.make import make_automatic_plan
from meshjit.plan.automatic.saved import SavedPlanError
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import PartitionSpec as P
from sharding.mesh import AbstractMesh
from tests.tools.every_plan import EQUAL, check_law
from tests.tools.laws import random_spec
from tests.tools.wire import traced

MESHES = [AbstractMesh(shape, ("x", "y")[: len(shape)]) for shape in ((2,), (3,), (4,), (2, 2))]
LIMITS = Limits(effort=0.05)
PROGRAMS = 2  # of each kind that random specs are tried on


def planned(program: Program, mesh: AbstractMesh, plan: str | None = None) -> Plan:
    free = Annotations([None] * len(program.inputs), [None] * len(program.outputs))
    return make_automatic_plan(program, mesh, free, limits=Limits(effort=LIMITS.effort, plan=plan))


def gates(x: Any, w: Any) -> Any:
    """A cell whose gates are columns of one weight, and what its gradient would add up of them."""

    def cell(carry: Any, row: Any) -> Any:
        state, total = carry
        gated = mnp.tanh(mnp.dot(row, w[:, : w.shape[1] // 2])) * mnp.dot(row, w[:, w.shape[1] // 2 :])
        return (state + gated, total + mnp.concatenate([gated, state])), None

    n = w.shape[1] // 2
    return lax.scan(cell, (mnp.zeros(n), mnp.zeros(2 * n)), x)[0]


def tokens(x: Any, w: Any) -> Any:
    """Examples and tokens as one dim, and as two again."""
    b, t, d = x.shape
    return mnp.reshape(mnp.tanh(mnp.dot(mnp.reshape(x, (b * t, d)), w)), (b, t, w.shape[1]))


KINDS: dict[str, tuple[Callable[..., Any], Callable[[int, int], list[str]]]] = {
    "rows sorted": (lambda x: mnp.sort(x, axis=1), lambda n, m: [f"f32[{n}, {64 * m}]"]),
    "a product": (lambda x, w: mnp.tanh(mnp.dot(x, w)), lambda n, m: [f"f32[{n}, 130]", f"f32[130, {m}]"]),
    "rows put together": (lambda x, y: mnp.sin(mnp.concatenate([mnp.cos(x), y])), lambda n, m: [f"f32[{n}, 64]", f"f32[{m}, 64]"]),
    "a border": (lambda x: mnp.tanh(x[1:] - x[:-1]), lambda n, m: [f"f32[{n + 1}, {64 * m}]"]),
    "gates": (gates, lambda n, m: [f"f32[{n}, 64]", f"f32[64, {8 * m}]"]),
    "tokens": (tokens, lambda n, m: [f"f32[{n}, {2 * m}, 64]", "f32[64, 96]"]),
}  # fmt: skip
EXTENTS = [(1, 5), (2, 3), (3, 3), (3, 7), (5, 2), (6, 1), (7, 4)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_no_specs_give_less_than_the_bound(kind: str, mesh: AbstractMesh) -> None:
    fun, types_of = KINDS[kind]
    generator = np.random.default_rng(0)
    for n, m in [EXTENTS[i] for i in generator.permutation(len(EXTENTS))[:PROGRAMS].tolist()]:
        program = traced(fun, types_of(n, m))
        optimum = planned(program, mesh).optimum
        assert optimum is not None and optimum.bound <= optimum.seconds
        for _ in range(12):
            specs = [[random_spec(generator, v.rank, mesh) for v in side] for side in (program.inputs, program.outputs)]
            cost = make_plan(program, mesh, Annotations(*specs)).cost
            assert cost is not None and cost.seconds * EQUAL >= optimum.bound, f"{specs} of {n, m}: {cost}, {optimum}"


@pytest.mark.parametrize("mesh", [MESHES[2], MESHES[3]], ids=str)
def test_three_rows_lie_on_three_of_four_devices(mesh: AbstractMesh) -> None:
    program = traced(lambda x: mnp.sort(x, axis=1), ["f32[3, 100000]"])
    plan, whole = planned(program, mesh), make_plan(program, mesh, Annotations([P()], [P()]))
    assert plan.cost is not None and whole.cost is not None and plan.optimum is not None and plan.optimum.is_optimal
    assert plan.inputs[0].shards(0, mesh) == 4 and plan.inputs == plan.outputs and not plan.collectives
    assert plan.cost.seconds == pytest.approx(whole.cost.seconds / 3)
    check_law(program, plan, mesh)


@pytest.fixture
def apart() -> tuple[Plan, Program, AbstractMesh]:
    """The plan of a Program that is written otherwise: tokens stay apart from examples, each over an axis."""
    mesh = AbstractMesh((3, 2), ("x", "y"))
    program = traced(tokens, ["f32[3, 8, 512]", "f32[512, 2000]"])
    return planned(program, mesh), program, mesh


def test_a_program_may_be_written_otherwise(apart: tuple[Plan, Program, AbstractMesh]) -> None:
    plan, program, mesh = apart
    assert plan.optimum is not None and plan.optimum.is_optimal and len(plan.program.eqns) < len(program.eqns)
    assert [trial.kind for trial in plan.trials if trial.is_accepted] == ["apart"]
    assert any("keep apart the dims that reshapes merge" in str(decision) for decision in plan.decisions)
    for specs in itertools.product((P(), P("x"), P("x", "y"), P("y", "x")), (P(), P(None, "x"))):
        cost = make_plan(program, mesh, Annotations(specs, [None])).cost
        assert cost is not None and cost.seconds * EQUAL >= plan.optimum.bound
    check_law(program, plan, mesh)


def test_a_plan_of_a_program_written_otherwise_is_planned_by_again(
    apart: tuple[Plan, Program, AbstractMesh], tmp_path: Path
) -> None:
    (plan, program, mesh), path = apart, tmp_path / "plan.json"
    plan.save(path)
    again = planned(program, mesh, str(path))
    assert str(again) == str(plan) and again.collectives == plan.collectives and str(again.optimum) == str(plan.optimum)
    saved = json.loads(path.read_text())
    assert saved["written"] == ["apart"]
    path.write_text(json.dumps({**saved, "written": ["upside down"]}))
    with pytest.raises(SavedPlanError, match=r"is no saved plan: 'written' is \"\['upside down'\]\""):
        planned(program, mesh, str(path))
