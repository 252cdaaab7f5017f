"""A mesh on which axes of one size with links as quick are alike: it counts how many of them a dim has, not which, and in which
order.

    on 8x8x8    [x, y, -], [y, x, -] and [z, x, -] are one placement;  [xy, -, -] and [yz, -, -] another

So a value has few placements on a mesh of many axes: of three dims 20 where there are 142. Bringing one that lies by the same
counts costs nothing here, and any other at least what a device then lacks, wherever its blocks were. Axes that only leave devices
idle, for a dim has blocks of one element without them, too, count as if they were not there. So no plan costs less on the real
mesh (`relax.py`).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn, Var
from meshjit.core.rules import reading_of
from meshjit.core.types import TensorType
from meshjit.plan.assign import consistent, stays_whole
from meshjit.plan.automatic.domain import Plans
from meshjit.plan.automatic.floors import Floors
from meshjit.plan.automatic.problem import Table
from meshjit.plan.automatic.spreads import Spread, factor_extents, few_enough, have_use
from meshjit.plan.cost import NO_EXCHANGE, Machine, OwnCost
from sharding.axes import AxisRef, name_of
from sharding.distances import MISSING, between, long_dims, of_any_sum
from sharding.placement import Placement
from sharding.rule import FactorRule

NOWHERE: Final = ""
AxisKind: TypeAlias = tuple[int, float, float]  # its size, seconds to start over it, bytes a second along it


class Sharing(Machine):
    """Where an op's own rule may be applied it costs nothing: what it touches, computes and exchanges, only writing it tells."""

    def own_work(self, eqn: Eqn, plan: EquationPlan) -> tuple[float, OwnCost]:
        types, placements = (*eqn.input_types, *eqn.output_types), (*plan.operands, *plan.results)
        if eqn.op.partition is not None:  # along axes that are not here, too
            return 0.0, NO_EXCHANGE
        return self.work(plan.rule, types, placements, reading_of(eqn)), NO_EXCHANGE


class AlikeAxes(Sharing):
    """Placements are normal if they take axes of each kind in the order of the mesh: dims first, partial axes last. `kinds_of`:
    the size and the links of each axis of several devices; `by_kind`: the axes of each, the smallest first."""

    @functools.cached_property
    def kinds_of(self) -> Mapping[str, AxisKind]:
        latency, bandwidth = self.topology.latency, self.topology.bandwidth
        return {name: (size, latency[name], bandwidth[name]) for name, size in self.mesh.shape.items() if size > 1}

    @functools.cached_property
    def by_kind(self) -> Mapping[AxisKind, Sequence[str]]:
        kinds = sorted(set(self.kinds_of.values()))
        return {kind: [name for name, own in self.kinds_of.items() if own == kind] for kind in kinds}

    def kinds_in(self, axes: Sequence[AxisRef]) -> tuple[AxisKind, ...]:
        """Of these, in any order."""
        return tuple(sorted([self.kinds_of[name_of(axis)] for axis in axes]))

    def own_work(self, eqn: Eqn, plan: EquationPlan) -> tuple[float, OwnCost]:
        """What an op's own rule writes takes as long over any axes of these sizes. Where further axes may lie beside these, the
        least counts."""
        if eqn.op.partition is None or not eqn.inputs or plan.bodies:
            return Machine.own_work(self, eqn, plan)
        costs = [
            Machine.own_work(self, eqn, each) for more in self._with_more(eqn, plan) for each in self._in_other_orders(more)
        ]
        work, moving = min(work for work, _ in costs), min(own.moving for _, own in costs)
        return work, costs[0][1] if len(costs) == 1 else OwnCost(work, moving)

    def _with_more(self, eqn: Eqn, plan: EquationPlan) -> Iterator[EquationPlan]:
        """The plan; and the same with axes that it does not use on factors whose blocks have one element: there devices are
        idle."""
        extents = factor_extents(eqn, plan.rule, max)
        held = {f: plan.assignment.get(f, ()) for f in extents if not stays_whole(eqn, plan.rule.kinds.get(f, ""))}
        full = [f for f, axes in held.items() if self.mesh.axes_size(axes) >= extents[f]]
        taken = {name_of(axis) for axes in plan.assignment.values() for axis in axes}
        free = [[name for name in names if name not in taken] for names in self.by_kind.values()]
        for homes in itertools.product(*[itertools.combinations_with_replacement((NOWHERE, *full), len(n)) for n in free]):
            more = dict(plan.assignment)
            for name, room in zip(itertools.chain(*free), itertools.chain(*homes), strict=True):
                if room != NOWHERE:
                    more[room] = (*more.get(room, ()), name)
            yield equation_plan(plan.rule, consistent(plan.rule, more, self.mesh), self.mesh) if any(homes) else plan

    def _in_other_orders(self, plan: EquationPlan) -> Iterator[EquationPlan]:
        """The plan with the axes of each factor in every order that differs by their kinds."""
        orders = [self._orders(axes) for axes in plan.assignment.values()]
        for each in itertools.product(*orders):
            yield equation_plan(plan.rule, dict(zip(plan.assignment, each, strict=True)), self.mesh)

    def _orders(self, axes: Sequence[AxisRef]) -> list[tuple[AxisRef, ...]]:
        kinds = {tuple([self.kinds_of[name_of(axis)] for axis in order]): order for order in itertools.permutations(axes)}
        return list(kinds.values())

    def _normal(self, placement: Placement) -> Placement:
        placement, left = super()._normal(placement), {kind: iter(names) for kind, names in self.by_kind.items()}
        dims = [self._taken(axes, left) for axes in placement.dims]
        partial = self._taken(placement.partial_axes, left)
        return Placement(tuple(dims), tuple((axis, placement.partial_kind or "") for axis in partial))

    def _taken(self, axes: Sequence[AxisRef], left: Mapping[AxisKind, Iterator[str]]) -> tuple[str, ...]:
        return tuple([next(left[kind]) for kind in self.kinds_in(axes)])


