"""The versions of every value on the way through a Program: under which placements it exists by then.

Planning follows them to price what partitioning will write, partitioning to write it; both are this state machine, so what
one predicts the other writes. A value is brought to a placement from the version that is nearest, or made again where that
is cheaper than moving it; all versions on the way are kept for later uses.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from meshjit.core.plan import EquationPlan, equation_plan, rematerializable
from meshjit.core.program import Eqn, Var
from meshjit.core.target import Target
from meshjit.core.types import TensorType
from sharding.floor import least_seconds
from sharding.mesh import BaseMesh
from sharding.placement import normalized
from sharding.reshard import Walk, plan_reshard
from sharding.rule import FactorRule
from sharding.spec import Placement

T = TypeVar("T")


class Walks:
    """Walks between placements on one mesh of a target; every question is answered once."""

    def __init__(self, mesh: BaseMesh, target: Target) -> None:
        self.mesh = mesh
        self.target = target
        self.topology = target.topology
        self.normal = functools.cache(self._normal)
        self.walk = functools.cache(self._walk)
        self.least = functools.cache(self._least)
        self.remade: dict[object, tuple[Eqn, EquationPlan | None]] = {}  # an equation's identity holds as long as it lives

    def _normal(self, placement: Placement) -> Placement:
        return normalized(placement, self.mesh)

    def _walk(self, type: TensorType, source: Placement, target: Placement) -> Walk:
        return plan_reshard(type.shape, type.dtype.itemsize, source, target, self.mesh, self.topology)

    def _least(self, type: TensorType, source: Placement, target: Placement) -> float:
        ends = self.normal(source), self.normal(target)
        return least_seconds(type.shape, type.dtype.itemsize, *ends, self.mesh, self.topology)

    def nearest(self, type: TensorType, sources: Iterable[Placement], target: Placement) -> Walk:
        """The walk from that of the versions from which it takes least time; of equals the oldest."""
        best: Walk | None = None
        for source in sources:
            if best is None or self.least(type, source, target) < best.seconds:
                walk = self.walk(type, source, target)
                best = walk if best is None or walk.seconds < best.seconds else best
        assert best is not None, "a value has a version from the start"
        return best

    def spread_again(self, eqn: Eqn, rule: FactorRule, placement: Placement) -> EquationPlan | None:
        """How an equation with this rule is computed so that its result has this placement; None where shards of a merged dim are
        uneven. Copies of one equation share a plan."""
        key = eqn.identity, rule, placement
        known = self.remade.get(key)
        if known is None:
            known = self.remade[key] = eqn, self._spread_again(rule, placement)
        return known[1]

    def _spread_again(self, rule: FactorRule, placement: Placement) -> EquationPlan | None:
        spread = rule.project(rule.results[0], placement, self.mesh)
        plan = equation_plan(rule, spread, self.mesh)
        sides = zip(rule.operands, plan.operands, strict=True)
        alike = all(spread.items() >= rule.project(dims, p, self.mesh).items() for dims, p in sides)
        return plan if plan.results[0] == placement and alike else None


class Versions(Generic[T]):
    """`versions[var][placement]` stands for the value under that placement: a local Var, or None where costs alone count."""

    def __init__(self, walks: Walks) -> None:
        self.walks = walks
        self.versions: dict[Var, dict[Placement, T]] = {}
        self.cheap: dict[Var, int] = {}  # values that can be computed again → bytes of all values on the way
        self.makers: dict[Var, tuple[Eqn, EquationPlan]] = {}

    def travel(self, var: Var, walk: Walk, local: T) -> Sequence[T]:
        """What stands for the value after each step of the walk from `local`."""
        raise NotImplementedError

    def compute(self, eqn: Eqn, plan: EquationPlan, operands: Sequence[T]) -> Sequence[T]:
        """The results of an equation on operands that are where the plan wants them."""
        raise NotImplementedError

    def remake(self, eqn: Eqn, plan: EquationPlan) -> T:
        """The result of an equation computed once more."""
        return self.compute(eqn, plan, [self.operand(v, p) for v, p in zip(eqn.inputs, plan.operands, strict=True)])[0]

    def addend(self, local: T, placement: Placement) -> T:
        """A whole value, placed like this but for the axes over which it is partial, as an addend of itself."""
        raise NotImplementedError

    def enter(self, var: Var, placement: Placement, local: T) -> None:
        """The only version of a new value."""
        self.versions[var] = {placement: local}

    def note_maker(self, eqn: Eqn, plan: EquationPlan) -> None:
        size = rematerializable(eqn, plan.rule, self.cheap)
        if size is not None:
            self.cheap[eqn.outputs[0]], self.makers[eqn.outputs[0]] = size, (eqn, plan)

    def with_makers(self, values: Sequence[Var]) -> Iterator[Var]:
        """The values, and those of which they would be made again."""
        waiting, seen = list(values), set[Var]()
        while waiting:
            var = waiting.pop()
            if var not in seen:
                seen.add(var)
                yield var
                waiting += self.makers[var][0].inputs if var in self.makers else ()

    def operand(self, var: Var, placement: Placement) -> T:
        """A value under a placement; an addend of a whole value is that value."""
        placement = self.walks.normal(placement)
        if placement.partial and not self.has_addends(var, placement):
            placement = placement.without_partial()
        return self.bring(var, placement)

    def has_addends(self, var: Var, placement: Placement) -> bool:
        """Whether a version is partial over all axes over which the placement is."""
        return bool(self.starts(var, placement))

    def starts(self, var: Var, placement: Placement) -> list[Placement]:
        """The versions from which there is a walk: those that are partial over all axes over which the placement is."""
        axes = {*placement.partial}
        return [version for version in self.versions[var] if axes <= {*version.partial}]

    def bring(self, var: Var, placement: Placement) -> T:
        """The version under this placement, brought there from the others if there is none yet."""
        versions, placement = self.versions[var], self.walks.normal(placement)
        if placement.partial and not self.has_addends(var, placement):
            versions[placement] = self.addend(self.bring(var, placement.without_partial()), placement)
        if placement not in versions and var in self.makers:
            self.make_again(var, placement)
        if placement not in versions:
            walk = self.walks.nearest(var.type, self.starts(var, placement), placement)
            locals_ = self.travel(var, walk, versions[walk.placements[0]])
            for between, local in zip(walk.placements[1:], locals_, strict=True):
                versions.setdefault(between, local)
        return versions[placement]

    def bring_results(self, eqn: Eqn, plan: EquationPlan) -> None:
        """Where the plan says that they are brought as soon as they are made."""
        for var, placement in zip(eqn.outputs, plan.brought, strict=True):
            if placement is not None:
                self.bring(var, placement)

    def make_again(self, var: Var, placement: Placement) -> None:
        """A value that depends on nothing, under another placement, unless a part of a version is all that it takes."""
        eqn, first = self.makers[var]
        if eqn.inputs and not self.walks.nearest(var.type, self.versions[var], placement).bytes:
            return
        plan = self.walks.spread_again(eqn, first.rule, placement)
        if plan is not None:
            self.versions[var][placement] = self.remake(eqn, plan)
