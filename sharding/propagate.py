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
import math
from collections.abc import Iterator, Mapping, Sequence

from sharding.axes import AxisRef, canonical_axes, common_prefix, is_prefix, overlap, span, without_prefix
from sharding.displace import refuge
from sharding.graph import Axes, Conflict, Graph, Node, Origin, Propagated, Reason as Reason, Seed, explain as explain
from sharding.mesh import BaseMesh
from sharding.propagation_state import (
    CONTESTS,
    DISPLACEMENTS,
    Change,
    Clash,
    NodeKey,
    Offer,
    Place,
    Structure,
    Value,
    memory_of,
    places_of,
    structure_of,
)
from sharding.rule import FactorRule
from sharding.spec import Placement, ShardingError


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
            for node in graph.nodes:
                _check_node(node, graph.shapes)
            known = structure_of(graph, self.memory)
        self.structure = known
        self.kinds, self.stages, self.nodes_of = known.kinds, known.stages, known.nodes_of
        made = {first: Value(first, graph.shapes[first]) for first in known.nodes_of}
        self.values = [made[first] for first in known.firsts]
        self.slots = [[made[first] for first in firsts] for firsts in known.slots]
        self._plant_seeds()
        self.queue: list[tuple[int, int]] = []
        self.queued: set[tuple[int, int]] = set()

    def _plant_seeds(self) -> None:
        planted: set[Value] = set()
        for index, seed in sorted(self.graph.seeds.items(), key=lambda item: (item[1].priority, item[0])):
            value = self.values[index]
            if seed.placement.rank != len(value.shape):
                raise ShardingError(
                    f"the seed of value {index} is {seed.placement} of {seed.placement.rank} dims, its shape "
                    f"{value.shape} has {len(value.shape)}"
                )
            if value not in planted:
                value.priority, value.is_active = min(seed.priorities, default=seed.priority), False
                value.is_quiet = [p > value.priority for p in seed.priorities] or value.is_quiet
                value.partial = seed.placement.partial
            for dim, axes in enumerate(seed.placement.dims):
                self._plant(value, dim, axes, index, seed, value not in planted)
            planted.add(value)

    def _plant(self, value: Value, dim: int, axes: Axes, index: int, seed: Seed, is_first: bool) -> None:
        """Give a dim its seed. Of tied values with several seeds the first, by priority, is right."""
        have = value.dims[dim]
        fits = not any(value.blockers(dim, axis) for axis in axes)
        if is_first or (fits and value.is_open[dim] and is_prefix(have, axes, self.sizes)):
            value.dims[dim] = axes
            said = dict(seed.origins)
            value.origins[dim] = {a: value.origins[dim].get(a) or said.get(a) or Origin(index) for a in axes}
            value.is_open[dim] = seed.is_open(dim)
        elif axes != have and not (seed.is_open(dim) and is_prefix(axes, have, self.sizes)):
            self.conflicts.append(Conflict(-1, "", index, dim, have, axes, index))

    # --- the fixed point ----------------------------------------------------------------------------------------------

    def run(self) -> Propagated:
        seeds = self.graph.seeds.values()
        for priority in sorted({0, *(p for seed in seeds for p in (seed.priority, *seed.priorities))}):
            for value in dict.fromkeys(self.values):
                if not value.is_active and value.priority <= priority:
                    value.is_active, value.number = True, None
                    self._enqueue(value)
            self._let_speak(priority)
            while self.queue:
                entry = heapq.heappop(self.queue)
                self.queued.discard(entry)
                self._visit(entry[1], max(entry[0], CONTESTS - 1))
        for index in range(len(self.graph.nodes)):
            self._record_conflicts(index)
        placements, origins = self._result()
        return Propagated(self.graph, placements, origins, self.conflicts, self.structure)

    def _let_speak(self, priority: int) -> None:
        """Dims of this priority offer their axes from now on."""
        for index, seed in self.graph.seeds.items():
            value = self.values[index]
            for dim, own in enumerate(seed.priorities):
                if value.is_quiet[dim] and own <= priority:
                    value.is_quiet[dim], value.number = False, None
                    self._enqueue(value)

    def _enqueue(self, value: Value) -> None:
        for index in self.nodes_of[value.first]:
            for stage in self.stages[index]:
                entry = (stage, index)
                if entry not in self.queued:
                    self.queued.add(entry)
                    heapq.heappush(self.queue, entry)

    def _node_key(self, index: int) -> NodeKey:
        """All that the outcome of a visit depends on."""
        key = [self.kinds[index]]
        for value in self.slots[index]:
            if value.number is None:
                value.number = self.memory.number_of(value.state)
            key.append(value.number)
        return tuple(key)

    def _visit(self, index: int, stage: int) -> None:
        """Exchange axes among the values of a node: what all agree on, or one contest, or displacements."""
        key, memory = self._node_key(index), self.memory.changes[stage - CONTESTS + 1]
        if key not in memory:
            self.trail = list[Change]()
            if stage == DISPLACEMENTS:
                self._displace(index)
            else:
                self._exchange(index, settles=stage == CONTESTS)
            memory[key] = tuple(self.trail)
            return
        slots = self.slots[index]
        for slot, dim, axes, offers in memory[key]:
            self._change(index, slots[slot], dim, axes, [(slots[s], d) for s, d in offers])

    def _exchange(self, index: int, settles: bool) -> None:
        """Contests are settled, one of them, only when asked to."""
        rule = self.graph.nodes[index].rule
        offers = self._offers(index)
        if not settles:
            claims = {name: tuple(axis for offer in found for axis in offer.axes) for name, found in offers.items()}
            for name, places in places_of(rule):
                if offers[name]:
                    agreed = self._agreed([offer.axes for offer in offers[name]])
                    for place in places:
                        self._extend(index, name, place, agreed, offers[name], claims)
            return
        order = [name for name, _ in places_of(rule)]
        ranked = sorted((name for name in order if offers[name]), key=lambda n: _rank(self._heaviest(offers[n])))
        for name in ranked:
            best = self._heaviest(offers[name])
            places = dict(places_of(rule))[name]
            if any([self._extend(index, name, place, best.axes, offers[name], None) for place in places]):
                return  # whatever follows from this comes before the next contest

    def _displace(self, index: int) -> None:
        """Values that share a whole factor with one that is sharded along it get its axes on another dim."""
        rule, slots = self.graph.nodes[index].rule, self.slots[index]
        sides = (*rule.operands, *rule.results)
        for name in [factor for factor, kind in rule.kinds.items() if kind == "replicate"]:
            holders = [(slot, dims.index((name,))) for slot, dims in enumerate(sides) if (name,) in dims]
            for slot, dim in holders:
                offer = Offer(slots[slot].dims[dim], slots[slot], slot, dim)
                busy = [factor for factor, found in self._offers(index).items() if found]
                chosen = refuge(rule, sides[slot], offer.axes, busy, self.mesh) if offer.value.is_active else None
                for other, _ in holders:
                    if chosen and (chosen,) in sides[other] and not self._uses_any(slots[other], offer.axes):
                        place = Place(other, sides[other].index((chosen,)), (chosen,))
                        self._extend(index, chosen, place, offer.axes, [offer], None)

    def _uses_any(self, value: Value, axes: Axes) -> bool:
        used = (*(a for dim in value.dims for a in dim), *(a for a, _ in value.partial))
        return any(overlap(axis, other) for axis in axes for other in used)

    def _offers(self, index: int) -> dict[str, list[Offer]]:
        rule, slots = self.graph.nodes[index].rule, self.slots[index]
        offers: dict[str, list[Offer]] = {}
        for name, places in places_of(rule):
            found = offers[name] = []
            for place in places:
                value = slots[place.slot]
                axes = self._factor_axes(rule, name, place, value)
                if axes and value.is_active and not value.is_quiet[place.dim]:
                    found.append(Offer(axes, value, place.slot, place.dim))
        return offers

    def _factor_axes(self, rule: FactorRule, name: str, place: Place, value: Value) -> Axes:
        axes = value.dims[place.dim]
        if len(place.factors) == 1 or not axes:
            return axes
        return rule.split_dim(place.factors, axes, self.mesh)[0][name]

    def _agreed(self, offered: Sequence[Axes]) -> Axes:
        """The longest axes that all offers are prefixes of; where some part ways, the prefix before they do."""
        longest = max(offered, key=self._shards)
        agreed = longest
        for axes in offered:
            if axes != longest and not is_prefix(axes, longest, self.sizes):
                shared = common_prefix(longest, axes, self.sizes)
                agreed = min(agreed, shared, key=self._shards)
        return agreed

    def _heaviest(self, offers: Sequence[Offer]) -> Offer:
        return min(offers, key=_rank)

    def _shards(self, axes: Axes) -> int:
        return math.prod(span(axis, self.sizes).size for axis in axes)

    # --- extending a dim ----------------------------------------------------------------------------------------------

    def _extend(
        self,
        index: int,
        name: str,
        place: Place,
        offered: Axes,
        offers: Sequence[Offer],
        claims: Mapping[str, Axes] | None,
    ) -> bool:
        """Give the dim at `place` what it may take of `offered`, behind what it has; whether that was anything."""
        value = self.slots[index][place.slot]
        if not value.is_open[place.dim] or not value.is_active:
            return False
        rule = self.graph.nodes[index].rule
        have = self._factor_axes(rule, name, place, value)
        if have == offered or not is_prefix(have, offered, self.sizes):
            return False
        room = self._room(rule, name, place, value, offers)
        wanted = self._allowed(index, name, place, have, offered, claims, room)
        joined = self._with_factor(rule, name, place, value, wanted)
        old = value.dims[place.dim]
        if joined == old or not is_prefix(old, joined, self.sizes):
            return False
        ranked = sorted(offers, key=_rank)
        self.trail.append((place.slot, place.dim, joined, tuple((offer.slot, offer.dim) for offer in ranked)))
        self._change(index, value, place.dim, joined, [(offer.value, offer.dim) for offer in ranked])
        return True

    def _change(
        self, index: int, value: Value, dim: int, axes: Axes, offers: Sequence[tuple[Value, int]]
    ) -> None:
        """Put `axes` on a dim, because of `offers`, the weightiest first."""
        value.origins[dim] = self._traced(index, value, dim, axes, offers)
        value.dims[dim], value.number = axes, None
        self._enqueue(value)

    def _room(self, rule: FactorRule, name: str, place: Place, value: Value, offers: Sequence[Offer]) -> int:
        """Into how many shards a factor may be cut: its extent, or more where a seed has done so to as long a dim."""
        if len(place.factors) > 1:
            return rule.sizes[name]
        extent = value.shape[place.dim]
        alike = [offer for offer in offers if offer.value.shape[offer.dim] == extent]
        return max([extent, *(self._shards(offer.axes) for offer in alike)]) if extent > 1 else extent

    def _allowed(
        self,
        index: int,
        name: str,
        place: Place,
        have: Axes,
        offered: Axes,
        claims: Mapping[str, Axes] | None,
        room: int,
    ) -> Axes:
        """The longest part of `offered` whose axes are free in the value, not contested, and not too many."""
        value = self.slots[index][place.slot]
        rule = self.graph.nodes[index].rule
        rivals = self._siblings(rule, name, place, value)
        rivals += () if claims is None else self._rivals(rule, name, place, claims)
        taken = list(have)
        for axis in without_prefix(offered, have, self.sizes):
            busy = value.blockers(place.dim, axis) or any(overlap(axis, rival) for rival in rivals)
            if busy or self._shards((*taken, axis)) > room:
                break
            taken.append(axis)
        return offered if len(taken) == len(have) + len(offered) else canonical_axes(taken, self.sizes)

    def _siblings(self, rule: FactorRule, name: str, place: Place, value: Value) -> Axes:
        """The axes that the dim at `place` spends on its other factors."""
        if len(place.factors) == 1:
            return ()
        split, rest = rule.split_dim(place.factors, value.dims[place.dim], self.mesh)
        return (*(axis for other, axes in split.items() if other != name for axis in axes), *rest)

    def _rivals(self, rule: FactorRule, name: str, place: Place, claims: Mapping[str, Axes]) -> Axes:
        """The axes that other factors of the same value are offered at this node."""
        value_dims = (*rule.operands, *rule.results)[place.slot]
        others = (other for dim in value_dims for other in dim if other != name)
        return tuple(axis for other in others for axis in claims.get(other, ()))

    def _with_factor(self, rule: FactorRule, name: str, place: Place, value: Value, axes: Axes) -> Axes:
        """The dim's axes when `name` has `axes`, and its other factors what they have."""
        if len(place.factors) == 1:
            return axes
        assignment, _ = rule.split_dim(place.factors, value.dims[place.dim], self.mesh)
        return rule.join_dim(place.factors, {**assignment, name: axes}, self.mesh)

    def _traced(
        self, index: int, value: Value, dim: int, axes: Axes, offers: Sequence[tuple[Value, int]]
    ) -> dict[AxisRef, Origin]:
        """The origins of `axes`, now on `dim`: those they had, or by way of this node from the offer that has them."""
        known = value.origins[dim]
        traced: dict[AxisRef, Origin] = {}
        for axis in axes:
            own = next((origin for old, origin in known.items() if overlap(old, axis)), None)
            traced[axis] = own or self._origin_at(index, axis, offers)
        return traced

    def _origin_at(self, index: int, axis: AxisRef, offers: Sequence[tuple[Value, int]]) -> Origin:
        for value, dim in offers:
            for old, origin in value.origins[dim].items():
                if overlap(old, axis):
                    return Origin(origin.seed, index, origin)
        raise AssertionError(f"axis {axis} of node {index} was offered by nobody")

    # --- results ------------------------------------------------------------------------------------------------------

    def _record_conflicts(self, index: int) -> None:
        key = self._node_key(index)
        found = self.memory.clashes.get(key)
        if found is None:
            found = self.memory.clashes[key] = tuple(self._clashes(index))
        if not found:
            return
        node = self.graph.nodes[index]
        ids = (*node.operands, *node.results)
        for name, slot, dim, kept, lost, by in found:
            self.conflicts.append(Conflict(index, name, ids[slot], dim, kept, lost, ids[by]))

    def _clashes(self, index: int) -> Iterator[Clash]:
        """Every value of the node whose axes for a factor are not those that another has, and could not become so."""
        node, slots = self.graph.nodes[index], self.slots[index]
        offers = self._offers(index)
        for name, places in places_of(node.rule):
            if not offers[name]:
                continue
            best = max(offers[name], key=lambda offer: (self._shards(offer.axes), offer.value.elements))
            by = next(slot for slot, value in enumerate(slots) if value is best.value)
            for place in places:
                kept = self._kept_instead(node.rule, name, place, slots[place.slot], best.axes)
                if kept:
                    yield name, place.slot, place.dim, kept, best.axes, by

    def _kept_instead(self, rule: FactorRule, name: str, place: Place, value: Value, offered: Axes) -> Axes:
        """What keeps `offered` from the dim at `place`: other axes on it, or the same ones elsewhere; () if neither."""
        have = self._factor_axes(rule, name, place, value)
        if is_prefix(offered, have, self.sizes):
            return ()
        if not is_prefix(have, offered, self.sizes):
            return have
        if not value.is_open[place.dim]:
            return ()
        return value.blockers(place.dim, without_prefix(offered, have, self.sizes)[0])

    def _result(self) -> tuple[list[Placement], dict[tuple[int, int, AxisRef], Origin]]:
        origins: dict[tuple[int, int, AxisRef], Origin] = {}
        for index, value in enumerate(self.values):
            for dim, known in enumerate(value.origins):
                for axis, origin in known.items():
                    origins[index, dim, axis] = origin
        placements = {value: value.placement(self.memory) for value in dict.fromkeys(self.values)}
        return [placements[value] for value in self.values], origins


def _rank(offer: Offer) -> tuple[int, int]:
    """The smaller, the stronger in a contest: values of most elements first, then the first ones."""
    return -offer.value.elements, offer.value.first


def _check_node(node: Node, shapes: Sequence[tuple[int, ...]]) -> None:
    sides = ((node.rule.operands, node.operands, "operands"), (node.rule.results, node.results, "results"))
    for dims, values, what in sides:
        ranks, have = [len(value) for value in dims], [len(shapes[value]) for value in values]
        if ranks != have:
            raise ShardingError(
                f"node {node.label or node.rule}: the rule's {what} have ranks {ranks}, its values {have}"
            )
