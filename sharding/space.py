"""How large a space resharding searches: which axes, cut how finely, may shard which dims on the way.

The larger the space, the better the walk and the longer the search. Everything is worth searching as long as there
are no more than MOST_STATES placements in all; else the space shrinks, what helps least going first:

- axes that neither placement uses (to slice over them makes what follows smaller; vital where links differ in speed);
- dims that neither placement shards (a detour, where extents are uneven and boundaries do not nest);
- prime factors of axes (x=4, y=2: [x, y] -> [y, x] moves half of x, then permutes), of which those go last that let a
  part of one axis have the size of another.

What remains always suffices: any dim can be gathered, and sliced anew.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from sharding.axes import AxisRef, SubAxis, atoms, cut_points
from sharding.mesh import AbstractMesh
from sharding.placement import Placement
from sharding.topology import Topology

MOST_STATES: Final = 700

_Space: TypeAlias = tuple[Sequence[SubAxis], tuple[int, ...]]


def search_space(
    shape: Sequence[int], source: Placement, target: Placement, mesh: AbstractMesh, topology: Topology, has_detours: bool = True
) -> _Space:
    """(atoms, dims that may hold them): the first of the spaces below that is small enough, or the last. Without detours only
    of axes that one of the placements uses."""
    chosen: _Space | None = None
    for chosen in _spaces(shape, source, target, mesh, topology, has_detours):
        if state_count(len(chosen[0]), len(chosen[1])) <= MOST_STATES:
            break
    assert chosen is not None
    return chosen


def _spaces(
    shape: Sequence[int], source: Placement, target: Placement, mesh: AbstractMesh, topology: Topology, has_detours: bool
) -> Iterator[_Space]:
    """All candidates, best first."""
    used = frozenset((*source.axes(), *target.axes()))
    wide, narrow = _pieces(used, mesh, has_detours), _pieces(used, mesh, False)
    needed = tuple([d for d in range(len(shape)) if source.dims[d] or target.dims[d]])
    every = tuple([d for d, extent in enumerate(shape) if extent > 1 or d in needed])
    yield _into_primes(wide), every
    if not topology.is_uniform:
        yield wide, every
        yield wide, needed
    fine, matched = _into_primes(narrow), _into_matching(narrow)
    if all(shape[d] % math.prod(piece.size for piece in narrow) == 0 for d in needed):
        yield from itertools.product((fine, matched), (every, needed))
    else:
        yield from itertools.product((fine, matched, narrow), (every,))
        yield from itertools.product((fine, matched), (needed,))
    yield narrow, needed


@functools.lru_cache(maxsize=4096)
def _pieces(used: frozenset[AxisRef], mesh: AbstractMesh, is_wide: bool) -> tuple[SubAxis, ...]:
    """The distinct atoms of axes that are used, and of the others if it is wide, in the mesh's order."""
    cuts = cut_points(used, mesh.shape)
    unused = [name for name, size in mesh.shape.items() if size > 1 and is_wide]
    pieces = {piece for ref in (*used, *unused) for piece in atoms(ref, cuts, mesh.shape)}
    return tuple(sorted(pieces, key=lambda piece: (mesh.axis_names.index(piece.name), piece.pre)))


def _into_primes(pieces: Sequence[SubAxis]) -> list[SubAxis]:
    """Every piece cut into parts of prime size, small primes major; pieces of one size alone need no cut."""
    if len({piece.size for piece in pieces}) == 1:
        return list(pieces)
    parts: list[SubAxis] = []
    for name, pre, rest in pieces:
        prime = 2
        while rest > 1:
            if rest % prime:
                prime += 1
                continue
            parts.append(SubAxis(name, pre, prime))
            pre, rest = pre * prime, rest // prime
    return parts


def _into_matching(pieces: Sequence[SubAxis]) -> list[SubAxis]:
    """Every piece cut so that its major, and its minor, part has the size of each smaller piece that divides it."""
    sizes = {piece.size for piece in pieces}
    parts: list[SubAxis] = []
    for name, pre, size in pieces:
        smaller = [other for other in sizes if other < size and size % other == 0]
        low = 1
        for cut in sorted({*smaller, *(size // other for other in smaller), size}):
            if cut % low == 0 and cut > low:
                parts.append(SubAxis(name, pre * low, cut // low))
                low = cut
    return parts


@functools.cache
def state_count(atom_count: int, dim_count: int) -> int:
    """How many ways there are to put some of the atoms, ordered, on the dims."""
    if dim_count == 0:
        return 1
    return sum(math.perm(atom_count, used) * math.comb(used + dim_count - 1, used) for used in range(atom_count + 1))
