"""A Program as the graph that propagation reads: its values numbered, a node for every equation, seeds where users spoke.

Nested Programs are part of the same graph. A loop's own equation becomes links: an operand and the input that it is (or
is one slice of) hold the same axes, an output and its result likewise, and a carry is one value, tied through its loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from meshjit.core.ops_in import has_regions, ops_in
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region, run_regions
from meshjit.core.repeats import Repeat, repeats
from meshjit.core.rules import rule_of
from sharding.axes import AxisRef
from sharding.graph import Origin, Repeat as Same
from sharding.mesh import BaseMesh
from sharding.placement import normalized
from sharding.propagation import Graph, Node, Propagated, Seed
from sharding.rule import FactorRule
from sharding.spec import PartitionSpec, Placement, open_dims, padded, placement_of


@dataclass(frozen=True)
class Annotations:
    """What the user said: one spec per input and output of the Program; None leaves it to the compiler. `undonated`:
    positions of inputs whose memory stays taken to the end, because nobody donates them. `chosen`: of inputs that planning
    placed, not the user."""

    inputs: Sequence[PartitionSpec | None]
    outputs: Sequence[PartitionSpec | None]
    undonated: frozenset[int] = frozenset()
    chosen: frozenset[int] = frozenset()

    def undonated_of(self, program: Program) -> frozenset[Var]:
        return frozenset([program.inputs[i] for i in self.undonated])


@dataclass(frozen=True)
class Flattened:
    """A Program's graph, with the numbers of its Vars and the rules of its equations, nested ones included."""

    graph: Graph
    numbers: Mapping[Var, int]
    rules: Mapping[Eqn, FactorRule]

    def placements(self, propagated: Propagated) -> dict[Var, Placement]:
        """Where each Var is."""
        numbers, placements = self.numbers, propagated.placements
        if len(numbers) == len(placements):  # numbered one after the other
            return dict(zip(numbers, placements, strict=True))
        return {var: placements[number] for var, number in numbers.items()}  # a Var that stands twice has its last number

    def source(self, node: int) -> str:
        """The user's line that a node stands for."""
        label = self.graph.nodes[node].label
        return str(label.eqn.source or "") if isinstance(label, Label) else ""

    def origins(self, propagated: Propagated) -> Mapping[tuple[Var, int, AxisRef], Origin]:
        """Where axes came from, keyed by Var instead of number: (var, dim, axis) → origin."""
        return _Origins(self.numbers, propagated.origins)


class _Origins(Mapping[tuple[Var, int, AxisRef], Origin]):
    def __init__(self, numbers: Mapping[Var, int], origins: Mapping[tuple[int, int, AxisRef], Origin]) -> None:
        self._numbers, self._origins = numbers, origins

    def __getitem__(self, key: tuple[Var, int, AxisRef]) -> Origin:
        var, dim, axis = key
        return self._origins[self._numbers[var], dim, axis]

    def __iter__(self) -> Iterator[tuple[Var, int, AxisRef]]:
        names = {i: var for var, i in self._numbers.items()}
        for value, dim, axis in self._origins:
            yield names[value], dim, axis

    def __len__(self) -> int:
        return len(self._origins)


def flatten(
    program: Program, annotations: Annotations, mesh: BaseMesh, known: Mapping[Eqn, FactorRule] | None = None
) -> Flattened:
    """The graph of a Program none of whose nested Programs stands in it twice. `known`: rules of some of its equations."""
    variables = [var for part in programs_in(program) for var in part.vars()]
    numbers = {var: i for i, var in enumerate(variables)}
    rules, ties, same = _Rules(known or {}), list[tuple[int, ...]](), list[Same]()
    nodes = _Nodes(rules, numbers)
    for which, part in enumerate(programs_in(program)):
        at = {repeat.start: repeat for repeat in repeats(part)}
        for number, eqn in enumerate(part.eqns):
            if number in at:
                same.append(_same_nodes(which, at[number], len(nodes), numbers))
            if eqn.op.regions is None:
                nodes.entries.append(eqn)
            else:
                regions = run_regions(eqn)
                nodes.entries += [link for region in regions for link in _links(eqn, region, numbers)]
                ties += _ties(regions, numbers)
    seeds = _seeds(program, numbers, annotations, mesh)
    return Flattened(Graph([v.shape for v in variables], nodes, ties, seeds, same), numbers, rules)


def reseeded(flat: Flattened, program: Program, annotations: Annotations, mesh: BaseMesh) -> Flattened:
    """The same Program's graph for other annotations."""
    seeds = _seeds(program, flat.numbers, annotations, mesh)
    return dataclasses.replace(flat, graph=dataclasses.replace(flat.graph, seeds=seeds))


def _same_nodes(part: int, repeat: Repeat, start: int, numbers: Mapping[Var, int]) -> Same:
    """Kinds are numbers of one Program, so they are told apart by the number of the part."""
    first = numbers[repeat.inner[0]]
    made, others = range(first, first + len(repeat.inner)), tuple([numbers[v] for v in repeat.outer])
    return Same((part, repeat.kind), start, start + repeat.stop - repeat.start, made, others, repeat.escaping)


