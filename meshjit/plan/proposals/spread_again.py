"""A value loses axes where the dim that they shard is summed or gathered. From there on they may shard another of its dims.

    %1: f32[2, 2, 8] = dot(%0: f32[2@x, 2@y, 8], %w)    x is summed; %1 has y, and what follows is done twice
    %2: f32[2, 2, 8] = dot(%1: f32[2, 2@y, 8], %w)      y is summed; what follows is done four times
    %1: f32[2, 2@y, 8@x], %2: f32[2, 2, 8@x*y]          what is proposed: sums are scattered, and every device does its share

Propagation never puts an axis on a dim that no annotation speaks of. The proposal goes through a Program in its order, and
deals lost axes to the longest dims, the last ones first. Its seeds are on the values that lose some. It is made where the work
takes much longer than if all devices shared it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from meshjit.core.program import Eqn, Program
from meshjit.plan.draft import Draft
from meshjit.plan.graph import programs_in
from meshjit.plan.proposals.proposal import Proposal
from sharding.axes import AxisRef, canonical_axes, overlap
from sharding.graph import Seed
from sharding.mesh import BaseMesh
from sharding.placement import Placement
from sharding.rule import FactorRule

REPEATED: Final = 1.5  # work that takes more than so many times as long as if all devices shared it is repeated
ALIKE: Final = 0.5  # times the bytes of the operand: smaller results stay as they are


def propose(draft: Draft) -> Iterator[Proposal]:
    if draft.cost.work_seconds <= REPEATED * draft.machine.work_left(draft.program)[0]:
        return
    seeds, numbers = draft.propagated.graph.seeds, draft.flat.numbers
    dealt = {eqn: spread for part in programs_in(draft.program) for eqn, spread in _dealt(draft, part)}
    dealt = {eqn: spread for eqn, spread in dealt.items() if numbers[eqn.outputs[0]] not in seeds}
    if dealt:
        planted = {numbers[eqn.outputs[0]]: Seed(spread) for eqn, spread in dealt.items()}
        yield Proposal(
            "shared", ("shared", *planted), _text([*dealt]), source=str(next(iter(dealt)).source or ""), once=True,
            seeds=lambda: {**seeds, **planted},
        )  # fmt: skip


def _text(eqns: Sequence[Eqn]) -> str:
    shape = list(eqns[0].outputs[0].shape)
    if len(eqns) == 1:
        return f"shard further dims of a value of shape {shape} over the axes that it would lose"
    return f"shard further dims of {len(eqns)} values, such as one of shape {shape}, over the axes that they would lose"


def _dealt(draft: Draft, program: Program) -> Iterator[tuple[Eqn, Placement]]:
    """The equations of a Program whose results lose axes, and where these lie if the axes are dealt to other dims."""
    homes, mesh = draft.flat.placements(draft.propagated), draft.machine.mesh
    for eqn in program.eqns:
        op = eqn.op
        if not eqn.inputs or len(eqn.outputs) != 1 or op.regions is not None or op.pinned is not None or op.asks_user:
            continue
        rule = draft.flat.rules[eqn]
        largest = max(range(len(eqn.inputs)), key=lambda i: eqn.inputs[i].type.nbytes)
        operand, result = eqn.inputs[largest], eqn.outputs[0]
        if result.type.nbytes >= ALIKE * operand.type.nbytes:
            carried = _carried(rule, largest, homes[operand], homes[result], mesh)
            lost = _apart(homes[operand].axes(), carried)
            homes[result] = with_axes(result.shape, carried, lost, mesh)
            if homes[result] != carried:
                yield eqn, homes[result]


def _carried(rule: FactorRule, largest: int, side: Placement, home: Placement, mesh: BaseMesh) -> Placement:
    """Where the result lies, with what else it takes over from the largest operand."""
    through = rule.placement(rule.results[0], rule.project(rule.operands[largest], side, mesh), mesh)
    return Placement(tuple([own or tuple(_apart(more, home)) for own, more in zip(home.dims, through, strict=True)]))


def with_axes(shape: tuple[int, ...], placement: Placement, axes: Sequence[AxisRef], mesh: BaseMesh) -> Placement:
    """The placement with each axis behind those of the dim with the longest shards, the last one of equals, if it divides it."""
    dims = [*placement.dims]
    for axis in axes:
        size = mesh.axis_size(axis)
        shards = [-(-extent // mesh.axes_size(have)) for extent, have in zip(shape, dims, strict=True)]
        d = max(range(len(shape)), key=lambda d: (shards[d], d), default=None)
        if d is not None and shards[d] >= size and shards[d] % size == 0:
            dims[d] = canonical_axes((*dims[d], axis), mesh.shape)
    return Placement(tuple(dims))


def _apart(axes: Iterable[AxisRef], placement: Placement) -> list[AxisRef]:
    """Those that the placement has no part of."""
    return [axis for axis in axes if not any(overlap(axis, other) for other in placement.axes())]
