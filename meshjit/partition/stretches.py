"""Which positions of sharded dims a device needs to compute a result alone: the geometry of `blocking.py`.

Dims that an equation treats alike share a *division*: of each of them device i has a *stretch*, the positions from
i * block - before up to (i + 1) * block + after. The stretch of a result determines those of the operands:

    u + v                     the same of both
    u[a:], pad(u, low)        moved by the difference between a place of the result and that of the operand: +a, -low
    shift(u, s), roll(u, s)   moved by -s
    windows that slide by 1   longer by what the windows reach to either side

So a stencil of two neighbours needs one more element on each side per step backwards in time. A division in a ring continues
at the other end of the dim: position p stands for p mod (block * devices). In others, elements outside the dim are unspecified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from meshjit.core.access import Moved, Places, Same, Start, Window, resolved
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region
from meshjit.core.rules import ValueDim, access_of, alike
from meshjit.core.types import TensorType
from meshjit.ops.base.constants import integer_of
from meshjit.ops.slicing.halos import cut
from sharding.axes import AxisRef, overlap
from sharding.mesh import BaseMesh
from sharding.spec import Placement

Stretch: TypeAlias = tuple[int, int]  # places before and after a device's own block
Stretches: TypeAlias = tuple[Stretch | None, ...]  # per dim of a value; None for a dim that every device has all of

OWN: Stretch = (0, 0)


class Refused(Exception):
    """The loop cannot be computed in blocks; the text says why."""


@dataclass(frozen=True)
class Division:
    axes: tuple[AxisRef, ...]
    block: int
    count: int
    in_ring: bool = False

    @property
    def period(self) -> int:
        return self.block * self.count

    def width(self, stretch: Stretch) -> int:
        return stretch[0] + self.block + stretch[1]

    def seen(self, stretch: Stretch, low: int, reach: int) -> Stretch:
        """The stretch that holds, for each place p of this one, places p - low to p - low + reach - 1. In a ring those that are
        nearest by going round; the same way for every stretch, because all iterations of a block read the same places."""
        before, after = low, reach - 1 - low
        turns = round((before - after) / (2 * self.period)) * self.period if self.in_ring else 0
        return stretch[0] + before - turns, stretch[1] + after + turns


class Divisions(dict[ValueDim, Division]):
    """The division of every dim that is cut along with a carry."""

    def own(self, var: Var) -> Stretches:
        """A device's own block."""
        return tuple(OWN if (var, d) in self else None for d in range(var.rank))

    def type(self, var: Var, stretches: Stretches) -> TensorType:
        """The type of a part."""
        columns = enumerate(zip(var.shape, stretches, strict=True))
        return var.type.with_shape(tuple(n if s is None else self[var, d].width(s) for d, (n, s) in columns))

    def cut(self, var: Var, local: Var, have: Stretches, part: Stretches) -> Var:
        """A part of a part."""
        for d, (here, other) in enumerate(zip(have, part, strict=True)):
            if here is not None and other is not None and here != other:
                low = here[0] - other[0]
                local = cut(local, d, low, low + self[var, d].width(other))
        return local


class _Classes:
    """Dims that belong together: union-find. `whole` are dims that every device needs all of."""

    def __init__(self) -> None:
        self.parents: dict[ValueDim, ValueDim] = {}
        self.whole: set[ValueDim] = set()

    def find(self, node: ValueDim) -> ValueDim:
        root = node
        while (parent := self.parents.setdefault(root, root)) != root:
            root = parent
        while self.parents[node] != root:
            self.parents[node], node = root, self.parents[node]
        return root

    def join(self, nodes: Sequence[ValueDim]) -> None:
        for node in nodes[1:]:
            self.parents[self.find(node)] = self.find(nodes[0])


