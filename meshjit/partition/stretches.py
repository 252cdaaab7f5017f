"""Which places of sharded dims a device needs to compute a result alone: the geometry of `blocking.py`.

A *space* is what all dims have in common that an equation treats alike: device i has, of each of them, a *stretch*, the
places from i * block - before up to (i + 1) * block + after. What a value is wanted at says what its operands are wanted at:

    u + v                     the same of both
    u[a:], pad(u, low)        moved by the difference between a place of the result and that of the operand: +a, -low
    shift(u, s), roll(u, s)   moved by -s
    windows that slide by 1   longer by what the windows reach to either side

Of two neighbours a step backwards in time has thus one more on each side. Spaces in a ring go on at the other end of the
dim: place p stands for p mod (block * devices). In others, what lies outside of the dim is unspecified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region
from meshjit.core.rules import rule_of
from meshjit.ops.base.constants import constant, iota
from meshjit.ops.index.dynamic import dynamic_slice, dynamic_update_slice
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.roll import roll, shift
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.ops.slicing.update_slice import update_slice
from meshjit.ops.window.convolution import convolution, kernel_slides
from meshjit.ops.window.params import slides_of
from meshjit.ops.window.reduce_window import reduce_window
from sharding.axes import AxisRef, overlap
from sharding.mesh import BaseMesh
from sharding.rule import FactorRule
from sharding.spec import Placement

Node: TypeAlias = tuple[Var, int]  # a dim of a value
Stretch: TypeAlias = tuple[int, int]  # places before and after a device's own block
Stretches: TypeAlias = tuple[Stretch | None, ...]  # per dim of a value; None for a dim that every device has all of
Offsets: TypeAlias = tuple[int | None, ...]  # per dim: place of the operand less place of the result; None if unknown

OWN: Stretch = (0, 0)
_ALONG_WHOLE_DIMS = {"reverse", "cumsum", "cumprod", "cummax", "cummin", "sort"}  # their params mention no extents


@dataclass(frozen=True)
class Sliding:
    """Along these dims of operand 0 and of the result, place p of the result sees places p - low to p - low + reach - 1."""

    operand_dim: int
    result_dim: int
    low: int = 0
    reach: int = 1


class Refused(Exception):
    """The loop cannot be computed in blocks, or it is not known how; the text says why."""


@dataclass(frozen=True)
class Space:
    axes: tuple[AxisRef, ...]
    block: int
    count: int
    in_ring: bool = False

    @property
    def period(self) -> int:
        return self.block * self.count

    def width(self, stretch: Stretch) -> int:
        return stretch[0] + self.block + stretch[1]

    def moved(self, stretch: Stretch, offset: int) -> Stretch:
        """The stretch that holds, for each place of this one, the place `offset` further on."""
        before, after = stretch[0] - offset, stretch[1] + offset
        turns = round((before - after) / (2 * self.period)) * self.period if self.in_ring else 0
        return before - turns, after + turns


Spaces: TypeAlias = Mapping[Node, Space]


class _Classes:
    """Dims that belong together: union-find. `whole` are dims that every device needs all of."""

    def __init__(self) -> None:
        self.parents: dict[Node, Node] = {}
        self.whole: set[Node] = set()

    def find(self, node: Node) -> Node:
        root = node
        while (parent := self.parents.setdefault(root, root)) != root:
            root = parent
        while self.parents[node] != root:
            self.parents[node], node = root, self.parents[node]
        return root

    def join(self, nodes: Sequence[Node]) -> None:
        for node in nodes[1:]:
            self.parents[self.find(node)] = self.find(nodes[0])


def find_spaces(region: Region, placements: Sequence[Placement], mesh: BaseMesh) -> dict[Node, Space]:
    """The space of every dim that is cut along with a carry; Refused where dims cut differently meet."""
    body, classes = region.program, _Classes()
    constants = known_integers(body)
    for eqn in body.eqns:
        _join(eqn, constants, classes)
    for i, output in region.carried:
        for d in range(body.inputs[i].rank):
            classes.join([(body.inputs[i], d), (body.outputs[output], d)])
    found: dict[Node, Space] = {}
    for var, placement in zip(body.inputs, placements, strict=True):
        for d, axes in enumerate(placement.dims):
            if axes and mesh.axes_size(axes) > 1:
                space = Space(axes, placement.local_shape(var.shape, mesh)[d], mesh.axes_size(axes))
                _assign(found, classes.find((var, d)), space)
    lost = next((node for node in classes.whole if classes.find(node) in found), None)
    if lost is not None:
        raise Refused(f"dim {lost[1]} of {lost[0].type} has to be whole")
    for eqn in body.eqns:
        if eqn.op is roll and (root := classes.find((eqn.inputs[0], eqn.params["dimension"]))) in found:
            found[root] = replace(found[root], in_ring=True)
    spaces = {node: found[root] for node in classes.parents if (root := classes.find(node)) in found}
    _check(body, spaces)
    return spaces


def _assign(found: dict[Node, Space], root: Node, space: Space) -> None:
    if found.setdefault(root, space) != space:
        raise Refused(f"dims cut into {space.block} over {space.axes} and into {found[root].block} over {found[root].axes} meet")


def _check(body: Program, spaces: Spaces) -> None:
    for (var, d), space in spaces.items():
        if 0 in var.shape:
            raise Refused(f"{var.type} is empty")
        if space.in_ring and var.shape[d] > space.period:
            raise Refused(f"dim {d} of {var.type} is longer than the ring that it is part of")
        others = (spaces[var, e] for e in range(var.rank) if e != d and (var, e) in spaces)
        if any(overlap(a, b) for other in others for a in space.axes for b in other.axes):
            raise Refused(f"two dims of {var.type} are cut over the same axis")
    for eqn in body.eqns:
        space = spaces.get((eqn.inputs[0], eqn.params["dimension"])) if eqn.op is roll else None
        if space is not None and eqn.inputs[0].shape[eqn.params["dimension"]] != space.period:
            raise Refused(f"{eqn.inputs[0].type} is rolled around, and its shards are uneven")
        for each in sliding_of(eqn) or ():
            space = spaces.get((eqn.inputs[0], each.operand_dim))
            if space is not None and space.in_ring and (each.low, each.reach) != (0, 1):
                raise Refused(f"windows end where {eqn.inputs[0].type} does, which is rolled around elsewhere")


def known_integers(body: Program) -> dict[Var, int]:
    """Scalar integer constants."""
    return {
        eqn.outputs[0]: int(eqn.params["value"])
        for eqn in body.eqns
        if eqn.op is constant and not eqn.outputs[0].shape and eqn.outputs[0].dtype.kind in "iu"
    }


def _join(eqn: Eqn, constants: Mapping[Var, int], classes: _Classes) -> None:
    if eqn.op is constant or eqn.op is iota:
        return
    offsets = offsets_of(eqn, constants)
    if offsets is not None:
        for var, column in zip(eqn.inputs, offsets, strict=True):
            for d, offset in enumerate(column or ()):
                nodes: list[Node] = [(var, d), (eqn.outputs[0], d)]
                if offset is None:
                    classes.whole.update(nodes)
                else:
                    classes.join(nodes)
        return
    slides = sliding_of(eqn)
    if slides is not None:
        joined: list[list[Node]] = [[(eqn.inputs[0], s.operand_dim), (eqn.outputs[0], s.result_dim)] for s in slides]
        for pair in joined:
            classes.join(pair)
        known = {node for pair in joined for node in pair}
        classes.whole.update({(v, d) for v in (*eqn.inputs, *eqn.outputs) for d in range(v.rank)} - known)
        return
    rule = rule_of_eqn(eqn)
    for nodes in _factor_nodes(eqn, rule, classes).values():
        classes.join(nodes)


def _factor_nodes(eqn: Eqn, rule: FactorRule | None, classes: _Classes) -> dict[str, list[Node]]:
    """Nodes by factor that passes through; all others are marked as whole, also those of dims that are merged or split: a
    stretch before is none after."""
    found: dict[str, list[Node]] = {}
    values = (*eqn.inputs, *eqn.outputs)
    if rule is None:
        classes.whole.update((var, d) for var in values for d in range(var.rank))
        return found
    sides = (*rule.operands, *rule.results)
    merged = {name for dims in sides for factors in dims if len(factors) > 1 for name in factors}
    for var, dims in zip(values, sides, strict=True):
        for d, factors in enumerate(dims):
            if len(factors) == 1 and factors[0] not in rule.kinds and factors[0] not in merged:
                found.setdefault(factors[0], []).append((var, d))
            else:
                classes.whole.add((var, d))
    return found


def rule_of_eqn(eqn: Eqn) -> FactorRule | None:
    """The rule of an op that may be computed on any stretch of the dims that pass through; None for other ops."""
    op = eqn.op
    if op.regions is not None or op.simulate is not None or (op.partition is not None and op.name not in _ALONG_WHOLE_DIMS):
        return None
    return rule_of(eqn)


def offsets_of(eqn: Eqn, constants: Mapping[Var, int]) -> list[Offsets | None] | None:
    """Per operand how its places differ from those of the result; None for ops that treat places alike."""
    params, op = eqn.params, eqn.op
    if op is slice_:
        columns = zip(eqn.inputs[0].shape, eqn.outputs[0].shape, params["start"], params["strides"], strict=True)
        return [tuple(start if step == 1 or n == m else None for n, m, start, step in columns)]
    if op is pad:
        columns = zip(eqn.inputs[0].shape, params["low"], params["interior"], strict=True)
        return [tuple(None if gap and n > 1 else -low for n, low, gap in columns), None]
    if op is roll or op is shift:
        return [tuple(-params["shift"] if d == params["dimension"] else 0 for d in range(eqn.inputs[0].rank))]
    if op is update_slice:
        return [(0,) * eqn.inputs[0].rank, tuple(-start for start in params["start"])]
    if op is concatenate:
        begins = [sum(v.shape[params["dimension"]] for v in eqn.inputs[:i]) for i in range(len(eqn.inputs))]
        return [tuple(-b if d == params["dimension"] else 0 for d in range(eqn.outputs[0].rank)) for b in begins]
    if op is dynamic_slice:
        starts = starts_of(eqn, 1, eqn.inputs[0].shape, eqn.outputs[0].shape, constants)
        return [starts, *[None] * (len(eqn.inputs) - 1)]
    if op is dynamic_update_slice:
        starts = starts_of(eqn, 2, eqn.inputs[0].shape, eqn.inputs[1].shape, constants)
        return [(0,) * eqn.inputs[0].rank, tuple(None if s is None else -s for s in starts), *[None] * (len(eqn.inputs) - 2)]
    return None


def sliding_of(eqn: Eqn) -> list[Sliding] | None:
    """The dims along which windows slide by 1 over the elements themselves; None for ops without windows."""
    if eqn.op is reduce_window:
        slides = [(d, d, slide) for d, slide in enumerate(slides_of(eqn.inputs[0].type, eqn.params))]
        found = list[Sliding]()
    elif eqn.op is convolution:
        lhs, _, out = eqn.params["dimension_numbers"]
        slides = [(lhs[2 + k], out[2 + k], slide) for k, slide in enumerate(kernel_slides(eqn.input_types, eqn.params))]
        found = [Sliding(lhs[0], out[0])] if eqn.params["batch_group_count"] == 1 else []
    else:
        return None
    plain = [(d, e, slide) for d, e, slide in slides if slide.stride == slide.base_dilation == 1]
    return [*found, *(Sliding(d, e, slide.low, slide.reach) for d, e, slide in plain)]


def seen_by(var: Var, slides: Sequence[Sliding], result: Stretches) -> Stretches:
    """Where operand 0 is wanted for the windows of a result."""
    found: list[Stretch | None] = [None] * var.rank
    for each in slides:
        stretch = result[each.result_dim]
        if stretch is not None:
            found[each.operand_dim] = stretch[0] + each.low, stretch[1] + each.reach - 1 - each.low
    return tuple(found)


def starts_of(
    eqn: Eqn, first: int, shape: Sequence[int], part: Sequence[int], constants: Mapping[Var, int]
) -> tuple[int | None, ...]:
    """Where a part begins, after clamping; None where that is computed."""
    columns = zip(shape, part, eqn.inputs[first:], strict=True)
    return tuple(
        0 if n == m else min(max(constants[v], 0), n - m) if v in constants else None for n, m, v in columns
    )


# -- what is wanted


def wanted_before(
    body: Program, spaces: Spaces, outputs: Iterable[tuple[Var, Stretches]]
) -> dict[Var, Stretches]:
    """Where every value of one iteration is wanted, given where its outputs are."""
    wanted: dict[Var, Stretches] = {}
    constants = known_integers(body)

    def want(var: Var, stretches: Stretches) -> None:
        wanted[var] = hull(wanted[var], stretches) if var in wanted else stretches

    for var, stretches in outputs:
        want(var, stretches)
    for eqn in reversed(body.eqns):
        if not any(v in wanted for v in eqn.outputs):
            continue
        offsets = offsets_of(eqn, constants)
        if offsets is not None:
            for var, column in zip(eqn.inputs, offsets, strict=True):
                want(var, () if column is None else _displaced(var, column, wanted[eqn.outputs[0]], spaces))
        elif (slides := sliding_of(eqn)) is not None:
            want(eqn.inputs[0], seen_by(eqn.inputs[0], slides, wanted[eqn.outputs[0]]))
            for var in eqn.inputs[1:]:
                want(var, (None,) * var.rank)
        elif eqn.inputs:
            _want_alike(eqn, spaces, wanted, want)
    return wanted


def _displaced(var: Var, offsets: Offsets, result: Stretches, spaces: Spaces) -> Stretches:
    columns = enumerate(zip(offsets, result, strict=True))
    return tuple(
        spaces[var, d].moved(stretch, offset or 0) if stretch is not None else None for d, (offset, stretch) in columns
    )


def _want_alike(eqn: Eqn, spaces: Spaces, wanted: dict[Var, Stretches], want: Any) -> None:
    """All values of an equation at the same stretch of a factor: the hull of where its results are wanted."""
    rule = rule_of_eqn(eqn)
    assert rule is not None or not any((v, d) in spaces for v in (*eqn.inputs, *eqn.outputs) for d in range(v.rank))
    factors: dict[str, Stretch] = {}
    for var, dims in zip(eqn.outputs, rule.results if rule else (), strict=bool(rule)):
        for names, stretch in zip(dims, wanted.get(var, ()), strict=False):
            if stretch is not None:
                factors[names[0]] = _hull(factors.get(names[0], stretch), stretch)
    for values, sides in ((eqn.outputs, rule.results if rule else None), (eqn.inputs, rule.operands if rule else None)):
        for i, var in enumerate(values):
            want(var, tuple(
                factors.get(sides[i][d][0], OWN) if sides is not None and (var, d) in spaces else None for d in range(var.rank)
            ))  # fmt: skip


def hull(a: Stretches, b: Stretches) -> Stretches:
    return tuple(None if s is None or t is None else _hull(s, t) for s, t in zip(a, b, strict=True))


def _hull(a: Stretch, b: Stretch) -> Stretch:
    return max(a[0], b[0]), max(a[1], b[1])


def own(var: Var, spaces: Spaces) -> Stretches:
    """A device's own block."""
    return tuple(OWN if (var, d) in spaces else None for d in range(var.rank))
