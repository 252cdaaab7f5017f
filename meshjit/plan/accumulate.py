"""Carries that only collect: `total = total + partial sum`, again and again, is reduced once, after the loop.

    scan(%zero, %xs) {body: %g = dot(..) partial sum(x);  %t2 = add(%t, %g);  return %t2}

The path from a carry's input to its output must be a chain of equations linear in it, each the only use of its value,
and every addend on the path must be partial over the same axes. Then the carry may be partial over them too. A carry that
is read inside the loop (such as a momentum that updates parameters) must be reduced in every iteration, so it is no accumulator.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region, expected_trips
from meshjit.plan.delay import Delays, PartialAxes, Price
from meshjit.plan.uses import USES_OF_OUTPUT
from sharding.axes import axes_text, overlap
from sharding.spec import Placement


def accumulators(region: Region, delays: Delays, placements: Mapping[Var, Placement]) -> dict[int, Placement]:
    """Inputs of the region that might stay partial, with the placement they would have. Planning has to confirm it."""
    return {i: there for i, there in considered(region, delays, placements) if isinstance(there, Placement)}


def considered(
    region: Region, delays: Delays, placements: Mapping[Var, Placement]
) -> Iterator[tuple[int, Placement | str]]:
    """Inputs of the region to which partial sums are added: the placement that they might have, or why that cannot be."""
    users, seen = _users(region.program), set[Var]()
    for i, output in region.carried:
        way = _way(region.program.inputs[i], region.program.outputs[output], users, delays, seen)
        dims = placements[region.program.inputs[i]].dims
        busy = [other for dim in dims for other in dim]  # an axis that shards the carry cannot hold its addends, too
        if way.refusal or not way.axes:
            yield from [(i, way.refusal)] if way.axes else []
        elif any(overlap(axis, other) for axis, _ in way.axes for other in busy):
            yield i, f"it is sharded over {axes_text([axis for axis, _ in way.axes])} itself"
        else:
            yield i, Placement(dims, way.axes)


@dataclass(frozen=True)
class Verdict:
    """Of an input of a region to which partial sums are added: the prices of reducing it after the loop, and what is added in all
    iterations, if it leaves as it came; or why it cannot be partial."""

    placement: Placement | None
    refusal: str = ""
    after: Price | None = None
    inside: Price | None = None

    @property
    def pays(self) -> bool:
        return self.after is not None and self.inside is not None and self.after.is_within(self.inside)


def verdicts(
    region: Region, delays: Delays, sums: Mapping[int, Placement], targets: Sequence[Placement | None]
) -> dict[int, Verdict]:
    """Of `sums`, inputs of the region that were planned to be partial, whether they leave as they came, and what reducing them
    costs after the loop, as `targets`, and in every iteration: an array may be much larger than the parts that are collected."""
    trips, program, users = expected_trips(region), region.program, _users(region.program)
    told: dict[int, Verdict] = {}
    for i, output in region.carried:
        var, end, target = program.inputs[i], program.outputs[output], targets[output]
        if i in sums and delays.pending.get(end) != sums[i]:
            told[i] = Verdict(None, "the sum does not stay unreduced to the end of an iteration")
        elif i in sums:
            after = delays.price(var.type, sums[i], target or sums[i].without_partial())
            told[i] = Verdict(sums[i], "", after, _inside(var, end, users, delays).times(max(trips, 1.0)))
    return told


def _users(program: Program) -> dict[Var, Eqn]:
    return {v: eqn for eqn in program.eqns for v in eqn.inputs}


def _inside(start: Var, end: Var, users: Mapping[Var, Eqn], delays: Delays) -> Price:
    """Of reducing in every iteration what is added between start and end; without bound where a user leaves it unreduced."""
    prices, var = list[Price](), start
    while var is not end:
        result = users[var].outputs[0]
        chain = delays.delayed.get(result)
        if chain is None or not delays.unreduced.isdisjoint(chain.eqn.inputs):
            return Price(math.inf, math.inf)
        beside = delays.addends_of(chain.eqn, chain.plain, chain.group)
        prices += [delays.share(chain.eqn, v, there) for v, there in beside if v is not var]
        var = result
    return Price.of(prices)


class _Way(NamedTuple):
    """What is added between the input and the output of a carry: the axes over which that is partial, () if it is not; and why it
    cannot be collected, if it cannot."""

    axes: PartialAxes = ()
    refusal: str = ""


def _way(start: Var, end: Var, users: Mapping[Var, Eqn], delays: Delays, seen: set[Var]) -> _Way:
    """`seen`: values on the ways of other carries, which this one does not go along."""
    axes: PartialAxes = ()
    refusals, var = list[str](), start
    while var is not end:
        eqn = users.get(var)
        others = None if eqn is None or len(eqn.outputs) != 1 or eqn.op.regions is not None else _beside(eqn, var, delays.zeros)
        if eqn is None or others is None or var in seen:
            return _Way()
        seen.add(var)
        if delays.uses[var] != 1:
            refusals.append("it is read in the loop, too")
        for other in others:
            pending = delays.possible.get(other)
            if pending is None:
                refusals.append(f"what {eqn.op.name} adds to it, too, is no partial sum")
            elif axes and pending.partial != axes:
                refusals.append("sums over other axes are added to it, too")
            axes = pending.partial if pending is not None else axes
        var = eqn.outputs[0]
    if delays.uses[end] > USES_OF_OUTPUT:
        refusals.append("the sum is read in the loop, too")
    return _Way(axes, refusals[0] if refusals else "")


def _beside(eqn: Eqn, var: Var, zeros: Collection[Var]) -> list[Var] | None:
    """The operands that the equation is linear in together with var, zeros aside; None if it is not linear in var."""
    place = eqn.inputs.index(var)
    for group in eqn.op.sum_groups(eqn.input_types, eqn.params):
        if place in group:
            return [v for i in group if i != place and (v := eqn.inputs[i]) not in zeros]
    return None
