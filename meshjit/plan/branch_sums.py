"""Sums that branches make in a loop, where the loop only collects them: each device may give its addend, in every branch.

    scan {%g = case(%i) {branches: dot(..) partial sum(x) | zeros};  %t2 = add(%t, %g)}

A branch reduces what it gives back, for nobody knows which of them runs. Where all of them give addends over the same axes, or
zeros, the result of the equation may be an addend as well, and is reduced with what the carry collects, after the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import run_regions
from meshjit.ops.base.constants import is_zero
from meshjit.plan.cost import Machine
from sharding.axes import AxisRef, overlap
from sharding.spec import Placement


def branch_sums(
    program: Program, steps: Sequence[EquationPlan], placements: Mapping[Var, Placement], machine: Machine
) -> dict[Var, Placement]:
    """The results of branches that may be addends, where each would lie: those that are only added up."""
    addends, sums = machine.uses_of(program).addends, dict[Var, Placement]()
    for eqn, step in zip(program.eqns, steps, strict=True):
        if step.bodies and eqn.op.pinned is None and not any(region.loops for region in run_regions(eqn)):
            for result, var in enumerate(eqn.outputs):
                placement = _given(eqn, step.bodies, result, placements[var]) if var in addends else None
                if placement is not None:
                    sums[var] = placement
    return sums


def _given(eqn: Eqn, bodies: Sequence[Plan], result: int, there: Placement) -> Placement | None:
    """The addends that all branches can give for a result; None where one has something else."""
    regions = zip(run_regions(eqn), bodies, strict=True)
    sums = {partial for region, body in regions for partial in _sums(body, region.results.index(result))}
    if len(sums) != 1 or () in sums:
        return None
    (partial,) = sums
    busy = [axis for dim in there.dims for axis in dim]
    return None if any(overlap(axis, other) for axis, _ in partial for other in busy) else Placement(there.dims, partial)


def _sums(body: Plan, output: int) -> Iterator[tuple[tuple[AxisRef, str], ...]]:
    """Over which axes each of the addends is a sum of which an output is made, without zeros; () of what is no sum."""
    makers = {v: made for made in zip(body.program.eqns, body.equations, strict=True) for v in made[0].outputs}
    waiting, seen = [body.program.outputs[output]], set[Var]()
    while waiting:
        var = waiting.pop()
        if var in seen or (var in makers and is_zero(makers[var][0])):
            continue
        seen.add(var)
        eqn, step = makers.get(var, (None, None))
        if eqn is None or step is None:
            yield ()
        elif (placement := step.results[eqn.outputs.index(var)]).partial_kind == "sum":
            yield placement.partial
        else:
            group = [*eqn.op.sum_groups(eqn.input_types, eqn.params), ()][0] if len(eqn.outputs) == 1 else ()
            yield from () if group else ((),)
            waiting += [eqn.inputs[i] for i in group]
