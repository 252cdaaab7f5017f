"""The collectives that a plan predicts are those that partitioning writes: kind, axes, bytes and trips.

`tests/tools/laws.py` holds every program that a test puts through the law to it; here are random ones.
"""

from __future__ import annotations

import pytest

from meshjit.plan.make import Annotations, make_plan
from tests.tools.fuzz import drawn_by
from tests.tools.laws import partitioned_as_predicted


@pytest.mark.parametrize("first", range(0, 400, 20))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 20):
        program, mesh, inputs, outputs, _ = drawn_by(seed)
        partitioned_as_predicted(make_plan(program, mesh, Annotations(inputs, outputs)))
