"""Share halos: borders that several equations ask for are sent once. For local Programs, after partitioning.

    %a = collective_permute(slice(%u) [0:1]) {pairs}           %c = collective_permute(slice(%u) [0:2]) {pairs}
    %b = collective_permute(slice(%u) [0:2]) {pairs}     ->    %a = slice(%c) [0:1];  %b = %c

Parts of one value that go the same way, and that differ in one dim only where they overlap, are one part.

Corners: of grids that are cut in two dims, what was shifted along rows is sent along columns.

    %v = concatenate(slice(%u) [1:], %row) {dimension=0}       %d = collective_permute(slice(%u) [1:, 0:1]) {pairs}
    %a = collective_permute(slice(%v) [:, 0:1]) {pairs}  ->    %e = collective_permute(slice(%row) [:, 0:1]) {pairs}
    %b = collective_permute(slice(%u) [:, 0:1]) {pairs}        %a = concatenate(%d, %e) {dimension=0}

Then %d is a part of %b, and just the corner %e is sent besides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.collective.collectives import collective_permute
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.slices import slice_
from meshjit.transform.dce import dce
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite

Bounds = tuple[tuple[int, int], ...]  # per dim from where to where
Part = tuple[Var, Any, Bounds]  # of which value, between whom, which part


def share_halos(program: Program) -> Program:
    """The Program with overlapping borders exchanged together, in nested Programs too."""
    program = _with_corners(in_regions(program, share_halos))
    makers = {v: eqn for eqn in program.eqns for v in eqn.outputs}
    parts = {eqn.outputs[0]: part for eqn in program.eqns if (part := _part(eqn, makers)) is not None}
    shared = _joined(parts)
    if all(shared[v] == part for v, part in parts.items()) and len(set(parts.values())) == len(parts):
        return program
    sent: dict[Part, Var] = {}
    return dce(rewrite(program, {collective_permute.name: lambda eqn, here: _received(eqn, here, parts, shared, sent)}))


def _part(eqn: Eqn, makers: Mapping[Var, Eqn]) -> Part | None:
    """What a permute sends: a plain slice of a value, or a value."""
    if eqn.op is not collective_permute:
        return None
    (var,), pairs = eqn.inputs, eqn.params["pairs"]
    cut = makers.get(var)
    if cut is None or cut.op is not slice_ or any(n != 1 for n in cut.params["strides"]):
        return var, pairs, tuple((0, n) for n in var.shape)
    return cut.inputs[0], pairs, tuple(zip(cut.params["start"], cut.params["limit"], strict=True))


def _with_corners(program: Program) -> Program:
    """Permutes of parts that were put together, as parts put together of permutes, where one of these is sent anyway."""
    makers = {v: eqn for eqn in program.eqns for v in eqn.outputs}
    parts = [part for eqn in program.eqns if (part := _part(eqn, makers)) is not None]
    if len(parts) < 2:
        return program
    sent: dict[Any, list[Bounds]] = {}
    for var, pairs, bounds in parts:
        sent.setdefault((var, pairs), []).append(bounds)
    return rewrite(program, {collective_permute.name: lambda eqn, here: _in_pieces(eqn, here, sent)})


def _in_pieces(eqn: Eqn, here: Rewriter, sent: Mapping[Any, list[Bounds]]) -> Eqn | None:
    """A permute of a concatenation as a concatenation of permutes; None where nothing is saved."""
    part = _part(eqn, here.makers)
    joined = here.makers.get(part[0]) if part is not None else None
    if part is None or joined is None or joined.op is not concatenate:
        return None
    dim, (_, pairs, bounds) = joined.params["dimension"], part
    if bounds[dim] != (0, joined.outputs[0].shape[dim]):
        return None
    pieces = [(v, (*bounds[:dim], (0, v.shape[dim]), *bounds[dim + 1 :])) for v in joined.inputs]
    origins = [_origin(v, b, here.makers) for v, b in pieces]
    saved = [b for (_, b), origin in zip(pieces, origins, strict=True) if _within(origin, pairs, sent)]
    if 2 * sum(map(_size, saved)) < _size(bounds):
        return None
    moved = tuple([collective_permute(_cut(*origin), pairs=pairs) for origin in origins])
    return replace(eqn, op=concatenate, inputs=moved, params={"dimension": dim})


def _origin(var: Var, bounds: Bounds, makers: Mapping[Var, Eqn]) -> tuple[Var, Bounds]:
    """A part of a value; of what the value is a plain slice of, if it is one."""
    cut = makers.get(var)
    if cut is None or cut.op is not slice_ or any(n != 1 for n in cut.params["strides"]):
        return var, bounds
    return cut.inputs[0], tuple((a + n, b + n) for (a, b), n in zip(bounds, cut.params["start"], strict=True))


def _size(bounds: Bounds) -> int:
    return math.prod(b - a for a, b in bounds)


def _within(piece: tuple[Var, Bounds], pairs: Any, sent: Mapping[Any, list[Bounds]]) -> bool:
    """Whether something is sent the same way of which the piece is a part."""
    var, bounds = piece
    others = sent.get((var, pairs), ())
    return any(all(a <= x and y <= b for (x, y), (a, b) in zip(bounds, other, strict=True)) for other in others)


def _joined(parts: Mapping[Var, Part]) -> dict[Var, Part]:
    """Every permute → the part that is sent instead of its own."""
    ways: dict[Any, dict[Bounds, None]] = {}
    for var, pairs, bounds in parts.values():
        ways.setdefault((var, pairs), {})[bounds] = None
    unions = {way: _unions(list(parts)) for way, parts in ways.items()}
    return {v: (var, pairs, unions[var, pairs][bounds]) for v, (var, pairs, bounds) in parts.items()}


def _unions(distinct: list[Bounds]) -> dict[Bounds, Bounds]:
    """Every part of one value → the union that it is sent with."""
    unions = {bounds: bounds for bounds in distinct}
    while True:
        left = list(dict.fromkeys(unions.values()))
        pairs = ((a, b) for i, a in enumerate(left) for b in left[i + 1 :])
        union = next(((a, b, both) for a, b in pairs if (both := _union(a, b)) is not None), None)
        if union is None:
            return unions
        unions = {part: union[2] if sent in union[:2] else sent for part, sent in unions.items()}


def _union(a: Bounds, b: Bounds) -> Bounds | None:
    """Both parts as one, where they differ in one dim and overlap there."""
    other = [d for d, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if len(other) != 1:
        return None
    (low, high), (start, limit) = a[other[0]], b[other[0]]
    if max(low, start) >= min(high, limit):
        return None
    return (*a[: other[0]], (min(low, start), max(high, limit)), *a[other[0] + 1 :])


def _received(
    eqn: Eqn, here: Rewriter, parts: Mapping[Var, Part], shared: Mapping[Var, Part], sent: dict[Part, Var]
) -> Var:
    """The first permute of a shared part sends all of it; every permute is then a slice of what came."""
    (out,) = eqn.outputs
    var, pairs, bounds = part = shared[out]
    if part not in sent:
        sent[part] = collective_permute(_cut(here.new(var), bounds), pairs=pairs)
    inner = zip(parts[out][2], bounds, strict=True)
    return _cut(sent[part], tuple((a - low, b - low) for (a, b), (low, _) in inner))


def _cut(var: Var, bounds: Bounds) -> Var:
    if bounds == tuple((0, n) for n in var.shape):
        return var
    start, limit = zip(*bounds, strict=True)
    return slice_(var, start=start, limit=limit, strides=(1,) * var.rank)