def find_divisions(region: Region, placements: Sequence[Placement], mesh: BaseMesh) -> Divisions:
    """The division of every dim that is cut along with a carry; Refused where dims cut differently meet."""
    body, classes = region.program, _classes_of(region)
    constants = known_integers(body)
    by_root: dict[ValueDim, Division] = {}
    for var, placement in zip(body.inputs, placements, strict=True):
        for d, axes in enumerate(placement.dims):
            if axes and mesh.axes_size(axes) > 1:
                division = Division(axes, placement.local_shape(var.shape, mesh)[d], mesh.axes_size(axes))
                _assign(by_root, classes.find((var, d)), division)
    lost = next((node for node in classes.whole if classes.find(node) in by_root), None)
    if lost is not None:
        raise Refused(f"dim {lost[1]} of {lost[0].type} has to be whole")
    for eqn in body.eqns:
        for node, places in _places(eqn, constants):
            if isinstance(places, Moved) and places.in_ring and (root := classes.find(node)) in by_root:
                by_root[root] = replace(by_root[root], in_ring=True)
    divisions = Divisions({node: by_root[root] for node in classes.parents if (root := classes.find(node)) in by_root})
    _check(body, divisions, constants)
    return divisions


def may_be_cut(region: Region) -> bool:
    """Whether a loop's body moves elements along a dim of what it carries that need not be whole."""
    body, classes = region.program, _classes_of(region)
    constants, carried = known_integers(body), [body.inputs[i] for i, _ in region.carried]
    roots = {classes.find((v, d)) for v in carried for d in range(v.rank)} - {classes.find(node) for node in [*classes.whole]}
    at = [(node, span(places)) for eqn in body.eqns for node, places in _places(eqn, constants)] if roots else []
    return any(moves is not None and moves[1:] != (0, 1) and classes.find(node) in roots for node, moves in at)


def cut_together(region: Region) -> dict[ValueDim, int]:
    """Of the inputs and outputs of a loop's body, the dims that can be cut along with what is carried; the same number for those
    that are cut alike."""
    body, classes = region.program, _classes_of(region)
    whole, numbers = {classes.find(node) for node in [*classes.whole]}, dict[ValueDim, int]()
    for i, _ in region.carried:
        for d in range(body.inputs[i].rank):
            if (root := classes.find((body.inputs[i], d))) not in whole:
                numbers.setdefault(root, len(numbers))
    nodes = [(v, d) for v in (*body.inputs, *body.outputs) for d in range(v.rank)]
    return {node: numbers[root] for node in nodes if (root := classes.find(node)) in numbers}


def _classes_of(region: Region) -> _Classes:
    """The dims of a loop's body that are cut together."""
    body, classes = region.program, _Classes()
    constants = known_integers(body)
    for eqn in body.eqns:
        _join(eqn, constants, classes)
    for i, output in region.carried:
        for d in range(body.inputs[i].rank):
            classes.join([(body.inputs[i], d), (body.outputs[output], d)])
    return classes


def _assign(by_root: dict[ValueDim, Division], root: ValueDim, division: Division) -> None:
    other = by_root.setdefault(root, division)
    if other != division:
        raise Refused(f"dims cut into {division.block} over {division.axes} and into {other.block} over {other.axes} meet")


def _check(body: Program, divisions: Divisions, constants: Mapping[Var, int]) -> None:
    for (var, d), division in divisions.items():
        if 0 in var.shape:
            raise Refused(f"{var.type} is empty")
        if division.in_ring and var.shape[d] > division.period:
            raise Refused(f"dim {d} of {var.type} is longer than the ring that it is part of")
        others = (divisions[var, e] for e in range(var.rank) if e != d and (var, e) in divisions)
        if any(overlap(a, b) for other in others for a in division.axes for b in other.axes):
            raise Refused(f"two dims of {var.type} are cut over the same axis")
    for eqn in body.eqns:
        for (var, d), places in _places(eqn, constants):
            division = divisions.get((var, d))
            if division is None or not division.in_ring:
                continue
            if isinstance(places, Moved) and places.in_ring and var.shape[d] != division.period:
                raise Refused(f"{var.type} is rolled around, and its shards are uneven")
            if isinstance(places, Window) and (places.low, places.reach) != (0, 1):
                raise Refused(f"windows end where {var.type} does, which is rolled around elsewhere")


def known_integers(body: Program) -> dict[Var, int]:
    """Scalar integer constants."""
    return {eqn.outputs[0]: number for eqn in body.eqns if (number := integer_of(eqn)) is not None}


# -- what equations do with places


def places_of(eqn: Eqn, constants: Mapping[Var, int]) -> tuple[tuple[Places, ...], ...]:
    """Per operand and dim where the elements of the result come from, of an op that can be given them there (`aligned`)."""
    (access,) = access_of(eqn)
    integers = {i: constants[v] for i, v in enumerate(eqn.inputs) if v in constants}
    return tuple(tuple(resolved(places, integers) for places in dims) for dims in access.operands)


