"""Random programs and functions, planned automatically for random machines: what one device gives; a slice of `tests.tools.fuzz_automatic`."""

from __future__ import annotations

from typing import Final

import pytest

from tests.tools.fuzz_automatic import drawn_by, fails, function_fails

CHEAPER: Final = (45, 72, 79, 1011)  # plans were below the bound
EMPTY: Final = (93045, 500461, 500733)  # so they were, bounds were infinite, and bytes of slices 0


@pytest.mark.parametrize("seed", [*(s for s in range(24) if s not in (9, 14)), *CHEAPER, *EMPTY])  # those take 4 and 10 s
def test_simulated(seed: int) -> None:
    assert fails(drawn_by(seed)) is None


@pytest.mark.device
@pytest.mark.parametrize("seed", [100, 101, 102, 103, 104, 106, 107])
def test_compiled(seed: int) -> None:
    assert fails(drawn_by(seed), compiled=True) is None


@pytest.mark.device
@pytest.mark.parametrize("seed", [0, 2, 3, 4, 6, 7, 8, 10])
def test_functions(seed: int) -> None:
    assert function_fails(seed) is None
