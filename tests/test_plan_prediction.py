"""The collectives that a plan predicts are those that partitioning writes: kind, axes, bytes and trips."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from meshjit.core.collective import Collective, collectives_in
from meshjit.core.plan import Plan
from meshjit.partition.partition import write_locally
from meshjit.plan.make import Annotations, make_plan
from sharding.axes import name_of
from tests.tools.fuzz import drawn_by

Key = tuple[str, tuple[str, ...], float]


def counted(collectives: Iterable[Collective]) -> dict[Key, float]:
    """Trips by kind, axes and bytes. A permute is named by the axes that it crosses, whole ones."""
    counts: dict[Key, float] = {}
    for each in collectives:
        axes = sorted({name_of(a) for a in each.axes}) if each.kind == "collective_permute" else map(str, each.axes)
        key = each.kind, tuple(axes), each.nbytes
        counts[key] = counts.get(key, 0.0) + each.trips
    return counts


def check(plan: Plan) -> None:
    assert plan.target is not None
    local = write_locally(plan, plan.target)
    assert counted(plan.collectives) == counted(collectives_in(local, plan.mesh))


@pytest.mark.parametrize("first", range(0, 400, 20))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 20):
        program, mesh, inputs, outputs, _ = drawn_by(seed)
        check(make_plan(program, mesh, Annotations(inputs, outputs)))
