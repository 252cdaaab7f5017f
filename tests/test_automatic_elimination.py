"""Elimination against brute force and a MILP solver on random problems; and laws that plans of any program keep."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

import meshjit.numpy as mnp
from meshjit.autodiff import grad
from meshjit.core.plan import Plan
from meshjit.core.program import Eqn, Program
from meshjit.plan.automatic import eliminate
from meshjit.plan.automatic.eliminate import Elimination, TooWide
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.make import make_automatic_plan
from meshjit.plan.automatic.messages import Messages
from meshjit.plan.automatic.order import order_of
from meshjit.plan.automatic.problem import Problem
from meshjit.plan.automatic.refusal import DoesNotFit
from meshjit.plan.automatic.suggest import among, little
from meshjit.plan.make import Annotations, make_plan
from meshjit.runtime.targets import target_for
from meshjit.sharding import PartitionSpec as P
from sharding.figures import DEVICES
from sharding.mesh import AbstractMesh
from tests.tools.wire import traced


@st.composite
def problems(draw: st.DrawFn, most: int = 6) -> Problem:
    """Variables of 1 to 4 choices; tables of whole numbers, some of them forbidden, over one and two of them."""
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    problem = Problem()
    count = draw(st.integers(1, most))
    for _ in range(count):
        problem.variable(generator.integers(0, 9, draw(st.integers(1, 4))).astype(np.float64))
    for a, b in itertools.combinations(range(count), 2):
        if generator.random() < 3 / count:
            table = generator.integers(0, 9, (problem.sizes[a], problem.sizes[b])).astype(np.float64)
            table[generator.random(table.shape) < 0.2] = np.inf
            problem.add((a, b), table)
    return problem


def everything(problem: Problem) -> list[float]:
    return sorted(problem.cost(choices) for choices in itertools.product(*map(range, problem.sizes)))


@settings(max_examples=60, deadline=None)
@given(problems(), st.data())
def test_assignments_come_in_the_order_of_their_cost(problem: Problem, data: st.DataObject) -> None:
    costs = [cost for cost in everything(problem) if math.isfinite(cost)]
    elimination = Elimination(problem)
    assert elimination.least == (costs[0] if costs else math.inf)
    found = [(cost, problem.cost([choices[v] for v in range(len(problem.sizes))])) for cost, choices in elimination.in_order()]
    assert [cost for cost, _ in found] == [real for _, real in found] == costs
    last = data.draw(st.sets(st.sampled_from(range(len(problem.sizes)))))
    if last and costs:
        best: dict[tuple[int, ...], float] = {}
        for choices in itertools.product(*map(range, problem.sizes)):
            key = tuple(choices[v] for v in sorted(last))
            best[key] = min(best.get(key, math.inf), problem.cost(choices))
        among = sorted(cost for cost in best.values() if math.isfinite(cost))
        assert [cost for cost, _ in Elimination(problem, last=sorted(last)).in_order()] == among


@settings(max_examples=60, deadline=None)
@given(problems())
def test_any_order_gives_the_same(problem: Problem) -> None:
    least, order = Elimination(problem).least, order_of(problem.sizes, problem.tables)
    several = [v for v, size in enumerate(problem.sizes) if size > 1]
    for variables in (order.variables, several, several[::-1]):
        elimination = Elimination(problem, order=variables)
        assert elimination.least == least
        assert math.isinf(least) or problem.cost(elimination.best()) == least
        assert variables is not order.variables or elimination.entries == pytest.approx(order.entries)


def test_large_tables_are_added_up_choice_by_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, generator = Problem(), np.random.default_rng(3)
    for _ in range(7):
        problem.variable(generator.integers(0, 9, 4).astype(np.float64))
    for pair in itertools.combinations(range(7), 2):
        problem.add(pair, generator.integers(0, 9, (4, 4)).astype(np.float64))
    whole = Elimination(problem)
    monkeypatch.setattr(eliminate, "AT_ONCE", 16)
    in_pieces = Elimination(problem)
    assert in_pieces.least == whole.least == everything(problem)[0] and in_pieces.best() == whole.best()


def test_the_best_of_a_few_orders_goes_through_fewer_entries() -> None:
    """A grid of 5 x 12 variables with 3 choices each: row by row 3 ** 13 at a time, column by column 3 ** 6."""
    scopes = [((r * 12 + c), (r * 12 + c + 1)) for r in range(5) for c in range(11)]
    scopes += [((r * 12 + c), (r * 12 + c + 12)) for r in range(4) for c in range(12)]
    order = order_of([3] * 60, scopes)
    assert sorted(order.variables) == [*range(60)] and order.entries < 60 * 3**6
    assert order_of([3] * 60, scopes) == order


@settings(max_examples=25, deadline=None)
@given(problems(most=60))
def test_elimination_is_what_a_milp_solver_finds(problem: Problem) -> None:
    least, relaxed = solved(problem, integral=True), solved(problem, integral=False)
    assert Elimination(problem).least == pytest.approx(least)
    assert relaxed <= least + 1e-6


@settings(max_examples=25, deadline=None)
@given(problems(most=12))
def test_messages_bound_the_least_cost_from_below(problem: Problem) -> None:
    least = Elimination(problem).least
    if not math.isfinite(least):
        return
    own = [np.minimum(problem.tables[(v,)], 1e3) for v in range(len(problem.sizes))]
    pairs = {scope: np.minimum(table, 1e3) for scope, table in problem.tables.items() if len(scope) == 2}
    messages, bounds = Messages(own, pairs, range(len(own))), list[float]()
    for _ in range(20):
        bounds.append(messages.bound()[0])
        messages.sweep()
    bound, excess, _ = messages.bound()
    assert bounds == sorted(bounds) or min(np.diff(bounds)) > -1e-9
    assert bound <= least + 1e-9 and bound <= solved(problem, integral=False) + 1e-6
    best = Elimination(problem).best()
    assert all(excess[v][choice] <= least - bound + 1e-9 for v, choice in enumerate(best))
    assert messages.cost(messages.decoded()) >= least


def solved(problem: Problem, integral: bool) -> float:
    """The least cost by HiGHS: a choice per variable, and a pair of choices per table of two."""
    firsts = np.concatenate([[0], np.cumsum(problem.sizes)])
    costs, rows, ones = [0.0] * int(firsts[-1]), list[Any](), 0
    for v, size in enumerate(problem.sizes):
        rows += [(ones, int(firsts[v]) + c, 1.0) for c in range(size)]
        ones += 1
    equal = [1.0] * ones
    for scope, table in problem.tables.items():
        if len(scope) == 1:
            for c, cost in enumerate(table):
                costs[int(firsts[scope[0]]) + c] += cost
            continue
        pairs = {index: len(costs) + n for n, index in enumerate(np.ndindex(table.shape))}
        costs += table.reshape(-1).tolist()
        for side, v in enumerate(scope):
            for c in range(problem.sizes[v]):
                rows += [(len(equal), number, 1.0) for index, number in pairs.items() if index[side] == c]
                rows.append((len(equal), int(firsts[v]) + c, -1.0))
                equal.append(0.0)
    upper = np.where(np.isfinite(costs), 1.0, 0.0)
    r, c, values = zip(*rows, strict=True)
    matrix = coo_array((values, (r, c)), shape=(len(equal), len(costs))).tocsr()
    right: Any = equal
    most: Any = upper
    constraint = LinearConstraint(matrix, right, right)
    objective = np.where(np.isfinite(costs), costs, 0.0)
    result = milp(objective, constraints=constraint, bounds=Bounds(0, most), integrality=np.full(len(costs), int(integral)))
    return float(result.fun) if result.success else math.inf


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 10**6), st.sampled_from([4, 1 << 20]))
def test_the_best_among_few_choices(problem: Problem, seed: int, largest: int) -> None:
    """Assignments cost what is said; the first is the best of those choices if nothing is too wide."""
    generator = np.random.default_rng(seed)
    excess = [generator.permutation(size) for size in problem.sizes]  # the choice of 0 is always one of them
    known = [int(generator.integers(size)) for size in problem.sizes]
    few, kept = [[c for c in range(len(each)) if each[c] <= 1] for each in excess], little(excess, 1)
    assignments = [*among(kept, only(problem, kept), known, largest)]
    for cost, choices in assignments:
        assert problem.cost(choices) == cost and all(c in kept for c, kept in zip(choices, few, strict=True))
    least = min(map(problem.cost, itertools.product(*few)))
    assert assignments[0][0] == least if largest > 4 else assignments[0][0] >= least
    best = [int(each.argmin()) for each in excess]
    kept = little(excess, -1)
    assert [choices for _, choices in among(kept, only(problem, kept), known, largest)] == [best]


def only(problem: Problem, kept: Sequence[Any]) -> Problem:
    """With these choices of each variable alone."""
    few = Problem()
    few.sizes = [len(choices) for choices in kept]
    few.tables = {scope: table[np.ix_(*[kept[v] for v in scope])] for scope, table in problem.tables.items()}
    return few


@pytest.mark.parametrize("last", [[], [0], [1, 2], [0, 1]])
def test_variables_of_one_choice_are_cut_out(last: list[int]) -> None:
    """Arrays have at most 64 dims, and tables of other variables need not be joined."""
    problem, generator = Problem(), np.random.default_rng(0)
    for size in (1, *[8] * 80):
        problem.variable(generator.integers(0, 9, size).astype(np.float64))
    for v in range(1, 81):
        problem.add((0, v), generator.integers(0, 9, (1, 8)).astype(np.float64))
    own = [problem.tables[(v,)] + problem.tables[(0, v)][0] for v in range(1, 81)]
    least = float(problem.tables[(0,)][0] + sum(table.min() for table in own))
    elimination = Elimination(problem, last=last, largest=8)
    assert elimination.least == problem.cost(elimination.best()) == least
    assignments = [*itertools.islice(elimination.in_order(), 3)]
    assert assignments[0][0] == least and all(choices is not None and choices.keys() >= {*last} for _, choices in assignments)
    assert len(assignments) == 1 if last == [0] else len(assignments) == 3


def test_what_is_too_wide_takes_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem()
    for _ in range(8):
        problem.variable(np.arange(5.0))
    generator = np.random.default_rng(0)
    for pair in itertools.combinations(range(8), 2):
        problem.add(pair, generator.integers(0, 9, (5, 5)).astype(np.float64))
    with pytest.raises(TooWide, match="a table of 390,625 entries"):
        Elimination(problem, largest=1000)
    monkeypatch.setattr(eliminate, "TOTAL", 300_000)
    with pytest.raises(TooWide, match="tables of more than 300,000 entries"):
        Elimination(problem)
    monkeypatch.undo()
    hinted = Elimination(problem, largest=1000, hints=[0] * 8)
    assert hinted.fixed and problem.cost(hinted.best()) == hinted.least >= Elimination(problem).least
    spared = Elimination(problem, largest=1000, hints=hinted.best(), spared=hinted.fixed.keys())
    assert spared.least <= hinted.least and not spared.fixed.keys() & hinted.fixed.keys()
    begun = Elimination(problem, largest=1000, waits=True)  # goes on as if it had not waited, and stays as it was
    for other in (hinted, spared, hinted):
        after = begun.with_hints(other.hints, other.spared)
        assert (after.least, after.best(), after.fixed) == (other.least, other.best(), other.fixed) and not begun.fixed


# --- laws of plans ----------------------------------------------------------------------------------------------------


def step(v: Any, w: Any, x: Any) -> Any:
    def loss(v: Any, w: Any) -> Any:
        return mnp.sum(mnp.dot(mnp.tanh(mnp.dot(x, v)), w) ** 2)

    dv, dw = grad(loss, (0, 1))(v, w)
    return v - dv, w - dw


PROGRAM = traced(step, ["f32[300, 257]", "f32[257, 100]", "f32[512, 300]"])
TIES = {0: 0, 1: 1}


def planned(mesh: AbstractMesh, *specs: Any, memory: float | None = None) -> Plan:
    annotations = Annotations([*specs, *[None] * (3 - len(specs))], [None, None])
    return make_automatic_plan(PROGRAM, mesh, annotations, ties=TIES, limits=Limits(memory))


def seconds(plan: Plan) -> float:
    assert plan.cost is not None
    return plan.cost.seconds


def test_more_pins_are_never_cheaper() -> None:
    mesh = AbstractMesh((4,), ("x",))
    free = seconds(planned(mesh))
    for spec in (P(), P("x"), P(None, "x")):
        one = seconds(planned(mesh, spec))
        assert one >= free
        assert seconds(planned(mesh, spec, P())) >= one


def test_more_memory_is_never_dearer() -> None:
    mesh, times = AbstractMesh((4,), ("x",)), list[float]()
    for memory in (1.0e6, 1.3e6, 1.7e6, 3e6, 1e9):
        try:
            plan = planned(mesh, memory=memory)
        except DoesNotFit:
            times.append(math.inf)
        else:
            assert plan.cost is not None and plan.cost.peak_bytes <= memory
            times.append(plan.cost.seconds)
    assert times[-1] < math.inf and times == sorted(times, reverse=True)


def layers(*arguments: Any) -> Any:
    """A step of gradient descent."""
    *weights, x = arguments

    def loss(*weights: Any) -> Any:
        y = x
        for w in weights:
            y = mnp.tanh(mnp.dot(y, w))
        return mnp.sum(y**2)

    return tuple([w - d for w, d in zip(weights, grad(loss, tuple(range(len(weights))))(*weights), strict=True)])


@pytest.mark.parametrize(
    ("widths", "rows", "devices", "memories"),
    [
        ([64, 96, 128, 257, 128], 128, 8, (194_560, 201_165, 224_500)),
        ([257, 257, 64], 256, 4, (300_000, 450_000, 600_000)),
        ([128, 256], 512, 4, (200_000, 300_000, 400_000, 500_000, 600_000)),
    ],
)
def test_more_memory_is_never_dearer_where_plans_are_made_lighter(
    widths: Sequence[int], rows: int, devices: int, memories: Sequence[int]
) -> None:
    """Of a plan for much too little memory 0.790 ms were predicted, and for a little more memory 0.904."""
    program = traced(layers, [*[f"f32[{a}, {b}]" for a, b in itertools.pairwise(widths)], f"f32[{rows}, {widths[0]}]"])
    figures = dataclasses.replace(DEVICES["cpu"], flops={"float32": 1e11}, latency=1e-6, link=1e9)
    mesh, count = AbstractMesh((devices,), ("x",)), len(widths) - 1
    annotations, target, ties = Annotations([None] * (count + 1), [None] * count), target_for(mesh, figures=figures), range(count)
    times = list[float]()
    for memory in memories:
        limits = Limits(memory=memory, effort=0, explains=False)
        try:
            plan = make_automatic_plan(program, mesh, annotations, target, ties={i: i for i in ties}, limits=limits)
        except DoesNotFit:
            times.append(math.inf)
        else:
            times.append(seconds(plan))
    assert times[-1] < math.inf and times == sorted(times, reverse=True), times


def reordered(program: Program, order: np.random.Generator) -> Program:
    """The same equations in another order in which every value is made before it is read."""
    waiting, made, eqns = list(program.eqns), set(program.inputs), list[Eqn]()
    while waiting:
        ready = [eqn for eqn in waiting if made.issuperset(eqn.inputs)]
        eqn = ready[order.integers(len(ready))]
        waiting.remove(eqn)
        eqns.append(eqn)
        made |= set(eqn.outputs)
    return dataclasses.replace(program, eqns=tuple(eqns))


def test_the_order_of_equations_changes_nothing() -> None:
    generator, mesh = np.random.default_rng(0), AbstractMesh((2, 2), ("x", "y"))
    times = list[float]()
    for _ in range(3):
        again = reordered(PROGRAM, generator)
        plan = make_automatic_plan(again, mesh, Annotations([None] * 3, [None, None]), ties=TIES)
        assert plan.optimum is not None and plan.optimum.is_optimal
        times.append(seconds(plan))
    assert times == pytest.approx([seconds(planned(mesh))] * 3)


def test_open_dims_and_priorities_are_kept_and_completed() -> None:
    """An UNCONSTRAINED dim may get more; propagation of the same annotations is never cheaper."""
    mesh = AbstractMesh((2, 2), ("x", "y"))
    for spec in (P("x", P.UNCONSTRAINED), P(P.UNCONSTRAINED, None), P("x", P.UNCONSTRAINED).with_priorities(1)):
        annotations = Annotations([None, None, spec], [None, None])
        plan, propagated = make_automatic_plan(PROGRAM, mesh, annotations, ties=TIES), make_plan(PROGRAM, mesh, annotations)
        assert seconds(planned(mesh)) <= seconds(plan) * (1 + 1e-9) and seconds(plan) <= seconds(propagated)
        dims = plan.inputs[2].dims
        assert dims[0][:1] == ("x",) if spec[0] == "x" else not dims[1]


def test_axes_of_one_device_and_names_of_axes_change_nothing() -> None:
    plain = planned(AbstractMesh((4,), ("x",)))
    assert seconds(planned(AbstractMesh((4, 1), ("x", "y")))) == seconds(plain)
    assert seconds(planned(AbstractMesh((1, 4), ("x", "y")))) == seconds(plain)
    assert seconds(planned(AbstractMesh((2, 1, 2), ("x", "y", "z")))) == seconds(planned(AbstractMesh((2, 2), ("x", "z"))))
    renamed = planned(AbstractMesh((4,), ("z",)))
    assert seconds(renamed) == seconds(plain) and [str(p).replace("z", "x") for p in renamed.inputs] == [str(p) for p in plain.inputs]


def test_the_order_ends_after_so_many_steps() -> None:
    """Many assignments that cost the same: what is left costs no less than the bound that the end gives."""
    problem = Problem()
    for _ in range(40):
        problem.variable(np.zeros(4))
    for v in range(39):
        problem.add((v, v + 1), 1 - np.eye(4))
    problem.add((0,), np.array([3.0, 2.0, 1.0, 0.0]))
    *found, (bound, end) = Elimination(problem).in_order(steps=5000)
    assert end is None and found and all(choices is not None for _, choices in found)
    costs = [cost for cost, _ in found]
    assert costs == sorted(costs) and costs[-1] <= bound and costs[0] == 0
