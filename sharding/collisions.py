"""Where propagation ended in disagreement: every value of a node that could not take the axes that another has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from sharding.graph import Conflict, Graph
from sharding.mesh import BaseMesh
from sharding.propagation_state import Clash, NodeKey, Value, VisitKind
from sharding.structure import Occurrence, Structure
from sharding.visit import Visit


@dataclass(frozen=True)
class Collisions:
    """`states`: the numbers of the states that propagation left the values in."""

    graph: Graph
    structure: Structure
    mesh: BaseMesh
    states: list[int]

    def conflicts(self) -> Iterator[Conflict]:
        """In the order of the nodes."""
        structure, states, at = self.structure, self.states, 0
        part, places = structure.part, structure.places
        for occurrence in (*structure.occurrences, None):
            for index in range(at, structure.count if occurrence is None else occurrence.start):
                i = cast(int, places[index])
                key, kind = part.picks[i](states), part.kinds[i]
                clashes = kind.clashes.get(key)
                if clashes is None:
                    clashes = self.visited(kind, key, part.slots[i])
                for clash in clashes:
                    yield self.conflict(index, clash)
            if occurrence is not None:
                at = occurrence.stop
                for i, clash in self.of_repeat(occurrence):
                    yield self.conflict(occurrence.start + i, clash)

    def of_repeat(self, occurrence: Occurrence) -> Sequence[tuple[int, Clash]]:
        """The clashes of a repeat, each with the number of its node."""
        model, states = occurrence.model, self.states
        key = occurrence.pick(states), *states[occurrence.made]
        recorded = model.clashes.get(key)
        if recorded is None:
            members, clashes = occurrence.members, list[tuple[int, Clash]]()
            numbers = [states[first] for first in members]
            for i, (pick, slots, kind) in enumerate(zip(model.part.picks, model.part.slots, model.part.kinds, strict=True)):
                own = kind.clashes.get(pick(numbers))
                if own is None:
                    own = self.visited(kind, pick(numbers), [members[slot] for slot in slots])
                clashes += [(i, clash) for clash in own]
            recorded = model.clashes[key] = tuple(clashes)
        return recorded

    def visited(self, kind: VisitKind, key: NodeKey, firsts: Sequence[int]) -> tuple[Clash, ...]:
        """The clashes of a node whose values have these firsts."""
        states = [self.structure.cache.states[self.states[first]] for first in firsts]
        holders = kind.differing(states)
        values = map(Value, firsts, states)
        clashes = kind.clashes[key] = tuple(Visit(kind, [*values], self.mesh, holders).clashes()) if holders else ()
        return clashes

    def conflict(self, index: int, clash: Clash) -> Conflict:
        node = self.graph.nodes[index]
        ids = (*node.operands, *node.results)
        name, slot, dim, kept, lost, by = clash
        return Conflict(index, name, ids[slot], dim, kept, lost, ids[by])
