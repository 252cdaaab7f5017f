"""What propagation knows of a graph whatever its seeds are: the nodes at which a value stands, and which parts are alike.

Of repeats (`graph.Repeat`) one Model knows the nodes, by positions of values; each repeat says which values stand there.
"""

from __future__ import annotations

import bisect
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, cast

from sharding.graph import Axes, Graph, Node, Repeat, Seed
from sharding.propagation_state import Clash, NodeKey, State, Trail, VisitCache, VisitKind
from sharding.spec import ShardingError

FEWEST: Final = 3  # repeats of a kind: with two, to remember the first costs more than the second saves


@dataclass(frozen=True)
class Part:
    """Nodes in a row, their values by position: how each picks the states of its values out of a list of them, its kind; and for
    every position the visits (stage * nodes of the graph + node) that depend on it, once for each time that it stands there."""

    slots: list[tuple[int, ...]]
    picks: list[Callable[[Any], NodeKey]]
    kinds: list[VisitKind]
    visits_of: list[list[int]]


Marks: TypeAlias = tuple[tuple[int, Axes], ...]  # dims, and the axes that they have


class Beginning(NamedTuple):
    """Where a value begins that a seed is the first to speak about: when it takes part, the number of its state until then, and
    the dims that it gives axes to."""

    order: tuple[int, int]  # priority, rank
    number: int
    marks: Marks


class Outcome(NamedTuple):
    """What came of visiting the nodes of a repeat, until one changed a value that others read or none was due."""

    trails: tuple[tuple[int, Trail], ...]  # node of the repeat, changes
    states: tuple[int, ...]  # of the values that it makes, if one changed
    others: tuple[tuple[int, int], ...]  # position and state of other values that changed
    due: tuple[tuple[int, bytes], ...]  # which visits are due then, of those rows that changed
    told: tuple[int, ...]  # positions of the values whose other readers are due
    number: int  # of the states of the values that it makes, see `Model.number_of`


@dataclass(frozen=True, eq=False)
class Model:
    """Repeats of one kind. What comes of visits depends on the states of all values and on which visits are due."""

    part: Part
    public: frozenset[int]  # positions of values that others read or make, too
    stages: tuple[int, ...]  # in which its nodes are visited: visits that are due have a row for each
    outcomes: dict[Any, Outcome] = field(default_factory=dict[Any, Outcome])
    clashes: dict[Any, tuple[tuple[int, Clash], ...]] = field(default_factory=dict[Any, Any])  # with the node
    numbers: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])

    def number_of(self, states: tuple[int, ...]) -> int:
        """One number for the states of all values that a repeat makes."""
        return self.numbers.setdefault(states, len(self.numbers))


@dataclass(frozen=True, eq=False)
class Occurrence:
    """A repeat in its graph."""

    model: Model
    start: int
    stop: int
    made: slice[int, int, None]  # the values that it makes
    others: Sequence[int]  # the firsts of the others
    pick: Callable[[Any], NodeKey]  # of these
    look: Callable[[Any], NodeKey]  # of all that change elsewhere: of these, and of what it makes and others read
    rows: tuple[slice[int, int, None], ...]  # its visits, by stage of the model

    def member(self, position: int) -> int:
        """The first of a position's value."""
        count = self.made.stop - self.made.start
        return self.made.start + position if position < count else self.others[position - count]

    @property
    def members(self) -> list[int]:
        """The first of every position's value."""
        return [*range(self.made.start, self.made.stop), *self.others]


@dataclass(slots=True, eq=False)  # never changed; saying so would treble the time of making one
class Visits:
    """Those of the nodes of a repeat that changed something: (node of the repeat, changes)."""

    occurrence: Occurrence
    trails: Sequence[tuple[int, Trail]]


