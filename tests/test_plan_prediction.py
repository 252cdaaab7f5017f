"""The collectives that a plan predicts are those that partitioning writes: kind, axes, bytes and trips."""

from __future__ import annotations

import pytest

from meshjit.core.collective import collectives_in
from meshjit.core.plan import Plan
from meshjit.partition.partition import write_locally
from meshjit.plan.make import Annotations, make_plan
from tests.tools.fuzz import drawn_by
from tests.tools.wire import counted


def check(plan: Plan) -> None:
    assert plan.target is not None
    local = write_locally(plan, plan.target)
    assert counted(plan.collectives) == counted(collectives_in(local, plan.mesh))


@pytest.mark.parametrize("first", range(0, 400, 20))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 20):
        program, mesh, inputs, outputs, _ = drawn_by(seed)
        check(make_plan(program, mesh, Annotations(inputs, outputs)))
