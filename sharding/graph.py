"""What propagation reads and writes: a graph of values and nodes, seeds; placements, origins and conflicts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sharding.axes import AxisRef, overlap
from sharding.placement import Placement
from sharding.rule import FactorRule

Axes: TypeAlias = tuple[AxisRef, ...]


@dataclasses.dataclass(slots=True, unsafe_hash=True)
class Node:
    """An op as propagation sees it: a rule with sizes, and the values (indices into Graph.shapes) it stands on."""

    rule: FactorRule
    operands: tuple[int, ...]
    results: tuple[int, ...]
    label: object = ""  # its text says what the node is


@dataclasses.dataclass(slots=True, unsafe_hash=True)  # never changed; saying so would double the time of making one
class Origin:
    """Where an axis on a dim came from: a seed, the last node it passed on the way, and what it was before that."""

    seed: int
    node: int | None = None
    before: Origin | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def path(self) -> tuple[int, ...]:
        """The nodes it travelled through, from the seed on."""
        nodes: list[int] = []
        origin: Origin | None = self
        while origin is not None and origin.node is not None:
            nodes.append(origin.node)
            origin = origin.before
        return tuple(nodes[::-1])


@dataclasses.dataclass(frozen=True)
class Seed:
    """What was asked for of one value. Dims are closed, never changed, unless `open_dims` says so (empty: none is).

    `origins`: (axis, where it came from) for axes that no user put there, but a decision between two offers.
    `rank`: of the seeds of one priority those of the lowest rank spread first, to their fixed point.
    """

    placement: Placement
    open_dims: tuple[bool, ...] = ()
    priority: int = 0
    origins: Iterable[tuple[AxisRef, Origin]] = dataclasses.field(default=(), compare=False)
    priorities: tuple[int, ...] = ()  # by dim, instead of the one of all
    rank: int = 0

    def priority_of(self, axis: AxisRef) -> int:
        """Of the dim that it holds this axis on, or part of it."""
        dims = (d for d, axes in enumerate(self.placement.dims) if any(overlap(axis, other) for other in axes))
        return next((self.priorities[d] for d in dims if self.priorities), self.priority)

    def is_open(self, dim: int) -> bool:
        return bool(self.open_dims) and self.open_dims[dim]


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """Nodes in a row that are those of another repeat of the same kind on other values. They make the values `made`, and of those
    others read them at the positions `public`; `others` are the values that they read besides, in the same order."""

    kind: Hashable
    start: int
    stop: int
    made: range
    others: tuple[int, ...]
    public: tuple[int, ...]


@dataclasses.dataclass
class Graph:
    """Values (their shapes), nodes, ties (values that must share one placement, as loop carries) and seeds by value. Repeats, in
    order, may be told; they change nothing but the time that propagation takes."""

    shapes: list[tuple[int, ...]]
    nodes: Sequence[Node]
    ties: list[tuple[int, ...]] = dataclasses.field(default_factory=list[tuple[int, ...]])
    seeds: dict[int, Seed] = dataclasses.field(default_factory=dict[int, Seed])
    repeats: Sequence[Repeat] = ()


@dataclasses.dataclass(frozen=True)
class Conflict:
    """At `node`, `value` keeps axes `kept` although `lost` was offered to its `dim` for `factor` by value `offered_by`.

    Either the dim itself holds `kept`, or another dim of the value does. `node` is -1 where seeds of tied values
    differ.
    """

    node: int
    factor: str
    value: int
    dim: int
    kept: Axes
    lost: Axes
    offered_by: int

    @property
    def values(self) -> tuple[int, int]:
        return self.value, self.offered_by

    def holder(self, placement: Placement) -> int | None:
        """The dim of the value, placed like this, that has the axes `kept`; None if none does any more."""
        kept = [d for d, axes in enumerate(placement.dims) if any(overlap(a, b) for a in axes for b in self.kept)]
        return kept[0] if kept else None


@dataclasses.dataclass(frozen=True)
class Propagated:
    """A placement for every value; where every axis came from; what collided, worked out when somebody asks."""

    graph: Graph
    placements: list[Placement]
    origins: Mapping[tuple[int, int, AxisRef], Origin]
    collide: Callable[[], list[Conflict]] = dataclasses.field(repr=False, compare=False)
    structure: Any = dataclasses.field(default=None, repr=False, compare=False)  # for propagating with other seeds

    @functools.cached_property
    def conflicts(self) -> list[Conflict]:
        return self.collide()


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why an axis is on a dim: the seed's value and the nodes, with their labels, through which it came."""

    dim: int
    axis: AxisRef
    seed: int
    nodes: tuple[int, ...]
    labels: tuple[str, ...]


def explain(propagated: Propagated, value: int) -> tuple[Reason, ...]:
    """One Reason for every axis of every dim of `value`, in order."""
    reasons: list[Reason] = []
    for dim, axes in enumerate(propagated.placements[value].dims):
        for axis in axes:
            origin = propagated.origins[value, dim, axis]
            path = origin.path
            labels = tuple(str(propagated.graph.nodes[node].label) for node in path)
            reasons.append(Reason(dim, axis, origin.seed, path, labels))
    return tuple(reasons)
