"""Write where values go from one memory to another, on machines where the host's is one of them.

    %h = in_memory(%x) {memory=pinned_host, source=device}        %h = in_memory(%x) {memory=pinned_host, …}
    %y = sine(%h)                                            →    %d = in_memory(%h) {memory=device, …}
    return %y                                                     %y = sine(%d)
                                                                  %r = in_memory(%y) {memory=pinned_host, …}
                                                                  return %r

XLA computes in the device's own memory, and refuses text that would do so elsewhere. So what an op computes from comes there
first, collectives included, and what lies in the host's memory goes back where it is next wanted: as an output, by a
loop that hands it on, by an op that copies. An `in_memory` to where the value is already falls away, and one whose result is
only computed with: where an output is sent elsewhere before it is handed over.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshjit.core.memories import follow, memory_in, names_memory
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import Region, with_programs
from sharding.memory import DEVICE


def place_in_memories(program: Program, inputs: Sequence[str], outputs: Sequence[str]) -> Program:
    """The same for inputs that lie in these memories, and outputs that shall; ("device" where there are none)."""
    if not inputs and not names_memory(program):
        return program
    return _Mover(program, inputs or [DEVICE] * len(program.inputs)).run(outputs or [DEVICE] * len(program.outputs))


class _Mover(Builder):
    """The Program anew. `versions`: each old value by the memories in which it is; `homes`: the one that its fact names."""

    def __init__(self, program: Program, inputs: Sequence[str]) -> None:
        super().__init__(program.name)
        self.program = program
        self.inputs = list(program.inputs)
        facts = {v: frozenset({memory}) for v, memory in zip(program.inputs, inputs, strict=True)}
        self.versions: dict[Var, dict[str, Var]] = {
            v: {memory: v} for v, memory in zip(program.inputs, inputs, strict=True)
        }
        follow(program.eqns, facts)
        self.homes = {var: memory_in(fact) for var, fact in facts.items()}
        self.needs = {v for eqn in program.eqns if _reads_anywhere(eqn) for v in eqn.inputs} | {*program.outputs}

    def run(self, outputs: Sequence[str]) -> Program:
        with self:
            for eqn in self.program.eqns:
                self.source = eqn.source
                self.put(eqn)
            results = [self.version(v, memory) for v, memory in zip(self.program.outputs, outputs, strict=True)]
        return self.build(results)

    def version(self, var: Var, memory: str) -> Var:
        """The value in a memory, moved there once."""
        versions = self.versions[var]
        if memory not in versions:
            source, there = next(iter(versions.items()))
            (versions[memory],) = self.emit(REGISTRY["in_memory"], [there], {"memory": memory, "source": source})
        return versions[memory]

    def put(self, eqn: Eqn) -> None:
        if eqn.op.memory is not None:
            is_needed = eqn.outputs[0] in self.needs
            self.versions[eqn.outputs[0]] = self.brought(eqn.inputs[0], eqn.op.memory(eqn.params), is_needed)
            return
        homes = [self.homes[v] for v in eqn.inputs]
        if eqn.op.regions is not None:
            results = [self.homes[v] for v in eqn.outputs]
            homes = _as_carried(eqn.op.regions(eqn.params), homes, results)
            self.add(self.with_regions(eqn, homes, results), homes, results)
        elif eqn.op.copies:
            homes = [home if home in self.versions[v] else DEVICE for v, home in zip(eqn.inputs, homes, strict=True)]
            self.add(eqn, homes, homes[: len(eqn.outputs)])
        else:
            self.add(eqn, [DEVICE] * len(eqn.inputs), [DEVICE] * len(eqn.outputs))

    def brought(self, var: Var, memory: str, is_needed: bool) -> dict[str, Var]:
        """The versions of what an `in_memory` makes: where the user brings a value elsewhere, that one alone."""
        return self.versions[var] if self.homes[var] == memory or not is_needed else {memory: self.version(var, memory)}

    def add(self, eqn: Eqn, operands: Sequence[str], results: Sequence[str]) -> None:
        inputs = [self.version(v, memory) for v, memory in zip(eqn.inputs, operands, strict=True)]
        self.eqns.append(eqn.with_inputs(tuple(inputs)))
        self.versions.update((v, {memory: v}) for v, memory in zip(eqn.outputs, results, strict=True))

    def with_regions(self, eqn: Eqn, operands: Sequence[str], results: Sequence[str]) -> Eqn:
        """Its Programs for operands and results in these memories."""
        assert eqn.op.regions is not None
        regions = iter(eqn.op.regions(eqn.params))

        def placed(program: Program) -> Program:
            region = next(regions)
            return program if region.role == "rule" else _in_region(region, program, operands, results)

        return eqn.with_params(with_programs(eqn.params, placed))


def _reads_anywhere(eqn: Eqn) -> bool:
    """Whether it reads operands where they are; the others compute, in the device's own memory."""
    return eqn.op.memory is not None or eqn.op.regions is not None or eqn.op.copies


def _as_carried(regions: Sequence[Region], operands: Sequence[str], results: Sequence[str]) -> list[str]:
    """The memories of operands, those that a loop carries being where its results are."""
    changed = list(operands)
    for region in regions:
        for i, output in region.carried:
            result = region.results[output]
            if result is not None:
                changed[region.operands[i]] = results[result]
    return changed


def _in_region(region: Region, program: Program, operands: Sequence[str], results: Sequence[str]) -> Program:
    outputs = [DEVICE if result is None else results[result] for result in region.results]
    return place_in_memories(program, [operands[i] for i in region.operands], outputs)
