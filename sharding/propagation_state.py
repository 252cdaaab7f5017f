"""What propagation holds while it runs: values, the places and offers of factors, and what visits of nodes came to."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TypeAlias

from sharding.axes import AxisRef, overlap
from sharding.graph import Axes, Origin
from sharding.rule import FactorRule
from sharding.spec import Placement

State: TypeAlias = tuple[
    tuple[int, ...], tuple[Axes, ...], tuple[bool, ...], tuple[tuple[AxisRef, str], ...], bool, tuple[bool, ...]
]
NodeKey: TypeAlias = tuple[FactorRule, tuple[State, ...], tuple[int, ...]]
Clash: TypeAlias = tuple[str, int, int, Axes, Axes, int]  # factor, slot, dim, kept, lost, slot that offered
Change: TypeAlias = tuple[int, int, Axes, tuple[tuple[int, int], ...]]  # slot, dim, its axes now, who offered them


class Memory:
    """What visits of nodes came to, by rule and states: layers that are alike are worked out once, also across runs."""

    def __init__(self) -> None:
        self.changes: dict[tuple[NodeKey, int], tuple[Change, ...]] = {}  # by stage; those before contests are one
        self.clashes: dict[NodeKey, tuple[Clash, ...]] = {}

    def trim(self) -> None:
        if len(self.changes) + len(self.clashes) > 200_000:
            self.changes.clear()
            self.clashes.clear()


@functools.lru_cache(maxsize=64)
def memory_of(axes: tuple[tuple[str, int], ...]) -> Memory:
    """One for every mesh shape."""
    return Memory()


class Value:
    """What is known of a value, or of all values of a tie together."""

    __slots__ = (
        "dims", "elements", "first", "is_active", "is_open", "is_quiet", "known", "origins", "partial", "priority", "shape",
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
        self.known: State | None = None  # of `state`; forgotten when something changes

    @property
    def state(self) -> State:
        """All that a node learns of the value when it is visited."""
        if self.known is None:
            self.known = (self.shape, tuple(self.dims), tuple(self.is_open), self.partial, self.is_active, tuple(self.is_quiet))
        return self.known

    def blockers(self, dim: int, axis: AxisRef) -> Axes:
        """The axes of other dims, and the partial ones, that keep `axis` from `dim`."""
        others = [other for d, axes in enumerate(self.dims) if d != dim for other in axes]
        return tuple(other for other in (*others, *(a for a, _ in self.partial)) if overlap(other, axis))

    def placement(self) -> Placement:
        return Placement(tuple(self.dims), self.partial)


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
def stage_of(rule: FactorRule) -> int:
    of_operands = {name for value in rule.operands for dim in value for name in dim}
    if rule.operands and any(name not in of_operands for name in rule.factors):
        return 2
    return 0 if rule.is_passthrough else 1
