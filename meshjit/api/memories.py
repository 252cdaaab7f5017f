"""In which memories the arguments and results of a jitted function lie."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from meshjit.api.bringing import named_memory
from meshjit.api.call import Call
from meshjit.api.placements import in_shardings_of
from meshjit.api.shardings import UNSPECIFIED, broadcast, is_sharding_leaf
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder
from meshjit.trace import Traced as TracedProgram
from meshjit.trees import WORDS as tree
from sharding.memory import DEVICE


def input_memories(call: Call) -> Sequence[str]:
    """Where the arguments of a call lie: as in_shardings say, else as they do."""
    own = [key.memory for key in call.keys]
    if not _name_others(call.in_shardings) and all(memory == DEVICE for memory in own):
        return own
    named = map(named_memory, in_shardings_of(call))
    return [mine if asked is None else asked for asked, mine in zip(named, own, strict=True)]


def with_output_memories(traced: TracedProgram, call: Call) -> TracedProgram:
    """The same with results in the memories that out_shardings name."""
    if not traced.memories and not _name_others(call.out_shardings):
        return traced
    program = traced.program
    own = traced.memories or (DEVICE,) * len(program.outputs)
    asked = [named_memory(s) for s in broadcast(call.out_shardings, traced.out_tree, "out_shardings")]
    asked += [None] * (len(own) - len(asked))  # of what is written to refs nobody says it
    memories = tuple(mine if other is None else other for other, mine in zip(asked, own, strict=True))
    if memories == own:
        return traced
    with Builder(program.name) as builder:
        builder.inputs, builder.eqns = list(program.inputs), list(program.eqns)
        outputs = list(program.outputs)
        for i, (memory, source) in enumerate(zip(memories, own, strict=True)):
            if memory != source:
                (outputs[i],) = builder.emit(REGISTRY["in_memory"], [outputs[i]], {"memory": memory, "source": source})
        return dataclasses.replace(traced, program=builder.build(outputs), memories=memories)


def _name_others(shardings: Any) -> bool:
    """Whether a leaf of in_shardings or out_shardings names a memory other than the devices' own."""
    if shardings is UNSPECIFIED or shardings is None:
        return False
    return any(named_memory(s) not in (None, DEVICE) for s in tree.leaves(shardings, is_leaf=is_sharding_leaf))
