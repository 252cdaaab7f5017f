"""In which memory the values of a Program lie: a device's own, or its host's. The Program says all of it.

    %h: f32[8] = in_memory(%x) {memory=pinned_host, source=device}    lies in the host's memory
    %y: f32[8] = sine(%h)                                             so does what is computed of such values alone
    %z: f32[8] = in_memory(%h) {memory=device, source=pinned_host}    is back

An input or a captured array that lies in the host's memory stands behind such an equation, which moves nothing. What is computed
of no array (constants, iota) lies wherever it is used, as do scalars. `Op.memory` says it of `in_memory`, and no pass asks for
the op. The names of memories are those of `sharding.memory`.

A fact about a value is the set of the memories of all that it is made of.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from meshjit.core.once import once_per_program
from meshjit.core.op import REGISTRY
from meshjit.core.ops_in import has_regions, ops_in
from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import programs_of, run_regions, through_regions
from sharding.memory import DEVICE, HOST

Memories: TypeAlias = frozenset[str]


class MemorySpace(enum.Enum):
    """The memories that types tell apart (`jax.memory.Space`): a device's own, its host's, and either."""

    Device = 1
    Host = 2
    Any = 3

    def __repr__(self) -> str:
        return str(self)

    @property
    def mark(self) -> str:
        """What stands in the text of a type."""
        return "" if self is MemorySpace.Device else f"<{self.name.lower()}>"

    @staticmethod
    def of(memory: str) -> MemorySpace:
        """That of a memory's name. As in JAX, memory that the host does not pin is not told apart."""
        return MemorySpace.Host if memory == HOST else MemorySpace.Device


ANYWHERE: Final[Memories] = frozenset()
ON_DEVICE: Final[Memories] = frozenset({DEVICE})
ON_HOST: Final[Memories] = frozenset({HOST})


def memory_in(fact: Memories) -> str:
    """The memory that a value of this fact lies in."""
    return next(iter(fact)) if len(fact) == 1 else DEVICE


def joined(eqn: Eqn, operands: Sequence[Memories]) -> Memories:
    """The memories of an equation's operands, scalars aside."""
    return ANYWHERE.union(*[fact for var, fact in zip(eqn.inputs, operands, strict=True) if var.rank])


def results_in(eqn: Eqn, operands: Sequence[Memories]) -> Sequence[Memories]:
    """The memories of an equation's results."""
    if eqn.op.memory is not None:
        return [frozenset({eqn.op.memory(eqn.params)})]
    if eqn.op.copies:
        return operands[: len(eqn.outputs)]
    if eqn.op.regions is not None:
        regions = [region for region in eqn.op.regions(eqn.params) if region.role != "rule"]
        if regions:
            pairs = zip(eqn.inputs, operands, strict=True)
            entering = [fact if v.rank or fact != ON_DEVICE else ANYWHERE for v, fact in pairs]
            return through_regions(eqn, regions, entering, ANYWHERE, _outputs_in)
    fact = joined(eqn, operands)
    return [fact if fact in (ANYWHERE, ON_HOST) else ON_DEVICE] * len(eqn.outputs)


def check_agree(eqn: Eqn, operands: Sequence[Memories], described: Sequence[str], line: str) -> None:
    """ValueError where an op would compute from operands in the host's memory and from others; `described` are the operands."""
    fact = joined(eqn, operands)
    if HOST not in fact or len(fact) == 1 or eqn.op.memory is not None or eqn.op.regions is not None or eqn.op.copies:
        return
    having = [i for i, v in enumerate(eqn.inputs) if v.rank]
    first = next(i for i in having if HOST in operands[i])
    other = next(i for i in having if operands[i] - ON_HOST)
    raise ValueError(
        f"{eqn.op.name} at {line}: its operands lie in different memories\n"
        f"  {described[first]} is in {HOST}\n  {described[other]} is in {memory_in(operands[other])}\n"
        "  fix: meshjit.device_put(x, meshjit.memory.Space.Device) of the first"
    )


def follow(eqns: Iterable[Eqn], facts: dict[Var, Memories]) -> None:
    """Add the results of equations; operands that nothing is known of are on the device."""
    for eqn in eqns:
        facts.update(zip(eqn.outputs, results_in(eqn, [facts.get(v, ON_DEVICE) for v in eqn.inputs]), strict=True))


