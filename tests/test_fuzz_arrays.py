"""Arrays that are copied, moved, donated and deleted in a drawn order hold what they held."""

from __future__ import annotations

import pytest

from tests.tools.fuzz_arrays import live

CHUNK = 10


@pytest.mark.device
@pytest.mark.parametrize("start", range(0, 60, CHUNK))
def test_what_lives_holds_what_it_held(start: int) -> None:
    for seed in range(start, start + CHUNK):
        live(seed)
