"""Which values get a frame, and where it begins: the survey before `align`.

A *value dim* is one dim of one value. Value dims that hold one factor of an equation which treats all places alike belong
together: they have one extent, and get one frame or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from meshjit.core.access import Moved, Places, Reduced, Start
from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.rules import ValueDim, access_of, alike, dims_of_factors, takes_other_extents

Shards = Callable[[Var, int], int]  # over how many shards a dim of a value is spread


@dataclass(frozen=True)
class Frame:
    """An interior of `extent` elements is the part from `begin` on of a value of `whole`."""

    begin: int
    extent: int
    whole: int


@dataclass
class _Group:
    """Value dims that get one frame or none: their slices from wholes, their updates of wholes, and their other uses."""

    nodes: list[ValueDim]
    entries: dict[ValueDim, list[int]] = field(default_factory=dict[ValueDim, list[int]])  # whole → where slices of it begin
    exits: list[tuple[ValueDim, int, int]] = field(default_factory=list[tuple[ValueDim, int, int]])  # node, begin, whole
    masked: list[ValueDim] = field(default_factory=list[ValueDim])  # once for each reduction
    unframed_uses: list[ValueDim] = field(default_factory=list[ValueDim])  # producers and consumers that need the unframed value
    shards: set[int] = field(default_factory=set[int])  # of the wholes

    def absorb(self, other: _Group) -> None:
        self.nodes += other.nodes
        for node, begins in other.entries.items():
            self.entries.setdefault(node, []).extend(begins)
        self.exits += other.exits
        self.masked += other.masked
        self.unframed_uses += other.unframed_uses
        self.shards |= other.shards


@dataclass(frozen=True)
class Roles:
    """What the factors of an equation do with places: treat them all alike (the nodes that hold each), or reduce them
    (the operands' nodes, and the kind of the reduction)."""

    alike: dict[str, list[ValueDim]]
    reduced: dict[str, tuple[list[ValueDim], str]]


@dataclass(frozen=True)
class Framing:
    """The frames that save exchanges, per node, and the roles of the equations."""

    frames: dict[ValueDim, Frame] = field(default_factory=dict[ValueDim, Frame])
    roles: dict[Eqn, Roles] = field(default_factory=dict[Eqn, Roles])


@dataclass(frozen=True)
class BorderPrices:
    """Seconds: to start sending a border, per byte that is sent, and per byte of memory that is touched."""

    start: float
    send: float
    touch: float

    def sent(self, nbytes: float, borders: int) -> float:
        return nbytes * self.send + borders * self.start


def choose_frames(program: Program, shards: Shards, prices: BorderPrices) -> Framing:
    """The frames of one Program, without those that it runs."""
    moving = [eqn for eqn in program.eqns if eqn.op.aligned is not None]
    if not any(m.takes and shards(*m.operand) > 1 for eqn in moving for m in moves(eqn)):
        return Framing()
    survey = _Survey(shards)
    for eqn in program.eqns:
        survey.visit(eqn)
    survey.count_unframed_uses(program)
    chosen = {root: frame for root, group in survey.groups.items() if (frame := _frame(root, group, prices)) is not None}
    frames = {node: chosen[root] for node in survey.parents if (root := survey.find(node)) in chosen}
    return Framing(frames, survey.roles)


class _Survey:
    """Union-find over nodes."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.parents: dict[ValueDim, ValueDim] = {}
        self.groups: dict[ValueDim, _Group] = {}
        self.framed_uses: set[tuple[int, ValueDim]] = set()  # (equation, node): equations that can work on frames
        self.roles: dict[Eqn, Roles] = {}

    def find(self, node: ValueDim) -> ValueDim:
        if node not in self.parents:
            self.parents[node] = node
            self.groups[node] = _Group([node])
        root = node
        while self.parents[root] != root:
            root = self.parents[root]
        while self.parents[node] != root:
            self.parents[node], node = root, self.parents[node]
        return root

    def join(self, nodes: Iterable[ValueDim]) -> None:
        """The largest group absorbs the others."""
        roots = dict.fromkeys(map(self.find, nodes))
        largest = max(roots, key=lambda root: len(self.groups[root].nodes))
        for root in roots:
            if root != largest:
                self.parents[root] = largest
                self.groups[largest].absorb(self.groups.pop(root))

    def group(self, node: ValueDim) -> _Group:
        return self.groups[self.find(node)]

    def visit(self, eqn: Eqn) -> None:
        for move in moves(eqn):
            part, whole = move.result, move.operand
            if move.takes and (count := self.shards(*whole)) > 1:
                self.group(part).entries.setdefault(whole, []).append(-move.begin)
                self.group(part).shards.add(count)
                self.framed_uses.add((id(eqn), part))
            if move.puts:
                self.group(move.operand).exits.append((move.operand, move.begin, extent_of(move.result)))
                self.framed_uses.add((id(eqn), move.operand))
        self.roles[eqn] = roles = roles_of(eqn)
        for nodes in roles.alike.values():
            self.join(nodes)
            self.framed_uses.update((id(eqn), node) for node in nodes)
        for nodes, _ in roles.reduced.values():
            self.join(nodes)
            self.group(nodes[0]).masked += nodes
            self.framed_uses.update((id(eqn), node) for node in nodes)

    def count_unframed_uses(self, program: Program) -> None:
        for eqn in program.eqns:
            for var in {*eqn.inputs, *eqn.outputs}:
                self._count(id(eqn), var)
        for var in (*program.inputs, *program.outputs):
            self._count(0, var)

    def _count(self, user: int, var: Var) -> None:
        for dim in range(var.rank):
            if (var, dim) in self.parents and (user, (var, dim)) not in self.framed_uses:
                self.group((var, dim)).unframed_uses.append((var, dim))


def roles_of(eqn: Eqn) -> Roles:
    """None of equations that take parts or put them into wholes, and none where values have to be as they are."""
    if eqn.op.regions is not None or eqn.op.seed is not None or not is_pure(eqn) or any(m.takes or m.puts for m in moves(eqn)):
        return Roles({}, {})
    places = dict[ValueDim, list[Places]]()
    for access in access_of(eqn):
        for var, dims in zip(eqn.inputs, access.operands, strict=True):
            for d, each in enumerate(dims):
                places.setdefault((var, d), []).append(each)
    reduced = dict[str, tuple[list[ValueDim], str]]()
    for name, nodes in dims_of_factors(eqn).items():
        kinds = {p.kind if isinstance(p, Reduced) else None for node in nodes for p in places.get(node, [None])}
        if len(kinds) == 1 and (kind := kinds.pop()) is not None and takes_other_extents(eqn, name):
            reduced[name] = nodes, kind
    return Roles(alike(eqn), reduced)


class Move(NamedTuple):
    """A dim of operand `number` whose first element an equation puts at place `begin` of a dim of the result."""

    number: int
    operand: ValueDim
    result: ValueDim
    begin: int

    @property
    def takes(self) -> bool:
        """Whether the result is a part of the operand."""
        return _is_part(self.result, -self.begin, self.operand)

    @property
    def puts(self) -> bool:
        """Whether the operand becomes a part of the result."""
        return _is_part(self.operand, self.begin, self.result)


def moves(eqn: Eqn) -> list[Move]:
    """The dims whose elements the equation moves by a number of places."""
    if eqn.op.aligned is None:
        return []
    (out,), (access,) = eqn.outputs, access_of(eqn)
    return [
        Move(i, (eqn.inputs[i], d), (out, places.dim), -places.by)
        for i, dims in enumerate(access.operands)
        for d, places in enumerate(dims)
        if isinstance(places, Moved) and not isinstance(places.by, Start) and not places.in_ring
    ]


def _is_part(part: ValueDim, begin: int, whole: ValueDim) -> bool:
    return 0 < extent_of(part) < extent_of(whole) and 0 <= begin <= extent_of(whole) - extent_of(part)


def extent_of(node: ValueDim) -> int:
    return node[0].shape[node[1]]


def _frame(root: ValueDim, group: _Group, prices: BorderPrices) -> Frame | None:
    """Where a frame of this group begins at the least cost; None if having none costs no more.

    A row is what a node's value holds of one place. Touching memory counts, too: wholes may have more rows on a device than
    interiors, and reductions of framed values are masked.
    """
    wholes = {var.shape[dim] for var, dim in group.entries}
    if len(wholes) != 1 or len(group.shards) != 1:
        return None
    extent, (whole,), (count,) = root[0].shape[root[1]], wholes, group.shards
    before, after = -(-extent // count), -(-whole // count)  # rows of a device
    drift = (count - 1) * (after - before)  # of the last shard of an interior against that of the whole
    inner = [(node, begin) for node, begin, n in group.exits if n == whole]
    unframed = [*group.unframed_uses, *(node for node, _, n in group.exits if n != whole)]
    touched = sum(map(_row, group.nodes)) * (after - before) + sum(map(_row, group.masked)) * after

    def exchanged(begin: int, late: int) -> float:
        """When the first shard begins at `begin` of a whole, and the last `late` rows before it should."""
        ways = [(node, max(max(b) - begin, 0), max(begin + late - min(b), 0)) for node, b in group.entries.items()]
        ways += [(node, max(b - begin, 0), max(begin + late - b, 0)) for node, b in inner]
        return sum(prices.sent(_row(node) * (up + down), (up > 0) + (down > 0)) for node, up, down in ways)

    def framed(begin: int) -> float:
        rows, ways = begin + max(drift - begin, 0), (begin > 0) + (drift > begin)
        embedded = sum(prices.sent(_row(node) * rows, ways) for node in unframed)
        return exchanged(begin, 0) + embedded + touched * prices.touch

    places = sorted({*(begin for begins in group.entries.values() for begin in begins), *(begin for _, begin in inner)})
    best = min(places, key=framed)
    return Frame(best, extent, whole) if framed(best) < exchanged(0, drift) else None


def _row(node: ValueDim) -> float:
    """Bytes of one place of a dim."""
    var, dim = node
    return var.type.nbytes / max(var.shape[dim], 1)