class Structure:
    """`firsts`: for every value the first of its tie."""

    def __init__(self, graph: Graph, cache: VisitCache) -> None:
        """ShardingError when shapes of tied values differ, or a rule does not fit its values."""
        self.cache, self.graph, self.count = cache, graph, len(graph.nodes)
        self.firsts, self.ranks = firsts_of(graph), [len(shape) for shape in graph.shapes]
        untouched = {shape: cache.number_of(State.untouched(shape)) for shape in {*graph.shapes}}
        self.untouched = [untouched[shape] for shape in graph.shapes]  # numbers of the values' states before any seed
        self.alike: dict[tuple[Seed, tuple[int, ...]], Beginning] = {}  # by seed, and shape
        self.known: dict[tuple[int, tuple[int, ...]], VisitKind] = {}  # by id of the rule: equal layers share theirs
        self.dependent: dict[int, tuple[int, ...]] = {}  # see `visits_of`
        self.occurrences = list(self._occurrences())
        self.by_values = sorted(self.occurrences, key=lambda occurrence: occurrence.made.start)
        self.makes = [occurrence.made.start for occurrence in self.by_values]
        self.readers: dict[int, list[tuple[Occurrence, int]]] = {}  # of values from outside of repeats: these, and positions
        for occurrence in self.occurrences:
            for i, first in enumerate(occurrence.others, occurrence.made.stop - occurrence.made.start):
                self.readers.setdefault(first, []).append((occurrence, i))
        singles = list(self._singles())
        self.part = self._part(singles, singles, len(self.firsts))
        self.places: list[int | Occurrence] = [0] * self.count  # by node its repeat, or where `part` has it
        for occurrence in self.occurrences:
            self.places[occurrence.start : occurrence.stop] = [occurrence] * (occurrence.stop - occurrence.start)
        for i, index in enumerate(singles):
            self.places[index] = i

    def _singles(self) -> Iterator[int]:
        """Nodes outside of repeats."""
        at = 0
        for occurrence in self.occurrences:
            yield from range(at, occurrence.start)
            at = occurrence.stop
        yield from range(at, self.count)

    def _occurrences(self) -> Iterator[Occurrence]:
        models: dict[Any, Model] = {}
        counts = Counter([repeat.kind for repeat in self.graph.repeats])
        for repeat in self.graph.repeats:
            others = [self.firsts[v] for v in repeat.others]
            is_tied = any([self.firsts[v] != v for v in repeat.made]) if self.graph.ties else False
            is_linked = len({*others}) < len(others) or max(others, default=-1) >= repeat.made.start
            is_open = len(repeat.public) == len(repeat.made)  # visits would go from node to node all the same
            if counts[repeat.kind] < FEWEST or is_tied or is_linked or is_open:
                continue
            key = repeat.kind, tuple(sorted(range(len(others)), key=others.__getitem__)), repeat.public
            if key not in models:
                models[key] = self._model(repeat, others)
            model, made = models[key], slice(repeat.made.start, repeat.made.stop)
            rows = tuple([slice(at + repeat.start, at + repeat.stop) for at in [n * self.count for n in model.stages]])
            seen = (*others, *[made.start + i for i in repeat.public])
            yield Occurrence(model, repeat.start, repeat.stop, made, others, picker(tuple(others)), picker(seen), rows)

    def _model(self, repeat: Repeat, others: Sequence[int]) -> Model:
        values = [*repeat.made, *others]
        positions = {first: i for i, first in enumerate(values)}
        nodes = range(repeat.start, repeat.stop)
        part = self._part(nodes, range(len(nodes)), len(values), positions)
        stages = tuple(sorted({stage for kind in part.kinds for stage in kind.stages}))
        return Model(part, frozenset((*repeat.public, *range(len(repeat.made), len(values)))), stages)

    def _part(
        self, nodes: Sequence[int], numbers: Sequence[int], count: int, positions: dict[int, int] | None = None
    ) -> Part:
        """`numbers`: those by which visits know the nodes. `positions`: those of values; by default the values themselves."""
        visits_of: list[list[int]] = [[] for _ in range(count)]
        slots: list[tuple[int, ...]] = []
        kinds: list[VisitKind] = []
        firsts, is_tied = self.firsts, bool(self.graph.ties)
        for index, number in zip(nodes, numbers, strict=True):
            node = self.graph.nodes[index]
            members = node.operands + node.results
            if is_tied:
                members = tuple([firsts[v] for v in members])
            kind = self._kind(node, members)
            if positions is not None:
                members = tuple([positions[v] for v in members])
            kinds.append(kind)
            slots.append(members)
            for stage in kind.stages:
                visit = stage * self.count + number
                for slot in members:
                    visits_of[slot].append(visit)
        return Part(slots, [picker(members) for members in slots], kinds, visits_of)

    def _kind(self, node: Node, members: tuple[int, ...]) -> VisitKind:
        key = id(node.rule), _order(members)
        kind = self.known.get(key)
        if kind is None:
            kind = self.known[key] = self.cache.kind_of(node.rule, key[1])
        ranks = self.ranks
        if kind.operands != len(node.operands) or kind.ranks != [ranks[v] for v in node.operands + node.results]:
            raise ShardingError(_unfit(node, self.graph.shapes))
        return kind

    def visits_of(self, first: int) -> tuple[int, ...]:
        """The visits that depend on a value, in order."""
        visits = self.dependent.get(first)
        if visits is None:
            visits = self.dependent[first] = tuple(sorted({*self.part.visits_of[first], *self._in_repeats(first)}))
        return visits

    def _in_repeats(self, first: int) -> Iterator[int]:
        for occurrence, position in self._readers_of(first):
            yield from [visit + occurrence.start for visit in occurrence.model.part.visits_of[position]]

    def _readers_of(self, first: int) -> list[tuple[Occurrence, int]]:
        """The repeats where a value stands, and its positions."""
        readers = self.readers.get(first, [])
        i = bisect.bisect_right(self.makes, first) - 1
        if i >= 0 and first < self.by_values[i].made.stop:
            return [(self.by_values[i], first - self.makes[i]), *readers]
        return readers

    def tell(self, first: int, due: bytearray) -> int:
        """The visits that depend on a value are due from now on; the first of them."""
        visits = self.visits_of(first)
        for visit in visits:
            due[visit] = True
        return visits[0] if visits else len(due)

    def slots_of(self, index: int) -> Sequence[int]:
        """The firsts of a node's values."""
        place = self.places[index]
        if not isinstance(place, Occurrence):
            return self.part.slots[place]
        members = place.members
        return [members[i] for i in place.model.part.slots[index - place.start]]


def picker(members: tuple[int, ...]) -> Callable[[Any], NodeKey]:
    if not members:
        return lambda states: ()
    pick: Any = cast(Any, operator.itemgetter)(*members)
    return pick


def _order(members: tuple[int, ...]) -> tuple[int, ...]:
    """How many of the members are less than each: the same for nodes of one kind."""
    if len(members) == 2:
        first, second = members
        return (0, 1) if first < second else (1, 0) if second < first else (0, 0)
    ordered = sorted(members)
    return tuple(map(ordered.index, members))


def _unfit(node: Node, shapes: Sequence[tuple[int, ...]]) -> str:
    sides = ((node.rule.operands, node.operands, "operands"), (node.rule.results, node.results, "results"))
    sought = [([len(value) for value in dims], [len(shapes[v]) for v in values], what) for dims, values, what in sides]
    asked, have, what = next(side for side in sought if side[0] != side[1])
    return f"node {node.label or node.rule}: the rule's {what} have ranks {asked}, its values {have}"


def firsts_of(graph: Graph) -> list[int]:
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
