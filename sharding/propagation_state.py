"""What propagation holds while it runs: values, the places and offers of factors, and what visits of nodes came to."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from sharding.axes import AxisRef, overlap
from sharding.graph import Axes, Graph, Origin
from sharding.rule import FactorRule
from sharding.spec import Placement, ShardingError

State: TypeAlias = tuple[
    tuple[int, ...], tuple[Axes, ...], tuple[bool, ...], tuple[tuple[AxisRef, str], ...], bool, tuple[bool, ...]
]
NodeKey: TypeAlias = tuple[int, ...]  # which kind of node, then which states its values are in, by number
Clash: TypeAlias = tuple[str, int, int, Axes, Axes, int]  # factor, slot, dim, kept, lost, slot that offered
Change: TypeAlias = tuple[int, int, Axes, tuple[tuple[int, int], ...]]  # slot, dim, its axes now, who offered them

CONTESTS: Final = 3  # the last stages of propagation; see the text of propagate.py
DISPLACEMENTS: Final = 4


class Memory:
    """What visits of nodes came to, by rule and states: layers that are alike are worked out once, also across runs.

    Rules and states are numbered, so that looking up does not compare them again and again. A rule goes with an order of
    its values: which of equal ones comes first. Numbers are never given twice, for several threads may propagate at once.
    """

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.kinds: dict[tuple[FactorRule, tuple[int, ...]], int] = {}
        self.states: dict[State, int] = {}
        self.changes: tuple[dict[NodeKey, tuple[Change, ...]], ...] = ({}, {}, {})  # before contests, there, and behind
        self.clashes: dict[NodeKey, tuple[Clash, ...]] = {}
        self.placements: dict[Any, Placement] = {}

    def trim(self) -> None:
        if sum(map(len, self.changes)) + len(self.clashes) > 200_000:
            for table in (self.kinds, self.states, *self.changes, self.clashes, self.placements):
                table.clear()

    def kind_of(self, rule: FactorRule, firsts: Sequence[int]) -> int:
        order = sorted(firsts)
        key = rule, tuple([order.index(first) for first in firsts])
        number = self.kinds.get(key)
        return self.kinds.setdefault(key, next(self.numbers)) if number is None else number

    def number_of(self, state: State) -> int:
        number = self.states.get(state)
        return self.states.setdefault(state, next(self.numbers)) if number is None else number


@functools.lru_cache(maxsize=64)
def memory_of(axes: tuple[tuple[str, int], ...]) -> Memory:
    """One for every mesh shape."""
    return Memory()


class Value:
    """What is known of a value, or of all values of a tie together."""

    __slots__ = (
        "dims", "elements", "first", "is_active", "is_open", "is_quiet", "number", "origins", "partial", "priority", "shape",
    )  # fmt: skip

    def __init__(self, first: int, shape: tuple[int, ...]) -> None:
        self.first = first
        self.shape = shape
        self.elements = math.prod(shape)
        self.dims: list[Axes] = [()] * len(shape)
        self.origins: list[dict[AxisRef, Origin]] = [{} for _ in shape]
        self.is_open = [True] * len(shape)
        self.partial: tuple[tuple[AxisRef, str], ...] = ()
        self.is_active = True
        self.is_quiet = [False] * len(shape)  # dims that hold axes but offer them only when their priority's turn comes
        self.priority = 0
        self.number: int | None = None  # of its state; forgotten when something changes

    @property
    def state(self) -> State:
        """All that a node learns of the value when it is visited."""
        return self.shape, tuple(self.dims), tuple(self.is_open), self.partial, self.is_active, tuple(self.is_quiet)

    def blockers(self, dim: int, axis: AxisRef) -> Axes:
        """The axes of other dims, and the partial ones, that keep `axis` from `dim`."""
        others = [other for d, axes in enumerate(self.dims) if d != dim for other in axes]
        return tuple(other for other in (*others, *(a for a, _ in self.partial)) if overlap(other, axis))

    def placement(self, memory: Memory) -> Placement:
        """One object for equal ones, which makes comparing them quick."""
        key = tuple(self.dims), self.partial
        found = memory.placements.get(key)
        if found is None:
            found = memory.placements[key] = Placement(*key)
        return found


@dataclasses.dataclass(frozen=True)
class Structure:
    """What does not depend on seeds: for every value the first of its tie; for every node the firsts of its values, its
    kind and its turns; for every first the nodes that it stands at."""

    memory: Memory
    firsts: list[int]
    slots: list[tuple[int, ...]]
    kinds: list[int]
    stages: list[tuple[int, ...]]
    nodes_of: dict[int, list[int]]


def structure_of(graph: Graph, memory: Memory) -> Structure:
    """ShardingError when shapes of tied values differ."""
    firsts = _firsts(graph)
    slots = [tuple([firsts[v] for v in (*node.operands, *node.results)]) for node in graph.nodes]
    nodes_of: dict[int, list[int]] = {first: [] for first in firsts}
    for index, members in enumerate(slots):
        for first in dict.fromkeys(members):
            nodes_of[first].append(index)
    kinds = [memory.kind_of(node.rule, members) for node, members in zip(graph.nodes, slots, strict=True)]
    return Structure(memory, firsts, slots, kinds, [stages_of(node.rule) for node in graph.nodes], nodes_of)


def _firsts(graph: Graph) -> list[int]:
    """For every value the first of those that are tied to it, directly or through others."""
    leader = list(range(len(graph.shapes)))

    def find(value: int) -> int:
        while leader[value] != value:
            leader[value] = leader[leader[value]]
            value = leader[value]
        return value

    for tie in graph.ties:
        for value in tie:
            if graph.shapes[value] != graph.shapes[tie[0]]:
                shapes = graph.shapes[tie[0]], graph.shapes[value]
                raise ShardingError(f"tied values {tie[0]} and {value} differ in shape: {shapes[0]} and {shapes[1]}")
            low, high = sorted((find(tie[0]), find(value)))
            leader[high] = low
    return [find(v) for v in range(len(graph.shapes))]


@dataclasses.dataclass(frozen=True)
class Place:
    """A dim of a value of a node that holds a factor; `slot` counts operands, then results."""

    slot: int
    dim: int
    factors: tuple[str, ...]  # all of the dim


@dataclasses.dataclass(frozen=True)
class Offer:
    """The axes that a factor has in one value of a node."""

    axes: Axes
    value: Value
    slot: int
    dim: int


@functools.lru_cache(maxsize=65536)
def places_of(rule: FactorRule) -> tuple[tuple[str, tuple[Place, ...]], ...]:
    """Every factor that may be sharded, with the dims that hold it."""
    places: dict[str, list[Place]] = {name: [] for name in rule.factors if rule.kinds.get(name) != "replicate"}
    for slot, value in enumerate((*rule.operands, *rule.results)):
        for dim, factors in enumerate(value):
            for name in factors:
                if name in places:
                    places[name].append(Place(slot, dim, factors))
    return tuple((name, tuple(found)) for name, found in places.items())


@functools.lru_cache(maxsize=65536)
def stages_of(rule: FactorRule) -> tuple[int, ...]:
    """When a node of this rule gets its turns."""
    of_operands = {name for value in rule.operands for dim in value for name in dim}
    first = 0 if rule.is_passthrough else 1
    if rule.operands and any(name not in of_operands for name in rule.factors):
        first = 2
    return (first, CONTESTS, *((DISPLACEMENTS,) if "replicate" in rule.kinds.values() else ()))
