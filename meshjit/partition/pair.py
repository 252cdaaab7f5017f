"""Permutes between different devices become one: a device that only sends in one only receives in the other.

    %1 = collective_permute(%a) {pairs=((0, 1),)}      %x = select(is 0, %a, %b)
    %2 = collective_permute(%b) {pairs=((1, 0),)}      %y = collective_permute(%x) {pairs=((0, 1), (1, 0))}
                                                       %1 = select(is 1, %y, 0), %2 = select(is 0, %y, 0)

Of a fused projection split into heads every device keeps a part and sends one, each in a permute of its own. Every device
still sends what it sent; the links carry it at the same time, and starting one collective is paid for less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import with_programs
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import constant, zeros_like
from meshjit.ops.base.shape import broadcast_in_dim, reshape
from meshjit.ops.collective import collectives
from meshjit.ops.index.dynamic import dynamic_slice
from sharding.mesh import BaseMesh

MOST_EARLY: Final = 32  # equations done earlier for the sake of one pair
LARGEST: Final = 4  # times the permuted value, that one of them may give


def pair_permutes(program: Program, mesh: BaseMesh) -> Program:
    """The same Program with fewer permutes, in nested Programs too."""
    if any(eqn.op.regions is not None for eqn in program.eqns):
        eqns = [
            e.with_params(with_programs(e.params, lambda p: pair_permutes(p, mesh))) if e.op.regions else e
            for e in program.eqns
        ]
        program = Program(program.name, program.inputs, tuple(eqns), program.outputs)
    while True:  # pairs of pairs, too
        partners, early = _partners(program)
        if not partners:
            return program
        program = _rewritten(program, partners, early, mesh)


def _partners(program: Program) -> tuple[dict[Eqn, Eqn], dict[Eqn, list[Eqn]]]:
    """Permute → the later one that is done with it, and what has to be done before it for that."""
    made = {var: i for i, eqn in enumerate(program.eqns) for var in eqn.outputs}
    permutes = [e for e in program.eqns if e.op is collectives.collective_permute and e.params["pairs"]]
    partners: dict[Eqn, Eqn] = {}
    early: dict[Eqn, list[Eqn]] = {}
    taken: set[Eqn] = set()
    for i, first in enumerate(permutes):
        for second in permutes[i + 1 :] if first not in taken else ():
            if second not in taken and _fit(first, second):
                between = needed_between(program, first, second, made)
                if between is not None:
                    partners[first], early[first] = second, between
                    taken |= {first, second}
                    break
    return partners, early


def needed_between(program: Program, first: Eqn, second: Eqn, made: dict[Var, int]) -> list[Eqn] | None:
    """The equations behind the first permute that the second needs; None if they need the first, or are many or dear."""
    start, found, waiting = made[first.outputs[0]], set[int](), list(second.inputs)
    while waiting:
        place = made.get(waiting.pop(), -1)
        if place < start or place in found:
            continue
        eqn = program.eqns[place]
        dear = eqn.op.simulate is not None or eqn.op.regions is not None or len(found) >= MOST_EARLY
        if eqn is first or dear or sum(v.type.nbytes for v in eqn.outputs) > LARGEST * first.inputs[0].type.nbytes:
            return None
        found.add(place)
        waiting += eqn.inputs
    return [program.eqns[place] for place in sorted(found)]


def _fit(a: Eqn, b: Eqn) -> bool:
    """Whether no device sends in both, and none receives in both."""
    ends = [set(column) for eqn in (a, b) for column in zip(*eqn.params["pairs"], strict=True)]
    return a.inputs[0].type == b.inputs[0].type and not (ends[0] & ends[2] or ends[1] & ends[3])


def _rewritten(
    program: Program, partners: dict[Eqn, Eqn], early: dict[Eqn, list[Eqn]], mesh: BaseMesh
) -> Program:
    results: dict[Var, Var] = {}
    builder = Builder(program.name)
    builder.inputs = list(program.inputs)
    here, done = _Here(mesh), set(partners.values())

    def keep(eqn: Eqn) -> None:
        if eqn not in done:
            done.add(eqn)
            inputs = tuple(results.get(v, v) for v in eqn.inputs)
            builder.eqns.append(Eqn(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source))

    with builder:
        for eqn in program.eqns:
            if eqn in partners:
                for one in early[eqn]:
                    keep(one)
                with builder.at(eqn.source):
                    _emit_pair(eqn, partners[eqn], results, here)
            else:
                keep(eqn)
    return builder.build([results.get(v, v) for v in program.outputs])


class _Here:
    """Whether this device is one of several: bool[] read off a table at its place on the mesh."""

    def __init__(self, mesh: BaseMesh) -> None:
        self.mesh = mesh
        self.place: Var | None = None

    def is_among(self, devices: Sequence[int], shape: tuple[int, ...]) -> Var:
        if self.place is None:
            self.place = _place_on(self.mesh)
        table = np.zeros(self.mesh.size, np.bool_)
        table[list(devices)] = True
        flag = dynamic_slice(constant(value=table), self.place, slice_sizes=(1,))
        return broadcast_in_dim(reshape(flag, shape=()), shape=shape, dimensions=())


def _place_on(mesh: BaseMesh) -> Var:
    return collectives.axis_index(axes=tuple(mesh.axis_names))


def _emit_pair(first: Eqn, second: Eqn, results: dict[Var, Var], here: _Here) -> None:
    a, b = (results.get(e.inputs[0], e.inputs[0]) for e in (first, second))
    sources, targets = zip(*first.params["pairs"], strict=True)
    others: Any = second.params["pairs"]
    both = collectives.collective_permute(
        select(here.is_among(sources, a.shape), a, b), pairs=tuple(sorted((*first.params["pairs"], *others)))
    )
    none = zeros_like(both)
    results[first.outputs[0]] = select(here.is_among(targets, a.shape), both, none)
    results[second.outputs[0]] = select(here.is_among([t for _, t in others], a.shape), both, none)
