"""The automatic planner against brute force: every assignment of small programs, priced as plans are, and none is cheaper."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

import meshjit.numpy as mnp
from meshjit import lax
from meshjit.autodiff import grad
from meshjit.core.program import Program
from meshjit.core.region import without_sharing
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic.candidate import Candidate, candidate_of
from meshjit.plan.automatic.prescribe import prescribe
from meshjit.plan.automatic.solve import Search, make_automatic_plan
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft, first_draft
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import PartitionSpec as P
from meshjit.simulate.devices import gather, scatter, simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.targets import target_of
from sharding.mesh import AbstractMesh
from tests.tools.laws import partitioned_as_predicted
from tests.tools.wire import traced

MESHES = [AbstractMesh((2,), ("x",)), AbstractMesh((4,), ("x",)), AbstractMesh((2, 2), ("x", "y"))]
MOST = 3100  # assignments that brute force goes through
EQUAL = 1 + 1e-9


def drafted(program: Program, mesh: AbstractMesh, memory: float | None = None, inputs: Any = None) -> Draft:
    target = target_of(mesh)
    if memory is not None:
        target = dataclasses.replace(target, topology=dataclasses.replace(target.topology, memory=memory))
    annotations = Annotations(inputs or [None] * len(program.inputs), [None] * len(program.outputs))
    return first_draft(without_sharing(program), annotations, Assigner(Machine(mesh, target)))


def searched(draft: Draft) -> Search:
    return Search(draft, {}, time.perf_counter() + 60)


def assignments(search: Search) -> Iterator[dict[int, int]]:
    """Every choice of every decision; of choices that differ in what flows through unreduced the first."""
    decisions = search.model.decisions
    ranges = [range(len({id(s) for s in d.spreads}) if d.spreads else len(d.placements)) for d in decisions]
    for choice in itertools.product(*ranges):
        yield {d.number: c for d, c in zip(decisions, choice, strict=True)}


def count(search: Search) -> int:
    return math.prod(len({id(s) for s in d.spreads}) if d.spreads else len(d.placements) for d in search.model.decisions)


def every_plan(search: Search) -> list[Candidate]:
    model, draft = search.model, search.draft
    return [candidate_of(prescribe(draft, model, choices), draft.machine) for choices in assignments(search)]


def check(program: Program, mesh: AbstractMesh, inputs: Any = None) -> list[Candidate]:
    """The planner's plan is the cheapest of all; all plans."""
    search = searched(drafted(program, mesh, inputs=inputs))
    assert count(search) <= MOST
    bound, is_complete = search.in_order()
    plans = every_plan(search)
    least = min(plan.seconds for plan in plans)
    assert search.best is not None and is_complete
    assert bound <= least * EQUAL
    assert search.best.seconds == pytest.approx(least, rel=1e-9)
    check_law(program, search.best, mesh)
    check_proof(program, mesh, inputs, least)
    return plans


def check_proof(program: Program, mesh: AbstractMesh, inputs: Any, least: float) -> None:
    """Descents and a proof, as of large programs, come to the same: the bound is valid, the plan is optimal."""
    search = searched(drafted(program, mesh, inputs=inputs))
    search.effort = 1e8
    search.descents()
    assert search.best is not None
    bound, is_complete = search.proof(dataclasses.replace(search.best, seconds=math.inf))
    assert bound <= least * EQUAL
    assert is_complete and search.best.seconds == pytest.approx(least, rel=1e-9)


def check_law(program: Program, best: Candidate, mesh: AbstractMesh) -> None:
    plan = best.plan
    arrays = [np.random.default_rng(0).integers(-2, 3, v.shape).astype(v.type.dtype) for v in program.inputs]
    shards = [scatter(a, p, mesh) for a, p in zip(arrays, plan.inputs, strict=True)]
    results = simulate(partitioned_as_predicted(plan), mesh, shards)
    for got, placement, want in zip(results, plan.outputs, evaluate(program, arrays), strict=True):
        np.testing.assert_allclose(gather(got, placement, want.shape, mesh), want, rtol=1e-4, atol=1e-4)


def matmul_step(w: Any, x: Any) -> Any:
    return w - grad(lambda w: mnp.sum(mnp.dot(x, w) ** 2))(w)


