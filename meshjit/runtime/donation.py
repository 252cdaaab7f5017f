"""Which result takes the memory of which donated argument.

A result can take it if both have the same shape and dtype on every device, in the same of its memories. Where an output that
nobody placed would miss that only because propagation put it elsewhere, it is placed like the donated input, before anything
else is decided: donating an argument asks for its memory to be reused. What shard_map or a constraint gives is placed by them.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from meshjit.core.plan import Plan
from meshjit.core.program import Program, Var
from meshjit.core.types import TensorType
from meshjit.plan.make import Annotations
from sharding.spec import Placement, spec_of

Memories: TypeAlias = tuple[Sequence[str], Sequence[str]]


def undonated(program: Program, donated: Sequence[int]) -> frozenset[int]:
    """The inputs that are held to the end: those that nobody donates, and those whose type no result has. XLA gives the memory of
    a donated argument to a result, and to nothing else."""
    types = set(program.output_types)
    return frozenset(range(len(program.inputs))).difference([i for i in donated if program.inputs[i].type in types])


def match(plan: Plan, donated: Sequence[int], memories: Memories = ((), ())) -> dict[int, int]:
    """Donated input → output. First outputs that are placed alike, in order, then any of equal local type. `memories`: those of
    inputs and outputs, where some are not the devices' own."""
    if not donated:
        return {}
    inputs = _places(plan, plan.program.inputs, plan.inputs, memories[0])
    outputs = _places(plan, plan.program.outputs, plan.outputs, memories[1])
    aliases: dict[int, int] = {}
    for asked in (lambda place: place, lambda place: place[1]):
        taken = set(aliases.values())
        free = _queues((asked(place), o) for o, place in enumerate(outputs) if o not in taken)
        for i in donated:
            if i not in aliases and free[asked(inputs[i])]:
                aliases[i] = free[asked(inputs[i])].popleft()
    return aliases


def _queues(outputs: Iterable[tuple[Any, int]]) -> Mapping[Any, deque[int]]:
    """Outputs in order, by what an input has to have of each."""
    queues = defaultdict[Any, deque[int]](deque)
    for key, output in outputs:
        queues[key].append(output)
    return queues


def _places(plan: Plan, values: Sequence[Var], placements: Sequence[Placement], memories: Sequence[str]) -> list[Any]:
    """Per value its type, what of it a device holds and in which memory, and its placement."""
    there = memories or [""] * len(values)
    return [(v.type, (_local(v.type, p, plan), m), p) for v, p, m in zip(values, placements, there, strict=True)]


def _local(type: TensorType, placement: Placement, plan: Plan) -> TensorType:
    return type.with_shape(placement.local_shape(type.shape, plan.mesh))


def tied(plan: Plan, annotations: Annotations, donated: Sequence[int], memories: Memories) -> Annotations | None:
    """Annotations that also place outputs like the donated inputs that would find none; None where none is to gain."""
    if not donated:
        return None
    aliases = match(plan, donated, memories)
    constraints = {v for eqn in plan.program.eqns if eqn.op.pinned is not None or eqn.op.seed is not None for v in eqn.outputs}
    unplaced = [o for o, spec in enumerate(annotations.outputs) if spec is None and plan.program.outputs[o] not in constraints]
    taken, there = set(aliases.values()), memories if memories[0] else ([""] * len(plan.inputs), [""] * len(plan.outputs))
    free = _queues(((plan.program.outputs[o].type, there[1][o]), o) for o in unplaced if o not in taken)
    outputs = list(annotations.outputs)
    for i in donated:
        same = free[plan.program.inputs[i].type, there[0][i]] if i not in aliases else None
        if same:
            outputs[same.popleft()] = spec_of(plan.inputs[i])
    return dataclasses.replace(annotations, outputs=outputs) if outputs != list(annotations.outputs) else None
