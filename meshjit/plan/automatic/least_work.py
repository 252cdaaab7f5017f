"""What the work of a Program takes if all devices share all of it: a bound on every plan, found at once."""

from __future__ import annotations

from meshjit.core.plan import equation_plan
from meshjit.core.program import Program
from meshjit.core.region import weighted_regions
from meshjit.core.rules import reading_of
from meshjit.plan.draft import Draft


def least_work(draft: Draft, program: Program) -> float:
    """Seconds of the draft's Program, or of one that stands in it."""
    seconds, known, machine = 0.0, dict[tuple[int, ...], float](), draft.machine
    for eqn in program.eqns:
        if eqn.op.regions is not None:
            seconds += sum(times * least_work(draft, region.program) for region, times in weighted_regions(eqn))
        elif eqn.identity in known:
            seconds += known[eqn.identity]
        elif eqn.inputs and eqn.outputs and eqn.op.pinned is None:
            whole = equation_plan(draft.flat.rules[eqn], {}, machine.mesh)
            types, places = (*eqn.input_types, *eqn.output_types), (*whole.operands, *whole.results)
            own = machine.work(whole.rule, types, places, reading_of(eqn)) / machine.mesh.device_count
            seconds, known[eqn.identity] = seconds + own, own
    return seconds