SMALL: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "chain": (lambda x, w: mnp.sum(mnp.tanh(mnp.dot(x, w))), ["f32[512, 300]", "f32[300, 257]"]),
    "diamond": (lambda x: mnp.dot(mnp.tanh(x), mnp.sin(x)), ["f32[257, 257]"]),
    "shared weight": (lambda x, w: mnp.dot(mnp.dot(x, w), w), ["f32[64, 130]", "f32[130, 130]"]),
    "residual": (lambda x, w: x + mnp.dot(x, w), ["f32[513, 130]", "f32[130, 130]"]),
    "scan of 2": (
        lambda x, w: lax.scan(lambda c, _: (mnp.tanh(mnp.dot(c, w)), None), x, None, length=2)[0],
        ["f32[63, 130]", "f32[130, 130]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("mesh", MESHES[:2], ids=str)
def test_no_assignment_is_cheaper(name: str, mesh: AbstractMesh) -> None:
    fun, types = SMALL[name]
    check(traced(fun, types), mesh)


def test_no_assignment_is_cheaper_on_two_axes() -> None:
    check(traced(lambda x, y: mnp.sum(mnp.dot(x, y)), ["f32[130, 64]", "f32[64]"]), MESHES[2])


def test_forward_and_backward_of_a_product() -> None:
    check(traced(matmul_step, ["f32[130, 65]", "f32[512, 130]"]), MESHES[0], inputs=[P("x"), P()])


SHAPES = [(8, 6), (6, 8), (8, 8), (6, 6), (5, 8), (8, 5)]


@st.composite
def small_programs(draw: st.DrawFn) -> Program:
    """Up to four equations on matrices, values used once or more; extents even, odd, and one too short for four devices."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=2))
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from(["dot", "add", "tanh", "turn", "total"]), st.integers(0, 9), st.integers(0, 9)),
            min_size=1,
            max_size=4,
        )
    )

    def fun(*arrays: Any) -> Any:
        values = list(arrays)
        for kind, i, j in steps:
            a, b = values[i % len(values)], values[-1 - j % len(values)]
            if kind == "dot" and a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0]:
                values.append(mnp.dot(a, b))
            elif kind == "add" and a.shape == b.shape:
                values.append(a + b)
            elif kind == "turn":
                values.append(a.T)
            elif kind == "total" and a.ndim == 2:
                values.append(mnp.sum(a, axis=j % 2))
            else:
                values.append(mnp.tanh(values[-1]))
        return values[-1]

    return traced(fun, [f"f32[{n * 50}, {m * 50}]" for n, m in shapes])


@settings(max_examples=25, deadline=None)
@given(small_programs(), st.sampled_from(MESHES[:2]))
def test_no_assignment_of_a_random_program_is_cheaper(program: Program, mesh: AbstractMesh) -> None:
    assume(program.eqns and count(searched(drafted(program, mesh))) <= MOST)
    check(program, mesh)


@settings(max_examples=12, deadline=None)
@given(small_programs(), st.sampled_from(MESHES[:2]), st.floats(0, 1))
def test_the_cheapest_that_fits(program: Program, mesh: AbstractMesh, share: float) -> None:
    assume(program.eqns and count(searched(drafted(program, mesh))) <= MOST // 2)
    strict = drafted(program, mesh, memory=1.0)
    peaks = sorted(plan.peak for plan in every_plan(searched(strict)))
    limit = peaks[int(share * (len(peaks) - 1))] - (1 if share == 0 else 0)
    search = searched(drafted(program, mesh, memory=limit))
    search.in_order()
    fitting = [plan.seconds for plan in every_plan(search) if plan.peak <= limit]
    if not fitting:
        assert search.best is None
    else:
        assert search.best is not None and search.best.peak <= limit
        assert search.best.seconds == pytest.approx(min(fitting), rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(small_programs(), st.sampled_from(MESHES))
def test_never_dearer_than_propagation(program: Program, mesh: AbstractMesh) -> None:
    assume(program.eqns)
    annotations = Annotations([P("x")] + [None] * (len(program.inputs) - 1), [None] * len(program.outputs))
    assume(program.inputs[0].shape[0] >= mesh.shape["x"])
    plan, propagated = make_automatic_plan(program, mesh, annotations), make_plan(program, mesh, annotations)
    assert plan.cost is not None and propagated.cost is not None and plan.optimum is not None
    assert plan.optimum.bound <= plan.cost.seconds * EQUAL
    assert plan.cost.seconds <= propagated.cost.seconds * (1 + 1e-3)
    assert str(plan.inputs[0]) == str(propagated.inputs[0])
