"""Dims that are split alike, as Decisions: what splitting them over an axis of the mesh saves, and what it sends.

    y = dot(x, w)      rows of x and y and the factor b of dot belong together over data: b k, k n -> b n
    z = tanh(y)        so do the rows of z

Over one axis, two dims belong together where an equation spreads one factor over that axis which both are dims of. A collective
belongs to the dims that a value had over its axes before, or that the equation contracted whose sum it reduces. Groups that are
alike but for the values' names, as those of equal layers, are one Decision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from meshjit.core.collective import Collective
from meshjit.core.decision import Decision, rounded
from meshjit.core.plan import EquationPlan, Plan, equation_plan
from meshjit.core.program import Eqn, Source, Var
from meshjit.core.region import run_regions, weighted_regions
from meshjit.core.rules import reading_of
from meshjit.plan.cost import Machine
from meshjit.plan.events import Exchange, Move
from meshjit.plan.flow import collectives_of
from sharding.axes import AxisRef, name_of
from sharding.placement import Placement

SHOWN: Final = 4  # arguments that are named, and kinds of collectives
MATRIX: Final = 2
Node: TypeAlias = tuple[Var | Eqn, int | str, str]  # a dim of a value, or a factor of an equation, and an axis


@dataclass
class Group:
    """`dims` are those of arguments; `saved` and `sent` are seconds."""

    axis: str
    arguments: list[tuple[Var, int]] = field(default_factory=list[tuple[Var, int]])
    values: int = 0  # others
    sources: list[Source] = field(default_factory=list[Source])
    saved: float = 0.0
    sent: float = 0.0
    collectives: dict[Any, int] = field(default_factory=dict[Any, int])
    count: int = 1
    tops: list[Node] = field(default_factory=list[Node])  # the dim or factor that stands for each of the groups

    @property
    def alike(self) -> object:
        """The same for groups of equal layers."""
        types = tuple(sorted((str(v.type), d) for v, d in self.arguments))
        places = tuple(sorted({(s.file, s.line) for s in self.sources}))
        return self.axis, types, self.values, places, rounded(self.saved), tuple(sorted(map(str, self.collectives.items())))


def groups(plan: Plan) -> Iterator[Decision]:
    """One Decision for all groups that are alike, in the order of the Program."""
    return (_decision(group, plan) for group in _together(_Finder(plan)))


def decisions_of_dims(plan: Plan) -> Callable[[Var, int, AxisRef], Decision | None]:
    """What gives the Decision of the group that a value's dim is in over an axis; None where it is in none."""
    finder = _Finder(plan)
    decisions = {top: decision for group in _together(finder) for decision in (_decision(group, plan),) for top in group.tops}
    return lambda var, dim, axis: decisions.get(finder.top((var, dim, name_of(axis))))


def _together(finder: _Finder) -> Collection[Group]:
    """The groups, those that are alike as one."""
    together: dict[object, Group] = {}
    for group in finder.groups():
        first = together.setdefault(group.alike, group)
        if first is not group:
            first.arguments += group.arguments
            first.tops += group.tops
            first.count, first.values = first.count + 1, first.values + group.values
            first.saved, first.sent = first.saved + group.saved, first.sent + group.sent
    return together.values()


