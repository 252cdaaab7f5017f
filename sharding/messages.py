"""Which slices devices send one another where a value moves from some devices to others: a device gets what its shard needs and
does not have, and no more.

Devices of one process that need the same shard get it once: the first of them (`receivers`), from whom the others copy.
Messages of one shape go in rounds, in each of which a device sends at most one and receives at most one: a permutation of
slices, each side of which begins somewhere else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Box = tuple[tuple[int, int], ...]  # (start, stop) per dim, in the whole value
Starts = tuple[int, ...]


@dataclass(frozen=True)
class Message:
    """A slice that `sender` has and `receiver` needs; they are positions of devices, and may be one."""

    sender: int
    receiver: int
    shape: tuple[int, ...]
    taken: Starts  # where it begins in the sender's shard
    put: Starts  # and in the receiver's


@dataclass(frozen=True)
class Round:
    """Messages of one shape, no two from one device or to one device."""

    shape: tuple[int, ...]
    messages: tuple[Message, ...]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple((m.sender, m.receiver) for m in self.messages)


def receivers(target: Mapping[int, Box], source: Mapping[int, Box], process: Sequence[int]) -> dict[int, int]:
    """For each position that shall hold a box: the position of its process that receives it. Of several that shall hold it, one
    that has most of it already."""
    groups: dict[tuple[int, Box], list[int]] = defaultdict(list)
    for position, box in target.items():
        groups[process[position], box].append(position)
    chosen: dict[int, int] = {}
    for (_, box), positions in groups.items():
        first = max(positions, key=lambda p: (_size(_common(source[p], box)) if p in source else 0, -p))
        chosen |= dict.fromkeys(positions, first)
    return chosen


def plan_rounds(source: Mapping[int, Box], target: Mapping[int, Box], process: Sequence[int]) -> list[Round]:
    """How every position of `target` gets its box out of those of `source`, positions of devices; `process` is whose each is.

    Of several that hold a slice, the receiver itself sends it, else one of its process, else the one that sends least."""
    holders: dict[Box, list[int]] = defaultdict(list)
    for position, box in source.items():
        holders[box].append(position)
    by_shape: dict[tuple[int, ...], list[Message]] = defaultdict(list)
    sent: dict[int, int] = defaultdict(int)
    for receiver, box in target.items():
        for held, positions in holders.items():
            common = _common(held, box)
            if not _size(common):
                continue
            sender = min(positions, key=lambda p: (p != receiver, process[p] != process[receiver], sent[p], p))
            sent[sender] += _size(common) if sender != receiver else 0
            shape = tuple(stop - start for start, stop in common)
            by_shape[shape].append(Message(sender, receiver, shape, _starts(common, held), _starts(common, box)))
    return [Round(shape, tuple(turn)) for shape, messages in sorted(by_shape.items()) for turn in _turns(messages)]


def _turns(messages: Sequence[Message]) -> list[list[Message]]:
    """In each turn no two from one device, or to one device."""
    turns: list[list[Message]] = []
    busy: list[tuple[set[int], set[int]]] = []
    for message in messages:
        free = (i for i, (senders, takers) in enumerate(busy) if message.sender not in senders and message.receiver not in takers)
        turn = next(free, len(turns))
        if turn == len(turns):
            turns.append([])
            busy.append((set(), set()))
        turns[turn].append(message)
        busy[turn][0].add(message.sender)
        busy[turn][1].add(message.receiver)
    return turns


def _common(a: Box, b: Box) -> Box:
    return tuple((max(low, other), max(low, other, min(high, end))) for (low, high), (other, end) in zip(a, b, strict=True))


def _size(box: Box) -> int:
    return math.prod(stop - start for start, stop in box)


def _starts(part: Box, whole: Box) -> Starts:
    return tuple(start - begin for (start, _), (begin, _) in zip(part, whole, strict=True))
