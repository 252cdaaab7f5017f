"""Faults elsewhere than between two steps (those are in test_runtime_watchdog): a few of what `tests.tools.faults` measures."""

from __future__ import annotations

import pytest

from tests.tools import faults
from tests.tools.processes import MPIRUN, needs_mpi

pytestmark = pytest.mark.device


@pytest.mark.parametrize(
    ("place", "fault", "under", "words"),
    [
        ("compiling", "SIGKILL", "run", "process 1 (host "),
        ("collective", "endless loop", "run", "waits for `on_host`, which its program has called"),
        pytest.param("start", "exit 0", MPIRUN, "process 1 of 2 (host ", marks=needs_mpi),
    ],
)
def test_the_culprit_is_named(place: str, fault: str, under: str, words: str) -> None:
    ended = faults.run(fault, under, place, processes=2, MESHJIT_STALL_TIMEOUT="12")
    assert faults.complaints(fault, place, ended, seconds=60) == [] and words in ended.line, ended.said
