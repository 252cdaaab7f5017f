"""One iteration of a loop on stretches: the local equations that compute every value on its stretch, without neighbours.

What would be fetched from neighbours is there: a moved value is another part of the same stretch. Where the ends of a dim
matter (shift, pad, update_slice, concatenate), elements are chosen by their place.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from meshjit.core.access import Window
from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.rules import resized
from meshjit.ops.base.arithmetic import add, subtract
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import first_place, full_like, iota, scalar, spread, zeros_like
from meshjit.ops.base.shape import broadcast_in_dim
from meshjit.ops.index.dynamic import dynamic_slice
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.halos import between, cut
from meshjit.ops.slicing.slices import pad
from meshjit.partition.moves import Moves
from meshjit.partition.stretches import (
    OWN,
    Division,
    Divisions,
    Stretch,
    Stretches,
    known_integers,
    places_of,
    seen_by,
    span,
    stretches_alike,
)


class Stretcher:
    """Writes iterations of `body` into `builder`, which is the current one. Values are kept with their stretches."""

    def __init__(self, body: Program, divisions: Divisions, moves: Moves, builder: Builder) -> None:
        self.body = body
        self.divisions = divisions
        self.moves = moves
        self.builder = builder
        self.constants = known_integers(body)
        self.columns: dict[Any, Var] = {}  # places of a stretch, and which of them are inside of bounds
        self.values: dict[Var, tuple[Var, Stretches]] = {}

    def iteration(
        self, needs: Mapping[Var, Stretches], inputs: Mapping[Var, tuple[Var, Stretches]]
    ) -> dict[Var, tuple[Var, Stretches]]:
        """The values of one iteration that have a stretch."""
        self.values = dict(inputs)
        for eqn in self.body.eqns:
            if any(v in needs for v in eqn.outputs):
                with self.builder.at(eqn.source):
                    results = self.equation(eqn, [needs[v] for v in eqn.outputs])
                for var, result in zip(eqn.outputs, results, strict=True):
                    expected = self.divisions.type(var, needs[var])
                    assert result.type == expected, f"{eqn.op.name}: {result.type} where {expected} is wanted"
                    self.values[var] = (result, needs[var])
        return self.values

    def at(self, var: Var, stretches: Stretches) -> Var:
        """The value at these stretches, of which it has at least as much."""
        return self.divisions.cut(var, *self.values[var], stretches)

    def equation(self, eqn: Eqn, targets: Sequence[Stretches]) -> Sequence[Var]:
        if eqn.op.made_at is not None:
            return [self.made(eqn, targets[0])]
        return self.alike(eqn, targets) if eqn.op.aligned is None else [self.aligned(eqn, targets[0])]

    def alike(self, eqn: Eqn, targets: Sequence[Stretches]) -> Sequence[Var]:
        """An op that does the same at all places: operands at the stretch of their factor, which is that of the results."""
        stretches = stretches_alike(eqn, dict(zip(eqn.outputs, targets, strict=True)), self.divisions)
        operands = [self.at(v, stretches[v]) for v in eqn.inputs]
        types = tuple(self.divisions.type(v, s) for v, s in zip(eqn.outputs, targets, strict=True))
        params = resized(eqn.op, eqn.params, tuple(v.type for v in operands), types)
        assert params is not None, eqn
        return self.builder.emit(eqn.op, operands, params)

    def aligned(self, eqn: Eqn, target: Stretches) -> Var:
        """An op that is given what it sees: another part of the same stretches, chosen from by place."""
        (out,), places = eqn.outputs, places_of(eqn, self.constants)
        stretches = seen_by(eqn, target, self.divisions, self.constants)
        operands = [self.at(v, s) for v, s in zip(eqn.inputs, stretches, strict=True)]

        def inside(i: int, shape: tuple[int, ...]) -> Var | None:
            """By places of the result, which operands have in common; of windows by those of the operand."""
            var, masks = eqn.inputs[i], list[Var]()
            for d, (own, here) in enumerate(zip(stretches[i], places[i], strict=True)):
                if own is None or (moves := span(here)) is None or getattr(here, "in_ring", False):
                    continue
                (dim, low, reach), extent = moves, var.shape[d]
                if low > 0 or out.shape[dim] - low + reach - 1 > extent:
                    stretch, begin = (own, 0) if isinstance(here, Window) else (target[dim] or OWN, low)
                    masks.append(self.within(self.divisions[var, d], stretch, begin, begin + extent, d, shape))
            return functools.reduce(and_, masks) if masks else None

        assert eqn.op.aligned is not None
        return eqn.op.aligned(operands, frozenset(e for e, s in enumerate(target) if s is not None), inside, eqn.params)

    # -- values from nothing

    def made(self, eqn: Eqn, target: Stretches) -> Var:
        """A stretch of what is made of nothing."""
        (var,) = eqn.outputs

        def places(dim: int) -> Var | None:
            stretch = target[dim]
            return None if stretch is None else self.places(self.divisions[var, dim], stretch)

        def part(local: Var) -> Var:
            for d, stretch in enumerate(target):
                if stretch is not None:
                    local = from_whole(local, d, self.divisions[var, d], stretch, self.moves)
            return local

        assert eqn.op.made_at is not None
        return eqn.op.made_at(self.divisions.type(var, target), places, part, eqn.params)

    # -- places

    def places(self, division: Division, stretch: Stretch) -> Var:
        """i32, or i64 where the dim needs it: the global place of every element of a stretch; in a ring, of those that follow."""
        key = division, stretch
        if key not in self.columns:
            width = division.width(stretch)
            first = _first(division, self.moves)
            begin = subtract(first, scalar(stretch[0], first.dtype))
            places = add(iota(dtype=first.dtype, shape=(width,), dimension=0), spread(begin, (width,)))
            if division.in_ring:
                period = full_like(places, division.period)
                before = compare(places, zeros_like(places), direction="LT")
                behind = compare(places, period, direction="GE")
                places = select(before, add(places, period), select(behind, subtract(places, period), places))
            self.columns[key] = places
        return self.columns[key]

    def within(self, division: Division, stretch: Stretch, low: int, high: int, dim: int, shape: Sequence[int]) -> Var:
        key = division, stretch, low, high
        if key not in self.columns:
            self.columns[key] = between(self.places(division, stretch), low, high)
        return broadcast_in_dim(self.columns[key], shape=tuple(shape), dimensions=(dim,))


def _first(division: Division, moves: Moves) -> Var:
    """The global place at which this device's block begins."""
    return first_place(moves.index(division.axes), moves.mesh.axes_size(division.axes), division.block)


