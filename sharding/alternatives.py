"""The other ways in which conflicts could have gone, as seeds to propagate again with.

Where two offers collide, propagation goes by order and size, which says little of what the whole plan then costs: an
embedding whose features are sharded over `data` may take that axis from the batch, and every layer behind it computes
the whole batch. A Turn lets the loser win: it plants the axes that were lost on the values that lost them.

    before    x [-, -, data]    kept data on dim 2, lost data on dim 0, offered by the tokens
    turned    x [data, ?, ?]    a seed whose other dims are open, propagated together with the user's

Alike conflicts (values of one shape, the same dim, the same axes) are turned together first, for these are mostly the
layers of one model; then rule by rule; then with all values that lie as the losers do. What a user has placed is never
turned, nor what came from a user's seed of higher priority.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from sharding.axes import AxisRef, overlap
from sharding.graph import Axes, Conflict, Origin, Propagated, Seed
from sharding.placement import Placement

_Key: TypeAlias = tuple[object, ...]


@dataclasses.dataclass(frozen=True)
class Turn:
    """Conflicts that go the other way. `key` is the same for the same turn of another propagation.

    `family` is the key of all alike conflicts, of which these may be a part.
    """

    key: _Key
    family: _Key
    conflicts: tuple[Conflict, ...]
    elements: int  # of the values that would be placed otherwise

    def seeds(self, propagated: Propagated) -> dict[int, Seed]:
        """The seeds of `found`, and those that make the losers win."""
        seeds = dict(propagated.graph.seeds)
        equal = _are_equal(propagated)
        for conflict in self.conflicts:
            rank = len(propagated.graph.shapes[conflict.value])
            placement = _lost(rank, conflict.dim, conflict.lost)
            priority = 0 if equal else _priority(propagated, conflict)
            seeds[conflict.value] = Seed(placement, (True,) * rank, priority, LostOrigins(propagated, conflict))
        return seeds


def turns(propagated: Propagated) -> list[Turn]:
    """All that may be tried, those of the largest values first; of equal ones whole groups first."""
    groups: dict[tuple[_Key, _Key], dict[int, Conflict]] = {}
    equal = _are_equal(propagated)
    for conflict in propagated.conflicts:
        if not (_is_free(propagated, conflict) if equal else _may_turn(propagated, conflict)):
            continue
        shape = propagated.graph.shapes[conflict.value]
        wide = (shape, conflict.dim, conflict.kept, conflict.lost)
        narrow = (*wide, propagated.graph.nodes[conflict.node].rule, conflict.factor)
        for key in (wide, narrow):
            groups.setdefault((key, wide), {}).setdefault(conflict.value, conflict)
    found_turns: dict[tuple[Conflict, ...], Turn] = {}
    for (key, family), conflicts in groups.items():
        turned = tuple(conflicts.values())
        elements = sum(math.prod(propagated.graph.shapes[conflict.value]) for conflict in turned)
        found_turns.setdefault(turned, Turn(key, family, turned, elements))
    return sorted(found_turns.values(), key=lambda turn: (-turn.elements, len(turn.key)))


def spread_on(propagated: Propagated, turn: Turn) -> Turn | None:
    """The turn of a whole group with all values that lie as the losers do: behind the first layer of many, whose placement lost,
    the others have no conflict, because nothing else reached them. None where there are no others, and with priorities."""
    if turn.key != turn.family or not _are_equal(propagated):
        return None
    graph, losers = propagated.graph, {conflict.value for conflict in turn.conflicts}
    lying = {(graph.shapes[c.value], propagated.placements[c.value]): c for c in turn.conflicts}
    placements = {placement for _, placement in lying}
    others = [
        Conflict(c.node, c.factor, value, c.dim, c.kept, c.lost, c.offered_by)
        for value, placement in enumerate(propagated.placements)
        if placement in placements and value not in losers and value not in graph.seeds
        if (c := lying.get((graph.shapes[value], placement))) is not None
    ]
    conflicts = (*turn.conflicts, *others)
    elements = sum(math.prod(graph.shapes[conflict.value]) for conflict in conflicts)
    return Turn(("on", *turn.key), turn.family, conflicts, elements) if others else None


@dataclasses.dataclass(frozen=True)
class LostOrigins:
    """Where the axes came from that a conflict lost, worked out when somebody asks."""

    propagated: Propagated
    conflict: Conflict

    def __iter__(self) -> Iterator[tuple[AxisRef, Origin]]:
        return iter(_lost_origins(self.propagated, self.conflict))


@functools.lru_cache(maxsize=4096)
def _lost(rank: int, dim: int, axes: Axes) -> Placement:
    """Of a value that has these axes on a dim."""
    return Placement.replicated(rank).with_dim(dim, axes)


def _are_equal(propagated: Propagated) -> bool:
    """Whether all seeds have the priority 0, so that no origin decides."""
    return not any(seed.priority or any(seed.priorities) for seed in propagated.graph.seeds.values())


def _is_free(propagated: Propagated, conflict: Conflict) -> bool:
    """Whether nobody placed the value."""
    return conflict.node >= 0 and conflict.value not in propagated.graph.seeds


def _may_turn(propagated: Propagated, conflict: Conflict) -> bool:
    """Whether the loser may win: nobody placed the value, and the winner does not come from a stronger seed."""
    if not _is_free(propagated, conflict):
        return False
    winners = [_seed_priority(propagated, axis, origin) for axis, origin in _kept_origins(propagated, conflict)]
    return all(winner >= _priority(propagated, conflict) for winner in winners)


def _priority(propagated: Propagated, conflict: Conflict) -> int:
    return max((_seed_priority(propagated, axis, origin) for axis, origin in _lost_origins(propagated, conflict)), default=0)


def _seed_priority(propagated: Propagated, axis: AxisRef, origin: Origin) -> int:
    seed = propagated.graph.seeds.get(origin.seed)
    return seed.priority_of(axis) if seed is not None else 0


def _kept_origins(propagated: Propagated, conflict: Conflict) -> Iterator[tuple[AxisRef, Origin]]:
    for dim in range(len(propagated.graph.shapes[conflict.value])):
        for axis in propagated.placements[conflict.value].dims[dim]:
            if any(overlap(axis, kept) for kept in conflict.kept):
                yield axis, propagated.origins[conflict.value, dim, axis]


def _lost_origins(propagated: Propagated, conflict: Conflict) -> Iterable[tuple[AxisRef, Origin]]:
    """Where the lost axes came from, by way of the node at which they lost."""
    by, node = conflict.offered_by, propagated.graph.nodes[conflict.node]
    sides = zip((*node.rule.operands, *node.rule.results), (*node.operands, *node.results), strict=True)
    dims = [d for value, index in sides if index == by for d, factors in enumerate(value) if conflict.factor in factors]
    for axis in conflict.lost:
        for dim in dims:
            origin = _overlapping(propagated, by, dim, axis)
            if origin is not None:
                yield axis, Origin(origin.seed, conflict.node, origin)
                break


def _overlapping(propagated: Propagated, value: int, dim: int, axis: AxisRef) -> Origin | None:
    axes: Axes = propagated.placements[value].dims[dim]
    return next((propagated.origins[value, dim, other] for other in axes if overlap(other, axis)), None)
