"""Propagation: from the placements of a few values to those of all, along factor rules, to a fixed point.

After GSPMD (arXiv 2105.04663) and Shardy (docs/propagation.md). A node's rule says which dims hold the same factor;
an axis on one of them is offered to the others. A value takes offered axes behind those that it has, if

- the dim is open (seeds are closed but for their open dims; values without a seed are open);
- no other dim of the value, and no partial sum, uses the axis;
- the factor's extent is at least the number of shards: uneven shards are legal, empty ones are not, and a factor of
  extent 1 is never sharded. But where a seed already spreads the factor thinner (3 over 8), other values follow it:
  gathering what the user scattered would cost more;
- the values with the factor agree: among axes that are prefixes of one another the longest wins, among others the
  common prefix;
- no other factor of the same value is offered the same axis at this node: such a *contest* waits.

Order. Seeds of user priority 0 are propagated first, all the way; then those of priority 1, and so on. Within each,
nodes are visited in five stages; each stage runs to its fixed point before the next one begins:

    0  pass-through rules: elementwise ops, transposes, reshapes
    1  rules that reduce, replicate or permute: contractions, reductions, windows
    2  rules whose results have factors that no operand has: broadcasts. So a small operand's axes reach a large
       result last
    3  contests, one node at a time: the axis goes to the factor, or the axes to those of the value, with the most
       elements, so that the smaller value is the one to move; among equals to the first value, then the first factor
    4  displacements: axes of a dim that must be whole go to another dim of the values on the node's other side

Axes are only added, so the fixed point is reached after at most (values * axes) changes. Where no two offers collide,
it does not depend on the order of the nodes. Where they do, `conflicts` holds what was kept and what lost. To see the
plan in which a conflict goes the other way, propagate again with a Seed for the contested value.
"""

from __future__ import annotations

from sharding.axes import is_prefix
from sharding.graph import (
    Axes,
    Conflict,
    Graph,
    Node as Node,
    Origin as Origin,
    Propagated,
    Reason as Reason,
    Seed,
    explain as explain,
)
from sharding.mesh import BaseMesh
from sharding.origins import History, Origins
from sharding.propagation_state import (
    CONTESTS,
    DISPLACEMENTS,
    Outcome,
    State,
    Structure,
    Value,
    cache_of,
    structure_of,
)
from sharding.spec import ShardingError
from sharding.visit import Visit


def propagate(graph: Graph, mesh: BaseMesh, like: Propagated | None = None) -> Propagated:
    """The fixed point that the module's text describes. `like` is the result for a graph that differs only in its seeds.

    ShardingError when shapes of tied values differ, or a seed or a node does not fit the shapes of its values.
    """
    return _Propagation(graph, mesh, like.structure if like is not None else None).run()


