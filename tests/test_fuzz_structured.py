"""Drawn loops over stencils, and functions with the structure of models, give what one device gives."""

from __future__ import annotations

import pytest

from tests.tools.fuzz_loops import drawn_by
from tests.tools.fuzz_structured import fails

CHUNK = 10


@pytest.mark.parametrize("start", range(0, 120, CHUNK))
def test_partitioned_functions_are_right(start: int) -> None:
    for seed in range(start, start + CHUNK):
        assert fails(drawn_by(seed)) is None, f"python -m tests.tools.fuzz_structured --seed {seed}"


@pytest.mark.device
@pytest.mark.parametrize("start", range(1000, 1030, CHUNK))
def test_compiled_functions_are_right(start: int) -> None:
    for seed in range(start, start + CHUNK):
        assert fails(drawn_by(seed), compiled=True) is None, f"python -m tests.tools.fuzz_structured --compiled --seed {seed}"