class Counts(Plans):
    """Of spreads and placements that differ in which axes they have, one."""

    def __init__(self, machine: AlikeAxes) -> None:
        super().__init__(machine.mesh, machine.kinds)
        self.machine = machine

    def spreads(self, eqn: Eqn, rule: FactorRule) -> Sequence[Spread]:
        extents = factor_extents(eqn, rule, max)
        free = {f: n for f, n in extents.items() if not stays_whole(eqn, rule.kinds.get(f, ""))}
        legal: dict[object, Spread] = {}
        for spread in self._dealt(free):
            kept = consistent(rule, dict(spread), self.mesh)
            legal.setdefault(tuple(sorted(kept.items())), kept)
        return list(legal.values())

    def placements(self, var: Var) -> Sequence[Placement]:
        rooms = {str(d): n for d, n in enumerate(var.shape)}
        dealt = [Placement(tuple([spread.get(d, ()) for d in rooms])) for spread in self._dealt(rooms)]
        return list(dict.fromkeys(map(self.machine.normal, dealt)))

    def partials(self, partial: Sequence[tuple[AxisRef, ...]]) -> list[tuple[AxisRef, ...]]:
        """All sets of axes that are as many of each kind as some of these."""
        counts, names = set(map(self.machine.kinds_in, partial)), list(itertools.chain(*self.machine.by_kind.values()))
        sets = [axes for n in range(1, len(names) + 1) for axes in itertools.combinations(names, n)]
        return [axes for axes in sets if self.machine.kinds_in(axes) in counts]

    def _dealt(self, rooms: Mapping[str, int]) -> Iterator[dict[str, tuple[AxisRef, ...]]]:
        """Every way to deal axes to rooms that they have a use in. TooWide where these may be more than MOST_WAYS."""
        groups = list(self.machine.by_kind.values())
        few_enough(math.prod(math.comb(len(rooms) + len(names), len(names)) for names in groups))
        ways = [itertools.combinations_with_replacement((NOWHERE, *rooms), len(names)) for names in groups]
        for chosen in itertools.product(*ways):
            held: dict[str, list[str]] = {}
            for names, places in zip(groups, chosen, strict=True):
                for name, room in zip(names, places, strict=True):
                    if room != NOWHERE:
                        held.setdefault(room, []).append(name)
            if all(have_use([self.mesh.shape[a] for a in axes], rooms[room]) for room, axes in held.items()):
                yield {room: tuple(axes) for room, axes in held.items()}


# By shape and bytes of an element: numbers of placements, and by two of these the seconds of the shortest way.
AlikeWays: TypeAlias = dict[object, tuple[Mapping[Placement, int], Table] | None]


class AlikeFloors(Floors):
    """Blocks lie in one another, as far as their extents let them. A way between two placements takes at least what the shortest
    one does of those between any two with the same counts."""

    def __init__(self, machine: AlikeAxes) -> None:
        super().__init__(machine)
        self.least: AlikeWays = {}

    def _distances(self, type: TensorType, homes: Sequence[Placement], others: Sequence[Placement]) -> Table | None:
        dims = long_dims(type.shape)
        key = tuple([type.shape[d] for d in dims]), type.dtype.itemsize
        if key not in self.least:
            self.least[key] = self.distances.least(*key, kind_of=lambda placement: self._counts(key[0], placement))
        known = self.least[key]
        if known is None:
            return None
        numbers, table = known
        rows, columns = (np.array([numbers.get(self._counts(type.shape, p), MISSING) for p in side]) for side in (homes, others))
        return between(table, rows, columns)

    def _uneven(self, type: TensorType, homes: Sequence[Placement], others: Sequence[Placement], distances: Table) -> Table:
        """The shortest of several ways may bring less than a device lacks where it ends."""
        return np.maximum(self.by_elements(type, homes, others), distances)

    def _counts(self, shape: Sequence[int], placement: Placement) -> Placement:
        """The same for placements of the same counts, axes that leave devices idle aside; of the long dims."""
        pairs = zip(shape, placement.dims, strict=True)
        dims = tuple([self._used(extent, axes) for extent, axes in pairs if extent != 1])
        return self.machine.normal(of_any_sum(Placement(dims, placement.partial)))

    def _used(self, extent: int, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        """The axes without those that leave devices idle."""
        used = sorted(axes, key=lambda axis: -self.mesh.axes_size((axis,)))
        while used and self.mesh.axes_size(used[:-1]) >= extent:
            used.pop()
        return tuple(used)

    def _needed(self, shape: tuple[int, ...], homes: Sequence[Placement], others: Sequence[Placement]) -> Table:
        have, asked = (np.array([p.local_shape(shape, self.mesh) for p in side], float) for side in (homes, others))
        holders = np.array([self._holders(shape, other) for other in others])
        needed = math.prod(shape) * holders / self.mesh.device_count
        return np.maximum(0.0, needed - np.minimum(have[:, None], asked).prod(axis=-1))

    def _holders(self, shape: tuple[int, ...], placement: Placement) -> float:
        """How many devices have each element at least: one where a dim has no more elements than shards, for the devices along
        axes that do not divide it any further may have none."""
        shards = [self.mesh.axes_size(axes) for axes in placement.dims]
        return super()._holders(shape, placement) if all(n > count for n, count in zip(shape, shards, strict=True)) else 1.0
