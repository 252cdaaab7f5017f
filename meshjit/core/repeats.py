"""Repeats: equal sequences of a Program's equations, such as the layers of a model that Python wrote one by one.

    %1 = dot(%x, %w1)    %2 = tanh(%1)    |    %3 = dot(%2, %w2)    %4 = tanh(%3)    |    %5 = dot(%4, %w3)    …

Two sequences are equal when their equations have the same ops, params, types and lines, in the same order, and read the same
results of one another. The values that they read from outside may be any of the same types. A pass may reuse for the second
what it worked out for the first, provided that these outer values are in the same states.

They are detected as periods: each equation has a number, and the row of numbers is compared with itself some distance further on.
Equations that hold Programs are like no other: of layers with a loop inside, what stands before and behind the loop repeats.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import numpy as np

from meshjit.core.once import once_per_program
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.splat import element_of, is_known_splat

SHORTEST: Final = 8  # equations of a repeat: below, looking up costs more than it saves
PERIODS: Final = 48  # distances that are tried
WINDOW: Final = 8  # equations in a row that suggest a distance by appearing twice
SMALL: Final = 64  # elements of an array that is compared by value
NEVER: Final = -1

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Equations `start` to `stop` of a Program. Of two with the same `kind`, each value of `inner` and `outer` is to the one
    what that at the same position is to the other, is read equally often, and is last read at the same distance."""

    start: int
    stop: int
    kind: int
    inner: tuple[Var, ...]  # the results of its equations
    outer: tuple[Var, ...]  # what else they read, in the order of the first reading
    escaping: tuple[int, ...]  # positions of the inner values that are read behind it


@once_per_program
def repeats(program: Program) -> tuple[Repeat, ...]:
    """Stretches in order, without overlap, each with another one of its kind."""
    if len(program.eqns) < 2 * SHORTEST:
        return ()
    kinds = np.array(kinds_of(program), np.int64)
    series = [each for period in _distances(kinds) for each in _series(kinds, period)]
    spans = sorted(_without_overlap(series, len(kinds)))
    if not spans:
        return ()
    wiring = _Wiring(program, kinds)
    every = [wiring.repeat(start, stop) for start, stop in spans]
    members = Counter(repeat.kind for repeat in every)
    return tuple(repeat for repeat in every if members[repeat.kind] > 1)


# -- equations as numbers


@once_per_program
def kinds_of(program: Program) -> tuple[int, ...]:
    """A number for every equation, the same for those that are alike. Those that hold Programs are like no other."""
    numbers: dict[Any, int] = {}
    same: dict[tuple[int, tuple[int, ...]], int] = {}  # by identities: layers made of one Program share their params and types
    kinds: list[int] = []
    for eqn in program.eqns:
        copies = id(eqn.source), eqn.identity
        number = same.get(copies)
        if number is None:
            number = same[copies] = numbers.setdefault(_key(eqn), len(numbers))
        kinds.append(number)
    return tuple(kinds)


def numbers_of_constants(program: Program) -> dict[Var, int]:
    """A number for every value that is made of no inputs, the same for those that equations of the same kinds compute alike."""
    values, numbers = dict[Var, int](), dict[Any, int]()
    known = values.keys()
    for eqn, kind in zip(program.eqns, kinds_of(program), strict=True):
        if known >= {*eqn.inputs}:
            of = kind, tuple([values[v] for v in eqn.inputs])
            for i, v in enumerate(eqn.outputs):
                values[v] = numbers.setdefault((of, i), len(numbers))
    return values


def _key(eqn: Eqn) -> Any:
    if eqn.op.regions is not None:
        return id(eqn)
    key = eqn.op.name, eqn.input_types, eqn.output_types, eqn.source, _strict(tuple(eqn.params.items()))
    try:
        hash(key)
    except TypeError:
        return id(eqn)
    return key


def _strict(value: Any) -> Any:
    """What is equal for the same values only: 1 is not True, and 0.0 not -0.0."""
    if isinstance(value, tuple):
        return tuple([_strict(v) for v in cast(tuple[Any, ...], value)])
    if not isinstance(value, np.ndarray):
        return type(value), repr(value) if isinstance(value, float | complex) else value
    array = cast("np.ndarray[Any, Any]", value)
    if array.size > SMALL and not is_known_splat(array):
        return id(array)
    return array.shape, array.dtype, (element_of(array) if array.size > SMALL else array).tobytes()


