"""All the ways to spread an equation's factors over whole mesh axes, and all placements of a value over them.

    b k, k n -> b n | sum k over x=2, y=2     nothing; x on b, k or n; y likewise; both on one, in either order; on two

A factor may take more devices than it has elements: 3 elements lie one each on 3 of x=4. With y=2 besides more devices are idle,
which helps only where the elements become part of a longer dim that has both; `Rooms` knows which extents these are. Empty
factors take axes as short ones do, and those that have to be whole take none.

The ways are many where there are many axes, or many dims: 20 dims over four axes, 212,521. They are counted first.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from meshjit.core.program import Eqn, Program
from meshjit.plan.assign import consistent, stays_whole
from meshjit.plan.automatic.eliminate import TooWide
from meshjit.plan.graph import Flattened, programs_in
from sharding.axes import AxisRef
from sharding.mesh import BaseMesh
from sharding.placement import Placement
from sharding.rule import FactorRule

MOST_WAYS: Final = 1 << 15  # of one equation or value: a table with a neighbour of 1,000 ways is too large then (`tables.py`)
Spread: TypeAlias = dict[str, tuple[AxisRef, ...]]  # factor → axes; without those that have none


@dataclass(frozen=True)
class Rooms:
    """Which axes of a mesh dims and factors may take. `short`: extents that have axes beside which devices are idle, too."""

    mesh: BaseMesh
    short: frozenset[int] = frozenset()

    def spreads(self, eqn: Eqn, rule: FactorRule) -> list[Spread]:
        """Every legal spread of an equation, the one over nothing first. TooWide where there are too many."""
        extents = factor_extents(eqn, rule)
        free = {f: n for f, n in extents.items() if not stays_whole(eqn, rule.kinds.get(f, ""))}
        legal: dict[tuple[tuple[str, tuple[AxisRef, ...]], ...], Spread] = {}
        for spread in self._dealt(free):
            kept = consistent(rule, dict(spread), self.mesh)
            legal.setdefault(tuple(sorted(kept.items())), kept)
        return list(legal.values())

    def placements(self, shape: Sequence[int]) -> list[Placement]:
        """Every placement of a value, whole first; partial sums aside. TooWide where there are too many."""
        spreads = map(dict, self._dealt({str(d): n for d, n in enumerate(shape)}))
        return [Placement(tuple([spread.get(str(d), ()) for d in range(len(shape))])) for spread in spreads]

    def _dealt(self, extents: Mapping[str, int]) -> tuple[Dealt, ...]:
        axes = tuple([(name, size) for name, size in self.mesh.shape.items() if size > 1])
        return dealt(tuple([(name, n, n in self.short) for name, n in extents.items()]), axes)


def under(spread: Spread, dims: Sequence[Sequence[str]]) -> tuple[tuple[AxisRef, ...], ...]:
    """The axes of each factor of each dim of an operand."""
    return tuple([spread.get(factor, ()) for factors in dims for factor in factors])


def rooms_of(program: Program, flat: Flattened, mesh: BaseMesh) -> Rooms:
    """Of a Program whose graph is `flat`. Short are extents of dims that an equation makes a part of a longer one, or takes from
    it; those of ops with a rule of their own, of which only writing it tells what it costs; and those that somebody said to have
    such axes."""
    short, seen = set[int](), set[tuple[int, ...]]()
    for number, seed in flat.graph.seeds.items():
        for extent, axes in zip(flat.graph.shapes[number], seed.placement.dims, strict=True):
            if axes and not have_use([mesh.axes_size((axis,)) for axis in axes], extent):
                short.add(extent)
    for part in programs_in(program):
        for eqn in part.eqns:
            if eqn.identity not in seen and eqn.op.regions is None:
                seen.add(eqn.identity)
                rule = flat.rules[eqn]
                least, most = (factor_extents(eqn, rule, of) for of in (min, max))
                free = [f for f in least if not stays_whole(eqn, rule.kinds.get(f, ""))]
                short |= {least[f] for f in free if least[f] != most[f] or eqn.op.partition is not None}
    return Rooms(mesh, frozenset(short))


def have_use(sizes: Sequence[int], extent: int) -> bool:
    """Whether all axes of these sizes are needed for as many devices as there are elements, or for fewer: else some are idle."""
    return math.prod(sizes) // min(sizes) < extent


def factor_extents(eqn: Eqn, rule: FactorRule, of: Callable[[int, int], int] = min) -> dict[str, int]:
    """The extent of each factor that stands alone in a dim, else its size; of several the least, or the most."""
    extents = dict(rule.sizes)
    for dims, var in zip((*rule.operands, *rule.results), (*eqn.inputs, *eqn.outputs), strict=True):
        for names, extent in zip(dims, var.shape, strict=True):
            if len(names) == 1:
                extents[names[0]] = of(extents.get(names[0], extent), extent)
    return {name: extents[name] for name in rule.factors}


Dealt: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]


@functools.lru_cache(maxsize=4096)
def dealt(rooms: tuple[tuple[str, int, bool], ...], axes: tuple[tuple[str, int], ...]) -> tuple[Dealt, ...]:
    """Every way to deal axes, with their sizes, to rooms in any order. Rooms have an extent, and say whether they are short.
    TooWide where these may be more than MOST_WAYS."""
    count = sum(extent > 1 or is_short for _, extent, is_short in rooms)
    few_enough(1 + sum(math.comb(len(axes), n) * math.perm(count + n - 1, n) for n in range(1, len(axes) + 1) if count))
    return tuple(sorted(_deal(rooms, dict(axes)), key=lambda spread: sum(len(axes) for _, axes in spread)))


def few_enough(ways: int) -> None:
    """TooWide where these are more than MOST_WAYS."""
    if ways > MOST_WAYS:
        raise TooWide(f"{ways:,} ways to spread axes")


def _deal(rooms: Sequence[tuple[str, int, bool]], sizes: Mapping[str, int]) -> Iterator[Dealt]:
    open_rooms = {name: (extent, is_short) for name, extent, is_short in rooms if extent > 1 or is_short}
    for homes in itertools.product((None, *open_rooms), repeat=len(sizes)):
        held: dict[str, list[str]] = {}
        for axis, room in zip(sizes, homes, strict=True):
            if room is not None:
                held.setdefault(room, []).append(axis)
        if all(open_rooms[room][1] or have_use([sizes[a] for a in names], open_rooms[room][0]) for room, names in held.items()):
            for orders in itertools.product(*(itertools.permutations(names) for names in held.values())):
                yield tuple(zip(held, orders, strict=True))
