"""All the ways to spread an equation's factors over whole mesh axes, and all placements of a value over them.

    b k, k n -> b n | sum k over x=2, y=2     nothing; x on b, k or n; y likewise; both on one, in either order; on two

A factor takes axes as long as each of them makes blocks smaller: 3 elements lie one each on 3 of x=4, but with x=4 there, y=2 would
only leave more devices without any. Factors that have to be whole take none.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from meshjit.core.program import Eqn
from meshjit.plan.assign import consistent, stays_whole
from sharding.axes import AxisRef
from sharding.mesh import BaseMesh
from sharding.placement import Placement
from sharding.rule import FactorRule

Spread: TypeAlias = dict[str, tuple[AxisRef, ...]]  # factor → axes; without those that have none


def spreads_of(eqn: Eqn, rule: FactorRule, mesh: BaseMesh) -> list[Spread]:
    """Every legal spread of an equation, the one over nothing first."""
    extents = factor_extents(eqn, rule)
    free = {f: n for f, n in extents.items() if not stays_whole(eqn, rule.kinds.get(f, ""))}
    legal: dict[tuple[tuple[str, tuple[AxisRef, ...]], ...], Spread] = {}
    for spread in dealt(tuple(free.items()), _axes(mesh)):
        kept = consistent(rule, dict(spread), mesh)
        legal.setdefault(tuple(sorted(kept.items())), kept)
    return list(legal.values())


def under(spread: Spread, dims: Sequence[Sequence[str]]) -> tuple[tuple[AxisRef, ...], ...]:
    """The axes of each factor of each dim of an operand."""
    return tuple([spread.get(factor, ()) for factors in dims for factor in factors])


def placements_of(shape: Sequence[int], mesh: BaseMesh) -> list[Placement]:
    """Every placement of a value, whole first; partial sums aside."""
    dims = {str(d): n for d, n in enumerate(shape)}
    spreads = dealt(tuple(dims.items()), _axes(mesh))
    return [Placement(tuple([dict(spread).get(d, ()) for d in dims])) for spread in spreads]


def have_use(sizes: Sequence[int], extent: int) -> bool:
    """Whether without any of the axes of these sizes the blocks of so many elements would be larger, or are to be one each."""
    return math.prod(sizes) // min(sizes) < extent


def factor_extents(eqn: Eqn, rule: FactorRule) -> dict[str, int]:
    """The extent of each factor that stands alone in a dim, else its size."""
    extents = dict(rule.sizes)
    for dims, var in zip((*rule.operands, *rule.results), (*eqn.inputs, *eqn.outputs), strict=True):
        for names, extent in zip(dims, var.shape, strict=True):
            if len(names) == 1:
                extents[names[0]] = min(extents.get(names[0], extent), extent)
    return {name: extents[name] for name in rule.factors}


def _axes(mesh: BaseMesh) -> tuple[tuple[str, int], ...]:
    return tuple((name, size) for name, size in mesh.shape.items() if size > 1)


Dealt: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]


@functools.lru_cache(maxsize=4096)
def dealt(rooms: tuple[tuple[str, int], ...], axes: tuple[tuple[str, int], ...]) -> tuple[Dealt, ...]:
    """Every way to deal axes to rooms that they have a use in, in any order."""
    return tuple(sorted(_deal(dict(rooms), axes), key=lambda spread: sum(len(axes) for _, axes in spread)))


def _deal(rooms: Mapping[str, int], axes: Sequence[tuple[str, int]]) -> Iterator[Dealt]:
    sizes = dict(axes)
    for homes in itertools.product((None, *rooms), repeat=len(axes)):
        held: dict[str, list[str]] = {}
        for (axis, _), room in zip(axes, homes, strict=True):
            if room is not None:
                held.setdefault(room, []).append(axis)
        if all(have_use([sizes[a] for a in names], rooms[room]) for room, names in held.items()):
            for orders in itertools.product(*(itertools.permutations(names) for names in held.values())):
                yield tuple(zip(held, orders, strict=True))
