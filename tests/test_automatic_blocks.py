"""Loops over stencils in blocks of iterations, where nobody says where anything lies: the best of all of them, and proved to be."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.loops import stencils
from meshjit.plan.automatic.make import make_automatic_plan
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft, first_draft
from meshjit.plan.make import Annotations
from meshjit.plan.proposals import align_stencils
from meshjit.sharding import PartitionSpec as P
from meshjit.targets import target_of
from sharding.mesh import AbstractDevice, AbstractMesh
from tests.tools.fuzz_automatic import drawn_by, fails, loop_of
from tests.tools.wire import traced

CPU = AbstractMesh((2, 4), ("x", "y"))
TPU = AbstractMesh((4, 4), ("x", "y"), abstract_device=AbstractDevice("TPU v5 lite", None, "tpu"))
GPU = AbstractMesh((2, 8), ("x", "y"), abstract_device=AbstractDevice("NVIDIA H100 80GB HBM3", None, "gpu"))
CLOSE = 1 + 2e-4  # times the seconds of another plan that holds as many bytes of arguments, or more


def around(u: Any) -> Any:
    return mnp.roll(u, 1, 0) + mnp.roll(u, -1, 0) + mnp.roll(u, 1, 1) + mnp.roll(u, -1, 1)


def heat(u: Any) -> Any:
    return lax.fori_loop(0, 10, lambda _, u: u + 0.1 * (around(u) - 4 * u), u)


def interior(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        return u.at[1:-1, 1:-1].set(0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]))

    return lax.fori_loop(0, 20, step, u)


def padded(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        p = mnp.pad(u, 1, mode="edge")
        return 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])

    return lax.fori_loop(0, 7, step, u)


def waves(u: Any, v: Any) -> Any:
    def step(_: Any, uv: Any) -> Any:
        u, v = uv
        v = v + 0.1 * (around(u) - 4 * u)
        return u + v, v

    return lax.fori_loop(0, 12, step, (u, v))


def everywhere(mesh: AbstractMesh) -> Iterator[P]:
    """All ways to shard a matrix over whole axes."""
    for names in itertools.permutations(mesh.axis_names):
        for dims in itertools.product(range(3), repeat=len(names)):
            rows, columns = (tuple([name for name, d in zip(names, dims, strict=True) if d == dim]) for dim in (0, 1))
            yield P(rows or None, columns or None)


def least_of_all(program: Any, mesh: AbstractMesh) -> float:
    """The seconds of the best plan whose arguments and results lie alike, as it is and in frames, in blocks of any number."""
    machine, least = Machine(mesh, target_of(mesh)), float("inf")
    for spec in {*everywhere(mesh)}:
        specs = [spec] * len(program.inputs)
        draft = first_draft(program, Annotations(specs, specs[: len(program.outputs)]), Assigner(machine))
        written = [draft, *[proposal.apply(draft, None) for proposal in align_stencils.propose(draft)]]
        least = min([least, *itertools.chain.from_iterable(map(_in_blocks, written))])
    return least


def _in_blocks(draft: Draft) -> Iterator[float]:
    (loop,) = [eqn for eqn in draft.program.eqns if eqn.op.regions is not None]
    yield draft.cost.seconds
    for count in range(1, loop.params["length"] + 1):
        try:
            yield draft.with_blocks({loop: count}, None).cost.seconds
        except Exception:  # noqa: BLE001  not so many, or none at all
            return


@pytest.mark.parametrize("mesh", [CPU, TPU, GPU], ids=["cpu", "tpu", "gpu"])
@pytest.mark.parametrize(("fun", "side"), [(heat, 64), (interior, 64), (padded, 64), (waves, 64), (heat, 500)])
def test_the_plan_is_the_best_of_all_placements_and_blocks(fun: Callable[..., Any], side: int, mesh: AbstractMesh) -> None:
    program = traced(fun, [f"f32[{side},{side}]"] * (2 if fun is waves else 1))
    ties = {i: i for i in range(len(program.inputs))}
    nothing = Annotations([None] * len(program.inputs), [None] * len(program.outputs))
    plan = make_automatic_plan(program, mesh, nothing, target_of(mesh), ties=ties, limits=Limits())
    assert plan.cost is not None and plan.optimum is not None and plan.optimum.is_proved
    fastest = plan.cost if plan.optimum.fastest is None else plan.optimum.fastest
    assert fastest.seconds <= CLOSE * least_of_all(program, mesh)


def test_two_dims_are_cut_where_corners_cost_less_than_rows() -> None:
    """A plan in blocks that sends a hundredth more than its ordinary loop had to halve the time; another one that sent twice as
    much was chosen."""
    plan = mj.auto(heat, mesh=CPU).trace(mj.ShapeDtypeStruct((1024, 1024), mnp.float32)).plan().plan
    assert str(plan.optimum) == "11.71 ms, optimal" and plan.cost is not None and plan.cost.wire_bytes == 63_040
    assert [trial.text for trial in plan.trials if trial.is_accepted] == ["exchange borders once for 10 iterations of a loop of 10"]


def two_loops(u: Any) -> Any:
    u = lax.fori_loop(0, 10, lambda _, u: u + 0.1 * mnp.roll(u, 1, 0), u)
    return lax.fori_loop(0, 10, lambda _, u: mnp.cumsum(u, 0) + mnp.roll(u, 1, 1), u)


def test_each_of_several_loops_is_done_in_blocks_or_not() -> None:
    """The second cannot be along the rows that the first is cut along."""
    traced_step = mj.auto(two_loops, mesh=GPU).trace(mj.ShapeDtypeStruct((512, 256), mnp.float32))
    plan = traced_step.plan().plan
    assert plan.cost is not None and plan.optimum is not None and plan.optimum.is_optimal and plan.optimum.is_complete
    for spec in everywhere(GPU):
        pinned = traced_step.plan(pins={"u": spec}).plan.cost
        assert pinned is not None and plan.cost.seconds <= CLOSE * pinned.seconds, spec


def cells(h: Any, w: Any) -> Any:
    def step(h: Any, _: Any) -> Any:
        gates = h @ w
        return mnp.tanh(gates[:, :16] * gates[:, 16:]), None

    return lax.scan(step, h, None, length=4)[0]


def sorted_rows(u: Any) -> Any:
    return lax.fori_loop(0, 4, lambda _, u: mnp.sort(mnp.roll(u, 1, 0), axis=0), u)


@pytest.mark.parametrize(("fun", "types", "count"), [
    (heat, ["f32[8, 8]"], 1), (waves, ["f32[8, 8]"] * 2, 1), (two_loops, ["f32[8, 8]"], 2),
    (cells, ["f32[8, 16]", "f32[16, 32]"], 0), (sorted_rows, ["f32[8, 8]"], 0),
])  # fmt: skip
def test_loops_that_may_be_done_in_blocks(fun: Callable[..., Any], types: list[str], count: int) -> None:
    """Not those whose elements move along dims that have to be whole."""
    assert len(stencils(traced(fun, types))) == count


@pytest.mark.parametrize("seed", range(8))
def test_simulated(seed: int) -> None:
    """What one device gives; no other plan is below the bound; saved, kept and in less memory."""
    assert fails(drawn_by(seed, loop_of)) is None


@pytest.mark.device
@pytest.mark.parametrize("seed", range(100, 103))
def test_compiled(seed: int) -> None:
    assert fails(drawn_by(seed, loop_of), compiled=True) is None


def fields(ex: Any, ey: Any, ez: Any, hx: Any, hy: Any, hz: Any) -> Any:
    """Electric and magnetic fields in two dims, which are two systems of three."""

    def step(_: Any, each: Any) -> Any:
        ex, ey, ez, hx, hy, hz = each
        hx, hy = hx - 0.1 * (mnp.roll(ez, -1, 1) - ez), hy + 0.1 * (mnp.roll(ez, -1, 0) - ez)
        hz = hz - 0.1 * (mnp.roll(ey, -1, 0) - ey - mnp.roll(ex, -1, 1) + ex)
        ex, ey = ex + 0.1 * (hz - mnp.roll(hz, 1, 1)), ey - 0.1 * (hz - mnp.roll(hz, 1, 0))
        return ex, ey, ez + 0.1 * (hy - mnp.roll(hy, 1, 0) - hx + mnp.roll(hx, 1, 1)), hx, hy, hz

    return lax.fori_loop(0, 8, step, (ex, ey, ez, hx, hy, hz))


def test_what_many_values_carry_is_cut_alike_where_it_meets() -> None:
    """Tables over six values were too large, and none of these plans was looked at: 2.4 times as long."""
    arguments = [mj.ShapeDtypeStruct((128, 128), mnp.float32)] * 6
    on_two, on_one = (mj.auto(fields, mesh=mesh).trace(*arguments).plan().plan for mesh in (CPU, AbstractMesh((8,), ("x",))))
    assert on_two.cost is not None and on_one.cost is not None and on_two.optimum is not None and on_two.optimum.is_optimal
    assert on_two.cost.seconds <= CLOSE * on_one.cost.seconds
    assert any(trial.kind == "block" and trial.is_accepted for trial in on_two.trials)
