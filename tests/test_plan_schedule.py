"""How long plans take where the target sends beside work: laws of schedules, programs whose schedule is known."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.core.plan import Plan
from meshjit.plan.cost import Machine
from meshjit.plan.make import Annotations, make_plan
from meshjit.plan.schedule import BOTH, LINKS, WORK, Tasks, schedule_seconds
from meshjit.sharding import PartitionSpec as P
from meshjit.targets import target_of
from sharding.cost import COLLECTIVES
from sharding.mesh import AbstractDevice, AbstractMesh
from tests.tools.wire import traced

CPU, H100, V5P = None, AbstractDevice("NVIDIA H100 80GB HBM3", None, "gpu"), AbstractDevice("TPU v5p", None, "tpu")
EQUAL = 1 + 1e-9  # seconds that differ by less are the same

# --- laws -------------------------------------------------------------------------------------------------------------


@st.composite
def tasks(draw: st.DrawFn) -> Tasks:
    """Work, collectives, loops that send, and what takes nothing, each after some of those before it."""
    found = Tasks()
    for number in range(draw(st.integers(1, 14))):
        takes, blocks = draw(st.sampled_from([(WORK, WORK), (LINKS, LINKS), (LINKS, BOTH), (BOTH, BOTH), (0, 0)]))
        after = draw(st.lists(st.integers(-1, number - 1), max_size=3))
        found.add(float(draw(st.integers(0, 9))) if takes else 0.0, takes, blocks, after)
    return found


def taken(found: Tasks, resource: int) -> float:
    return sum(seconds for seconds, blocks in zip(found.seconds, found.blocks, strict=True) if blocks & resource)


@settings(max_examples=300, deadline=None)
@given(tasks())
def test_a_schedule_is_between_the_longer_resource_and_the_sum(found: Tasks) -> None:
    order = found.order()
    assert sorted(order) == list(range(len(found.seconds)))
    assert max(taken(found, WORK), taken(found, LINKS)) <= found.seconds_in(order) <= sum(found.seconds)


@settings(max_examples=300, deadline=None)
@given(tasks(), st.data())
def test_overlapping_more_is_never_slower(found: Tasks, data: st.DataObject) -> None:
    more = Tasks()
    for seconds, takes, blocks, after in zip(found.seconds, found.takes, found.blocks, found.after, strict=True):
        more.add(seconds, takes, takes if data.draw(st.booleans()) else blocks, after)
    nothing = Tasks()
    for seconds, takes, after in zip(found.seconds, found.takes, found.after, strict=True):
        nothing.add(seconds, takes, BOTH if takes else 0, after)
    assert more.seconds_in(more.order()) <= found.seconds_in(found.order()) <= nothing.seconds_in(nothing.order())
    assert nothing.seconds_in(nothing.order()) == sum(found.seconds)


def test_what_waits_for_nobody_goes_first_and_a_loop_is_not_kept_waiting() -> None:
    found = Tasks()
    first = found.add(3.0, WORK, WORK, ())
    sent = found.add(5.0, LINKS, LINKS, (first,))
    loop = found.add(4.0, BOTH, BOTH, (first,))
    found.add(2.0, WORK, WORK, (sent,))
    early = found.add(1.0, LINKS, LINKS, ())
    assert found.order() == [first, early, sent, loop, 3]
    assert found.seconds_in(found.order()) == 3 + 5 + 4 + 2


# --- programs ---------------------------------------------------------------------------------------------------------


def planned(fun: Any, types: list[str], inputs: Any, device: AbstractDevice | None, shape: tuple[int, ...] = (8,)) -> Plan:
    mesh = AbstractMesh(shape, ("x", "y")[: len(shape)], abstract_device=device)
    program = traced(fun, types)
    return make_plan(program, mesh, Annotations(inputs, [None] * len(program.outputs)))


def hidden(plan: Plan) -> float:
    """Seconds of sending that run beside work."""
    assert plan.cost is not None
    return plan.cost.seconds - plan.overlapped_seconds


def layers(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = nn.relu(mnp.dot(x, w))
    return x


TYPES = ["f32[65536, 1024]", *["f32[1024, 1024]"] * 4]
SHARDED = [P("x"), *[P("x")] * 4]  # a batch, and weights that are gathered


@pytest.mark.parametrize("device", [H100, V5P], ids=str)
def test_weights_are_gathered_beside_the_layers_before(device: AbstractDevice) -> None:
    """All but the first gather are hidden, for work takes longer than they do."""
    plan = planned(layers, TYPES, SHARDED, device)
    assert plan.cost is not None and plan.cost.work_seconds > plan.cost.move_seconds
    assert hidden(plan) == pytest.approx(3 / 4 * plan.cost.move_seconds)


def test_nothing_changes_where_nothing_overlaps() -> None:
    plan = planned(layers, TYPES, SHARDED, CPU)
    assert plan.cost is not None and plan.cost.move_seconds > 0
    assert plan.overlapped_seconds == plan.cost.seconds


def test_a_sum_that_the_next_product_waits_for_hides_behind_nothing() -> None:
    """Columns, then rows: an all-reduce between each pair of layers, on GPUs, which overlap all-reduces."""
    weights = [P(None, "x"), P("x", None)] * 2
    plan = planned(layers, ["f32[4096, 1024]", *["f32[1024, 4096]", "f32[4096, 1024]"] * 2], [P(), *weights], H100)
    assert [each.kind for each in plan.collectives] == ["all_reduce"] * 2
    assert hidden(plan) == pytest.approx(0.0, abs=1e-15)


def test_iterations_of_a_loop_follow_one_another() -> None:
    """The gather of a slice waits for its iteration: a scanned layer hides nothing that an unrolled one hides."""

    def scanned(x: Any, weights: Any) -> Any:
        return lax.scan(lambda x, w: (nn.relu(mnp.dot(x, w)), None), x, weights)[0]

    plan = planned(scanned, ["f32[65536, 1024]", "f32[4, 1024, 1024]"], [P("x"), P(None, "x")], H100)
    assert plan.cost is not None and plan.cost.move_seconds > 0 and hidden(plan) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("device", [CPU, H100, V5P], ids=str)
def test_overlapping_kinds_one_by_one(device: AbstractDevice | None) -> None:
    """Of a planned step with derivatives on two axes, each kind that overlaps besides makes it no longer."""

    def step(x: Any, *weights: Any) -> Any:
        loss = mj.grad(lambda weights: mnp.mean(layers(x, *weights) ** 2))
        return [w - g for w, g in zip(weights, loss(weights), strict=True)]

    plan = planned(step, TYPES, [P("x"), *[P("y", "x"), P("x", "y")] * 2], device, (4, 2))
    assert plan.cost is not None
    together = plan.cost.work_seconds + plan.cost.move_seconds
    target, before = target_of(plan.mesh), float("inf")
    for count in range(len(COLLECTIVES) + 1):
        topology = dataclasses.replace(target.topology, overlaps=frozenset(COLLECTIVES[:count]))
        seconds = schedule_seconds(plan, Machine(plan.mesh, dataclasses.replace(target, topology=topology)))
        assert max(plan.cost.work_seconds, plan.cost.move_seconds) / 2 <= seconds <= min(before, together) * EQUAL
        before = seconds
        if not count:
            assert seconds == pytest.approx(together, rel=1e-9)
    assert before < together
