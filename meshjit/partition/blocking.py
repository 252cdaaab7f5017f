"""Loops over stencils exchange the borders of several iterations at once; each device then computes these iterations alone.

    scan(%u) {body: one element from both neighbours, length=100}
      ->  scan(%u) {body: 10 elements from both neighbours; scan {body: one iteration, length=10}, length=10}

Values are the same; elements near borders are computed on two devices. `plan/proposals/block_iterations.py` says where that
pays. The loop must run a known number of times, and its body may only shift values along sharded dims, and otherwise
treat all their positions alike (see stretches.py). Grids that are sharded in several dims exchange one dim after the
other, corners included. Invariants and the operands that the loop slices get their borders before the loop. Sums over a
sharded dim, gathers, nested loops and everything else leave the loop as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from meshjit.core.effects import is_pure
from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import Region, run_regions
from meshjit.ops.base.constants import scalar
from meshjit.ops.base.shape import reshape
from meshjit.ops.collective.collectives import collective_permute
from meshjit.ops.control.scan import scan
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.halos import cut
from meshjit.ops.slicing.slices import pad
from meshjit.partition.moves import Moves
from meshjit.partition.stretched import Stretcher, from_whole
from meshjit.partition.stretches import (
    OWN,
    Division,
    Divisions,
    Refused,
    Stretch,
    Stretches,
    find_divisions,
    hull,
    needs_before,
)
from sharding.mesh import BaseMesh

MOST_ITERATIONS: Final = 32  # of one block

Needs = Mapping[Var, Stretches]


@dataclass(frozen=True)
class BlockedLoop:
    """A scan that might be done in blocks. `needs[r]`: the stretches that values need r iterations before the end of a block."""

    eqn: Eqn
    region: Region
    plan: Plan
    divisions: Divisions
    mesh: BaseMesh
    needs: list[Needs]

    @property
    def body(self) -> Program:
        return self.region.program

    @property
    def length(self) -> int:
        return self.eqn.params["length"]

    @property
    def carried(self) -> dict[Var, Var]:
        """Input → what the next iteration has there."""
        return {self.body.inputs[i]: self.body.outputs[output] for i, output in self.region.carried}

    def stretches(self, count: int) -> dict[Var, Stretches]:
        """The stretches of the inputs at the beginning of a block of `count` iterations, for all of it."""
        own = {v: self.divisions.own(v) for v in self.body.inputs}
        needs = self.needs[count - 1] if count else {}
        return {v: hull(s, needs[v]) if v in needs else s for v, s in own.items()}


def write_in_blocks(
    eqn: Eqn, plan: EquationPlan, operands: Sequence[Var], builder: Builder, moves: Moves
) -> Sequence[Var]:
    """The local results of a loop whose plan says how many of its iterations are done at a time."""
    return _Writer(blocked_loop(eqn, plan.bodies[0], moves.mesh), builder, moves).write(operands, plan.block)


def fetch_borders(loop: BlockedLoop, count: int, moves: Moves) -> Program:
    """What a block of so many iterations begins with: its carries with their borders."""
    reached = loop.stretches(count)
    with Builder(loop.body.name) as builder:
        writer = _Writer(loop, builder, moves)
        inputs = [(v, builder.input(loop.divisions.type(v, loop.divisions.own(v)))) for v in loop.carried]
        return builder.build([writer.fetched(v, x, reached[v]) for v, x in inputs])


def blocked_loop(eqn: Eqn, plan: Plan, mesh: BaseMesh) -> BlockedLoop:
    """The loop as it might be done in blocks; `plan` is that of its body. Refused where it cannot, with the reason."""
    (region,) = run_regions(eqn)
    body = region.program
    _check_body(body, plan)
    divisions = find_divisions(region, plan.inputs, mesh)
    outer = {i for i, _ in region.carried}
    seeds = {v for inner in body.eqns if inner.op.seed is not None for v in inner.outputs}
    pairs = [(v, plan.placements[v]) for v in seeds]
    pairs += [(v, p) for i, (v, p) in enumerate(zip(body.inputs, plan.inputs, strict=True)) if i in outer]
    for var, placement in [*pairs, *zip(body.outputs, plan.outputs, strict=True)]:
        for d, axes in enumerate(placement.dims):
            division = divisions.get((var, d))
            extent = placement.local_shape(var.shape, mesh)[d]
            own = division.axes if division else (), division.block if division else extent
            if ((axes if mesh.axes_size(axes) > 1 else ()), extent) != own:
                raise Refused(f"dim {d} of {var.type} is wanted elsewhere")
    loop = BlockedLoop(eqn, region, plan, divisions, mesh, [])
    for _ in range(min(MOST_ITERATIONS, eqn.params["length"])):
        if not _extend(loop):
            break
    if not loop.needs:
        raise Refused("an iteration needs more than the shards next to a device's own have")
    if all(s in (None, OWN) for v in loop.carried for s in loop.stretches(1)[v]):
        raise Refused("what is exchanged are no borders of what the loop carries")
    return loop


def _check_body(body: Program, plan: Plan) -> None:
    nested = next((eqn for eqn in body.eqns if eqn.op.regions is not None), None)
    if nested is not None:
        raise Refused(f"the body holds {nested.op.name}")
    effect = next((eqn for eqn in body.eqns if not is_pure(eqn)), None)
    if effect is not None:
        raise Refused(f"the body has an effect, {effect.op.name}")
    if any(p.partial for p in (*plan.inputs, *plan.outputs)):
        raise Refused("a carry collects partial sums")


def _extend(loop: BlockedLoop) -> bool:
    """One more iteration; False where its borders are more than neighbours have."""
    reached = loop.stretches(len(loop.needs))
    outputs = [(v, loop.divisions.own(v)) for v in loop.body.outputs]
    outputs += [(loop.body.outputs[output], reached[loop.body.inputs[i]]) for i, output in loop.region.carried]
    needs = needs_before(loop.body, loop.divisions, outputs)
    loop.needs.append(needs)
    inputs = loop.stretches(len(loop.needs))
    near = all(_is_near(s, loop.divisions[v, d]) for v, stretches in inputs.items() for d, s in enumerate(stretches) if s)
    if not near:
        loop.needs.pop()
    return near


def _is_near(stretch: Stretch, division: Division) -> bool:
    return all(-division.block < side <= division.block for side in stretch)


# -- writing it


class _Writer:
    def __init__(self, loop: BlockedLoop, builder: Builder, moves: Moves) -> None:
        self.loop = loop
        self.builder = builder  # what the loop stands in
        self.moves = moves

    def write(self, operands: Sequence[Var], count: int) -> list[Var]:
        """Blocks of `count` iterations in a loop, and the iterations that are left in a block of their own."""
        loop, params = self.loop, self.loop.eqn.params
        consts, carries, slices = self.given(operands, count)
        blocks, left = divmod(loop.length, count)
        head, tail = (left, loop.length) if params["reverse"] else (0, loop.length - left)
        if blocks == 1:
            xs = [cut(x, 0, head, tail) for x in slices]
            results = self.builder.inline(self.block(count, count), [*consts, *carries, *xs])
        else:
            xs = [reshape(cut(x, 0, head, tail), shape=(blocks, count, *x.shape[1:])) for x in slices]
            changed = {**params, "body": self.block(count, count), "length": blocks, "unroll": 1}
            results = list(self.builder.emit(scan, [*consts, *carries, *xs], changed))
        carries, ys = results[: len(carries)], results[len(carries) :]
        if blocks > 1:
            ys = [reshape(y, shape=(blocks * count, *y.shape[2:])) for y in ys]
        if left:
            first = 0 if params["reverse"] else tail
            rest = [cut(x, 0, first, first + left) for x in slices]
            results = self.builder.inline(self.block(left, count), [*consts, *carries, *rest])
            carries, others = results[: len(carries)], results[len(carries) :]
            sides = [(b, a) if params["reverse"] else (a, b) for a, b in zip(ys, others, strict=True)]
            ys = [concatenate(*pair, dimension=0) for pair in sides]
        return [*carries, *ys]

    def given(self, operands: Sequence[Var], count: int) -> tuple[list[Var], list[Var], list[Var]]:
        """Consts and xs with the borders that a block needs; the carries as they are."""
        loop, stretches = self.loop, self.loop.stretches(count)
        groups: tuple[list[Var], list[Var], list[Var]] = ([], [], [])
        for i, (var, local, placement) in enumerate(zip(loop.body.inputs, operands, loop.plan.inputs, strict=True)):
            sliced = int(i in loop.region.sliced)
            for d, stretch in enumerate(stretches[var] if var not in loop.carried else ()):
                if stretch is not None:
                    division, dim = loop.divisions[var, d], d + sliced
                    if loop.mesh.axes_size(placement.dims[d]) > 1:
                        local = with_borders(local, dim, division, stretch, loop.mesh)
                    else:
                        local = from_whole(local, dim, division, stretch, self.moves)
            groups[1 if var in loop.carried else 2 * sliced].append(local)
        return groups

    def block(self, count: int, count_outside: int) -> Program:
        """The body of a block: its carries' borders, then all its iterations. What is given from outside has the borders
        that blocks of `count_outside` iterations need."""
        loop, params = self.loop, self.loop.eqn.params
        body, outside, reached = loop.body, loop.stretches(count_outside), loop.stretches(count)
        with Builder(body.name) as builder, builder.at(loop.eqn.source):
            inputs = list[Var]()
            for i, var in enumerate(body.inputs):
                type = loop.divisions.type(var, loop.divisions.own(var) if var in loop.carried else outside[var])
                inputs.append(builder.input(type.with_shape((count, *type.shape)) if i in loop.region.sliced else type))
            operands = [
                self.fetched(v, x, reached[v]) if v in loop.carried else x for v, x in zip(body.inputs, inputs, strict=True)
            ]
            changed = {**params, "body": self.iteration(count, outside), "length": count}
            results = list(builder.emit(scan, operands, changed))
            own = loop.divisions.own
            carries = [loop.divisions.cut(v, x, reached[v], own(v)) for v, x in zip(loop.carried, results, strict=False)]
            return builder.build([*carries, *results[len(carries) :]])

    def iteration(self, count: int, outside: Needs) -> Program:
        """One iteration for a block of so many: its carries go out as long as they came in, although less of them is
        right each time; after the last one it is the device's own part."""
        loop, body, reached = self.loop, self.loop.body, self.loop.stretches(count)
        with Builder(body.name) as builder:
            stretcher = Stretcher(body, loop.divisions, Moves(loop.mesh, self.moves.target), builder)
            stretches = {v: reached[v] if v in loop.carried else outside[v] for v in body.inputs}
            inputs = {v: builder.input(loop.divisions.type(v, stretches[v]), v.hint) for v in body.inputs}
            values = stretcher.iteration(loop.needs[count - 1], {v: (x, stretches[v]) for v, x in inputs.items()})
            carries = [self.filled(v, *values[out], reached[v]) for v, out in loop.carried.items()]
            stacked = [body.outputs[i] for i in sorted(loop.region.stacked)]
            return builder.build([*carries, *(stretcher.at(v, loop.divisions.own(v)) for v in stacked)])

    def filled(self, var: Var, local: Var, have: Stretches, target: Stretches) -> Var:
        """A carry at the stretches `target`, with zeros where it has less."""
        both = [(a or OWN, b or OWN) for a, b in zip(have, target, strict=True)]
        most = tuple((min(a[0], b[0]), min(a[1], b[1])) for a, b in both)
        local = self.loop.divisions.cut(var, local, have, tuple(m if s else None for m, s in zip(most, target, strict=True)))
        low, high = (tuple(b[side] - m[side] for m, (_, b) in zip(most, both, strict=True)) for side in (0, 1))
        if not any(low) and not any(high):
            return local
        return pad(local, scalar(0, local.dtype), low=low, high=high, interior=(0,) * var.rank)

    def fetched(self, var: Var, local: Var, target: Stretches) -> Var:
        """A carry with its borders."""
        for d, stretch in enumerate(target):
            if stretch is not None:
                local = with_borders(local, d, self.loop.divisions[var, d], stretch, self.loop.mesh)
        return local


def with_borders(local: Var, dim: int, division: Division, stretch: Stretch, mesh: BaseMesh) -> Var:
    """A device's own block with what it lacks of a stretch, from the devices before and after it."""
    before, after = stretch
    places, parts = np.arange(division.count), list[Var]()
    if before > 0:
        parts.append(_sent(cut(local, dim, division.block - before, division.block), places - 1, division, mesh))
    parts.append(cut(local, dim, max(-before, 0), division.block + min(after, 0)))
    if after > 0:
        parts.append(_sent(cut(local, dim, 0, after), places + 1, division, mesh))
    return parts[0] if len(parts) == 1 else concatenate(*parts, dimension=dim)


def _sent(part: Var, sources: np.ndarray, division: Division, mesh: BaseMesh) -> Var:
    """What device `sources[i]` of the division has, on device i; in a ring the last one is before the first."""
    targets = np.arange(division.count)
    if division.in_ring:
        sources = sources % division.count
    real = (sources >= 0) & (sources < division.count)
    groups = mesh.replica_groups(division.axes)
    pairs = np.stack([groups[:, sources[real]], groups[:, targets[real]]], axis=-1)
    return collective_permute(part, pairs=tuple(map(tuple, pairs.reshape(-1, 2).tolist())))