def from_whole(whole: Var, dim: int, division: Division, stretch: Stretch, moves: Moves) -> Var:
    """The stretch of this device, of a value that it has all of."""
    before, after, extent = *stretch, whole.shape[dim]
    low, high = max(before, 0), max(division.period + after - extent, 0)
    if division.in_ring:
        missing = division.period - extent
        grown = _grown(whole, dim, 0, missing)
        parts = [cut(grown, dim, division.period - low, division.period)] if low else []
        parts += [grown, *([cut(grown, dim, 0, after)] if after > 0 else [])]
        grown = concatenate(*parts, dimension=dim) if len(parts) > 1 else grown
    else:
        grown = _grown(whole, dim, low, high)
    first = _first(division, moves)
    begin = add(first, scalar(low - before, first.dtype))
    starts = [begin if d == dim else scalar(0, begin.dtype) for d in range(whole.rank)]
    sizes = tuple(division.width(stretch) if d == dim else n for d, n in enumerate(whole.shape))
    return dynamic_slice(grown, *starts, slice_sizes=sizes)


def _grown(var: Var, dim: int, low: int, high: int) -> Var:
    if not low and not high:
        return var
    sides = [tuple(n if d == dim else 0 for d in range(var.rank)) for n in (low, high, 0)]
    return pad(var, scalar(0, var.dtype), low=sides[0], high=sides[1], interior=sides[2])
