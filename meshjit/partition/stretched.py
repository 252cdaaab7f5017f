"""One iteration of a loop on stretches: the local equations that compute every value where it is wanted, alone.

What would be fetched from neighbours is there: a moved value is another part of the same stretch. Where the ends of a dim
matter (shift, pad, update_slice, concatenate), elements are chosen by their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.rules import rule_of
from meshjit.core.splat import element_of, is_splat
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, multiply, subtract
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import constant, full, full_like, iota, scalar, spread, zeros_like
from meshjit.ops.base.conversion import convert
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.base.shape import broadcast_in_dim
from meshjit.ops.index.dynamic import dynamic_slice, dynamic_update_slice
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.halos import between, cut
from meshjit.ops.slicing.roll import roll, shift
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.ops.slicing.update_slice import update_slice
from meshjit.ops.window.convolution import convolution
from meshjit.ops.window.reduce_window import reduce_window
from meshjit.partition.moves import Moves
from meshjit.partition.stretches import (
    Offsets,
    Sliding,
    Space,
    Spaces,
    Stretch,
    Stretches,
    known_integers,
    offsets_of,
    seen_by,
    sliding_of,
    starts_of,
)

I32 = np.dtype(np.int32)


class Stretcher:
    """Writes iterations of `body` into `builder`, which is the current one. Values are kept with their stretches."""

    def __init__(self, body: Program, spaces: Spaces, moves: Moves, builder: Builder) -> None:
        self.body = body
        self.spaces = spaces
        self.moves = moves
        self.builder = builder
        self.constants = known_integers(body)
        self.columns: dict[Any, Var] = {}  # places of a stretch, and which of them are inside of bounds
        self.values: dict[Var, tuple[Var, Stretches]] = {}

    def iteration(
        self, wanted: Mapping[Var, Stretches], inputs: Mapping[Var, tuple[Var, Stretches]]
    ) -> dict[Var, tuple[Var, Stretches]]:
        """Every value that is wanted of one iteration."""
        self.values = dict(inputs)
        for eqn in self.body.eqns:
            if any(v in wanted for v in eqn.outputs):
                with self.builder.at(eqn.source):
                    results = self.equation(eqn, [wanted[v] for v in eqn.outputs])
                for var, result in zip(eqn.outputs, results, strict=True):
                    expected = self.type(var, wanted[var])
                    assert result.type == expected, f"{eqn.op.name}: {result.type} where {expected} is wanted"
                    self.values[var] = (result, wanted[var])
        return self.values

    def at(self, var: Var, stretches: Stretches) -> Var:
        """The value at these stretches, of which it has at least as much."""
        local, have = self.values[var]
        for d, (own, other) in enumerate(zip(have, stretches, strict=True)):
            if own is not None and other is not None and own != other:
                low = own[0] - other[0]
                local = cut(local, d, low, low + self.spaces[var, d].width(other))
        return local

    def type(self, var: Var, stretches: Stretches) -> TensorType:
        columns = enumerate(zip(var.shape, stretches, strict=True))
        return var.type.with_shape(tuple(n if s is None else self.spaces[var, d].width(s) for d, (n, s) in columns))

    def equation(self, eqn: Eqn, wanted: Sequence[Stretches]) -> Sequence[Var]:
        if eqn.op is constant:
            return [self.constant(eqn, wanted[0])]
        if eqn.op is iota:
            return [self.iota(eqn, wanted[0])]
        offsets, slides = offsets_of(eqn, self.constants), sliding_of(eqn)
        if slides is not None:
            return self.windows(eqn, slides, wanted[0])
        if offsets is None:
            return self.alike(eqn, wanted)
        operands = [
            self.values[v][0] if column is None else self.at(v, self.displaced(v, column, wanted[0]))
            for v, column in zip(eqn.inputs, offsets, strict=True)
        ]
        return [_RULES[eqn.op](self, eqn, operands, wanted[0])]

    def displaced(self, var: Var, offsets: Offsets, result: Stretches) -> Stretches:
        columns = enumerate(zip(offsets, result, strict=True))
        return tuple(None if s is None else self.spaces[var, d].moved(s, o or 0) for d, (o, s) in columns)

    def alike(self, eqn: Eqn, wanted: Sequence[Stretches]) -> Sequence[Var]:
        """An op that treats all places alike: operands at the stretch of their factor, which is that of the results."""
        factors: dict[str, Stretch] = {}
        if any((v, d) in self.spaces for v in (*eqn.inputs, *eqn.outputs) for d in range(v.rank)):
            rule = rule_of(eqn)
            for dims, stretches in zip(rule.results, wanted, strict=True):
                factors.update((f[0], s) for f, s in zip(dims, stretches, strict=True) if s is not None)
            sides = [tuple(factors.get(f[0]) if f else None for f in dims) for dims in rule.operands]
        else:
            sides = [(None,) * v.rank for v in eqn.inputs]
        operands = [self.at(v, side) for v, side in zip(eqn.inputs, sides, strict=True)]
        params = eqn.params
        if eqn.op.localize is not None:
            types = tuple(self.type(v, s) for v, s in zip(eqn.outputs, wanted, strict=True))
            params = eqn.op.localize(params, tuple(v.type for v in operands), types)
        return self.builder.emit(eqn.op, operands, params)

    def windows(self, eqn: Eqn, slides: Sequence[Sliding], wanted: Stretches) -> Sequence[Var]:
        """Windows over stretches that are long enough: no padding, but what padding holds beyond the ends of the dim."""
        var, (out,) = eqn.inputs[0], eqn.outputs
        stretches = seen_by(var, slides, wanted)
        local, params = self.at(var, stretches), dict(eqn.params)
        fill = identity_element(params["kind"], var.dtype) if eqn.op is reduce_window else 0
        spatial = params["dimension_numbers"][0][2:] if eqn.op is convolution else range(var.rank)
        padding = list(params["padding"])
        for d, stretch in enumerate(stretches):
            if stretch is not None and d in spatial:
                number = list(spatial).index(d)
                if max(padding[number]) > 0:
                    mask = self.within(self.spaces[var, d], stretch, 0, var.shape[d], d, local.shape)
                    local = select(mask, local, full(local.type, fill))
                padding[number] = (0, 0)
        params["padding"] = tuple(padding)
        operands = (local, *(self.at(v, (None,) * v.rank) for v in eqn.inputs[1:]))
        if eqn.op.localize is not None:
            params = eqn.op.localize(params, tuple(v.type for v in operands), (self.type(out, wanted),))
        return self.builder.emit(eqn.op, operands, params)

    # -- values from nothing

    def constant(self, eqn: Eqn, wanted: Stretches) -> Var:
        value, (var,) = eqn.params["value"], eqn.outputs
        if is_splat(value):
            return full(self.type(var, wanted), element_of(value))
        local = constant(value=value)
        for d, stretch in enumerate(wanted):
            if stretch is not None:
                local = from_whole(local, d, self.spaces[var, d], stretch, self.moves)
        return local

    def iota(self, eqn: Eqn, wanted: Stretches) -> Var:
        (var,), dim = eqn.outputs, eqn.params["dimension"]
        type, stretch = self.type(var, wanted), wanted[dim]
        if stretch is None:
            return iota(dtype=eqn.params["dtype"], shape=type.shape, dimension=dim)
        places = convert(self.places(self.spaces[var, dim], stretch), dtype=type.dtype)
        return broadcast_in_dim(places, shape=type.shape, dimensions=(dim,))

    # -- places

    def places(self, space: Space, stretch: Stretch) -> Var:
        """i32: the global place of every element of a stretch; in a ring, of those that it goes on with."""
        key = space, stretch
        if key not in self.columns:
            width = space.width(stretch)
            begin = subtract(multiply(self.moves.index(space.axes), scalar(space.block, I32)), scalar(stretch[0], I32))
            found = add(iota(dtype=I32, shape=(width,), dimension=0), spread(begin, (width,)))
            if space.in_ring:
                period = full_like(found, space.period)
                before = compare(found, zeros_like(found), direction="LT")
                behind = compare(found, period, direction="GE")
                found = select(before, add(found, period), select(behind, subtract(found, period), found))
            self.columns[key] = found
        return self.columns[key]

    def inside(self, var: Var, dim: int, stretch: Stretch, low: int, high: int, shape: Sequence[int]) -> Var | None:
        """bool of this shape: which elements along `dim` have a place in [low, high); None if all that matter have."""
        if low <= 0 and high >= var.shape[dim]:
            return None
        return self.within(self.spaces[var, dim], stretch, low, high, dim, shape)

    def within(self, space: Space, stretch: Stretch, low: int, high: int, dim: int, shape: Sequence[int]) -> Var:
        key = space, stretch, low, high
        if key not in self.columns:
            self.columns[key] = between(self.places(space, stretch), low, high)
        return broadcast_in_dim(self.columns[key], shape=tuple(shape), dimensions=(dim,))

    def all_inside(self, var: Var, wanted: Stretches, bounds: Sequence[tuple[int, int]], shape: Sequence[int]) -> Var | None:
        """Elements that lie in their bounds along all stretched dims."""
        found = None
        for d, (stretch, (low, high)) in enumerate(zip(wanted, bounds, strict=True)):
            mask = None if stretch is None else self.inside(var, d, stretch, low, high, shape)
            found = mask if found is None else found if mask is None else and_(found, mask)
        return found


def from_whole(whole: Var, dim: int, space: Space, stretch: Stretch, moves: Moves) -> Var:
    """The stretch of this device, of a value that it has all of."""
    before, after, extent = *stretch, whole.shape[dim]
    low, high = max(before, 0), max(space.period + after - extent, 0)
    if space.in_ring:
        missing = space.period - extent
        grown = _grown(whole, dim, 0, missing)
        parts = [cut(grown, dim, space.period - low, space.period)] if low else []
        parts += [grown, *([cut(grown, dim, 0, after)] if after > 0 else [])]
        grown = concatenate(*parts, dimension=dim) if len(parts) > 1 else grown
    else:
        grown = _grown(whole, dim, low, high)
    begin = add(multiply(moves.index(space.axes), scalar(space.block, I32)), scalar(low - before, I32))
    starts = [begin if d == dim else scalar(0, I32) for d in range(whole.rank)]
    sizes = tuple(space.width(stretch) if d == dim else n for d, n in enumerate(whole.shape))
    return dynamic_slice(grown, *starts, slice_sizes=sizes)


def _grown(var: Var, dim: int, low: int, high: int) -> Var:
    if not low and not high:
        return var
    sides = [tuple(n if d == dim else 0 for d in range(var.rank)) for n in (low, high, 0)]
    return pad(var, scalar(0, var.dtype), low=sides[0], high=sides[1], interior=sides[2])


# -- ops that move elements: operands come at the stretches that the result needs of them


def _slice(self: Stretcher, eqn: Eqn, operands: Sequence[Var], wanted: Stretches) -> Var:
    (x,) = operands
    columns = zip(wanted, x.shape, eqn.params["start"], eqn.params["limit"], eqn.params["strides"], strict=True)
    cuts = [(low, high, step) if stretch is None else (0, n, 1) for stretch, n, low, high, step in columns]
    start, limit, strides = zip(*cuts, strict=True)
    return x if limit == x.shape and not any(start) else slice_(x, start=start, limit=limit, strides=strides)


def _pad(self: Stretcher, eqn: Eqn, operands: Sequence[Var], wanted: Stretches) -> Var:
    x, value = operands
    names = ("low", "high", "interior")
    rest = {name: tuple(0 if s is not None else n for s, n in zip(wanted, eqn.params[name], strict=True)) for name in names}
    padded = pad(x, value, **rest) if any(map(any, rest.values())) else x
    extents = eqn.inputs[0].shape
    bounds = [(low, low + n) for low, n in zip(eqn.params["low"], extents, strict=True)]
    mask = self.all_inside(eqn.outputs[0], wanted, bounds, padded.shape)
    return padded if mask is None else select(mask, padded, spread(value, padded.shape))


def _roll(self: Stretcher, eqn: Eqn, operands: Sequence[Var], wanted: Stretches) -> Var:
    (x,) = operands
    return roll(x, **eqn.params) if wanted[eqn.params["dimension"]] is None else x


def _shift(self: Stretcher, eqn: Eqn, operands: Sequence[Var], wanted: Stretches) -> Var:
    (x,), dim, amount = operands, eqn.params["dimension"], eqn.params["shift"]
    stretch, extent = wanted[dim], eqn.inputs[0].shape[dim]
    if stretch is None:
        return shift(x, **eqn.params)
    mask = self.inside(eqn.outputs[0], dim, stretch, max(amount, 0), extent + min(amount, 0), x.shape)
    return x if mask is None else select(mask, x, zeros_like(x))


def _update(
    self: Stretcher, eqn: Eqn, x: Var, update: Var, wanted: Stretches, starts: Sequence[int | None], put: Any
) -> Var:
    """The update where it lies along stretched dims, what was there elsewhere; `put` puts that in along the others."""
    extents = zip(starts, eqn.inputs[1].shape, strict=True)
    bounds = [(start or 0, (start or 0) + n) for start, n in extents]
    mask = self.all_inside(eqn.outputs[0], wanted, bounds, update.shape)
    if mask is not None:
        update = select(mask, update, put(None))
    return update if update.shape == x.shape else put(update)


def _update_slice(self: Stretcher, eqn: Eqn, operands: Sequence[Var], wanted: Stretches) -> Var:
    (x, update), start = operands, eqn.params["start"]
    inner = tuple(0 if s is not None else a for s, a in zip(wanted, start, strict=True))
    limit = tuple(a + n for a, n in zip(inner, update.shape, strict=True))

    def put(new: Var | None) -> Var:
        if new is not None:
            return update_slice(x, new, start=inner)
        return x if x.shape == update.shape else slice_(x, start=inner, limit=limit, strides=(1,) * x.rank)

    return _update(self, eqn, x, update, wanted, start, put)


def _dynamic_update_slice(self: Stretcher, eqn: Eqn, operands: Sequence[Var], wanted: Stretches) -> Var:
    (x, update), starts = operands[:2], starts_of(eqn, 2, eqn.inputs[0].shape, eqn.inputs[1].shape, self.constants)
    inner = [scalar(0, v.dtype) if s is not None else v for s, v in zip(wanted, operands[2:], strict=True)]

    def put(new: Var | None) -> Var:
        if new is not None:
            return dynamic_update_slice(x, new, *inner)
        return x if x.shape == update.shape else dynamic_slice(x, *inner, slice_sizes=update.shape)

    return _update(self, eqn, x, update, wanted, starts, put)


def _dynamic_slice(self: Stretcher, eqn: Eqn, operands: Sequence[Var], wanted: Stretches) -> Var:
    x, *starts = operands
    inner = [scalar(0, v.dtype) if s is not None else v for s, v in zip(wanted, starts, strict=True)]
    sizes = tuple(n if s is not None else m for s, n, m in zip(wanted, x.shape, eqn.params["slice_sizes"], strict=True))
    return x if sizes == x.shape else dynamic_slice(x, *inner, slice_sizes=sizes)


def _concatenate(self: Stretcher, eqn: Eqn, operands: Sequence[Var], wanted: Stretches) -> Var:
    dim = eqn.params["dimension"]
    stretch = wanted[dim]
    if stretch is None:
        return concatenate(*operands, dimension=dim)
    result, end = operands[-1], eqn.outputs[0].shape[dim] - eqn.inputs[-1].shape[dim]
    for var, piece in zip(reversed(eqn.inputs[:-1]), reversed(operands[:-1]), strict=True):
        begin = end - var.shape[dim]
        mask = self.inside(eqn.outputs[0], dim, stretch, begin, end, piece.shape)
        result, end = piece if mask is None else select(mask, piece, result), begin
    return result


_RULES: dict[Any, Any] = {
    slice_: _slice,
    pad: _pad,
    roll: _roll,
    shift: _shift,
    update_slice: _update_slice,
    dynamic_update_slice: _dynamic_update_slice,
    dynamic_slice: _dynamic_slice,
    concatenate: _concatenate,
}
