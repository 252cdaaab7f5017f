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

Order. Seeds of user priority 0 are propagated first, all the way; then those of priority 1, and so on; among those of one
priority those of lower rank, which the planner gives. Within each, nodes are visited in five stages; each stage runs to its
fixed point before the next one begins:

    0  pass-through rules: elementwise ops, transposes, reshapes
    1  rules that reduce, replicate or permute: contractions, reductions, windows
    2  rules whose results have factors that no operand has: broadcasts. So a small operand's axes reach a large
       result last
    3  contests, one node at a time: the axis goes to the factor, or the axes to those of the value, with the most
       elements, so that the smaller value is the one to move; among equals to the first value, then the first factor
    4  displacements: axes of a dim that must be whole go to another dim of the values on the node's other side; those of
       the minor one of two dims that are merged go to the major one

Axes are only added, so the fixed point is reached after at most (values * axes) changes. Where no two offers collide,
it does not depend on the order of the nodes. Where they do, `conflicts` holds what was kept and what lost. To see the
plan in which a conflict goes the other way, propagate again with a Seed for the contested value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sharding.collisions import Collisions
from sharding.graph import (
    Conflict as Conflict,
    Graph,
    Node as Node,
    Origin as Origin,
    Propagated,
    Reason as Reason,
    Seed as Seed,
    explain as explain,
)
from sharding.mesh import BaseMesh
from sharding.origins import History, Origins
from sharding.planting import Order, Planting
from sharding.propagation_state import (
    CONTESTS,
    DISPLACEMENTS,
    NodeKey,
    Outcome,
    Trail,
    Value,
    VisitKind,
    cache_of,
)
from sharding.structure import Occurrence, Outcome as RepeatOutcome, Structure, Visits
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
            structure = Structure(graph, self.cache)
        self.structure = structure
        self.history = History(structure)
        planting = Planting(graph, structure, self.sizes, self.history)
        self.states = planting.states  # that of a tie stands at its first value
        self.conflicts = planting.conflicts
        self.waiting = planting.waiting
        self.inside: dict[Occurrence, int] = {}  # the numbers of the states that repeats left what they make in
        self.is_due = bytearray((DISPLACEMENTS + 1) * structure.count)  # by visit: stage * nodes + node

    # --- the fixed point ----------------------------------------------------------------------------------------------

    def run(self) -> Propagated:
        seeds = {id(seed): seed for seed in self.graph.seeds.values()}.values()
        for order in sorted({(0, 0), *((p, seed.rank) for seed in seeds for p in (seed.priority, *seed.priorities))}):
            self._activate(order)
            self._let_speak(order)
            self._settle()
        collisions = Collisions(self.graph, self.structure, self.mesh, self.states)
        placed, states = {number: self.cache.placement_of(number) for number in {*self.states}}, self.states
        numbers = [states[first] for first in self.structure.firsts] if self.graph.ties else states
        placements = [*map(placed.__getitem__, numbers)]
        conflicts = self.conflicts
        collide = lambda: [*conflicts, *collisions.conflicts()]  # noqa: E731
        return Propagated(self.graph, placements, Origins(self.history), collide, self.structure)

    def _activate(self, order: Order) -> None:
        """Seeds of this priority and rank take part from now on."""
        states, tell, active = self.states, self.structure.tell, dict[int, int]()
        for own in [own for own in self.waiting if own <= order]:
            for first in self.waiting.pop(own):
                number = active.get(states[first])
                if number is None:
                    state = self.cache.states[states[first]]
                    number = active[states[first]] = self.cache.number_of(state._replace(is_active=True))
                states[first] = number
                tell(first, self.is_due)

    def _let_speak(self, order: Order) -> None:
        """Dims of this priority, of seeds of this rank, offer their axes from now on."""
        for index, seed in self.graph.seeds.items():
            if not seed.priorities:
                continue
            first = self.structure.firsts[index]
            state = self.cache.states[self.states[first]]
            for dim, own in enumerate(seed.priorities):
                if state.is_quiet[dim] and (own, seed.rank) <= order:
                    state = state._replace(is_quiet=(*state.is_quiet[:dim], False, *state.is_quiet[dim + 1 :]))
                    self.states[first] = self.cache.number_of(state)
                    self.structure.tell(first, self.is_due)

    def _settle(self) -> None:
        """Visit nodes until none is due, the first one each time. The outcome of a visit is computed once for all nodes of a
        kind whose values have the same states; that of several visits once for all repeats of a kind."""
        states, is_due, structure, count = self.states, self.is_due, self.structure, self.structure.count
        history, places, tell = self.history.visits, structure.places, structure.tell
        picks, slots, kinds = structure.part.picks, structure.part.slots, structure.part.kinds
        self.inside.clear()
        visit = is_due.find(1)
        while visit >= 0:
            stage, index = divmod(visit, count)
            at = places[index]
            if isinstance(at, Occurrence):
                visit = is_due.find(1, min(visit, self._settle_repeat(stage, at)))
                continue
            is_due[visit] = False
            key, kind = picks[at](states), kinds[at]
            outcome = kind.changes[stage - CONTESTS + 1 if stage >= CONTESTS else 0].get(key)
            if outcome is None:
                outcome = self._visit(kind, key, stage, slots[at], states)
            if outcome:
                trail, after = outcome
                history.append((index, trail))
                for slot, number in after:
                    first = slots[at][slot]
                    states[first] = number
                    visit = min(visit, tell(first, is_due))
            elif stage < CONTESTS:
                if kind.changes[1].get(key) == ():
                    is_due[CONTESTS * count + index] = False
                if kind.may_displace and kind.changes[2].get(key) == ():
                    is_due[DISPLACEMENTS * count + index] = False
            visit = is_due.find(1, visit)

    def _settle_repeat(self, stage: int, occurrence: Occurrence) -> int:
        """Visit nodes of a repeat for as long as theirs are the first due; gives the first visit that is due because of it."""
        is_due, states, model, rows = self.is_due, self.states, occurrence.model, occurrence.rows
        due = tuple([bytes(is_due[row]) for row in rows])
        inside = self.inside.get(occurrence)
        if inside is None:
            inside = self.inside[occurrence] = model.number_of(tuple(states[occurrence.made]))
        key = stage, due, occurrence.look(states), inside
        outcome = model.outcomes.get(key)
        if outcome is None:
            outcome = model.outcomes[key] = self._visit_repeat(stage, occurrence, due, inside)
        trails, inner, others, changes, told, self.inside[occurrence] = outcome
        if trails:
            self.history.visits.append(Visits(occurrence, trails))
            if inner:
                states[occurrence.made] = inner
            for position, number in others:
                states[occurrence.others[position]] = number
        for row, after in changes:
            is_due[rows[row]] = after
        return min([self.structure.tell(occurrence.member(i), is_due) for i in told]) if told else len(is_due)

    def _visit_repeat(self, stage: int, occurrence: Occurrence, before: Sequence[bytes], inside: int) -> RepeatOutcome:
        """The outcome of these visits one by one."""
        members, model, count = occurrence.members, occurrence.model, self.structure.count
        states = [self.states[first] for first in members]
        due = {now: bytearray(row) for now, row in zip(model.stages, before, strict=True)}
        part, trails, told, changed = model.part, list[tuple[int, Trail]](), list[int](), set[int]()
        while not told and (here := _first_due(due, stage)) is not None:
            now, i = here
            due[now][i] = False
            kind, key = part.kinds[i], part.picks[i](states)
            outcome = kind.changes[now - CONTESTS + 1 if now >= CONTESTS else 0].get(key)
            if outcome is None:
                slots = [members[position] for position in part.slots[i]]
                known = {first: states[position] for first, position in zip(slots, part.slots[i], strict=True)}
                outcome = self._visit(kind, key, now, slots, known)
            if not outcome:
                if now < CONTESTS and kind.changes[1].get(key) == ():
                    due[CONTESTS][i] = False
                if now < CONTESTS and kind.may_displace and kind.changes[2].get(key) == ():
                    due[DISPLACEMENTS][i] = False
                continue
            trail, after = outcome
            trails.append((i, trail))
            for slot, number in after:
                position = part.slots[i][slot]
                states[position] = number
                changed.add(position)
                for visit in part.visits_of[position]:
                    later, other = divmod(visit, count)
                    due[later][other] = True
                if position in model.public:
                    told.append(position)
        made = len(members) - len(occurrence.others)
        others = tuple([(position - made, states[position]) for position in sorted(changed) if position >= made])
        inner = tuple(states[:made]) if min(changed, default=made) < made else ()
        pairs = enumerate(zip(before, map(bytes, due.values()), strict=True))
        changes = tuple([(row, after) for row, (old, after) in pairs if old != after])
        number = model.number_of(inner) if inner else inside
        return RepeatOutcome(tuple(trails), inner, others, changes, tuple(told), number)

    def _visit(self, kind: VisitKind, key: NodeKey, stage: int, slots: Sequence[int], states: Any) -> Outcome:
        """What comes of a visit of a node whose values have these firsts; `states`: first → number of its state."""
        before = [self.cache.states[states[first]] for first in slots]
        holders = kind.holders if stage == DISPLACEMENTS else kind.differing(before)
        outcome: Outcome = ()
        if holders or stage == DISPLACEMENTS:
            values = {first: Value(first, state) for first, state in zip(slots, before, strict=True)}
            visit = Visit(kind, [values[first] for first in slots], self.mesh, holders)
            trail = visit.run(max(stage, CONTESTS - 1))
            changed = {slots[slot]: slot for slot, *_ in trail}
            after = tuple([(slot, self.cache.number_of(values[v].state)) for v, slot in changed.items()])
            outcome = (trail, after) if trail else ()
        elif stage < CONTESTS:
            kind.changes[1][key] = outcome  # nor will there be a contest
        kind.changes[stage - CONTESTS + 1 if stage >= CONTESTS else 0][key] = outcome
        return outcome


def _first_due(due: Mapping[int, bytearray], stage: int) -> tuple[int, int] | None:
    """The stage and the node of a repeat that are visited next, of those up to this stage."""
    for now, row in due.items():
        if now > stage:
            break
        i = row.find(1)
        if i >= 0:
            return now, i
    return None
