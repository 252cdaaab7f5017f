"""Propagation: from the placements of a few values to those of all, along factor rules, to a fixed point.

After GSPMD (arXiv 2105.04663) and Shardy (docs/propagation.md). A node's rule says which dims hold the same factor;
an axis on one of them is offered to the others. A value takes what is offered behind the axes it has, if

- the dim is open (seeds are closed but for their open dims; values without a seed are open);
- no other dim of the value, and no partial sum, uses the axis;
- the factor's extent is at least the number of shards: uneven shards are welcome, empty ones are not, and a factor of
  extent 1 is never sharded. But where a seed already spreads the factor thinner (3 over 8), others follow: gathering
  what the user scattered would cost, and a device that holds one element or none has the least to do;
- the values with the factor agree: of axes that are prefixes of one another the longest, of others the common prefix;
- no other factor of the same value is offered the same axis at this node: such a *contest* waits.

Order. Seeds of user priority 0 are propagated first, all the way; then those of priority 1, and so on. Within each,
nodes come in five stages, an earlier stage always being run to its fixed point before the next gets a turn:

    0  pass-through rules: elementwise ops, transposes, reshapes
    1  rules that reduce, replicate or permute: contractions, reductions, windows
    2  rules whose results have factors that no operand has: broadcasts. A small operand's axes reach a large result
    last. 3  contests, one node at a time: the axis goes to the factor, or the axes to those of the value, with the
    most elements,
       so that the smaller value is the one to move; among equals to the first value, then the first factor.
    4  displacements: axes of a dim that has to be whole go to another dim of the values on the node's other side

Axes are only ever added, so the fixed point is reached after at most (values * axes) changes. Where no two offers
collide it does not depend on the order of the nodes; where they do, `conflicts` says what was kept and what lost. To
see the plan in which a conflict goes the other way, propagate again with a Seed for the contested value.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from sharding.axes import AxisRef, is_prefix, overlap
from sharding.graph import (
    Axes,
    Conflict,
    Graph,
    Node as Node,
    Origin,
    Origins,
    Propagated,
    Reason as Reason,
    Seed,
    explain as explain,
)
from sharding.mesh import BaseMesh
from sharding.propagation_state import CONTESTS, Change, NodeKey, Structure, Value, memory_of, structure_of
from sharding.spec import ShardingError
from sharding.visit import Visit


def propagate(graph: Graph, mesh: BaseMesh, like: Propagated | None = None) -> Propagated:
    """The fixed point that the module's text describes. `like` was found for a graph that differs in its seeds only.

    ShardingError when shapes of tied values differ, or a seed or a node does not fit the shapes of its values.
    """
    return _Propagation(graph, mesh, like.structure if like is not None else None).run()


class _Propagation:
    def __init__(self, graph: Graph, mesh: BaseMesh, known: Structure | None) -> None:
        self.graph, self.mesh, self.sizes = graph, mesh, mesh.shape
        self.memory = memory_of(tuple(self.sizes.items()))
        self.memory.trim()
        self.conflicts: list[Conflict] = []
        if known is None or known.memory is not self.memory:
            known = structure_of(graph, self.memory)
        self.structure, self.kinds = known, known.kinds
        untouched = {shape: self.memory.number_of(Value(0, shape).state) for shape in {*graph.shapes}}
        made = {first: Value(first, graph.shapes[first], untouched[graph.shapes[first]]) for first in known.turns_of}
        self.values = [made[first] for first in known.firsts]
        self.slots = [[made[first] for first in firsts] for firsts in known.slots]
        self._plant_seeds()
        self.queue: list[int] = []  # turns: stage * nodes + node
        self.queued: set[int] = set()

    def _plant_seeds(self) -> None:
        planted: set[Value] = set()
        for index, seed in sorted(self.graph.seeds.items(), key=lambda item: (item[1].priority, item[0])):
            value = self.values[index]
            value.number = None
            if seed.placement.rank != len(value.shape):
                raise ShardingError(
                    f"the seed of value {index} is {seed.placement} of {seed.placement.rank} dims, its shape "
                    f"{value.shape} has {len(value.shape)}"
                )
            if value not in planted:
                value.priority, value.is_active = min(seed.priorities, default=seed.priority), False
                value.is_quiet = tuple([p > value.priority for p in seed.priorities]) or value.is_quiet
                value.partial = seed.placement.partial
            for dim, axes in enumerate(seed.placement.dims):
                self._plant(value, dim, axes, index, seed, value not in planted)
            planted.add(value)

    def _plant(self, value: Value, dim: int, axes: Axes, index: int, seed: Seed, is_first: bool) -> None:
        """Give a dim its seed. Of tied values with several seeds the first, by priority, is right."""
        have = value.dims[dim]
        if is_first or (
            value.is_open[dim]
            and is_prefix(have, axes, self.sizes)
            and not any(value.blockers(dim, axis) for axis in axes)
        ):
            if axes:
                value.put(dim, axes)
                said, known = dict(seed.origins), value.origins[dim]
                value.trace(dim, {a: known.get(a) or said.get(a) or Origin(index) for a in axes})
            value.is_open = (*value.is_open[:dim], seed.is_open(dim), *value.is_open[dim + 1 :])
        elif axes != have and not (seed.is_open(dim) and is_prefix(axes, have, self.sizes)):
            self.conflicts.append(Conflict(-1, "", index, dim, have, axes, index))

    # --- the fixed point ----------------------------------------------------------------------------------------------

    def run(self) -> Propagated:
        seeds = self.graph.seeds.values()
        queue, queued, count = self.queue, self.queued, len(self.kinds)
        for priority in sorted({0, *(p for seed in seeds for p in (seed.priority, *seed.priorities))}):
            for value in dict.fromkeys(self.values):
                if not value.is_active and value.priority <= priority:
                    value.is_active, value.number = True, None
                    self._enqueue(value)
            self._let_speak(priority)
            while queue:
                turn = heapq.heappop(queue)
                if turn in queued:
                    queued.discard(turn)
                    stage, index = divmod(turn, count)
                    self._visit(index, max(stage, CONTESTS - 1))
        for index in range(count):
            self._record_conflicts(index)
        placements = [self.memory.placement_of(value) for value in self.values]
        return Propagated(self.graph, placements, Origins(self.values), self.conflicts, self.structure)

    def _let_speak(self, priority: int) -> None:
        """Dims of this priority offer their axes from now on."""
        for index, seed in self.graph.seeds.items():
            value = self.values[index]
            for dim, own in enumerate(seed.priorities):
                if value.is_quiet[dim] and own <= priority:
                    value.is_quiet = (*value.is_quiet[:dim], False, *value.is_quiet[dim + 1 :])
                    value.number = None
                    self._enqueue(value)

    def _enqueue(self, value: Value) -> None:
        queued, queue = self.queued, self.queue
        for turn in self.structure.turns_of[value.first]:
            if turn not in queued:
                queued.add(turn)
                heapq.heappush(queue, turn)

    def _node_key(self, index: int) -> NodeKey:
        """All that the outcome of a visit depends on, besides the kind of the node."""
        number_of = self.memory.number_of
        for value in self.slots[index]:
            if value.number is None:
                value.number = number_of(value.state)
        return tuple([value.number for value in self.slots[index]])

    def _visit(self, index: int, stage: int) -> None:
        """What comes of a visit is worked out once for all nodes of a kind among values in the same states."""
        key, known = self._node_key(index), self.kinds[index].changes[stage - CONTESTS + 1]
        trail = known.get(key)
        if trail is None:
            trail = known[key] = Visit(self.graph.nodes[index].rule, self.slots[index], self.mesh).run(stage)
        if trail:
            self._apply(index, trail)
        elif stage < CONTESTS:
            self._skip_idle_turns(index, key)

    def _skip_idle_turns(self, index: int, key: NodeKey) -> None:
        """Where nothing comes of a visit, nor is known to come of the later ones as long as no value changes."""
        for stage, known in enumerate(self.kinds[index].changes[1:], CONTESTS):
            if known.get(key) == ():
                self.queued.discard(stage * len(self.kinds) + index)

    def _apply(self, index: int, trail: Sequence[Change]) -> None:
        """Put axes on dims, because of offers, the weightiest first."""
        slots = self.slots[index]
        for slot, dim, axes, offers in trail:
            value = slots[slot]
            known = value.origins[dim]
            value.trace(dim, {a: _origin_of(known, a) or _origin_at(index, a, slots, offers) for a in axes})
            value.put(dim, axes)
            self._enqueue(value)

    def _record_conflicts(self, index: int) -> None:
        key, known = self._node_key(index), self.kinds[index].clashes
        found = known.get(key)
        if found is None:
            found = known[key] = tuple(Visit(self.graph.nodes[index].rule, self.slots[index], self.mesh).clashes())
        if not found:
            return
        node = self.graph.nodes[index]
        ids = (*node.operands, *node.results)
        for name, slot, dim, kept, lost, by in found:
            self.conflicts.append(Conflict(index, name, ids[slot], dim, kept, lost, ids[by]))


def _origin_of(known: Mapping[AxisRef, Origin], axis: AxisRef) -> Origin | None:
    """Where the axis came from by which a dim has it, or has part of it; the axes of one dim share no part."""
    own = known.get(axis)
    if own is None and known:
        own = next((origin for old, origin in known.items() if overlap(old, axis)), None)
    return own


def _origin_at(index: int, axis: AxisRef, slots: Sequence[Value], offers: Sequence[tuple[int, int]]) -> Origin:
    """By way of this node, from the first offer that has the axis."""
    for slot, dim in offers:
        origin = _origin_of(slots[slot].origins[dim], axis)
        if origin is not None:
            return Origin(origin.seed, index, origin)
    raise AssertionError(f"axis {axis} of node {index} was offered by nobody")
