"""Small all_reduces of one kind over the same axes become one: what each costs to start is paid once.

Every all_reduce may stand anywhere between where its operand is made and where its result is first used. Those with a
place in common are independent of one another, for what uses a result stands behind it. There they become

    flat = concatenate(reshape(a), reshape(b), …);  sum = all_reduce(flat);  a' = reshape(slice(sum)), …

which pays when copying the elements takes less time than starting a collective; so the machine says what is small. The
buffer is bounded, so that memory does not grow; bytes on the wire stay the same.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import with_programs
from meshjit.ops import collectives
from meshjit.ops.ordering import concatenate
from meshjit.ops.shape import reshape
from meshjit.ops.slicing import slice_
from sharding.axes import AxisRef, SubAxis
from sharding.topology import Topology

COPIES: Final = 4  # of every element: read and written when put together, and again when taken apart
LARGEST: Final = 4  # the buffer holds at most so many times what one small operand may have


@dataclass(frozen=True)
class _Movable:
    """An all_reduce, and the positions (of equations) before which it may stand."""

    eqn: Eqn
    first: int
    last: int


def combine(program: Program, topology: Topology) -> Program:
    """The same Program with fewer collectives, in nested Programs too."""
    groups = [group for group in _groups(program, topology) if len(group) > 1]
    nested = any(eqn.op.regions is not None for eqn in program.eqns)
    if not groups and not nested:
        return program
    return _rewritten(program, groups, topology)


def _groups(program: Program, topology: Topology) -> list[list[_Movable]]:
    """Which to put together: greedily, those that have to be done first first."""
    by_key: dict[Any, list[_Movable]] = {}
    for movable in sorted(_movables(program, topology), key=lambda m: (m.last, m.first)):
        params = movable.eqn.params
        key = (params["axes"], params["kind"], movable.eqn.inputs[0].dtype)
        by_key.setdefault(key, []).append(movable)
    groups: list[list[_Movable]] = []
    for found in by_key.values():
        room = LARGEST * _small(found[0].eqn, topology)
        group: list[_Movable] = []
        for movable in found:
            held = sum(m.eqn.inputs[0].type.nbytes for m in (*group, movable))
            if group and (movable.first > group[0].last or held > room):
                groups.append(group)
                group = []
            group.append(movable)
        groups.append(group)
    return groups


def _movables(program: Program, topology: Topology) -> list[_Movable]:
    made = {var: i + 1 for i, eqn in enumerate(program.eqns) for var in eqn.outputs}
    used: dict[Var, int] = {}
    for i, eqn in enumerate(program.eqns):
        for var in eqn.inputs:
            used.setdefault(var, i)
    reduced = {eqn.outputs[0] for eqn in program.eqns if eqn.op is collectives.all_reduce}
    return [
        _Movable(eqn, made.get(eqn.inputs[0], 0), used.get(eqn.outputs[0], len(program.eqns)))
        for eqn in program.eqns
        if eqn.op is collectives.all_reduce
        and eqn.inputs[0] not in reduced  # it would have to follow the other, which may move
        and eqn.inputs[0].type.nbytes <= _small(eqn, topology)
    ]


def _small(eqn: Eqn, topology: Topology) -> float:
    """How many bytes are copied in the time that it takes to start this collective."""
    axes: list[AxisRef] = [axis if isinstance(axis, str) else SubAxis(*axis) for axis in eqn.params["axes"]]
    return topology.latency_over(axes) * topology.memory_bandwidth / COPIES


def _rewritten(program: Program, groups: Sequence[Sequence[_Movable]], topology: Topology) -> Program:
    """Each group stands where the last of its operands has been made."""
    members = {m.eqn for group in groups for m in group}
    places = sorted(((max(m.first for m in group), group) for group in groups), key=lambda pair: pair[0])
    starts = [place for place, _ in places]
    builder = Builder(program.name)
    builder.inputs = list(program.inputs)
    results: dict[Var, Var] = {}
    with builder:
        for i in range(len(program.eqns) + 1):
            for _, group in places[bisect.bisect_left(starts, i) : bisect.bisect_right(starts, i)]:
                _emit_group(builder, group, results)
            if i < len(program.eqns) and program.eqns[i] not in members:
                builder.eqns.append(_renamed(program.eqns[i], results, topology))
    return builder.build([results.get(v, v) for v in program.outputs])


def _renamed(eqn: Eqn, results: dict[Var, Var], topology: Topology) -> Eqn:
    params = eqn.params
    if eqn.op.regions is not None:
        params = with_programs(params, lambda nested: combine(nested, topology))
    inputs = tuple(results.get(v, v) for v in eqn.inputs)
    return Eqn(eqn.op, inputs, eqn.outputs, params, eqn.source)


def _emit_group(builder: Builder, group: Sequence[_Movable], results: dict[Var, Var]) -> None:
    operands = [results.get(m.eqn.inputs[0], m.eqn.inputs[0]) for m in group]
    with builder.at(group[0].eqn.source):
        flat = concatenate(*(reshape(v, shape=(math.prod(v.shape),)) for v in operands), dimension=0)
        total = collectives.all_reduce(flat, **group[0].eqn.params)
        start = 0
        for movable, operand in zip(group, operands, strict=True):
            end = start + math.prod(operand.shape)
            piece = slice_(total, start=(start,), limit=(end,), strides=(1,))
            results[movable.eqn.outputs[0]] = reshape(piece, shape=operand.shape)
            start = end
