"""A Program on a mesh as a Problem: its decisions as variables, what they cost together as tables.

Decisions are how the factors of each equation are spread over axes, and where each value lies that no equation makes: inputs,
outputs, what goes into loops and comes out of them. What a decision costs by itself is the work of the equation, and what its
op's own rule sends. What decisions cost together is bringing values from where they are made to where they are read:

    %y = dot(%x, %w)      decisions: %x, %w, dot, tanh, the output
    %z = tanh(%y)         tables: (%x, dot), (%w, dot), (dot, tanh), (tanh, output)

A value with several uses has a variable of its own, the set of placements under which it exists: what is brought for one use is
there for another. All prices are those of `plan/cost.py`. Partial sums may flow through linear equations as in `plan/delay.py`.
So the cost of an assignment is never more than that of the plan that `prescribe` makes of it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from meshjit.core.effects import is_pure
from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region, run_regions, weighted_regions
from meshjit.plan.automatic.allowed_plans import AllowedPlans, Sums
from meshjit.plan.automatic.by_choice import ByChoice
from meshjit.plan.automatic.decisions import Decision, Demands, Effects, Kind, Sides, Value
from meshjit.plan.automatic.domain import Domain, Everything
from meshjit.plan.automatic.eliminate import TooWide
from meshjit.plan.automatic.layers import Copies, alike_equations, alike_inputs, copies_of, separate_parts
from meshjit.plan.automatic.price_list import PriceList
from meshjit.plan.automatic.problem import Problem
from meshjit.plan.automatic.spreads import rooms_of
from meshjit.plan.automatic.tables import Tables
from meshjit.plan.automatic.versions import Pin, VersionPrices, pin_of
from meshjit.plan.automatic.width import least_entries
from meshjit.plan.cost import Machine
from meshjit.plan.graph import Annotations, Flattened
from meshjit.plan.uses import Uses
from sharding.axes import name_of
from sharding.placement import Placement
from sharding.rule import FactorRule

NO_TIES: Final[Mapping[int, int]] = {}
MOST_VERSIONS: Final = 3  # placements of one value besides its home


class Model:
    """Of a Program whose graph is `flat`. `ties`: output → input that it is placed like. `domain`: what may be chosen.
    `bounds`: bringing values is priced by these, and not in the tables yet. `is_whole`: every value is there, as memory asks;
    else one of those that are copies in equal layers. `loops`: those in whose bodies ops send
    nothing, and, unless it `moves`, nobody."""

    def __init__(
        self,
        program: Program,
        flat: Flattened,
        machine: Machine,
        annotations: Annotations,
        ties: Mapping[int, int] = NO_TIES,
        domain: Domain | None = None,
        versions: int = MOST_VERSIONS,
        estimates: bool = False,
        joins: bool = False,
        bounds: PriceList | None = None,
        is_whole: bool = True,
        loops: Collection[Eqn] = (),
        moves: bool = True,
    ) -> None:
        self.program, self.flat, self.machine, self.annotations, self.ties = program, flat, machine, annotations, ties
        self.domain = domain or Everything(rooms_of(program, flat, machine.mesh), machine.kinds)
        self.estimates, self.joins, self.is_whole = estimates, joins, is_whole
        self.problem = Problem()
        self.loops, self.moves = loops, moves
        self.sides: dict[Eqn, Sides] = {}  # of those loops
        self.free: Sides | None = None  # the one whose body it is at
        self.decisions: list[Decision] = []
        self.values: dict[Var, Value] = {}
        self.copies: dict[Var, Var] = {}  # values that are not there → those that they are copies of
        self.collectors: dict[Var, Decision] = {}  # of what loops carry, that which may be a partial sum
        self.repeated: dict[object, Decision] = {}  # by kind of repeat and position in it
        self.kinds: dict[object, Kind] = {}  # likewise
        self.allowed = AllowedPlans(self.domain, machine, flat)
        self.effects: dict[object, Effects] = {}  # by equation and list of plans
        self.places = 1
        self.at = -1  # the number of the equation in its Program
        self.parts: dict[Eqn, Eqn] = {}  # parts of equations that are decided separately → the equation
        self.tables = Tables(self.problem, versions, bounds)
        self.made_anywhere: dict[Var, tuple[Decision, Demands] | None] = {}  # values made of nothing, with their first reader
        self.pooled = alike_inputs(program, annotations, alike_equations(program))
        prices = VersionPrices(machine, program, estimates, self.domain.prices)
        if bounds is not None:
            least = least_entries(program, self.count_of_input, self.allowed.count, bounds.most)
            if least > bounds.most:
                raise TooWide(f"tables of {least:,} entries or more")
        rents = Counter([*range(len(program.inputs)), *ties.values()])
        inputs = [self._input(i, rents[i]) for i in range(len(program.inputs))]
        for var, home in zip(program.inputs, inputs, strict=True):
            self._made(var, home, 0, 1.0, prices)
        self._equations(program, 1.0, prices)
        self.outputs: list[Decision] = []
        self.at = len(program.eqns)
        for i, (var, spec) in enumerate(zip(program.outputs, annotations.outputs, strict=True)):
            pin = pin_of(spec, var.rank, machine.mesh)
            decision = inputs[ties[i]] if i in ties else self._source(var, pin, 1)
            self._read(var, decision, -1, ByChoice((p,) for p in decision.placements))
            self.outputs.append(decision)
        self.tables.decisions(self.decisions, self.kinds, machine)
        self.tables.values(self.values)

    def count_of_input(self, i: int) -> int:
        """How many placements an input may have."""
        return len(set(map(self.machine.normal, self._placements(self.program.inputs[i], self._input_pin(i)))))

    def key(self, choices: Mapping[int, int] | Sequence[int]) -> tuple[int, ...]:
        """The same for choices that lead to the same plan."""
        return tuple([id(d.spreads[choices[d.number]]) if d.spreads else choices[d.number] for d in self.decisions])

    def without_rent(self) -> Problem:
        """The same choices where the bytes of arguments and results cost nothing."""
        problem = Problem()
        problem.sizes, problem.tables = self.problem.sizes, dict(self.problem.tables)
        for number, costs in self.tables.rents.items():
            problem.tables[number,] = problem.tables[number,] - costs
        return problem

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _decision(self, costs: Sequence[float], **of: Any) -> Decision:
        decision = Decision(self.problem.variable(costs), **of)
        self.decisions.append(decision)
        return decision

    def _input(self, i: int, rents: int) -> Decision:
        """Where an input of the Program lies; parameters of equal layers lie alike."""
        var, pool = self.program.inputs[i], self.pooled.get(self.program.inputs[i])
        decision = self.repeated.get(pool) if pool is not None else None
        if decision is None:
            decision = self._source(var, self._input_pin(i), rents)
            self.repeated[pool if pool is not None else var] = decision
        else:
            decision.vars.append(var)
            decision.rents += rents
        return decision

    def _source(self, var: Var, pin: Pin | None = None, rents: int = 0) -> Decision:
        """The decision where a value lies, that pays rent so often."""
        placements = self._placements(var, pin)
        return self._decision([0.0] * len(placements), vars=[var], placements=placements, rents=rents)

    def _placements(self, var: Var, pin: Pin | None) -> Sequence[Placement]:
        """Those that the pin allows."""
        placements = [p for p in self.domain.placements(var) if pin is None or pin.allows(p)]
        return placements if pin is None or placements else [pin.placement]

    def _input_pin(self, i: int) -> Pin | None:
        return pin_of(self.annotations.inputs[i], self.program.inputs[i].rank, self.machine.mesh)

    def _made(
        self,
        var: Var,
        maker: Decision,
        result: int,
        weight: float,
        prices: VersionPrices,
        homes: ByChoice[Placement] | None = None,
    ) -> None:
        homes = ByChoice(map(self.machine.normal, maker.placements)) if homes is None else homes
        self.values[var] = Value(var, maker, result, weight, prices, homes, self.at)

    def _read(self, var: Var, by: Decision, operand: int, demands: Demands) -> None:
        if var in self.made_anywhere:
            if self.made_anywhere[var] is None:
                self.made_anywhere[var] = by, demands
            return
        if var in self.copies or (self.free is not None and not self.moves):
            return
        self.values[var].uses.append((by, operand, demands))
        if not self.joins:
            self.values[var].times = (*self.values[var].times, self.at)

    def _collector(self, var: Var) -> Decision:
        """Where a carry lies that may only collect: then it may be a partial sum, which is reduced after the loop."""
        whole = list(self.domain.placements(var))
        names = [name for name, size in self.machine.mesh.shape.items() if size > 1]
        sums = [axes for n in range(1, len(names) + 1) for axes in itertools.combinations(names, n)]
        partial = [
            self.machine.normal(Placement(p.dims, tuple((axis, "sum") for axis in axes)))
            for p in whole
            for axes in sums
            if {name_of(axis) for axis in p.axes()}.isdisjoint(axes)
        ]
        placements = [*whole, *dict.fromkeys(partial)]
        return self._decision([0.0] * len(placements), vars=[var], placements=placements, flows=True)

    # --- equations ----------------------------------------------------------------------------------------------------

    def _equations(self, program: Program, weight: float, prices: VersionPrices) -> None:
        uses, layers = self.machine.uses_of(program), alike_equations(program)
        separate, copies = separate_parts(program), Copies() if self.is_whole else copies_of(program)
        self.copies.update(copies.values)
        for at, eqn in enumerate(program.eqns):
            self.at = at
            if at in copies.equations:
                self._copy(eqn, program.eqns[copies.equations[at]], (id(program), *layers[at], 0))
            elif eqn.op.regions is not None and run_regions(eqn) and eqn.op.pinned is None:
                self._regions(eqn, weight, prices)
            elif self.joins and not eqn.inputs and is_pure(eqn):
                self.made_anywhere.update(dict.fromkeys(eqn.outputs))
            elif eqn.outputs:
                parts = separate.get(at, (eqn,))
                for n, part in enumerate(parts):
                    self._equation(part, (id(program), *layers[at], n) if at in layers else part, uses, weight, prices)
                self.parts.update(dict.fromkeys(parts, eqn) if len(parts) > 1 else ())

    def _equation(self, eqn: Eqn, key: object, uses: Uses, weight: float, prices: VersionPrices) -> None:
        decision = self.repeated.get(key)
        if decision is None:
            decision = self._joined(eqn, weight) if self.joins else None
            if decision is None:
                decision = self._decided(eqn, uses, weight)
            else:
                self._join(decision, eqn, weight)
            self.repeated[key] = decision
            self.kinds[key] = decision.latest
        kind = self.kinds[key]
        kind.count += 1
        if self.free is not None:
            self.free.decisions.append(decision)
        decision.eqns.append((eqn, kind.effects.spreads))
        for i, var in enumerate(eqn.inputs):
            self._read(var, decision, kind.number + i, kind.effects.demands[i])
        for i, var in enumerate(eqn.outputs):
            self._made(var, decision, kind.number + i, weight, prices, kind.effects.homes[i])

    def _copy(self, eqn: Eqn, first: Eqn, key: object) -> None:
        """One more equation whose results are copies of those of the first."""
        decision, kind = self.repeated[key], self.kinds[key]
        kind.count += 1
        decision.eqns.append((eqn, kind.effects.spreads))
        for i, var in enumerate(eqn.inputs):
            if var not in self.copies:
                self._read(var, decision, kind.number + i, kind.effects.demands[i])
        for var in first.outputs:
            self.values[var].count += 1

    def _value(self, var: Var) -> Value | None:
        return self.values.get(self.copies.get(var, var))

    def _decided(self, eqn: Eqn, uses: Uses, weight: float) -> Decision:
        plans, spreads = self.allowed.with_sums(eqn, list(self._flowing(eqn, uses)) if eqn.op.pinned is None else [])
        decision = self._decision([0.0] * len(plans), plans=plans, spreads=spreads)
        decision.flows = any(r.partial for plan in plans for r in plan.results)
        decision.dims = self._dims(eqn) if self.joins else None
        self._join(decision, eqn, weight, plans, spreads)
        return decision

    def _join(
        self,
        decision: Decision,
        eqn: Eqn,
        weight: float,
        plans: list[EquationPlan] | None = None,
        spreads: list[EquationPlan] | None = None,
    ) -> None:
        """One more equation in the decision, with what it costs, makes and reads by choice."""
        key = self.machine.kinds.of(eqn, self.allowed.rule(eqn)), id(decision.plans), self.free is None
        effects = self.effects.get(key)
        if effects is None:
            if plans is None or spreads is None:
                rule = self.allowed.rule(eqn)
                plans = spreads = [self.domain.plan(eqn, rule, _spread(rule, plan)) for plan in decision.plans]
            effects = self.effects[key] = self._effects(eqn, plans, spreads)
        decision.latest = Kind(decision.number, self.places, weight, effects)
        self.places += len(eqn.inputs) + len(eqn.outputs)

    def _effects(self, eqn: Eqn, plans: list[EquationPlan], spreads: list[EquationPlan]) -> Effects:
        effects, normal = [self.machine.effect(eqn, plan) for plan in spreads], self.machine.normal
        costs = np.array([e.work + (e.exchange.moving if self.free is None else 0.0) for e in effects])
        homes = [ByChoice(normal(plan.results[i]) for plan in plans) for i in range(len(eqn.outputs))]
        demands: list[Demands] = []
        for i in range(len(eqn.inputs)):
            requests = [[normal(p) for n, p in e.exchange.requests if n == i] for e in effects]
            demands.append(ByChoice((normal(p.operands[i]), *more) for p, more in zip(plans, requests, strict=True)))
        return Effects(costs, spreads, homes, demands)

    def _dims(self, eqn: Eqn) -> Any:
        """The factors of the result's dims, if the equation goes element by element."""
        rule = self.allowed.rule(eqn)
        plain = rule.is_passthrough and rule.is_simple and len(eqn.outputs) == 1 and not eqn.op.exchanges and is_pure(eqn)
        return (rule.results[0], eqn.outputs[0].shape) if plain and eqn.op.seed is None and eqn.op.pinned is None else None

    def _joined(self, eqn: Eqn, weight: float) -> Decision | None:
        """The decision of the equation that made an operand of the same shape."""
        dims = self._dims(eqn)
        if dims is None:
            return None
        for var, own in zip(eqn.inputs, self.allowed.rule(eqn).operands, strict=True):
            value = self._value(var)
            if (
                value is not None
                and value.maker.dims == dims
                and own == dims[0]
                and value.weight == weight
                and not value.maker.flows
            ):
                return value.maker
        return None

    def _flowing(self, eqn: Eqn, uses: Uses) -> Iterator[Sums]:
        """Operands through which partial sums may flow together, and over which axes; see `Delays.accepted`."""
        if not is_pure(eqn) or any(kind != "sum" for kind in self.allowed.rule(eqn).reductions.values()) or len(eqn.outputs) != 1:
            return
        for every in eqn.op.sum_groups(eqn.input_types, eqn.params):
            group = tuple([i for i in every if eqn.inputs[i] not in uses.zeros])
            together = [eqn.inputs[i] for i in group]
            values = [value for v in together if (value := self._value(v)) is not None]
            if not group or len(values) < len(together) or not all(value.maker.flows for value in values):
                continue
            if sum(v.type.nbytes for v in eqn.outputs) > sum(v.type.nbytes for v in together):
                if not uses.addends.issuperset((*together, *eqn.outputs)):
                    continue
            elif any(uses.counts[v] != eqn.inputs.count(v) for v in together):
                continue
            homes = [p for value in values for p in value.homes.different]
            partial = {p.partial_axes for p in homes if p.partial_kind == "sum"}
            yield group, list(self.domain.partials(sorted(partial, key=str)))

    # --- loops and branches -------------------------------------------------------------------------------------------

    def _regions(self, eqn: Eqn, weight: float, prices: VersionPrices) -> None:
        carries = {region.operands[i]: region.program.inputs[i] for region in run_regions(eqn) for i, _ in region.carried}
        adding = {v for region in run_regions(eqn) for v in self.machine.uses_of(region.program).addends}
        homes: dict[int, Decision] = {}  # by operand that is carried
        results: dict[int, Decision] = {}
        at = self.at
        for region, times in weighted_regions(eqn):
            inside = VersionPrices(self.machine, region.program, self.estimates, self.domain.prices)
            sides = self.sides.setdefault(eqn, Sides(weight)) if eqn in self.loops else None
            for i, (operand, inner) in enumerate(zip(region.operands, region.program.inputs, strict=True)):
                home = homes.get(operand) if operand in carries else None
                if home is None:
                    home = self._collector(inner) if carries.get(operand) in adding else self._source(inner)
                    outer = [p.stacked() if i in region.sliced else p.without_partial() for p in home.placements]
                    self.at = at
                    self._read(eqn.inputs[operand], home, -1, ByChoice((p,) for p in outer))
                if operand in carries:
                    homes[operand] = home
                    self.collectors.update({inner: home} if home.flows else ())
                self.at = -1
                self._made(inner, home, 0, weight * times, inside)
                if sides is not None:
                    sides.inputs.append(home)
            self.free = sides
            self._equations(region.program, weight * times, inside)
            self._results(eqn, at, region, homes, results, weight, prices)
            self.free = None

    def _results(
        self,
        eqn: Eqn,
        at: int,
        region: Region,
        homes: Mapping[int, Decision],
        results: dict[int, Decision],
        weight: float,
        prices: VersionPrices,
    ) -> None:
        carried = {output: homes[region.operands[i]] for i, output in region.carried}
        for i, (result, inner) in enumerate(zip(region.results, region.program.outputs, strict=True)):
            home = carried.get(i) or (results.get(result) if result is not None else None) or self._source(inner)
            self.at = len(region.program.eqns)
            self._read(inner, home, -1, ByChoice((p,) for p in home.placements))
            if self.free is not None:
                self.free.outputs.append(home)
            if result is not None and result not in results:
                results[result] = home
                self.at = at
                placements = [p.stacked() if i in region.stacked else p for p in home.placements]
                self._made(eqn.outputs[result], home, 1, weight, prices, ByChoice(map(self.machine.normal, placements)))


def _spread(rule: FactorRule, plan: EquationPlan) -> dict[str, Any]:
    names = {name for value in (*rule.operands, *rule.results) for dim in value for name in dim}
    return {name: axes for name, axes in plan.assignment.items() if name in names and axes}