def _outputs_in(program: Program, inputs: Sequence[Memories]) -> Sequence[Memories]:
    facts = dict(zip(program.inputs, inputs, strict=True))
    follow(program.eqns, facts)
    return [facts[v] for v in program.outputs]


@once_per_program
def names_memory(program: Program) -> bool:
    """Whether an equation brings a value into a memory, in nested Programs too."""
    if any([op.memory is not None for op in ops_in(program)]):
        return True
    return has_regions(program) and any(map(says_memory, program.eqns))


def says_memory(eqn: Eqn) -> bool:
    """Whether the equation does, or one inside of it."""
    return eqn.op.memory is not None or (eqn.op.regions is not None and any(map(names_memory, programs_of(eqn.params))))


def values_in(program: Program) -> Mapping[Var, str]:
    """The values of the Program itself that lie elsewhere than in the devices' own memory: inputs, too."""
    if not names_memory(program):
        return {}
    facts: dict[Var, Memories] = {v: frozenset({memory}) for v, memory in _inputs_in(program).items()}
    follow(program.eqns, facts)
    return {var: memory_in(fact) for var, fact in facts.items() if memory_in(fact) != DEVICE}


def all_on_host(program: Program) -> frozenset[Var]:
    """The same values, those of nested Programs too."""
    if not names_memory(program):
        return frozenset()
    nested = [all_on_host(region.program) for eqn in program.eqns for region in run_regions(eqn)]
    return frozenset(values_in(program)).union(*nested)


@once_per_program
def _inputs_in(program: Program) -> Mapping[Var, str]:
    """Inputs that an `in_memory` reads where they are: as they are, copied, or in a nested Program."""
    there: dict[Var, str] = {}
    for eqn in reversed(program.eqns):
        if eqn.op.memory is not None and eqn.params["source"] != DEVICE:
            there[eqn.inputs[0]] = eqn.params["source"]
        elif eqn.op.copies:
            there.update({v: there[out] for v, out in zip(eqn.inputs, eqn.outputs, strict=False) if out in there})
        for region in run_regions(eqn) if names_memory(program) else ():
            inside = _inputs_in(region.program)
            pairs = zip(region.operands, region.program.inputs, strict=True)
            there.update({eqn.inputs[i]: inside[v] for i, v in pairs if v in inside})
    return {v: there[v] for v in program.inputs if v in there}


def behind_memories(program: Program, inputs: Sequence[Memories]) -> Program:
    """The Program for inputs in these memories: those that are not in the devices' own stand behind equations that say so."""
    if all(memory_in(fact) == DEVICE for fact in inputs):
        return program
    facts, own = dict(zip(program.inputs, inputs, strict=True)), dict[Var, Memories]()
    follow(program.eqns, facts)
    with Builder(program.name) as builder:
        values = [builder.input(v.type, v.hint) for v in program.inputs]
        values = [_behind(builder, v, memory_in(fact), memory_in(fact)) for v, fact in zip(values, inputs, strict=True)]
        outputs = builder.inline(program, values)
        follow(builder.eqns, own)
        pairs = zip(outputs, [memory_in(facts[v]) for v in program.outputs], strict=True)
        return builder.build([_behind(builder, v, memory_in(own.get(v, ON_DEVICE)), memory) for v, memory in pairs])


def _behind(builder: Builder, var: Var, source: str, memory: str) -> Var:
    """The value in a memory; itself where nothing needs to be said."""
    if memory == DEVICE == source or (memory == source and var not in builder.inputs):
        return var
    (there,) = builder.emit(REGISTRY["in_memory"], [var], {"memory": memory, "source": source})
    return there


def memories_of(program: Program) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The memories of the inputs, and of the outputs; both empty where all are the devices' own."""
    values = values_in(program)
    if not any(v in values for v in (*program.inputs, *program.outputs)):
        return (), ()
    inputs, outputs = ([values.get(v, DEVICE) for v in side] for side in (program.inputs, program.outputs))
    return tuple(inputs), tuple(outputs)
