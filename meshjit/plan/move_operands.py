"""What a value is made of is moved instead of the value, where that is less.

    %2: f32[K, N@x] = convert(%1: bf16[K, N@x])    read as [-, -]: gathers 4 bytes an element
    %2: f32[K, N] = convert(%1: bf16[K, N])        the operand is gathered, 2 bytes an element; each device converts all of it

So numbers of few bits are moved before they are widened, and rows before they are repeated. Once all equations are planned, it
is known under which placement a value is read. The equations that make it of less are then computed under that one; a plan that
does not come out cheaper for it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshjit.core.collective import Collective
from meshjit.core.effects import is_pure
from meshjit.core.plan import EquationPlan, PlanCost
from meshjit.core.program import Eqn, Program, Var
from meshjit.plan.bring_first import bring_first
from meshjit.plan.cost import Machine
from meshjit.plan.events import Event, Move
from meshjit.plan.gather_operands import gather_operands
from meshjit.plan.recall import run_through
from sharding.placement import Placement

STEPS: Final = 6  # equations between what is moved and what was to be moved
NONE: Final[Mapping[int, EquationPlan]] = {}
CLEARLY: Final = 0.9  # of the seconds of moving the value: it may be read in several ways


def move_operands(
    program: Program, machine: Machine, plans: Sequence[EquationPlan], inputs: Sequence[Placement], moves: Iterable[Event]
) -> tuple[EquationPlan, ...] | None:
    """The plans of a Program's equations, those computed elsewhere whose operands are less to move; None if there are none."""
    moved = {event.var: event.walk for event in moves if isinstance(event, Move) and event.walk.bytes}
    made = machine.uses_of(program).makers if moved else {}
    widened = [v for v in moved if v in made and _may_be_less(v, program, plans, made)]
    if not widened:
        return None
    origins, steps = _Origins(program, machine, plans, made, dict(zip(program.inputs, inputs, strict=True))), list(plans)
    in_vain = set[Any]()  # equal layers are asked about once
    for var in widened:
        walk, eqn = moved[var], program.eqns[made[var]]
        alike = id(plans[made[var]]), walk.placements[-1], *[id(plans[made[v]]) if v in made else None for v in eqn.inputs]
        seconds, changes = (0.0, NONE) if alike in in_vain else origins.bring(var, walk.placements[-1], STEPS)
        if changes and seconds < CLEARLY * walk.seconds:
            for at, plan in changes.items():
                steps[at] = plan
        else:
            in_vain.add(alike)
    return tuple(steps) if any(a is not b for a, b in zip(steps, plans, strict=True)) else None


def last_changes(
    program: Program,
    machine: Machine,
    plans: Sequence[EquationPlan],
    inputs: Sequence[Placement],
    outputs: Sequence[Placement],
    lent: frozenset[Var] = frozenset(),
) -> tuple[tuple[EquationPlan, ...], PlanCost, tuple[Collective, ...], list[Event]]:
    """The plans of a Program's equations as they are in the end; what running it costs, its collectives, and how values move."""
    plans = bring_first(program, machine, plans, outputs)
    outcome = run_through(program, machine, plans, inputs, outputs, lent)
    for change in (gather_operands, move_operands):
        others = change(program, machine, plans, inputs, outcome[2])
        if others is not None:
            other = run_through(program, machine, others, inputs, outputs, lent)
            if other[0].seconds < outcome[0].seconds and other[0].wire_bytes <= outcome[0].wire_bytes:
                plans, outcome = others, other
    return plans, *outcome


def _may_be_less(var: Var, program: Program, plans: Sequence[EquationPlan], made: Mapping[Var, int]) -> bool:
    """Whether a value is made element by element of something smaller, or of what is itself made of something."""
    eqn = program.eqns[made[var]]
    return _is_elementwise(eqn, plans[made[var]]) and any([v.type.nbytes < var.type.nbytes or v in made for v in eqn.inputs])


def _is_elementwise(eqn: Eqn, plan: EquationPlan) -> bool:
    """Whether an equation can be computed anywhere, of whole values, each element of its one result by itself."""
    if not plan.rule.is_passthrough or plan.bodies or plan.manual or len(eqn.outputs) != 1 or not is_pure(eqn):
        return False
    return not any(p.partial for p in (*plan.operands, *plan.results))


@dataclass(frozen=True)
class _Origins:
    """What bringing values somewhere costs from where they are made, or from where what they are made of is."""

    program: Program
    machine: Machine
    plans: Sequence[EquationPlan]
    made: Mapping[Var, int]  # by which equation
    entered: Mapping[Var, Placement]  # where inputs are

    def bring(self, var: Var, target: Placement, steps: int) -> tuple[float, Mapping[int, EquationPlan]]:
        """Seconds of bringing a value to a placement, and the equations that are computed elsewhere for it."""
        at, machine = self.made.get(var), self.machine
        eqn = None if at is None else self.program.eqns[at]
        if eqn is not None and not eqn.inputs:
            return 0.0, NONE  # made again
        here = self.entered[var] if eqn is None or at is None else self.plans[at].results[eqn.outputs.index(var)]
        seconds = machine.walk(var.type, machine.normal(here), machine.normal(target)).seconds
        if eqn is None or at is None or not seconds or not steps or not _is_elementwise(eqn, self.plans[at]):
            return seconds, NONE
        plan = machine.spread_again(eqn, self.plans[at].rule, target)
        if plan is None:
            return seconds, NONE
        changes, sooner = {at: plan}, 0.0
        for operand, placement in zip(eqn.inputs, plan.operands, strict=True):
            own, further = self.bring(operand, placement, steps - 1)
            sooner, changes = sooner + own, {**changes, **further}
        return (sooner, changes) if sooner < seconds else (seconds, NONE)
