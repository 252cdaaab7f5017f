"""Of plans that are about as fast, the one that sends least.

Predicted times of collectives are between 0.9 and 1.8 of those measured (docs/automatic.md, Machines): which of two plans is
faster by less than a per cent is beyond what prices can say, and what they send is certain. `is_preferred` is the one rule:

    fastest   109.9 ms, sends 13.5 MB
    rival     110.5 ms, sends 10.6 MB      preferred: 0.6 % slower, 22 % fewer bytes
    rival     109.9 ms, sends 13.4 MB      not preferred: it saves too little
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Final

from meshjit.core.target import Target
from meshjit.plan.automatic.candidate import Candidate
from meshjit.plan.cost import EQUAL_TIME

CLOSE: Final = EQUAL_TIME  # of the least seconds; plans that were predicted 4 % apart took the same (docs/performance.md)
LESS: Final = 0.9  # of the fastest plan's bytes, at most
DEARER: Final = 2.0  # a collective, where plans that send little are searched for; up to 1.8 was measured
SLOWER: Final = 10.0  # links, where one message that is long must not look as good as several short ones


def is_preferred(rival: Candidate, fastest: Candidate, memory: float) -> bool:
    """Whether a plan is about as fast as the fastest one, sends clearly less, and fits the memory."""
    return rival.seconds <= CLOSE * fastest.seconds and sent(rival) <= LESS * sent(fastest) and rival.peak <= memory


def preferred(rivals: Iterable[Candidate], fastest: Candidate, memory: float) -> Candidate | None:
    """The rival that sends least among those that are preferred to the fastest plan; the first of equal ones."""
    return min((r for r in rivals if is_preferred(r, fastest, memory)), key=sent, default=None)


def with_slow_links(target: Target, start: float, byte: float) -> Target:
    """The same machine, where a collective takes `start` times as long to start, and `byte` times as long for a byte."""
    topology = target.topology
    latency = {axis: start * seconds for axis, seconds in topology.latency.items()}
    bandwidth = {axis: speed / byte for axis, speed in topology.bandwidth.items()}
    growth = start * topology.latency_growth
    slow = dataclasses.replace(topology, latency=latency, bandwidth=bandwidth, latency_growth=growth)
    return dataclasses.replace(target, topology=slow)


def slow_links(target: Target) -> Iterator[Target]:
    """Machines whose best plans send little."""
    yield with_slow_links(target, DEARER, DEARER)
    yield with_slow_links(target, 1.0, SLOWER)


def sent(candidate: Candidate) -> float:
    assert candidate.plan.cost is not None
    return candidate.plan.cost.wire_bytes