def _places(eqn: Eqn, constants: Mapping[Var, int]) -> Iterable[tuple[ValueDim, Places]]:
    if eqn.op.aligned is not None:
        for var, dims in zip(eqn.inputs, places_of(eqn, constants), strict=True):
            yield from (((var, d), places) for d, places in enumerate(dims))


def span(places: Places) -> tuple[int, int, int] | None:
    """(dim, low, reach): place p of the result's dim sees places p - low to p - low + reach - 1; None if it does not."""
    if isinstance(places, Same):
        return places.dim, 0, 1
    if isinstance(places, Moved) and not isinstance(places.by, Start):
        return places.dim, -places.by, 1
    if isinstance(places, Window) and places.stride == places.base_dilation == 1:
        return places.dim, places.low, places.reach
    return None


def _join(eqn: Eqn, constants: Mapping[Var, int], classes: _Classes) -> None:
    """Join dims that are cut together; all others of the equation's values have to be whole."""
    if eqn.op.made_at is not None:
        return
    groups, lost = list(alike(eqn).values()), set[ValueDim]()
    if eqn.op.aligned is not None:
        groups, out = [], eqn.outputs[0]
        for node, places in _places(eqn, constants):
            moves = span(places)
            if moves is not None:
                groups.append([node, (out, moves[0])])
            elif isinstance(places, Moved | Window):
                lost.add((out, places.dim))
    for nodes in groups:
        classes.join(nodes)
    nodes = {(v, d) for v in (*eqn.inputs, *eqn.outputs) for d in range(v.rank)}
    classes.whole.update(nodes.difference(*groups), lost)


# -- where values are needed


def needs_before(
    body: Program, divisions: Divisions, outputs: Iterable[tuple[Var, Stretches]]
) -> dict[Var, Stretches]:
    """The stretches that an iteration needs of its values, given those of its outputs."""
    needs: dict[Var, Stretches] = {}
    constants = known_integers(body)

    def want(var: Var, stretches: Stretches) -> None:
        needs[var] = hull(needs[var], stretches) if var in needs else stretches

    for var, stretches in outputs:
        want(var, stretches)
    for eqn in reversed(body.eqns):
        if not any(v in needs for v in eqn.outputs):
            continue
        if eqn.op.aligned is not None:
            for var, stretches in zip(eqn.inputs, seen_by(eqn, needs[eqn.outputs[0]], divisions, constants), strict=True):
                want(var, stretches)
        elif eqn.inputs:
            operands_at = stretches_alike(eqn, needs, divisions)
            for var in (*eqn.outputs, *eqn.inputs):
                want(var, operands_at[var])
    return needs


def seen_by(eqn: Eqn, result: Stretches, divisions: Divisions, constants: Mapping[Var, int]) -> list[Stretches]:
    """Where the operands are needed for stretches of the result, of an op that can be given them there."""

    def seen(var: Var, d: int, places: Places) -> Stretch | None:
        moves = span(places)
        stretch = None if moves is None else result[moves[0]]
        return None if moves is None or stretch is None else divisions[var, d].seen(stretch, *moves[1:])

    return [
        tuple(seen(var, d, places) for d, places in enumerate(dims))
        for var, dims in zip(eqn.inputs, places_of(eqn, constants), strict=True)
    ]


def stretches_alike(eqn: Eqn, needs: Mapping[Var, Stretches], divisions: Divisions) -> dict[Var, Stretches]:
    """Stretches of all values of an equation that treats all positions alike: the hull of those of its results."""
    by_node: dict[ValueDim, Stretch] = {}
    for nodes in alike(eqn).values():
        needed = [s for v, d in nodes if v in eqn.outputs and v in needs and (s := needs[v][d]) is not None]
        by_node |= dict.fromkeys(nodes, (max((a for a, _ in needed), default=0), max((b for _, b in needed), default=0)))
    return {
        v: tuple(by_node.get((v, d), OWN) if (v, d) in divisions else None for d in range(v.rank))
        for v in (*eqn.inputs, *eqn.outputs)
    }


def hull(a: Stretches, b: Stretches) -> Stretches:
    return tuple(
        None if s is None or t is None else (max(s[0], t[0]), max(s[1], t[1])) for s, t in zip(a, b, strict=True)
    )
