"""Plans as values: what was chosen, as JSON that can be read, edited, compared and planned by again.

    {"format": 2, "function": "step", "mesh": {"x": 8}, "machine": "cpu",
     "equations": [["dot_general f32[8,4] f32[4,2] -> f32[8,2]", {"b": ["x"]}], …],
     "values": ["[x, -]", …], "outputs": ["[x, -]"], "collected": {"7": true}, "refined": "all", "memory": 1.6e10,
     "written": ["apart"], "asked": "1b2e…", "optimum": "1.83 ms, optimal", "digest": "02ac…-…"}

Equations and values stand in the order of the Program, nested ones behind it. `collected`: by number of a value that a loop
carries, whether it stays a partial sum until after the loop. `written`: how the Program was written otherwise, if it was
(`rewritten.py`); the equations are those that it has then. `before`: the cost of the best plan of the Program as it was. A saved
plan belongs to its Program, mesh and machine: for another one it is refused, with the first difference. `asked`: a digest of what
was annotated, for which the bound holds. How good the plan is, `Plan.save` adds, and the digest by which edits are told.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.repeats import kinds_of
from meshjit.plan.automatic.candidate import Refinement
from meshjit.plan.automatic.edited import placement_of, plan_of
from meshjit.plan.automatic.prescribe import Prescribed
from meshjit.plan.draft import Draft
from meshjit.plan.graph import programs_in
from sharding.mesh import BaseMesh
from sharding.placement import Placement, normalized
from sharding.spec import PartitionSpec, ShardingError, open_dims, placement_of as spec_placement, spec_of

FORMAT: Final = 2
SHOWN: Final = 4  # pins in a message


class SavedPlanError(ShardingError):
    """A saved plan does not belong to this program, mesh or machine, or is no saved plan. `pins`: where it had the arguments that
    are still there, for `Traced.plan(pins=…)`; `argument`: the one that the problem is about, if it is about one."""

    def __init__(self, problem: str, pins: Mapping[str, PartitionSpec] | None = None, argument: str = "") -> None:
        self.problem, self.pins, self.argument = problem, dict(pins or {}), argument
        super().__init__(problem + self._offer())

    def named(self, names: Mapping[str, str]) -> SavedPlanError:
        """The same with the arguments' names in place of the Vars' hints."""
        mine, theirs = (f"argument {each} " for each in (self.argument, names.get(self.argument, self.argument)))
        pins = {names.get(hint, hint): spec for hint, spec in self.pins.items()}
        return SavedPlanError(self.problem.replace(mine, theirs), pins, names.get(self.argument, self.argument))

    def _offer(self) -> str:
        if not self.pins:
            return ""
        shown = ", ".join(f'"{name}": {spec}' for name, spec in list(self.pins.items())[:SHOWN])
        more = f", … {len(self.pins) - SHOWN} more in error.pins" if len(self.pins) > SHOWN else ""
        return f"; what still holds, pinned: traced.plan(pins={{{shown}{more}}})"


def saved_of(draft: Draft, refined_by: Refinement, plan: Plan | None = None, way: int = 0) -> dict[str, Any]:
    """What `replay` needs of a draft whose equations were prescribed, or of the user's annotations alone, of which nothing was.
    `refined_by`: the proposals that are tried on top, within the memory; `plan`: what they made of it, with inputs in that
    `way` (`candidate.py`)."""
    assigner, machine = draft.assigner, draft.machine
    plans, collected = (assigner.plans, assigner.collected) if isinstance(assigner, Prescribed) else ({}, {})
    different = {id(plan): plan for plan in plans.values()}  # equal layers share theirs
    spreads = {number: spread_of(plan) for number, plan in different.items()}
    inputs, outputs = draft.plan.inputs, draft.plan.outputs
    if plan is not None and not isinstance(assigner, Prescribed):
        inputs, outputs = plan.inputs, plan.outputs
    return {
        "format": FORMAT,
        "function": draft.program.name,
        "mesh": dict(machine.mesh.shape),
        "machine": machine.topology.name,
        "equations": [[text, spreads.get(id(plans.get(eqn)))] for text, eqn in _texts(draft.program)],
        "arguments": placed_arguments(draft, inputs),
        "values": [*map(functools.cache(str), draft.propagated.placements)],
        "outputs": [str(p) for p in outputs],
        "collected": {str(draft.flat.numbers[var]): is_late for var, is_late in collected.items()},
        "refined": refined_by,
        "way": way,
        "memory": machine.topology.memory,
    }


def placed_arguments(draft: Draft, inputs: Sequence[Placement]) -> dict[str, list[str]]:
    """By name the types of the inputs, and where they are."""
    return {var.hint: [str(var.type), str(p)] for var, p in zip(draft.program.inputs, inputs, strict=True)}


def is_changed(saved: Mapping[str, Any], like: Mapping[str, Any]) -> bool:
    """Whether somebody changed how something is spread or lies, of what was saved as `like`."""
    return any(saved[name] != like[name] for name in ("equations", "values", "outputs"))


def replay(draft: Draft, saved: Mapping[str, Any]) -> Draft:
    """The draft planned as it was saved. SavedPlanError, with the first entry that cannot be, where somebody edited it, and where
    annotations now say something else."""
    mesh, plans, homes = draft.machine.mesh, dict[Eqn, EquationPlan](), dict[Var, Placement]()
    for number, (eqn, (text, spread)) in enumerate(zip(equations_in(draft.program), saved["equations"], strict=True)):
        if spread is not None:
            with _entry(draft, f"equation {number}, {text},"):
                plans[eqn] = plan_of(spread, eqn, draft.flat.rules[eqn], mesh)
    for var, number in draft.flat.numbers.items():
        with _entry(draft, f"value {number}:"):
            homes[var] = placement_of(saved["values"][number], var, mesh)
    outputs = list[Placement]()
    for number, (var, text) in enumerate(zip(draft.program.outputs, saved["outputs"], strict=True)):
        with _entry(draft, f"output {number}:"):
            outputs.append(placement_of(text, var, mesh))
    _check_annotations(draft, saved, homes, outputs)
    late = saved.get("collected", {})
    collected = {var: bool(late[str(number)]) for var, number in draft.flat.numbers.items() if str(number) in late}
    return draft.with_homes(homes, outputs, Prescribed(draft.machine, plans, collected))


def _check_annotations(
    draft: Draft, saved: Mapping[str, Any], homes: Mapping[Var, Placement], outputs: Sequence[Placement]
) -> None:
    """SavedPlanError where an argument, a constraint or a result is annotated otherwise than it was placed."""
    program, given, mesh = draft.program, draft.annotations, draft.machine.mesh
    constraints = [eqn for eqn in equations_in(program) if eqn.op.seed is not None]
    said = [
        *((f"argument {v.hint}", homes[v], s, v.hint) for v, s in zip(program.inputs, given.inputs, strict=True)),
        *((f"the constraint at {e.source}", homes[e.outputs[0]], e.op.seed(e.params), "") for e in constraints if e.op.seed),
        *((f"output {i}", place, s, "") for i, (place, s) in enumerate(zip(outputs, given.outputs, strict=True))),
    ]
    for name, place, spec, argument in said:
        if spec is not None and not _is_said(spec, normalized(place, mesh), mesh):
            raise _refused(draft, saved, f"{name} was placed {place}, now it is annotated {spec}", argument)


def _is_said(spec: PartitionSpec, place: Placement, mesh: BaseMesh) -> bool:
    """Whether a value that lies so lies as the spec says, in the dims of which it says something."""
    asked = normalized(spec_placement(spec, place.rank), mesh)
    dims = zip(open_dims(spec, place.rank), asked.dims, place.dims, strict=True)
    return all(is_open or mine == its for is_open, mine, its in dims)


@contextlib.contextmanager
def _entry(draft: Draft, name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        problem = f"{draft.program.name}: the saved plan cannot be followed: {name} {error}"
        raise SavedPlanError(f"{problem}\n  fix: write what the mesh and the program have, or plan anew without plan=") from None


def check(draft: Draft, saved: Mapping[str, Any]) -> None:
    """SavedPlanError, with the first difference, where another Program was planned, on another mesh or machine."""
    machine = draft.machine
    facts = [
        ("mesh", saved["mesh"], dict(machine.mesh.shape)),
        ("machine", saved["machine"], machine.topology.name),
    ]
    for what, before, now in facts:
        if before != now:
            raise _refused(draft, saved, f"its {what} was {before}, now it is {now}")
    texts, before = [text for text, _ in _texts(draft.program)], [text for text, _ in saved["equations"]]
    for number, eqn in enumerate(equations_in(draft.program)):
        if number >= len(before) or before[number] != texts[number]:
            line = f" at {eqn.source}" if eqn.source else ""
            was = before[number] if number < len(before) else "missing"
            raise _refused(draft, saved, f"equation {number} was {was}, now it is {texts[number]}{line}")
    if len(before) > len(texts):
        raise _refused(draft, saved, f"equation {len(texts)} was {before[len(texts)]}, now it is missing")
    if len(saved["values"]) != len(draft.flat.numbers) or len(saved["outputs"]) != len(draft.program.outputs):
        raise _refused(draft, saved, "it has another number of values")


def _refused(draft: Draft, saved: Mapping[str, Any], difference: str, argument: str = "") -> SavedPlanError:
    problem = f"{draft.program.name}: the saved plan does not belong to this program: {difference}"
    fix = "plan anew without plan=, and save that"
    return SavedPlanError(f"{problem}\n  fix: {fix}", _still_held(draft, saved), argument)


def _still_held(draft: Draft, saved: Mapping[str, Any]) -> dict[str, PartitionSpec]:
    """The arguments of the same name and type that nobody annotates, whose axes the mesh still has, with where they were."""
    before, mesh, pins = saved.get("arguments", {}), draft.machine.mesh, dict[str, PartitionSpec]()
    for var, spec in zip(draft.program.inputs, draft.annotations.inputs, strict=True):
        type_text, place = before.get(var.hint, ("", ""))
        if var.hint and spec is None and type_text == str(var.type):
            placement = Placement.parse(place)
            if all(isinstance(axis, str) and axis in mesh.axis_names for axis in placement.axes()):
                pins[var.hint] = spec_of(placement)
    return pins


def equations_in(program: Program) -> Iterator[Eqn]:
    return (eqn for part in programs_in(program) for eqn in part.eqns)


def _texts(program: Program) -> Iterator[tuple[str, Eqn]]:
    """The text of each equation, with the equation; equations of one kind have one text."""
    for part in programs_in(program):
        texts = dict[int, str]()
        for kind, eqn in zip(kinds_of(part), part.eqns, strict=True):
            text = texts.get(kind)
            if text is None:
                text = texts[kind] = _text(eqn)
            yield text, eqn


def _text(eqn: Eqn) -> str:
    return " ".join([eqn.op.name, *map(str, eqn.input_types), "->", *map(str, eqn.output_types)])


def spread_of(plan: EquationPlan) -> Mapping[str, Sequence[str]]:
    return {factor: [str(axis) for axis in axes] for factor, axes in plan.assignment.items() if axes}
