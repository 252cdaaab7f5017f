"""A Program that may be written in several ways: what is found for one counts for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.plan.automatic import small
from meshjit.plan.automatic.contest import best_of
from meshjit.plan.automatic.rewritten import rewritten
from meshjit.plan.automatic.solve import Search
from meshjit.plan.automatic.watch import Watch
from meshjit.plan.cost import Machine
from meshjit.targets import target_of
from sharding.mesh import AbstractMesh
from tests.tools.every_plan import EQUAL, check_law, drafted
from tests.tools.wire import traced

ROWS, BOTH = AbstractMesh((8,), ("x",)), AbstractMesh((4, 2), ("x", "y"))


def gates(w: Any, u: Any, o: Any, x: Any, y: Any) -> Any:
    """The gradients of a loop whose gates are products of their own, with columns of one weight: with so many readers an elimination
    is too wide."""

    def loss(w: Any, u: Any) -> Any:
        def cell(carry: Any, row: Any) -> Any:
            h, s = carry
            sides = [slice(k * w.shape[0], (k + 1) * w.shape[0]) for k in range(4)]
            i, f, g, out = (mnp.dot(row, u[:, side]) + mnp.dot(h, w[:, side]) for side in sides)
            s = nn.sigmoid(f) * s + nn.sigmoid(i) * mnp.tanh(g)
            h = nn.sigmoid(out) * mnp.tanh(s)
            return (h, s), h

        zeros = mnp.zeros((x.shape[1], w.shape[0]))
        return mnp.mean((mnp.dot(lax.scan(cell, (zeros, zeros), x)[1], o) - y) ** 2)

    return mj.grad(loss, argnums=(0, 1))(w, u)


def tokens(x: Any, w: Any) -> Any:
    b, t, d = x.shape
    return mnp.reshape(mnp.tanh(mnp.dot(mnp.reshape(x, (b * t, d)), w)), (b, t, w.shape[1]))


@pytest.mark.parametrize("mesh", [ROWS, BOTH], ids=str)
@pytest.mark.parametrize(("batch", "width"), [(32, 32), (5, 7)])
def test_a_way_of_which_no_plan_was_made_is_proved_to_have_none(mesh: AbstractMesh, batch: int, width: int) -> None:
    """Descents found none, so only the work bounded it: at most four times the optimum."""
    shapes = [(width, 4 * width), (16, 4 * width), (width, 8), (12, batch, 16), (12, batch, 8)]
    traced = mj.auto(gates, mesh=mesh).trace(*[mj.ShapeDtypeStruct(shape, np.float32) for shape in shapes])
    plan = traced.plan().plan
    assert plan.optimum is not None and plan.optimum.is_optimal and plan.optimum.is_complete
    check_law(plan.program, plan, mesh)


@pytest.mark.parametrize("effort", [0.0, 1e8])
@pytest.mark.parametrize("mesh", [ROWS, BOTH, AbstractMesh((3, 2), ("x", "y"))], ids=str)
def test_each_way_alone_is_no_better_than_all_together(mesh: AbstractMesh, effort: float) -> None:
    program = traced(tokens, ["f32[3, 2, 512]", "f32[512, 2000]"])
    others = [other for _, other in rewritten(program, Machine(mesh, target_of(mesh)))]
    alone = [Search(drafted(each, mesh), {}, effort=effort).plan().optimum for each in (program, *others)]
    searches = [Search(drafted(each, mesh), {}, effort=effort) for each in (program, *others)]
    at, plan = best_of(searches)
    least = [optimum.seconds for optimum in alone if optimum is not None]
    assert len(least) == len(searches) > 1 and plan.optimum is not None and plan.cost is not None
    assert plan.optimum.seconds <= min(least) * EQUAL and least[at] <= min(least) * EQUAL
    assert plan.optimum.is_optimal and plan.optimum.bound <= min(least) * EQUAL
    assert searches[at].chosen.plan.cost == plan.cost


def test_a_way_of_which_no_plan_fits_is_proved_to_have_none_once_another_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its proof was said not to be needed before any plan was there, and the work alone bounded all of them."""
    monkeypatch.setattr(small, "SMALL", 0)
    program = traced(tokens, ["f32[3, 2, 512]", "f32[512, 2000]"])
    alone = Search(drafted(program, BOTH), {}, effort=1e8).plan().optimum
    searches = [Search(drafted(program, BOTH, memory=memory), {}, effort=1e8) for memory in (1.0, 1e12)]
    at, plan = best_of(searches)
    assert at == 1 and searches[0].best is None and searches[0].unfit.leanest is not None
    assert plan.optimum is not None and alone is not None and alone.is_optimal and plan.optimum.bound == pytest.approx(alone.bound)


