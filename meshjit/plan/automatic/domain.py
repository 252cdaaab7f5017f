"""What the planner may choose from: everything, or for large Programs what one mesh axis does while the others stay.

everything on x, y      a factor or a dim may have any axes, in any order
along y, given x        x stays where it is; y goes nowhere, or behind or before the axes of one factor
all as one              all axes together on one factor, or nowhere
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Var
from meshjit.plan.assign import consistent, stays_whole
from meshjit.plan.automatic.spreads import Rooms, Spread, factor_extents, have_use
from meshjit.plan.kinds import Kinds
from sharding.axes import AxisRef, name_of
from sharding.mesh import BaseMesh
from sharding.placement import Placement
from sharding.rule import FactorRule


class Domain(Protocol):
    @property
    def prices(self) -> dict[object, float]:
        """What versions of values were found to cost."""
        ...

    def alike(self, eqn: Eqn, rule: FactorRule) -> object:
        """A key that is equal for two equations whose spreads are the same."""
        ...

    def spreads(self, eqn: Eqn, rule: FactorRule) -> Sequence[Spread]:
        """The ways to spread an equation's factors over axes from which its plan is chosen."""
        ...

    def placements(self, var: Var) -> Sequence[Placement]:
        """The placements from which that of a value is chosen that no equation makes: an input, a loop's carry."""
        ...

    def plan(self, eqn: Eqn, rule: FactorRule, spread: Spread) -> EquationPlan:
        """One object for equal spreads of alike equations."""
        ...

    def partials(self, partial: Sequence[tuple[AxisRef, ...]]) -> Sequence[tuple[AxisRef, ...]]:
        """The axes over which sums may flow through an equation, where its operands are partial over one of these."""
        ...


class Plans:
    """Plans of alike equations are made once."""

    def __init__(self, mesh: BaseMesh, kinds: Kinds) -> None:
        self.mesh, self.kinds = mesh, kinds
        self.prices: dict[object, float] = {}

    def alike(self, eqn: Eqn, rule: FactorRule) -> object:
        return self.kinds.of(eqn, rule)

    def plan(self, eqn: Eqn, rule: FactorRule, spread: Spread) -> EquationPlan:
        return self.kinds.plan(eqn, rule, spread, self.mesh)

    def partials(self, partial: Sequence[tuple[AxisRef, ...]]) -> Sequence[tuple[AxisRef, ...]]:
        return partial


class Everything(Plans):
    def __init__(self, rooms: Rooms, kinds: Kinds) -> None:
        super().__init__(rooms.mesh, kinds)
        self.rooms = rooms

    def spreads(self, eqn: Eqn, rule: FactorRule) -> Sequence[Spread]:
        return self.rooms.spreads(eqn, rule)

    def placements(self, var: Var) -> Sequence[Placement]:
        return self.rooms.placements(var.shape)


@dataclasses.dataclass
class Along:
    """`axes` go together; `eqns` and `vars` say where the others are, nowhere by default."""

    common: Plans
    axes: tuple[str, ...]
    eqns: Mapping[Eqn, EquationPlan]
    vars: Mapping[Var, Placement]

    @property
    def prices(self) -> dict[object, float]:
        return self.common.prices

    def alike(self, eqn: Eqn, rule: FactorRule) -> object:
        return self.common.alike(eqn, rule), id(self.eqns.get(eqn))

    def plan(self, eqn: Eqn, rule: FactorRule, spread: Spread) -> EquationPlan:
        return self.common.plan(eqn, rule, spread)

    def partials(self, partial: Sequence[tuple[AxisRef, ...]]) -> Sequence[tuple[AxisRef, ...]]:
        return partial

    def spreads(self, eqn: Eqn, rule: FactorRule) -> Sequence[Spread]:
        mesh, before = self.common.mesh, self.eqns.get(eqn)
        free = {f: n for f, n in factor_extents(eqn, rule).items() if not stays_whole(eqn, rule.kinds.get(f, ""))}
        base = {f: self._without(axes) for f, axes in before.assignment.items()} if before is not None else {}
        legal: dict[object, Spread] = {}
        for spread in self._options({f: axes for f, axes in base.items() if axes}, free):
            kept = consistent(rule, dict(spread), mesh)
            legal.setdefault(tuple(sorted(kept.items())), kept)
        return list(legal.values())

    def placements(self, var: Var) -> Sequence[Placement]:
        before = self.vars.get(var) or Placement.replicated(var.rank)
        base = {str(d): self._without(axes) for d, axes in enumerate(before.dims)}
        rooms = {str(d): n for d, n in enumerate(var.shape)}
        options = self._options({d: axes for d, axes in base.items() if axes}, rooms)
        return list(dict.fromkeys(Placement(tuple([option.get(d, ()) for d in rooms])) for option in options))

    def _without(self, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        return tuple(axis for axis in axes if axis not in self.axes)

    def _options(
        self, base: dict[str, tuple[AxisRef, ...]], rooms: Mapping[str, int]
    ) -> Iterator[dict[str, tuple[AxisRef, ...]]]:
        sizes = self.common.mesh.shape
        yield base
        for name, room in rooms.items():
            have = base.get(name, ())
            if have_use([sizes[name_of(axis)] for axis in (*have, *self.axes)], room):
                yield {**base, name: (*have, *self.axes)}
                if have:
                    yield {**base, name: (*self.axes, *have)}
