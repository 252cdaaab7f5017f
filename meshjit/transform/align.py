"""Stencils: what is computed from slices of a sharded dim is computed where the dim's own elements are.

Of `v = u[2:] + u[:-2]; u.at[1:-1].set(v)` the interior v has two elements fewer than u, so that all its shards would lie
a little to the left of u's: two rows of u would come from the next shard, and one row of v from the one before. Here v
gets a *frame*: a value V as long as u, of which v is the part from 1 on and the rest is of no interest.

    u[2:]                     U2 = shift(u, -1)            one row from the next shard
    u[:-2]                    U0 = shift(u, 1)             one row from the shard before
    v = u[2:] + u[:-2]        V = U2 + U0
    u.at[1:-1].set(v)         select(1 <= place < n - 1, V, u)      nothing to exchange

Entries are slices; exits put an interior back into a whole: update_slice, pad, and reductions of the dim, which see the
identity elsewhere. All other equations get, and give, the interior itself. choose_frames.py says where frames are worth it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.rules import ValueDim, resized
from meshjit.core.splat import element_of, is_splat
from meshjit.core.types import TensorType
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import constant, full, iota, scalar, zeros_like
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.slicing.halos import between
from meshjit.ops.slicing.roll import shift
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.transform.choose_frames import BorderPrices, Framing, Shards, choose_frames, extent_of, moves
from meshjit.transform.dce import dce
from meshjit.transform.fold_slices import is_zero
from meshjit.transform.rewriting import in_regions

Dims = frozenset[int]
Sides = dict[int, tuple[int, int]]  # per dim, at which place of a whole a value begins, and the whole's extent


def align(program: Program, shards: Shards, prices: BorderPrices) -> Program:
    """The Program with frames where they save exchanges, in nested Programs too; itself if there are none."""
    program = in_regions(program, lambda nested: align(nested, shards, prices), device=False)
    framing = choose_frames(program, shards, prices)
    return dce(_Aligner(program, framing).run()) if framing.frames else program


class _Aligner:
    """Rewrites one Program. Of every value it keeps the versions that exist: which dims are framed → Var."""

    def __init__(self, program: Program, framing: Framing) -> None:
        self.program = program
        self.frames = framing.frames
        self.roles = framing.roles
        self.versions: dict[Var, dict[Dims, Var]] = {}
        self.cleared: dict[tuple[Var, Dims], Var] = {}
        self.splats = {eqn.outputs[0]: element_of(eqn.params["value"]) for eqn in program.eqns if _is_splat(eqn)}
        self.zeros = {eqn.outputs[0] for eqn in program.eqns if is_zero(eqn)}

    def run(self) -> Program:
        program = self.program
        with Builder(program.name) as builder:
            builder.inputs = list(program.inputs)
            self.versions = {var: {Dims(): var} for var in program.inputs}
            for eqn in program.eqns:
                with builder.at(eqn.source):
                    if not self.rewrite(eqn):
                        new = replace(eqn, inputs=tuple(self.version(v, Dims()) for v in eqn.inputs))
                        builder.eqns.append(new)
                        self.versions.update({v: {Dims(): v} for v in eqn.outputs})
            return builder.build([self.version(v, Dims()) for v in program.outputs])

    def version(self, var: Var, dims: Dims) -> Var:
        """The value with just these dims framed."""
        versions = self.versions[var]
        if dims not in versions:
            have = max(versions, key=lambda h: (len(h & dims), -len(h)))
            versions[dims] = self.embedded(self.interior(versions[have], var, have - dims), var, dims - have)
        return versions[dims]

    def interior(self, framed: Var, var: Var, dims: Dims) -> Var:
        """The framed value without the frames of these dims."""
        if not dims:
            return framed
        start = [self.frames[var, d].begin if d in dims else 0 for d in range(var.rank)]
        limit = [a + var.shape[d] if d in dims else framed.shape[d] for d, a in enumerate(start)]
        return slice_(framed, start=tuple(start), limit=tuple(limit), strides=(1,) * var.rank)

    def embedded(self, value: Var, var: Var, dims: Dims) -> Var:
        """The value put into frames of these dims."""
        return self.put(value, var, {d: (self.frames[var, d].begin, self.frames[var, d].whole) for d in dims})

    def put(self, value: Var, var: Var, sides: Sides) -> Var:
        """The value from these places on in wholes of these extents, per dim; what is around it does not matter."""
        if not sides:
            return value
        if var in self.splats:
            shape = tuple(sides[d][1] if d in sides else n for d, n in enumerate(value.shape))
            return full(value.type.with_shape(shape), self.splats[var])
        low = tuple(sides[d][0] if d in sides else 0 for d in range(var.rank))
        high = tuple(sides[d][1] - n - sides[d][0] if d in sides else 0 for d, n in enumerate(value.shape))
        return pad(value, scalar(0, value.dtype), low=low, high=high, interior=(0,) * var.rank)

    def rewrite(self, eqn: Eqn) -> bool:
        """Whether the equation has been written with frames."""
        return self.moved(eqn) or self.member(eqn)

    # -- entries and exits

    def moved(self, eqn: Eqn) -> bool:
        """What takes parts from wholes, or puts them into some, as a choice by place: elements are where the result, or its
        frame, has them. What is taken goes there last, what is put goes first: that is less."""
        moved = moves(eqn)
        taken = {m.result[1]: self.frames[m.result].begin + m.begin for m in moved if self.is_framed(m.result, m.operand)}
        put = {m.result[1] for m in moved if self.is_framed(m.operand, m.result)}
        if not taken and not put:
            return False
        sides: list[Sides] = [{} for _ in eqn.inputs]
        for number, (_, d), result, begin in moved:
            if result[1] in put:
                sides[number][d] = begin, extent_of(result)
        is_cleared = bool(put) and self.fills_with_zeros(eqn)
        operands = [self.placed(v, each, is_cleared) for v, each in zip(eqn.inputs, sides, strict=True)]

        def inside(i: int, shape: tuple[int, ...]) -> Var | None:
            bounds = {d: (begin, begin + eqn.inputs[i].shape[d]) for d, (begin, _) in sides[i].items()}
            return _inside(shape, bounds) if bounds and not is_cleared else None

        assert eqn.op.aligned is not None
        value = eqn.op.aligned(operands, {*taken, *put}, inside, eqn.params)
        for d, amount in sorted(taken.items()):
            value = _shifted(value, amount, d)
        self.versions[eqn.outputs[0]] = {Dims(taken): value}
        return True

    def is_framed(self, part: ValueDim, whole: ValueDim) -> bool:
        return part in self.frames and self.frames[part].whole == extent_of(whole)

    def fills_with_zeros(self, eqn: Eqn) -> bool:
        """Whether the result has zeros around its first operand."""
        return len(eqn.inputs) > 1 and all(v.rank == 0 and v in self.zeros for v in eqn.inputs[1:])

    def placed(self, var: Var, sides: Sides, is_cleared: bool) -> Var:
        """The value from these places on in wholes of these extents, per dim: shifted where it has such a frame."""
        dims = Dims(d for d, (_, n) in sides.items() if (var, d) in self.frames and self.frames[var, d].whole == n)
        value = self.clear(var, dims) if is_cleared and dims else self.version(var, dims)
        for d in sorted(dims):
            value = _shifted(value, sides[d][0] - self.frames[var, d].begin, d)
        return self.put(value, var, {d: side for d, side in sides.items() if d not in dims})

    def clear(self, var: Var, dims: Dims) -> Var:
        """The framed value with zeros outside of the interior: then a pad with zeros is a shift."""
        if (var, dims) not in self.cleared:
            value = self.version(var, dims)
            frames = {d: self.frames[var, d] for d in dims}
            inside = _inside(value.shape, {d: (f.begin, f.begin + f.extent) for d, f in frames.items()})
            self.cleared[var, dims] = select(inside, value, zeros_like(value))
        return self.cleared[var, dims]

    # -- what treats all places alike

    def member(self, eqn: Eqn) -> bool:
        roles = self.roles[eqn]
        nodes = {node for group in roles.alike.values() for node in group if node in self.frames}
        ends = {node: kind for group, kind in roles.reduced.values() for node in group if node in self.frames}
        if not nodes and not ends:
            return False
        operands = [self.operand(v, nodes, ends) for v in eqn.inputs]
        types = tuple(self.framed(v, nodes) for v in eqn.outputs)
        made = self.remade(eqn, operands, types)
        for var, new in zip(eqn.outputs, made, strict=True):
            self.versions[var] = {Dims(d for d in range(var.rank) if (var, d) in nodes): new}
        return True

    def operand(self, var: Var, nodes: set[ValueDim], ends: Mapping[ValueDim, str]) -> Var:
        """In reduced dims with the identity outside of the interior."""
        dims = Dims(d for d in range(var.rank) if (var, d) in nodes or (var, d) in ends)
        value = self.version(var, dims)
        for d in sorted(dims):
            if (var, d) in ends:
                frame = self.frames[var, d]
                mask = _inside(value.shape, {d: (frame.begin, frame.begin + frame.extent)})
                value = select(mask, value, full(value.type, identity_element(ends[var, d], value.dtype)))
        return value

    def framed(self, var: Var, nodes: set[ValueDim]) -> TensorType:
        shape = (self.frames[var, d].whole if (var, d) in nodes else n for d, n in enumerate(var.shape))
        return var.type.with_shape(tuple(shape))

    def remade(self, eqn: Eqn, operands: Sequence[Var], types: tuple[TensorType, ...]) -> Sequence[Var]:
        """The equation on other extents."""
        params = resized(eqn.op, eqn.params, tuple(v.type for v in operands), types)
        assert params is not None, eqn
        made = eqn.op(*operands, **params)
        return made if isinstance(made, tuple) else (made,)


def _is_splat(eqn: Eqn) -> bool:
    return eqn.op is constant and bool(eqn.params["value"].size) and is_splat(eqn.params["value"])


def _shifted(value: Var, amount: int, dim: int) -> Var:
    return shift(value, shift=amount, dimension=dim) if amount else value


def _inside(shape: Sequence[int], bounds: Mapping[int, tuple[int, int]]) -> Var:
    """bool of this shape: whether an element lies within the bounds of all these dims."""
    total: Var | None = None
    for d, (low, high) in sorted(bounds.items()):
        mask = between(iota(dtype=np.dtype(np.int32), shape=tuple(shape), dimension=d), low, high)
        total = mask if total is None else and_(total, mask)
    assert total is not None
    return total