@pytest.mark.parametrize("effort", [1.0, 2e7, 1e8])
def test_all_ways_together_take_the_effort_of_two(effort: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the round that is begun, and a first one of each, so that none is left without a bound: programs of four ways were
    searched four times as long."""
    monkeypatch.setattr(small, "SMALL", 0)
    program = traced(gates, ["f32[32, 128]", "f32[16, 128]", "f32[32, 8]", "f32[12, 32, 16]", "f32[12, 32, 8]"])
    others = [other for _, other in rewritten(program, Machine(BOTH, target_of(BOTH)))]
    searches = [Search(drafted(each, BOTH), {}, effort=effort) for each in (program, *others)]
    _, plan = best_of(searches)
    rounds = [search.proof.rounds for search in searches if search.proof is not None]
    assert plan.optimum is not None and plan.optimum.gap < 0.6 and all(rounds)
    assert max(rounds) == 1 or sum(search.spent for search in searches) < 3 * effort


def test_what_is_late_is_left_to_the_first_way() -> None:
    """Its plan is there, whatever the time, and its bound is that of the work alone."""
    program = traced(tokens, ["f32[3, 2, 512]", "f32[512, 2000]"])
    others = [other for _, other in rewritten(program, Machine(BOTH, target_of(BOTH)))]
    searches = [Search(drafted(each, BOTH), {}, deadline=0.0, effort=1e8) for each in (program, *others)]
    _, plan = best_of(searches)
    assert plan.optimum is not None and plan.cost is not None and 0 < plan.optimum.bound <= plan.optimum.seconds
    assert len(searches) > 1 and sum(search.searched for search in searches[1:]) == 0 and not plan.optimum.is_complete


def test_a_way_without_a_close_plan_is_left_after_a_round_of_its_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """No descent is made for it, and it says that nothing below the other way's plan is there. One that may have a plan that is
    about as fast is searched, for that may send less."""
    monkeypatch.setattr(small, "SMALL", 0)
    program = traced(tokens, ["f32[3, 2, 512]", "f32[512, 2000]"])
    first = Search(drafted(program, BOTH), {}, effort=1e8)
    first.plan()

    def beside(rival: float) -> Search:
        search = Search(drafted(program, BOTH), {}, effort=1e8)
        search.rival = rival
        search.begin()
        search.prove()
        search.conclude()
        return search

    hopeless, close = beside(first.quickest / 2), beside(first.quickest * 1.001)
    assert hopeless.searched == 0 and hopeless.bound >= hopeless.rival and hopeless.is_complete
    assert hopeless.proof is None and hopeless.spent > 0  # its tables are gone
    assert hopeless.known(hopeless.rival) == hopeless.rival
    assert close.searched > 0 and close.quickest == pytest.approx(first.quickest)


def test_the_bound_of_several_proofs_is_the_least() -> None:
    """Of those that go on: of one that was given up nothing is kept, least of all its tables."""

    class Proof:
        pass

    watch, first, second = Watch(), Proof(), Proof()
    watch.proved(first, 0.5, 0.2)
    assert (watch.bound, watch.spent) == (0.5, 0.2)
    watch.proved(second, 0.3, 0.1)
    assert watch.bound == 0.3 and watch.spent == pytest.approx(0.15)
    watch.proved(second, 0.6, None)
    assert (watch.bound, watch.spent) == (0.5, 0.2)
    del first
    watch.proved(second, 0.6, None)
    assert (watch.bound, watch.spent, len(watch.proofs)) == (0.6, None, 1)
