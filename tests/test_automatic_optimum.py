"""The automatic planner against brute force: every assignment of small programs, priced as plans are, and none is cheaper."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st

import meshjit.numpy as mnp
from meshjit import lax
from meshjit.autodiff import grad
from meshjit.core.program import Program
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.make import make_automatic_plan
from meshjit.plan.automatic.versions import VersionPrices
from meshjit.plan.automatic.within import Within
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import PartitionSpec as P
from sharding.mesh import AbstractMesh
from sharding.placement import Placement
from tests.tools.every_plan import DEVICES, EQUAL, check, check_fitting, count, drafted, meshes, one, searched
from tests.tools.wire import traced

MESHES = meshes()
MOST = 3000  # assignments that brute force goes through


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
    "sums that a loop collects": (
        lambda xs: lax.scan(lambda c, x: (c + mnp.sum(x, 0), None), mnp.zeros(130), xs)[0],
        ["f32[64, 513, 130]"],
    ),
    "parts of what a loop collects": (
        lambda xs: lax.scan(lambda c, x: (c + mnp.pad(mnp.sum(x, 0), [(0, 130)]), None), mnp.zeros(260), xs)[0],
        ["f32[64, 513, 130]"],
    ),
    "parts of one sum": (
        lambda x: mnp.pad(mnp.sum(x, 0), [(0, 130)]) + mnp.pad(mnp.sum(mnp.tanh(x), 0), [(130, 0)]),
        ["f32[513, 130]"],
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


SEEDS = (6, 19, 25, 41, 51, 91, 103, 113)
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
@given(small_programs(), st.sampled_from(MESHES[:2]), st.floats(0, 1), st.booleans())
def test_the_cheapest_that_fits(program: Program, mesh: AbstractMesh, share: float, is_donated: bool) -> None:
    assume(program.eqns and count(searched(drafted(program, mesh))) <= MOST // 2)
    check_fitting(program, mesh, share, undonated=frozenset(() if is_donated else range(len(program.inputs))))


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_of_up_to_eight_equations(seed: int) -> None:
    """On CPU, GPU and TPU devices, with and without a limit to the memory; of those of `python -m tests.tools.every_plan`."""
    one(seed, MOST)


FITTING = (33, 54, 82, 99, 107)


@pytest.mark.parametrize("seed", FITTING)
def test_the_cheapest_that_fits_of_up_to_eight_equations(seed: int) -> None:
    """Within five limits to the memory each; of those of `python -m tests.tools.every_plan --fitting`."""
    one(seed, MOST, only_fitting=True)


def _tightened(real: Callable[..., Any]) -> Callable[..., Any]:
    def fits(self: Within, choices: Any) -> bool:
        return bool((self.held.bytes(choices) <= 0.97 * self.memory).all())

    return fits


def _left_out_too_soon(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, problem, prices, most: real(self, problem, prices, 0.95 * most)


@pytest.mark.parametrize(("name", "wrong"), [("fits", _tightened), ("_narrowed", _left_out_too_soon)])
def test_a_search_within_the_memory_that_passes_plans_over_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Any]
) -> None:
    """No test noticed a limit that is 3 % tighter, or choices that are left out 5 % too soon."""
    monkeypatch.setattr(Within, name, wrong(getattr(Within, name)))
    for seed in (82, 99, 107):
        with pytest.raises(AssertionError):
            one(seed, MOST, only_fitting=True)


@pytest.mark.parametrize(("limit", "held", "seconds"), [(17_219, 17_220, 2e-5), (17_220, 17_220, 2e-5), (17_700, 17_412, 1e-5)])
def test_the_plan_that_holds_least_is_found(limit: float, held: float, seconds: float) -> None:
    """Of 11,664 plans a few hold 17,220 bytes, all others 1 % more, and the least of those are twice as fast."""
    search = searched(drafted(traced(matmul_step, ["f32[64, 1]", "f32[257, 64]"]), meshes(DEVICES[1])[1], memory=limit))
    plan = search.plan()
    assert plan.optimum is not None and search.chosen.peak == held
    assert search.fits == (limit >= held) and plan.optimum.is_optimal == search.fits
    assert search.chosen.seconds == pytest.approx(seconds, rel=0.01)


def test_the_best_of_many_plans_that_fit() -> None:
    """Eight layers forward and backward: the plans can not be gone through, and the best that fits, and computes nothing again, is
    proved to be."""

    def step(*arguments: Any) -> Any:
        *weights, x = arguments

        def loss(weights: Any) -> Any:
            y = x
            for w in weights:
                y = mnp.tanh(mnp.dot(y, w))
            return mnp.sum(y * y)

        return tuple([w - g / 8 for w, g in zip(weights, grad(loss)(weights), strict=True)])

    program = traced(step, ["f32[1024, 1024]"] * 8 + ["f32[4096, 1024]"])
    mesh, annotations = AbstractMesh((8,), ("x",), abstract_device=DEVICES[1]), Annotations([None] * 9, [None] * 8)
    free = make_automatic_plan(program, mesh, annotations)
    assert free.cost is not None
    memory = 0.78 * free.cost.peak_bytes
    plan = make_automatic_plan(program, mesh, annotations, ties={i: i for i in range(8)}, limits=Limits(memory=memory))
    assert plan.cost is not None and plan.optimum is not None
    assert plan.cost.peak_bytes <= memory and plan.optimum.is_optimal


def test_a_price_that_is_too_high_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheapest plan gathers one operand; a search that takes this for impossible loses it, and brute force finds it."""
    real = VersionPrices.seconds

    def seconds(self: VersionPrices, var: Any, home: Placement, others: Any) -> float:
        return math.inf if any(home.dims) else real(self, var, home, others)

    monkeypatch.setattr(VersionPrices, "seconds", seconds)
    with pytest.raises(AssertionError, match=r"the bound .* is above|found .*, the least is"):
        check(traced(*SMALL["diamond"]), MESHES[1])


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


def test_a_convolution_on_three_axes_is_no_small_search() -> None:
    """Its operands can lie in hundreds of ways; pricing the way from each to each took minutes."""
    types = ["f32[3, 2, 17, 19]", "f32[5, 2, 3, 3]"]
    program = traced(lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME"), types)
    on_two = make_automatic_plan(program, AbstractMesh((4, 2), ("a", "b")), Annotations([None, None], [None]))
    on_three = make_automatic_plan(program, AbstractMesh((2, 2, 2), ("a", "b", "c")), Annotations([None, None], [None]))
    assert on_two.optimum is not None and on_three.optimum is not None and on_three.optimum.is_optimal
    assert on_three.optimum.seconds <= on_two.optimum.seconds * EQUAL
    for shape in ((2, 2, 2), (2, 2, 16), (2, 4, 8)):
        assert not searched(drafted(program, AbstractMesh(shape, ("a", "b", "c")))).is_small, shape