# -- periods


def _distances(kinds: Numbers) -> list[int]:
    """The distances at which the same few equations appear again most often; multiples of those that are too short."""
    rows = np.zeros(len(kinds) - WINDOW + 1, np.uint64)
    for i in range(WINDOW):
        rows = rows * np.uint64(0x9E3779B97F4A7C15) + kinds[i : len(rows) + i].astype(np.uint64)
    order = np.argsort(rows, kind="stable")
    again = rows[order[1:]] == rows[order[:-1]]
    distances, counts = np.unique(np.diff(order)[again], return_counts=True)
    weight = distances * counts
    best = np.argsort(-weight, kind="stable")[:PERIODS]
    return list(dict.fromkeys(int(n) * -(-SHORTEST // int(n)) for n in distances[best]))


def _series(kinds: Numbers, period: int) -> Iterator[tuple[int, range]]:
    """Equal sequences, (length of each, where they start): whole periods, or what stands between loops in two of them."""
    same = np.concatenate([[False], kinds[:-period] == kinds[period:], [False]])
    edges = np.flatnonzero(same[1:] != same[:-1])
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if stop - start >= period:
            yield period, range(start, stop + 1, period)
        elif stop - start >= SHORTEST:
            yield stop - start, range(start, start + period + 1, period)


def _without_overlap(series: list[tuple[int, range]], size: int) -> Iterator[tuple[int, int]]:
    """Single sequences: of the series that save most, as many as do not overlap."""
    taken = np.zeros(size, bool)
    for length, starts in sorted(series, key=lambda each: (-each[0] * (len(each[1]) - 1), each[1].start, each[1].stop)):
        for at in starts:
            if not taken[at : at + length].any():
                taken[at : at + length] = True
                yield at, at + length


# -- who reads whom


class _Wiring:
    """A Program's values as numbers, in the order of definition."""

    def __init__(self, program: Program, kinds: Numbers) -> None:
        self.values = list(program.vars())
        numbers = dict(zip(self.values, itertools.count(), strict=False))
        self.kinds = kinds
        read = itertools.chain.from_iterable([eqn.inputs for eqn in program.eqns])
        self.read = np.array([*map(numbers.__getitem__, read)], np.int64)
        self.reads = _offsets([len(eqn.inputs) for eqn in program.eqns])
        self.firsts = len(program.inputs) + _offsets([len(eqn.outputs) for eqn in program.eqns])
        self.last = np.full(len(self.values), NEVER, np.int64)
        self.last[self.read] = np.repeat(np.arange(len(kinds)), np.diff(self.reads))
        outputs = np.array([numbers[v] for v in program.outputs], np.int64)
        self.last[outputs] = len(kinds)
        self.uses = np.bincount(self.read, minlength=len(self.values))
        np.add.at(self.uses, outputs, len(kinds))
        self.numbers: dict[Any, int] = {}

    def repeat(self, start: int, stop: int) -> Repeat:
        read = self.read[self.reads[start] : self.reads[stop]]
        low, high = int(self.firsts[start]), int(self.firsts[stop])
        inside = read >= low
        outside, first, places = np.unique(read[~inside], return_index=True, return_inverse=True)
        order = np.argsort(first)
        outer: Numbers = outside[order]
        wires = read - low
        wires[~inside] = -1 - np.argsort(order)[places.reshape(-1)]
        values = np.concatenate([np.arange(low, high), outer])
        last = np.where(self.last[values] < stop, np.maximum(self.last[values] - start, NEVER), stop)
        last[last == stop] = len(self.values)
        signature = (self.kinds[start:stop], wires, self.uses[values], last)
        kind = self.numbers.setdefault(tuple(part.tobytes() for part in signature), len(self.numbers))
        escaping = np.flatnonzero(self.last[low:high] >= stop)
        inner, others = tuple(self.values[low:high]), tuple([self.values[int(i)] for i in outer])
        return Repeat(start, stop, kind, inner, others, tuple([int(i) for i in escaping]))


def _offsets(counts: list[int]) -> Numbers:
    return np.concatenate([[0], np.cumsum(np.array(counts, np.int64))])
