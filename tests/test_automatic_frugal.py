"""Of plans that are about as fast, the one that sends less: the rule, and a step that it decides."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.autodiff import checkpoint, grad
from meshjit.core.plan import Optimum, Plan, PlanCost
from meshjit.core.program import Program
from meshjit.core.region import without_sharing
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic.candidate import Candidate
from meshjit.plan.automatic.frugal import CLOSE, DEARER, LESS, is_preferred, preferred, with_slow_links
from meshjit.plan.automatic.make import make_automatic_plan
from meshjit.plan.automatic.solve import Search
from meshjit.plan.cost import Machine
from meshjit.plan.draft import first_draft
from meshjit.plan.make import Annotations, make_plan
from meshjit.targets import target_of
from sharding.mesh import AbstractMesh
from tests.tools.wire import traced

MESH = AbstractMesh((8,), ("x",))
LAYERS = ((3, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1))  # features before, after; stride


def network(kernels: Any, last: Any, images: Any) -> Any:
    x = images
    for kernel, (before, after, stride) in zip(kernels, LAYERS, strict=True):
        y = lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = nn.relu(y) + x if before == after else nn.relu(y)
    return mnp.dot(mnp.mean(x, axis=(1, 2)), last)


def convolutions(*arrays: Any) -> Any:
    """One step of gradient descent; a state of kernels and the last layer, then images and labels."""
    *weights, images, labels = arrays

    def loss(weights: Any) -> Any:
        scores = network(weights[:-1], weights[-1], images)
        return -mnp.mean(mnp.sum(nn.one_hot(labels, 16) * nn.log_softmax(scores), axis=-1))

    return [w - 0.1 * g for w, g in zip(weights, grad(loss)(weights), strict=True)]


@functools.cache
def program() -> Program:
    kernels = [f"f32[3, 3, {before}, {after}]" for before, after, _ in LAYERS]
    return traced(convolutions, [*kernels, "f32[64, 16]", "f32[16, 32, 32, 3]", "i32[16]"])


@functools.cache
def a_plan() -> Plan:
    small = traced(lambda x: x + 1.0, ["f32[8]"])
    return make_plan(small, MESH, Annotations([None], [None]))


def costing(work: float, moving: float, sent: float, peak: float = 1.0) -> Candidate:
    plan = dataclasses.replace(a_plan(), cost=PlanCost(work, moving, sent, peak))
    return Candidate(plan, work + moving, peak)


FASTEST = costing(0.9, 0.1, 1000)


@pytest.mark.parametrize(
    ("rival", "expected"),
    [
        (costing(0.955, 0.05, 500), True),
        (costing(0.97, 0.05, 500), False),  # not about as fast
        (costing(0.955, 0.05, 950), False),  # does not send clearly less
        (costing(0.955, 0.05, 500, peak=3.0), False),  # does not fit
    ],
)
def test_what_is_preferred(rival: Candidate, expected: bool) -> None:
    assert is_preferred(rival, FASTEST, memory=2.0) == expected
    assert (preferred([FASTEST, rival], FASTEST, memory=2.0) is rival) == expected


def test_the_one_that_sends_least() -> None:
    rivals = [costing(0.954, 0.05, 500), costing(0.955, 0.05, 400), costing(0.953, 0.05, 450)]
    assert preferred(rivals, FASTEST, memory=2.0) is rivals[1]


@pytest.mark.parametrize(
    ("known", "sent", "text"),
    [
        (1.0, 800, "1004 ms, 0.4 % slower than the optimum, chosen because it sends 20 % less"),
        (1.0, 0, "1004 ms, 0.4 % slower than the optimum, chosen because it sends nothing"),
        (0.99, 800, "1004 ms, at most 1.4 % from the optimum: 0.4 % slower than the fastest plan, chosen because it sends 20 % less"),
        (0.0, 800, "1004 ms, no bound is known"),
    ],
)
def test_the_text_says_what_the_choice_costs(known: float, sent: float, text: str) -> None:
    """Nobody is to read it as a gap in the proof."""
    assert str(Optimum(1.004, known, fastest=PlanCost(0.9, 0.1, 1000.0, 1.0), sent=sent)) == text


def test_slow_links() -> None:
    target = target_of(MESH)
    slow, usual = with_slow_links(target, DEARER, DEARER).topology, target.topology
    assert slow.latency["x"] == DEARER * usual.latency["x"] and slow.bandwidth["x"] == usual.bandwidth["x"] / DEARER
    grown = with_slow_links(dataclasses.replace(target, topology=dataclasses.replace(usual, latency_growth=1e-6)), DEARER, 1.0).topology
    assert grown.latency_growth == DEARER * 1e-6
    assert slow.flops == usual.flops and slow.name == usual.name


def test_convolutions_that_are_about_as_fast_send_half() -> None:
    """Cutting images in some layers takes 0.3 % less than cutting the batch in all, and sends twice as much, on a machine that
    need not reorder what kernels' gradients read."""
    ties, annotations = {i: i for i in range(len(LAYERS) + 1)}, Annotations([None] * 9, [None] * 7)
    target = dataclasses.replace(target_of(MESH), reordering=0.0)
    draft = first_draft(without_sharing(program()), annotations, Assigner(Machine(MESH, target)))
    fastest = Search(draft, ties).plan()
    plan = make_automatic_plan(program(), MESH, annotations, target, ties=ties)
    assert plan.cost is not None and fastest.cost is not None and plan.optimum is not None
    assert plan.cost.wire_bytes < LESS * fastest.cost.wire_bytes
    assert fastest.cost.seconds < plan.cost.seconds < CLOSE * fastest.cost.seconds
    assert plan.optimum.bound == pytest.approx(fastest.cost.seconds, rel=1e-6)
    assert plan.optimum.is_proved and not plan.optimum.is_optimal and 0 < plan.optimum.gap < CLOSE - 1
    less = 100 * (1 - plan.cost.wire_bytes / fastest.cost.wire_bytes)
    assert str(plan.optimum).endswith(f" % slower than the optimum, chosen because it sends {less:.0f} % less")
    assert f"and sends {fastest.cost.wire_bytes:,.0f} bytes: this one is about as fast" in str(plan.decisions[0])


def test_layers_that_are_computed_again_are_searched_on_slow_links_too() -> None:
    """The barrier in a checkpoint's derivative is decided operand by operand, which a saved plan cannot say."""

    def step(ws: Any, x: Any) -> Any:
        layer = checkpoint(lambda c, w: (mnp.tanh(mnp.dot(c, w)), None))
        return ws - 0.1 * grad(lambda ws: mnp.sum(lax.scan(layer, x, ws)[0] ** 2))(ws)

    layers = traced(step, ["f32[4, 64, 64]", "f32[512, 64]"])
    mesh = AbstractMesh((4, 2), ("x", "y"))
    plan = make_automatic_plan(layers, mesh, Annotations([None, None], [None]), ties={0: 0})
    assert plan.optimum is not None and plan.optimum.gap < CLOSE - 1
