"""Whether a plan does what somebody wrote into its file: an entry that planning would pass over is an error.

What goes element by element is computed where that is cheapest, whatever stands in the file (`plan/move_operands.py`), values lie
where they are made, and other entries say once more what is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from meshjit.core.plan import Plan, plans_in, steps_in
from meshjit.core.program import Var
from meshjit.core.region import run_regions
from meshjit.plan.automatic.candidate import SPREAD, ways_of_inputs
from meshjit.plan.automatic.saved import SavedPlanError, equations_in, placed_arguments, spread_of
from meshjit.plan.automatic.saved_file import REST
from meshjit.plan.draft import Draft
from meshjit.plan.events import Accumulation
from sharding.placement import Placement

Problems: TypeAlias = Iterator[tuple[str, str]]  # what is wrong, and a fix


def check_followed(draft: Draft, saved: Mapping[str, Any], edited: Container[str]) -> None:
    """SavedPlanError, with the first entry, where the draft that was made of a saved plan does not do what was edited. Where the
    spread of an equation was, its results need not be where they were."""
    wrong = [_not_spread] if "equations" in edited else [_not_there] if "values" in edited else []
    wrong += [_not_collected] if REST in edited else []
    problem = next((problem for each in wrong for problem in each(draft, saved)), None)
    if problem is not None:
        raise _refused(draft, *problem)


def check_arguments(draft: Draft, saved: Mapping[str, Any], inputs: Sequence[Placement]) -> None:
    """SavedPlanError where `arguments` say something else of the inputs than is so."""
    planned, numbers = placed_arguments(draft, inputs), {v.hint: draft.flat.numbers[v] for v in draft.program.inputs}
    for name, entry in saved.get("arguments", {}).items():
        if name not in planned:
            raise _refused(draft, f"'arguments' name {name!r}, which is no argument", "leave it out")
        if entry != planned[name]:
            problem = f"'arguments' say that {name} is {' '.join(entry)}, and it is {' '.join(planned[name])}"
            raise _refused(draft, problem, f"write where it is into 'values', as value {numbers[name]}")


def check_way(draft: Draft, saved: Mapping[str, Any]) -> None:
    """SavedPlanError for a way of inputs that there is not."""
    way, count = saved.get("way", 0), len(ways_of_inputs(draft)) if saved["refined"] == SPREAD else 1
    if way >= count:
        raise _refused(draft, f"'way' is {way}, and a plan that is refined by {saved['refined']!r} has {count}", "'way': 0")


def _not_spread(draft: Draft, saved: Mapping[str, Any]) -> Problems:
    plans = dict(steps_in(draft.plan))
    for number, (eqn, (text, spread)) in enumerate(zip(equations_in(draft.program), saved["equations"], strict=True)):
        planned = spread_of(plans[eqn])
        if spread is not None and _axes(spread) != _axes(planned):
            yield f"equation {number}, {text}, is spread by {spread}, and planning makes {planned} of it", f"write {planned}"


def _not_there(draft: Draft, saved: Mapping[str, Any]) -> Problems:
    plans, numbers, needed = dict(steps_in(draft.plan)), draft.flat.numbers, _needed(draft.plan)
    spreads = zip(equations_in(draft.program), saved["equations"], strict=True)
    prescribed = [eqn for eqn, (_, spread) in spreads if spread is not None]
    for var, natural in [pair for eqn in prescribed for pair in zip(eqn.outputs, plans[eqn].results, strict=True)]:
        place, made = saved["values"][numbers[var]], natural.without_partial()
        if place != str(made) and not (natural.partial and place in needed.get(var, ())):
            fix = f'write "{made}", or spread its equation otherwise'
            yield f"value {numbers[var]} is {place}, and its equation makes it {made}", fix


def _needed(plan: Plan) -> Mapping[Var, set[str]]:
    """Where values are read, and handed over."""
    needed = dict[Var, set[str]]()
    for each in plans_in(plan):
        steps = zip(each.program.eqns, each.equations, strict=True)
        reads = [pair for eqn, step in steps for pair in zip(eqn.inputs, step.operands, strict=True)]
        for var, placement in [*reads, *zip(each.program.outputs, each.outputs, strict=True)]:
            needed.setdefault(var, set()).add(str(placement))
    return needed


def _not_collected(draft: Draft, saved: Mapping[str, Any]) -> Problems:
    vars = {str(number): var for var, number in draft.flat.numbers.items()}
    events = [event for plan in plans_in(draft.plan) for event in plan.events]
    summed = {e.var for e in events if isinstance(e, Accumulation) and e.placement is not None}
    regions = [region for eqn in equations_in(draft.program) if eqn.op.regions is not None for region in run_regions(eqn)]
    carries = {region.program.inputs[i] for region in regions for i, _ in region.carried}
    for number, is_late in saved.get("collected", {}).items():
        if vars.get(number) not in carries:
            yield f"'collected' has value {number}, which no loop carries", f"leave {number!r} out"
        elif is_late and vars[number] not in summed:
            yield f"'collected' has value {number}, which is no sum that a loop can keep partial", f"leave {number!r} out"


def _axes(spread: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    return {factor: [*axes] for factor, axes in spread.items() if axes}


def _refused(draft: Draft, problem: str, fix: str) -> SavedPlanError:
    problem = f"{draft.program.name}: the saved plan cannot be followed: {problem}"
    return SavedPlanError(f"{problem}\n  fix: {fix}, or plan anew without plan=")
