"""Carries that only collect: `total = total + partial sum`, again and again, is reduced once, after the loop.

    scan(%zero, %xs) {body: %g = dot(..) partial sum(x);  %t2 = add(%t, %g);  return %t2}

The path from a carry's input to its output must be a chain of equations linear in it, each the only use of its value,
and every addend on the path must be partial over the same axes. Then the carry may be partial over them too. A carry that
is read inside the loop (such as a momentum that updates parameters) must be reduced in every iteration, so it is no accumulator.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region, expected_trips
from meshjit.plan.delay import Delays, PartialAxes, Price
from meshjit.plan.uses import USES_OF_OUTPUT
from sharding.axes import overlap
from sharding.spec import Placement


def accumulators(region: Region, delays: Delays, placements: Mapping[Var, Placement]) -> dict[int, Placement]:
    """Inputs of the region that might stay partial, with the placement they would have. Planning has to confirm it."""
    users = _users(region.program)
    collectors: dict[int, Placement] = {}
    for i, output in region.carried:
        axes = _collected(region.program.inputs[i], region.program.outputs[output], users, delays)
        dims = placements[region.program.inputs[i]].dims
        busy = [other for dim in dims for other in dim]  # an axis that shards the carry cannot hold its addends, too
        if axes and not any(overlap(axis, other) for axis, _ in axes for other in busy):
            collectors[i] = Placement(dims, axes)
    return collectors


def confirmed(
    region: Region,
    delays: Delays,
    sums: Mapping[int, Placement],
    targets: Sequence[Placement | None],
    chosen: Collection[int] = (),
) -> dict[int, Placement]:
    """Those of `sums`, inputs of the region that were planned to be partial, that leave as they came, and cost no more after the
    loop, as `targets`, than in every iteration: an array may be much larger than the parts of it that are collected. Those that
    somebody has `chosen` may cost more."""
    trips, program, users = expected_trips(region), region.program, _users(region.program)
    kept: dict[int, Placement] = {}
    for i, output in region.carried:
        var, end, target = program.inputs[i], program.outputs[output], targets[output]
        if i in sums and delays.pending.get(end) == sums[i]:
            after = delays.price(var.type, sums[i], target or sums[i].without_partial())
            if i in chosen or after.is_within(_inside(var, end, users, delays).times(max(trips, 1.0))):
                kept[i] = sums[i]
    return kept


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


def _collected(start: Var, end: Var, users: Mapping[Var, Eqn], delays: Delays) -> PartialAxes:
    """The axes over which everything that is added between start and end is partial; () if that is not so."""
    axes: PartialAxes = ()
    var = start
    if delays.uses[end] > USES_OF_OUTPUT:
        return ()
    while var is not end:
        eqn = users.get(var)
        if eqn is None or len(eqn.outputs) != 1 or delays.uses[var] != 1 or eqn.op.regions is not None:
            return ()
        others = _beside(eqn, var, delays.zeros)
        for other in others or ():
            pending = delays.possible.get(other)
            if pending is None or (axes and pending.partial != axes):
                return ()
            axes = pending.partial
        if others is None:
            return ()
        var = eqn.outputs[0]
    return axes


def _beside(eqn: Eqn, var: Var, zeros: Collection[Var]) -> list[Var] | None:
    """The operands that the equation is linear in together with var, zeros aside; None if it is not linear in var."""
    place = eqn.inputs.index(var)
    for group in eqn.op.sum_groups(eqn.input_types, eqn.params):
        if place in group:
            return [v for i in group if i != place and (v := eqn.inputs[i]) not in zeros]
    return None