class _Rules(dict[Eqn, FactorRule]):
    """The rules of equations, for those that somebody asks about; one for all copies of an equation."""

    def __init__(self, known: Mapping[Eqn, FactorRule]) -> None:
        super().__init__(known)
        self.copies: dict[tuple[int, ...], FactorRule] = {}

    def __missing__(self, eqn: Eqn) -> FactorRule:
        rule = self.copies.get(eqn.identity)
        if rule is None:
            rule = self.copies[eqn.identity] = rule_of(eqn)
        self[eqn] = rule
        return rule


class _Nodes(Sequence[Node]):
    """Nodes, written where somebody looks at them. An entry may be an equation instead."""

    def __init__(self, rules: Mapping[Eqn, FactorRule], numbers: Mapping[Var, int]) -> None:
        self.entries: list[Node | Eqn] = []
        self.rules, self.numbers = rules, numbers

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> list[Node]: ...
    def __getitem__(self, index: int | slice) -> Node | list[Node]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        entry = self.entries[index]
        if not isinstance(entry, Eqn):
            return entry
        node = self.entries[index] = _node(entry, self.rules[entry], self.numbers)
        return node


def programs_in(program: Program) -> Iterator[Program]:
    """The Program and all nested ones that are planned, outer ones first."""
    yield program
    for eqn in program.eqns if has_regions(program) else ():
        for region in run_regions(eqn) if eqn.op.regions is not None else ():
            yield from programs_in(region.program)


def _node(eqn: Eqn, rule: FactorRule, numbers: Mapping[Var, int]) -> Node:
    return Node(rule, tuple([numbers[v] for v in eqn.inputs]), tuple([numbers[v] for v in eqn.outputs]), Label(eqn))


class Label:
    """`add at train.py:31 loss`, written only where somebody reads it."""

    __slots__ = ("eqn", "prefix")

    def __init__(self, eqn: Eqn, prefix: str = "") -> None:
        self.eqn, self.prefix = eqn, prefix

    def __str__(self) -> str:
        return f"{self.prefix}{self.eqn.op}{f' at {self.eqn.source}' if self.eqn.source else ''}"


def _links(eqn: Eqn, region: Region, numbers: Mapping[Var, int]) -> Iterator[Node]:
    hidden = _hidden(eqn)
    for i, (operand, inner) in enumerate(zip(region.operands, region.program.inputs, strict=True)):
        outer = eqn.inputs[operand]
        yield Node(_same(inner, i in region.sliced, True, hidden), (numbers[outer],), (numbers[inner],), Label(eqn, "into "))
    for i, (result, inner) in enumerate(zip(region.results, region.program.outputs, strict=True)):
        if result is not None:
            rule = _same(inner, i in region.stacked, False, hidden)
            yield Node(rule, (numbers[inner],), (numbers[eqn.outputs[result]],), Label(eqn, "out of "))


def _hidden(eqn: Eqn) -> frozenset[str]:
    """The mesh axes along which the op's regions compute with shards."""
    return frozenset() if eqn.op.pinned is None else eqn.op.pinned(eqn.params)[2]


def _same(inner: Var, is_slice: bool, inwards: bool, hidden: frozenset[str]) -> FactorRule:
    """The dims of a value are those of another; dim 0 of what is cut into slices is never sharded."""
    (dims,) = FactorRule.elementwise(inner.rank, 1).results
    outer = ((), *dims) if is_slice else dims
    sizes = dict(zip((name for (name,) in dims), inner.shape, strict=True))
    sides = ((outer,), (dims,)) if inwards else ((dims,), (outer,))
    return FactorRule(*sides, {}, sizes, hidden=hidden)


def _ties(regions: Sequence[Region], numbers: Mapping[Var, int]) -> Iterator[tuple[int, ...]]:
    """A carry is what comes in and what goes out, in the body and in the condition that reads it."""
    for region in regions:
        for i, output in region.carried:
            operand = region.operands[i]
            together = [r.program.inputs[r.operands.index(operand)] for r in regions if operand in r.operands]
            yield tuple(numbers[v] for v in (*together, region.program.outputs[output]))


def _seeds(
    program: Program, numbers: Mapping[Var, int], annotations: Annotations, mesh: BaseMesh
) -> dict[int, Seed]:
    """Inputs first, then constraints, then outputs: the first to speak about a value is its seed."""
    seeds: dict[int, Seed] = {}
    written: dict[Any, Seed] = {}  # one for equal specs: layers have the same

    def add(var: Var, spec: PartitionSpec | None, is_open: bool = False) -> None:
        if spec is not None and numbers[var] not in seeds:
            key = spec, spec.priorities, var.rank, is_open
            seed = written.get(key)
            if seed is None:
                placement = normalized(placement_of(spec, var.rank).without_partial(), mesh)
                opened = (True,) * var.rank if is_open else open_dims(spec, var.rank)
                seed = written[key] = Seed(placement, opened, priorities=padded(spec, var.rank).priorities)
            seeds[numbers[var]] = seed

    for var, spec in zip(program.inputs, annotations.inputs, strict=True):
        add(var, spec)
    for part in programs_in(program):
        for eqn in part.eqns if any([op.seed or op.pinned for op in ops_in(part)]) else ():
            if eqn.op.seed is not None:
                add(eqn.outputs[0], eqn.op.seed(eqn.params))
            if eqn.op.pinned is not None:
                for var, spec in zip(eqn.outputs, eqn.op.pinned(eqn.params)[1], strict=True):
                    add(var, spec, is_open=bool(run_regions(eqn)))
    for var, spec in zip(program.outputs, annotations.outputs, strict=True):
        add(var, spec)
    return seeds
