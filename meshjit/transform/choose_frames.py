"""Which values get a frame, and where it begins: the survey before `align`.

A *node* is a dim of a value. Nodes that hold one factor of an equation which treats all places alike belong together:
they have one extent, and get one frame or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.rules import rule_of
from meshjit.core.splat import is_splat
from meshjit.ops.base.constants import constant, iota
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.ops.slicing.update_slice import update_slice
from sharding.rule import FactorRule

Shards = Callable[[Var, int], int]  # over how many shards a dim of a value is spread
Node = tuple[Var, int]


@dataclass(frozen=True)
class Frame:
    """An interior of `extent` elements is the part from `begin` on of a value of `whole`."""

    begin: int
    extent: int
    whole: int


@dataclass
class _Group:
    """Nodes that belong together: what takes them from a whole or puts them into one, and what else touches them."""

    nodes: list[Node]
    entries: dict[Node, list[int]] = field(default_factory=dict[Node, list[int]])  # whole → where slices of it begin
    exits: list[tuple[Node, int, int]] = field(default_factory=list[tuple[Node, int, int]])  # node, begin, whole
    masked: list[Node] = field(default_factory=list[Node])  # once for each reduction
    strangers: list[Node] = field(default_factory=list[Node])  # once for each user or maker that knows no frames
    shards: set[int] = field(default_factory=set[int])  # of the wholes

    def absorb(self, other: _Group) -> None:
        self.nodes += other.nodes
        for node, begins in other.entries.items():
            self.entries.setdefault(node, []).extend(begins)
        self.exits += other.exits
        self.masked += other.masked
        self.strangers += other.strangers
        self.shards |= other.shards


@dataclass(frozen=True)
class Roles:
    """What the factors of an equation do with places: treat them all alike (the nodes that hold each), or reduce them
    (the operands' nodes, and the kind of the reduction)."""

    alike: dict[str, list[Node]]
    reduced: dict[str, tuple[list[Node], str]]


@dataclass(frozen=True)
class Framing:
    """The frames that save exchanges, per node, and the roles of the equations."""

    frames: dict[Node, Frame] = field(default_factory=dict[Node, Frame])
    roles: dict[Eqn, Roles] = field(default_factory=dict[Eqn, Roles])


def choose_frames(program: Program, shards: Shards) -> Framing:
    if not any(shards(*whole) > 1 for eqn in program.eqns for _, whole, _ in entries(eqn)):
        return Framing()
    survey = _Survey(shards)
    for eqn in program.eqns:
        survey.visit(eqn)
    survey.count_strangers(program)
    chosen = {root: frame for root, group in survey.groups.items() if (frame := _frame(root, group)) is not None}
    found = {node: chosen[root] for node in survey.parents if (root := survey.find(node)) in chosen}
    return Framing(found, survey.roles)


class _Survey:
    """Union-find over nodes."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.parents: dict[Node, Node] = {}
        self.groups: dict[Node, _Group] = {}
        self.known: set[tuple[int, Node]] = set()  # (equation, node) pairs that know frames
        self.roles: dict[Eqn, Roles] = {}

    def find(self, node: Node) -> Node:
        if node not in self.parents:
            self.parents[node] = node
            self.groups[node] = _Group([node])
        root = node
        while self.parents[root] != root:
            root = self.parents[root]
        while self.parents[node] != root:
            self.parents[node], node = root, self.parents[node]
        return root

    def join(self, nodes: Iterable[Node]) -> None:
        """The largest group absorbs the others."""
        roots = dict.fromkeys(map(self.find, nodes))
        largest = max(roots, key=lambda root: len(self.groups[root].nodes))
        for root in roots:
            if root != largest:
                self.parents[root] = largest
                self.groups[largest].absorb(self.groups.pop(root))

    def group(self, node: Node) -> _Group:
        return self.groups[self.find(node)]

    def visit(self, eqn: Eqn) -> None:
        for node, whole, begin in entries(eqn):
            count = self.shards(*whole)
            if count > 1:
                self.group(node).entries.setdefault(whole, []).append(begin)
                self.group(node).shards.add(count)
                self.known.add((id(eqn), node))
        for node, begin, extent in exits(eqn):
            self.group(node).exits.append((node, begin, extent))
            self.known.add((id(eqn), node))
        self.roles[eqn] = roles = roles_of(eqn)
        for nodes in roles.alike.values():
            self.join(nodes)
            self.known.update((id(eqn), node) for node in nodes)
        for nodes, _ in roles.reduced.values():
            self.join(nodes)
            self.group(nodes[0]).masked += nodes
            self.known.update((id(eqn), node) for node in nodes)

    def count_strangers(self, program: Program) -> None:
        for eqn in program.eqns:
            for var in {*eqn.inputs, *eqn.outputs}:
                self._count(id(eqn), var)
        for var in (*program.inputs, *program.outputs):
            self._count(0, var)

    def _count(self, user: int, var: Var) -> None:
        for dim in range(var.rank):
            if (var, dim) in self.parents and (user, (var, dim)) not in self.known:
                self.group((var, dim)).strangers.append((var, dim))


def roles_of(eqn: Eqn) -> Roles:
    out = eqn.outputs[0] if eqn.outputs else None
    if eqn.op is constant and out is not None:
        is_one = bool(eqn.params["value"].size) and is_splat(eqn.params["value"])
        return Roles({str(d): [(out, d)] for d in range(out.rank)} if is_one else {}, {})
    if eqn.op is iota and out is not None:
        return Roles({str(d): [(out, d)] for d in range(out.rank) if d != eqn.params["dimension"]}, {})
    if not _is_plain(eqn):
        return Roles({}, {})
    rule = rule_of(eqn)
    shared = () if rule.is_simple else {name for dim in _dims(rule) if len(dim) > 1 for name in dim}
    kinds, alike, reduced = rule.reductions, dict[str, list[Node]](), dict[str, tuple[list[Node], str]]()
    for name, node in _factors(rule, eqn):
        if name in shared:
            continue
        if name in kinds:
            reduced.setdefault(name, ([], kinds[name]))[0].append(node)
        elif name not in rule.kinds:
            alike.setdefault(name, []).append(node)
    return Roles(alike, reduced)


def _is_plain(eqn: Eqn) -> bool:
    op = eqn.op
    plain = op.partition is None and op.regions is None and op.simulate is None and op.seed is None
    return plain and bool(eqn.inputs) and is_pure(eqn)


def _dims(rule: FactorRule) -> Iterator[tuple[str, ...]]:
    for value in (*rule.operands, *rule.results):
        yield from value


def _factors(rule: FactorRule, eqn: Eqn) -> Iterator[tuple[str, Node]]:
    for dims, var in zip((*rule.operands, *rule.results), (*eqn.inputs, *eqn.outputs), strict=True):
        for d, dim in enumerate(dims):
            for name in dim:
                yield name, (var, d)


def entries(eqn: Eqn) -> list[tuple[Node, Node, int]]:
    """Nodes that the equation takes from a whole: (node, the whole's, where it begins there)."""
    if eqn.op is not slice_:
        return []
    (x,), (y,) = eqn.inputs, eqn.outputs
    columns = enumerate(zip(x.shape, y.shape, eqn.params["start"], eqn.params["strides"], strict=True))
    return [((y, d), (x, d), begin) for d, (n, m, begin, step) in columns if step == 1 and 0 < m < n]


def exits(eqn: Eqn) -> list[tuple[Node, int, int]]:
    """Nodes that the equation puts into a whole: (node, where it begins there, the whole's extent)."""
    if eqn.op is update_slice:
        (whole, var), low = eqn.inputs, eqn.params["start"]
        high = [n - m - a for n, m, a in zip(whole.shape, var.shape, low, strict=True)]
    elif eqn.op is pad:
        var, low = eqn.inputs[0], eqn.params["low"]
        high = [-1 if gap else n for n, gap in zip(eqn.params["high"], eqn.params["interior"], strict=True)]
    elif eqn.op is concatenate:
        dim, extent = eqn.params["dimension"], eqn.outputs[0].shape[eqn.params["dimension"]]
        begins = accumulate((v.shape[dim] for v in eqn.inputs), initial=0)
        return [((v, dim), begin, extent) for v, begin in zip(eqn.inputs, begins, strict=False) if 0 < v.shape[dim] < extent]
    else:
        return []
    out = eqn.outputs[0]
    sides = enumerate(zip(low, high, strict=True))
    return [((var, d), a, out.shape[d]) for d, (a, b) in sides if min(a, b) >= 0 and a + b > 0]


_MEMORY = 16  # how many bytes are touched in the time in which one is sent
_LATENCY = 16384  # how many bytes are sent in the time that a collective takes at least


def _frame(root: Node, group: _Group) -> Frame | None:
    """Where a frame of this group begins at the least cost; None if having none costs no more.

    Costs are in bytes on the wire. A row is what a node's value holds of one place. Touching memory counts, too: wholes
    may have more rows on a device than interiors, and reductions of framed values are masked.
    """
    wholes = {var.shape[dim] for var, dim in group.entries}
    if len(wholes) != 1 or len(group.shards) != 1:
        return None
    extent, (whole,), (count,) = root[0].shape[root[1]], wholes, group.shards
    before, after = -(-extent // count), -(-whole // count)  # rows of a device
    drift = (count - 1) * (after - before)  # of the last shard of an interior against that of the whole
    inner = [(node, begin) for node, begin, n in group.exits if n == whole]
    strange = [*group.strangers, *(node for node, _, n in group.exits if n != whole)]
    touched = sum(map(_row, group.nodes)) * (after - before) + sum(map(_row, group.masked)) * after

    def exchanged(begin: int, late: int) -> float:
        """When the first shard begins at `begin` of a whole, and the last `late` rows before it should."""
        ways = [(node, max(max(b) - begin, 0), max(begin + late - min(b), 0)) for node, b in group.entries.items()]
        ways += [(node, max(b - begin, 0), max(begin + late - b, 0)) for node, b in inner]
        return sum(_row(node) * (up + down) + _LATENCY * ((up > 0) + (down > 0)) for node, up, down in ways)

    def framed(begin: int) -> float:
        rows, ways = begin + max(drift - begin, 0), (begin > 0) + (drift > begin)
        embedded = sum(_row(node) * rows + _LATENCY * ways for node in strange)
        return exchanged(begin, 0) + embedded + touched / _MEMORY

    places = sorted({*(begin for begins in group.entries.values() for begin in begins), *(begin for _, begin in inner)})
    best = min(places, key=framed)
    return Frame(best, extent, whole) if framed(best) < exchanged(0, drift) else None


def _row(node: Node) -> float:
    """Bytes of one place of a dim."""
    var, dim = node
    return var.type.nbytes / max(var.shape[dim], 1)