class _Finder:
    def __init__(self, plan: Plan) -> None:
        assert plan.target is not None
        self.plan, self.machine = plan, Machine(plan.mesh, plan.target)
        self.above: dict[Node, Node] = {}
        self.spread: dict[tuple[Eqn, str], list[Node]] = defaultdict(list)  # factors of an equation that have the axis
        self.makers: dict[Var, Eqn] = {}
        self.saved: dict[Node, float] = {}
        self.sent: list[tuple[Node, Collective, Source | None]] = []
        self._collect(plan, 1.0)

    def groups(self) -> Iterator[Group]:
        every: dict[Node, Group] = {}
        inputs = {*self.plan.program.inputs}
        for node in [*self.above]:
            what, dim, axis = node
            top = self.top(node)
            group = every.setdefault(top, Group(axis, tops=[top]))
            if isinstance(what, Eqn):
                group.saved += self.saved[node]
                group.sources += [] if what.source is None else [what.source]
            elif what in inputs:
                group.arguments.append((what, int(dim)))
            else:
                group.values += 1
        for node, collective, source in self.sent:
            group = every[self.top(node)]
            group.sent += collective.seconds(self.plan.mesh, self.machine.topology)
            key = str(collective), source.line if source is not None else 0
            group.collectives[key] = group.collectives.get(key, 0) + 1
        yield from (group for group in every.values() if group.sources)

    # --- who belongs together -----------------------------------------------------------------------------------------

    def top(self, node: Node) -> Node:
        """The dim or factor that stands for all that belong together with this one."""
        self.above.setdefault(node, node)
        while self.above[node] != node:
            self.above[node] = node = self.above[self.above[node]]
        return node

    def _join(self, one: Node, other: Node) -> None:
        self.above[self.top(other)] = self.top(one)

    def _collect(self, plan: Plan, trips: float) -> None:
        placements = plan.placements
        for eqn, step in zip(plan.program.eqns, plan.equations, strict=True):
            self.makers.update(dict.fromkeys(eqn.outputs, eqn))
            self._equation(eqn, step, placements, trips)
            regions = () if step.block else weighted_regions(eqn)  # iterations of a block send nothing themselves
            for (region, times), body in zip(regions, step.bodies, strict=False):
                self._collect(body, trips * times)
                for i, inner in zip(region.operands, region.program.inputs, strict=True):
                    self._pass(eqn.inputs[i], inner, placements, region.program.inputs.index(inner) in region.sliced)
        for event in plan.events:
            if isinstance(event, Move):
                self._move(event, trips)
            elif isinstance(event, Exchange):
                for each in event.final:
                    self._send(each.times(trips), [n for a in each.axes for n in self.spread[event.eqn, name_of(a)]], event.eqn)

    def _equation(self, eqn: Eqn, step: EquationPlan, placements: Mapping[Var, Placement], trips: float) -> None:
        if run_regions(eqn) or not eqn.inputs:
            return
        sides = [*zip(step.rule.operands, eqn.inputs, strict=True), *zip(step.rule.results, eqn.outputs, strict=True)]
        for factor, axes in step.assignment.items():
            for axis in dict.fromkeys(map(name_of, axes)):
                node = eqn, factor, axis
                self.top(node)
                self.spread[eqn, axis].append(node)
                self.saved[node] = trips * self._gain(eqn, step, factor, axis)
                for dims, var in sides:
                    for d, names in enumerate(dims):
                        if factor in names and axis in _axes_of(placements[var], d):
                            self._join(node, (var, d, axis))

    def _gain(self, eqn: Eqn, step: EquationPlan, factor: str, axis: str) -> float:
        """Seconds of the equation's work without this axis on the factor, beyond those with it."""
        rest = tuple(a for a in step.assignment[factor] if name_of(a) != axis)
        without = equation_plan(step.rule, {**step.assignment, factor: rest}, self.plan.mesh)
        return self._work(eqn, without) - self._work(eqn, equation_plan(step.rule, step.assignment, self.plan.mesh))

    def _work(self, eqn: Eqn, step: EquationPlan) -> float:
        types, places = (*eqn.input_types, *eqn.output_types), (*step.operands, *step.results)
        return self.machine.work(step.rule, types, places, reading_of(eqn))

    def _pass(self, outer: Var, inner: Var, placements: Mapping[Var, Placement], is_slice: bool) -> None:
        """A loop's operand and the input that it is in the body, or of which that is a slice."""
        for d in range(inner.rank):
            for axis in _axes_of(placements[inner], d):
                if axis in _axes_of(placements[outer], d + is_slice):
                    self._join((outer, d + is_slice, axis), (inner, d, axis))

    # --- what is sent -------------------------------------------------------------------------------------------------

    def _move(self, event: Move, trips: float) -> None:
        walk, var = event.walk, event.var
        start, end, maker = walk.placements[0], walk.placements[-1], self.makers.get(var)
        for collective in collectives_of(walk, var.type, self.plan.mesh):
            nodes = list[Node]()
            for axis in map(name_of, collective.axes):
                summed = axis in map(name_of, start.partial_axes) and maker is not None
                nodes += self.spread[maker, axis] if summed and maker is not None else []
                nodes += [(var, d, axis) for place in (start, end) for d in range(var.rank) if axis in _axes_of(place, d)]
            self._send(collective.times(trips), nodes, event.eqn or maker)

    def _send(self, collective: Collective, nodes: Sequence[Node], eqn: Eqn | None) -> None:
        node = next((n for n in nodes if n in self.above), None)
        if node is not None:
            self.sent.append((node, collective, eqn.source if eqn is not None else None))


def _axes_of(placement: Placement, dim: int) -> list[str]:
    return [name_of(axis) for axis in placement.dims[dim]]


# -- in words


def _decision(group: Group, plan: Plan) -> Decision:
    lines = sorted({source.line for source in group.sources})
    size = plan.mesh.shape[group.axis]
    often = f", in {group.count} groups that are alike" if group.count > 1 else ""
    reasons = [f"saves {rounded(group.saved):g} us of work"]
    if group.collectives:
        sent = [f"{_times(count * group.count)}{text}{_at(line)}" for (text, line), count in group.collectives.items()]
        more = f", and {len(sent) - SHOWN} other kinds" if len(sent) > SHOWN else ""
        reasons.append(f"sends {'; '.join(sent[:SHOWN])}{more}")
    source = min(group.sources, key=lambda source: source.line)
    choice = f"split over {group.axis} in {size}, in {_lines(lines)}{often}"
    return Decision("group", _subject(group), choice, tuple(reasons), rounded(group.sent), source=str(source))


def _times(count: int) -> str:
    return f"{count} times " if count > 1 else ""


def _at(line: int) -> str:
    return f" at line {line}" if line else ""


def _lines(lines: Sequence[int]) -> str:
    return f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"


def _subject(group: Group) -> str:
    """`rows of x, columns of w, and 12 other values`."""
    names = [f"{_dim(var, d)} of {var.hint or 'an argument'}" for var, d in group.arguments]
    more = [f"{len(names) - SHOWN} more arguments"] if len(names) > SHOWN else []
    others = [f"{group.values} {'other ' if names else ''}value{'s' if group.values > 1 else ''}"] if group.values else []
    parts = [*names[:SHOWN], *more, *others]
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1] if parts else "a sum"


def _dim(var: Var, d: int) -> str:
    return ("rows", "columns")[d] if var.rank == MATRIX else f"dim {d}"
