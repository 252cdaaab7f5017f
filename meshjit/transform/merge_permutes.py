"""Merge small permutes between the same devices: what each costs to start is paid once.

    %1 = collective_permute(%a) {pairs}      flat = concatenate(reshape(%a), reshape(%b));  %y = collective_permute(flat)
    %2 = collective_permute(%b) {pairs}      %1 = reshape(slice(%y)),  %2 = reshape(slice(%y))

So the borders of all fields of a grid that one step needs travel together: three fields are six permutes, then two. It
pays when copying the elements takes less time than starting a collective; the machine says what is small. What a later
permute needs is done before the first one, where that is little. StableHLO's permute has one operand, hence the copies.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshjit.core.collective import crossed_axes
from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.base.shape import reshape
from meshjit.ops.collective.collectives import collective_permute
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.slices import slice_
from meshjit.transform.pair_permutes import needed_between
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite
from sharding.mesh import BaseMesh
from sharding.topology import Topology

COPIES: Final = 4  # of every element: read and written when put together, and again when taken apart
LARGEST: Final = 4  # the buffer holds at most so many times what one small operand may have


@dataclass
class _Group:
    """Permutes that stand where the first of them stands, and what has to be done before it for that."""

    members: list[Eqn]
    early: list[Eqn] = field(default_factory=list[Eqn])

    @property
    def nbytes(self) -> int:
        return sum(eqn.inputs[0].type.nbytes for eqn in self.members)


def merge_permutes(program: Program, mesh: BaseMesh, topology: Topology) -> Program:
    """The same Program with fewer permutes, in nested Programs too."""
    program = in_regions(program, lambda nested: merge_permutes(nested, mesh, topology))
    while groups := _groups(program, mesh, topology):  # what corners need is there once their sides have been merged
        order = {eqn: i for i, eqn in enumerate(program.eqns)}
        program = rewrite(program, {collective_permute.name: functools.partial(_merged, groups=groups, order=order)})
    return program


def _groups(program: Program, mesh: BaseMesh, topology: Topology) -> dict[Var, _Group]:
    """What the first permute of a group of several gives → the group."""
    positions = {var: i for i, eqn in enumerate(program.eqns) for var in eqn.outputs}
    latest: dict[Any, _Group] = {}
    groups: list[_Group] = []
    for eqn in program.eqns:
        if eqn.op is not collective_permute or not eqn.params["pairs"]:
            continue
        pairs, size = eqn.params["pairs"], eqn.inputs[0].type.nbytes
        small = small_bytes(pairs, mesh, topology)
        if not 0 < size <= small:
            continue
        key = pairs, eqn.inputs[0].dtype
        group = latest.get(key)
        if group is not None and group.nbytes + size <= LARGEST * small:
            early = needed_between(program, group.members[0], eqn, positions)
            if early is not None:
                group.members.append(eqn)
                group.early += early
                continue
        latest[key] = _Group([eqn])
        groups.append(latest[key])
    return {group.members[0].outputs[0]: group for group in groups if len(group.members) > 1}


def small_bytes(pairs: Sequence[tuple[int, int]], mesh: BaseMesh, topology: Topology) -> float:
    """How many bytes are copied in the time that it takes to start such a permute."""
    return topology.latency_over(crossed_axes(pairs, mesh)) * topology.memory_bandwidth / COPIES


def _merged(eqn: Eqn, here: Rewriter, groups: Mapping[Var, _Group], order: Mapping[Eqn, int]) -> Var | None:
    """All permutes of a group, where the first of them stands."""
    group = groups.get(eqn.outputs[0])
    if group is None:
        return None
    here.early(sorted(group.early, key=order.__getitem__))
    operands = [here.new(member.inputs[0]) for member in group.members]
    flat = concatenate(*(reshape(v, shape=(math.prod(v.shape),)) for v in operands), dimension=0)
    moved = collective_permute(flat, **eqn.params)
    start = 0
    for member, operand in zip(group.members, operands, strict=True):
        end = start + math.prod(operand.shape)
        piece = slice_(moved, start=(start,), limit=(end,), strides=(1,))
        here.replace(member, [reshape(piece, shape=operand.shape)])
        start = end
    return here.new(eqn.outputs[0])