class _Propagation:
    """Every value has a number, that of its state; a visit of a node looks up which numbers its values get."""

    def __init__(self, graph: Graph, mesh: BaseMesh, structure: Structure | None) -> None:
        self.graph, self.mesh, self.sizes = graph, mesh, mesh.shape
        self.cache = cache_of(tuple(self.sizes.items()))
        if structure is None or structure.cache is not self.cache:
            structure = structure_of(graph, self.cache)
        self.structure, self.kinds = structure, structure.kinds
        untouched = {shape: self.cache.number_of(State.untouched(shape)) for shape in {*graph.shapes}}
        self.states = [untouched[shape] for shape in graph.shapes]  # that of a tie stands at its first value
        self.conflicts: list[Conflict] = []
        self.history = History(structure)
        self.waiting: dict[int, int] = {}  # values that take no part yet → their priority
        self._plant_seeds()
        self.is_due = bytearray((DISPLACEMENTS + 1) * len(self.kinds))  # by visit: stage * nodes + node

    # --- seeds --------------------------------------------------------------------------------------------------------

    def _plant_seeds(self) -> None:
        firsts, planted = self.structure.firsts, dict[int, Value]()
        for index, seed in sorted(self.graph.seeds.items(), key=lambda item: (item[1].priority, item[0])):
            first, shape = firsts[index], self.graph.shapes[index]
            if seed.placement.rank != len(shape):
                raise ShardingError(
                    f"the seed of value {index} is {seed.placement} of {seed.placement.rank} dims, its shape "
                    f"{shape} has {len(shape)}"
                )
            is_first = first not in planted
            value = planted.setdefault(first, self._value(first))
            if is_first:
                self.waiting[first] = priority = min(seed.priorities, default=seed.priority)
                value.is_active = False
                value.is_quiet = tuple([p > priority for p in seed.priorities]) or value.is_quiet
                value.partial = seed.placement.partial
            for dim, axes in enumerate(seed.placement.dims):
                self._plant(value, dim, axes, index, seed, is_first)
        for first, value in planted.items():
            self.states[first] = self.cache.number_of(value.state)

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
                self.history.planted.append((value.first, dim, axes, index, seed))
            value.is_open = (*value.is_open[:dim], seed.is_open(dim), *value.is_open[dim + 1 :])
        elif axes != have and not (seed.is_open(dim) and is_prefix(axes, have, self.sizes)):
            self.conflicts.append(Conflict(-1, "", index, dim, have, axes, index))

    def _value(self, first: int) -> Value:
        return Value(first, self.cache.states[self.states[first]])

    # --- the fixed point ----------------------------------------------------------------------------------------------

    def run(self) -> Propagated:
        seeds = self.graph.seeds.values()
        for priority in sorted({0, *(p for seed in seeds for p in (seed.priority, *seed.priorities))}):
            self._activate(priority)
            self._let_speak(priority)
            self._settle()
        self._record_conflicts()
        placed = {number: self.cache.placement_of(number) for number in {*self.states}}
        placements = [placed[self.states[first]] for first in self.structure.firsts]
        return Propagated(self.graph, placements, Origins(self.history), self.conflicts, self.structure)

    def _activate(self, priority: int) -> None:
        """Seeds of this priority take part from now on."""
        for first in [first for first, own in self.waiting.items() if own <= priority]:
            del self.waiting[first]
            self._put(first, self.cache.states[self.states[first]]._replace(is_active=True))

    def _let_speak(self, priority: int) -> None:
        """Dims of this priority offer their axes from now on."""
        for index, seed in self.graph.seeds.items():
            first = self.structure.firsts[index]
            state = self.cache.states[self.states[first]]
            for dim, own in enumerate(seed.priorities):
                if state.is_quiet[dim] and own <= priority:
                    state = state._replace(is_quiet=(*state.is_quiet[:dim], False, *state.is_quiet[dim + 1 :]))
                    self._put(first, state)

    def _put(self, first: int, state: State) -> None:
        self.states[first] = self.cache.number_of(state)
        for visit in self.structure.visits_of[first]:
            self.is_due[visit] = True

    def _settle(self) -> None:
        """Visit nodes until none is due, the first one each time. The outcome of a visit is computed once for all nodes of a
        kind whose values have the same states."""
        states, is_due, kinds, count = self.states, self.is_due, self.kinds, len(self.kinds)
        structure, history = self.structure, self.history.visits
        picks, slots, visits_of = structure.picks, structure.slots, structure.visits_of
        visit = is_due.find(1)
        while visit >= 0:
            is_due[visit] = False
            stage, index = divmod(visit, count)
            key, outcomes = picks[index](states), kinds[index].changes[stage - CONTESTS + 1 if stage >= CONTESTS else 0]
            outcome = outcomes.get(key)
            if outcome is None:
                outcome = outcomes[key] = self._visit(index, max(stage, CONTESTS - 1))
            if outcome:
                trail, after = outcome
                history.append((index, trail))
                for slot, number in after:
                    first = slots[index][slot]
                    states[first] = number
                    for other in visits_of[first]:
                        is_due[other] = True
                        if other < visit:
                            visit = other
            elif stage < CONTESTS:  # drop the later visits that change nothing either, according to the outcomes in the cache
                _, contests, displacements = kinds[index].changes
                if contests.get(key) == ():
                    is_due[CONTESTS * count + index] = False
                if displacements.get(key) == ():
                    is_due[DISPLACEMENTS * count + index] = False
            visit = is_due.find(1, visit)

    def _visit(self, index: int, stage: int) -> Outcome:
        members = self.structure.slots[index]
        values = {first: self._value(first) for first in members}
        trail = Visit(self.graph.nodes[index].rule, [values[first] for first in members], self.mesh).run(stage)
        changed = {members[slot]: slot for slot, *_ in trail}
        return (trail, tuple([(slot, self.cache.number_of(values[v].state)) for v, slot in changed.items()])) if trail else ()

    def _record_conflicts(self) -> None:
        states, picks, kinds = self.states, self.structure.picks, self.kinds
        for index in range(len(kinds)):
            key, recorded = picks[index](states), kinds[index].clashes
            clashes = recorded.get(key)
            if clashes is None:
                values = [self._value(first) for first in self.structure.slots[index]]
                clashes = recorded[key] = tuple(Visit(self.graph.nodes[index].rule, values, self.mesh).clashes())
            if clashes:
                node = self.graph.nodes[index]
                ids = (*node.operands, *node.results)
                for name, slot, dim, kept, lost, by in clashes:
                    self.conflicts.append(Conflict(index, name, ids[slot], dim, kept, lost, ids[by]))
