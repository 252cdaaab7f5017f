"""Pair permutes between different devices: a device that only sends in one only receives in the other.

    %1 = collective_permute(%a) {pairs=((0, 1),)}      %x = select(is 0, %a, %b)
    %2 = collective_permute(%b) {pairs=((1, 0),)}      %y = collective_permute(%x) {pairs=((0, 1), (1, 0))}
                                                       %1 = select(is 1, %y, 0), %2 = select(is 0, %y, 0)

Of a fused projection split into heads every device keeps a part and sends one, each in a permute of its own. Every device
still sends what it sent; the links carry it at the same time, and starting one collective is paid for less.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import constant, zeros_like
from meshjit.ops.base.shape import broadcast_in_dim, reshape
from meshjit.ops.collective import collectives
from meshjit.ops.index.dynamic import dynamic_slice
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite
from sharding.mesh import BaseMesh

MOST_EARLY: Final = 32  # equations done earlier for the sake of one pair
MOST_TRIED: Final = 64  # permutes for one to be paired with, in order
LARGEST: Final = 4  # times the permuted value, that one of them may give


def pair_permutes(program: Program, mesh: BaseMesh) -> Program:
    """The same Program with fewer permutes, in nested Programs too."""
    program = in_regions(program, lambda nested: pair_permutes(nested, mesh))
    while pairs := _pairs(program):  # pairs of pairs, too
        rule = functools.partial(_paired, pairs=pairs, device=_Device(mesh))
        program = rewrite(program, {collectives.collective_permute.name: rule})
    return program


@dataclass(frozen=True)
class _Pair:
    """Two permutes that stand where the first stands, and what has to be done before it for that."""

    first: Eqn
    second: Eqn
    early: list[Eqn]


def _pairs(program: Program) -> dict[Var, _Pair]:
    """What the first permute of a pair gives → the pair."""
    positions = {var: i for i, eqn in enumerate(program.eqns) for var in eqn.outputs}
    permutes = [e for e in program.eqns if e.op is collectives.collective_permute and e.params["pairs"]]
    pairs: dict[Var, _Pair] = {}
    taken: set[Eqn] = set()
    rivals = _Rivals(permutes)
    for i, first in enumerate(permutes):
        if first in taken:
            continue
        for second in itertools.islice((e for e in rivals.behind(i) if e not in taken), MOST_TRIED):
            between = needed_between(program, first, second, positions)
            if between is not None:
                pairs[first.outputs[0]] = _Pair(first, second, between)
                taken |= {first, second}
                break
    return pairs


class _Rivals:
    """Which permutes may be paired with which. Layers of a model have many that are alike, in their pairs of devices and in type:
    what fits is asked once for all of them."""

    def __init__(self, permutes: Sequence[Eqn]) -> None:
        self.permutes = permutes
        kinds: dict[object, int] = {}
        self.kinds = [kinds.setdefault((e.params["pairs"], e.inputs[0].type), len(kinds)) for e in permutes]
        self.places: list[list[int]] = [[] for _ in kinds]
        for place, kind in enumerate(self.kinds):
            self.places[kind].append(place)
        firsts = [permutes[places[0]] for places in self.places]
        self.ends = [(e.inputs[0].type, *map(frozenset, zip(*e.params["pairs"], strict=True))) for e in firsts]
        self.fitting = functools.cache(self._fitting)

    def behind(self, place: int) -> Iterator[Eqn]:
        """Those that come later and fit it, in order."""
        every = [self.places[kind] for kind in self.fitting(self.kinds[place])]
        for other in heapq.merge(*[itertools.islice(places, bisect.bisect(places, place), None) for places in every]):
            yield self.permutes[other]

    def _fitting(self, kind: int) -> list[int]:
        """The kinds of which no device sends, or receives, what it does in this one, too. Each sends once at most, so together
        there are no more pairs than devices."""
        type, senders, receivers = self.ends[kind]
        return [
            other
            for other, (its, sending, receiving) in enumerate(self.ends)
            if its == type and senders.isdisjoint(sending) and receivers.isdisjoint(receiving)
        ]


def needed_between(program: Program, first: Eqn, second: Eqn, positions: dict[Var, int]) -> list[Eqn] | None:
    """The equations behind the first permute that the second needs; None if they need the first, have
    effects, or are many or dear."""
    start, needed, waiting = positions[first.outputs[0]], set[int](), list(second.inputs)
    while waiting:
        place = positions.get(waiting.pop(), -1)
        if place < start or place in needed:
            continue
        eqn = program.eqns[place]
        if eqn is first or len(needed) >= MOST_EARLY or is_dear(eqn, first.inputs[0].type.nbytes) or not is_pure(eqn):
            return None
        needed.add(place)
        waiting += eqn.inputs
    return [program.eqns[place] for place in sorted(needed)]


def is_dear(eqn: Eqn, nbytes: float) -> bool:
    """Whether an equation is not done early for a permute of so many bytes."""
    runs = eqn.op.simulate is not None or eqn.op.regions is not None
    return runs or sum([v.type.nbytes for v in eqn.outputs]) > LARGEST * nbytes


class _Device:
    """Whether this device is one of several: bool[] read off a table at its place on the mesh."""

    def __init__(self, mesh: BaseMesh) -> None:
        self.mesh = mesh
        self.is_among = functools.cache(self._is_among)

    @functools.cached_property
    def place(self) -> Var:
        return collectives.axis_index(axes=tuple(self.mesh.axis_names))

    def _is_among(self, devices: tuple[int, ...], shape: tuple[int, ...]) -> Var:
        place, table = self.place, np.zeros(self.mesh.size, np.bool_)
        table[list(devices)] = True
        flag = dynamic_slice(constant(value=table), place, slice_sizes=(1,))
        return broadcast_in_dim(reshape(flag, shape=()), shape=shape, dimensions=())


def _paired(eqn: Eqn, here: Rewriter, pairs: Mapping[Var, _Pair], device: _Device) -> Var | None:
    """Both permutes of a pair, where the first of them stands."""
    pair = pairs.get(eqn.outputs[0])
    if pair is None:
        return None
    here.early(pair.early)
    a, b = (here.new(e.inputs[0]) for e in (pair.first, pair.second))
    sources, targets = zip(*pair.first.params["pairs"], strict=True)
    others: Any = pair.second.params["pairs"]
    both = collectives.collective_permute(
        select(device.is_among(sources, a.shape), a, b), pairs=tuple(sorted((*pair.first.params["pairs"], *others)))
    )
    none = zeros_like(both)
    first = select(device.is_among(targets, a.shape), both, none)
    here.replace(pair.second, [select(device.is_among(tuple([t for _, t in others]), a.shape), both, none)])
    return first
