"""A plan in Shardy's words: MLIR with `sdy` shardings; and what Shardy's own propagation makes of the same annotations."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

from meshjit.core.plan import Plan
from meshjit.core.program import Eqn, Var
from meshjit.emit.module import emit
from meshjit.plan.graph import Annotations
from meshjit.report.edges import single_spreads
from meshjit.report.subject import Subject
from meshjit.runtime._jaxlib.shardy import Shown, module_text, propagated, sharded_module
from meshjit.runtime.targets import target_for
from sharding.axes import AxisRef, SubAxis
from sharding.mesh import AbstractMesh, BaseMesh
from sharding.spec import PartitionSpec, Placement, open_dims, placement_of


def mlir_text(subject: Subject) -> str:
    """The global Program as StableHLO, with the plan's placements as `sdy.sharding` on arguments, results and ops; where each
    axis came from (`sdy.sharding_origins`), and the steps that it took (`sdy.propagation_edges`)."""
    plan, edges = subject.plan, _edge_texts(subject)
    arguments = [Shown(_dims(p), origins=_origins(subject, v)) for v, p in zip(plan.program.inputs, plan.inputs, strict=True)]
    values = [_shown(subject, eqn, v, edges.get(eqn, "")) for eqn in plan.program.eqns for v in eqn.outputs]
    module, _ = _module(plan, arguments, values, [_dims(p) for p in plan.outputs])
    return module_text(module)


def _shown(subject: Subject, eqn: Eqn, var: Var, edges: str) -> Shown:
    is_constraint, sharding = eqn.op.seed is not None, _dims(subject.plan.placements[var])
    return Shown(sharding, is_constraint, {} if is_constraint else _origins(subject, var), edges, len(eqn.inputs))


def _origins(subject: Subject, var: Var) -> dict[str, str]:
    """Per axis in Shardy's words: `self`, `input: 0`, `output: 0`, `constraint_0`; `planning` where it has no such word."""
    number = subject.describer.flat.numbers[var]
    axes = [(dim, axis) for dim, each in enumerate(subject.plan.placements[var].dims) for axis in each]
    origin_of = {str(axis): subject.describer.propagated.origins.get((number, dim, axis)) for dim, axis in axes}
    return {axis: "planning" if o is None else _origin(subject, var, subject.values[o.seed]) for axis, o in origin_of.items()}


def _origin(subject: Subject, var: Var, seed: Var) -> str:
    program = subject.plan.program
    if seed in program.inputs:
        return "self" if seed is var else f"input: {program.inputs.index(seed)}"
    maker = subject.makers.get(seed)
    if maker is not None and maker.op.seed is not None:
        return f"constraint_{[eqn for eqn in program.eqns if eqn.op.seed is not None].index(maker)}"
    return f"output: {program.outputs.index(seed)}" if seed in program.outputs else "planning"


def _edge_texts(subject: Subject) -> dict[Eqn, str]:
    """`[{step-0 = [{"data" = operand-0 -> [result-0]}]}]` of every equation at the top level that passes axes on."""
    steps: dict[Eqn, dict[int, list[str]]] = {}
    for row in single_spreads(subject):
        if row.eqn is not None:
            ends = ", ".join(name.replace(" ", "-") for name in row.targets)
            text = f"{{{_axis(row.ref)} = {row.origin.replace(' ', '-')} -> [{ends}]}}"
            steps.setdefault(row.eqn, {}).setdefault(row.step, []).append(text)
    return {eqn: f"[{', '.join(_step_text(*each) for each in by_step.items())}]" for eqn, by_step in steps.items()}


def _step_text(step: int, edges: Sequence[str]) -> str:
    return f"{{step-{step} = [{', '.join(edges)}]}}"


@dataclasses.dataclass(frozen=True)
class Opinion:
    """What Shardy says of a value: the axes of every dim, and per axis where it came from (`input: 0`, `output: 1`, `self`);
    edges: of the op that makes it, (axis, from, to), as `("data", "operand 0", "result 0")`."""

    var: Var
    dims: tuple[tuple[str, ...], ...]
    origins: dict[str, str]
    edges: frozenset[tuple[str, str, str]] = frozenset()


def second_opinion(plan: Plan, annotations: Annotations) -> list[Opinion]:
    """Of every argument, and every value of the top level of the Program that one op makes."""
    specs = [Shown(_annotated(spec, v)) for spec, v in zip(annotations.inputs, plan.program.inputs, strict=True)]
    results = [_annotated(spec, v) for spec, v in zip(annotations.outputs, plan.program.outputs, strict=True)]
    module, owners = _module(plan, specs, [Shown(text, True) for text in _constraints(plan)], results)
    count, rows = len(plan.program.inputs), propagated(module)
    made = zip(_values(plan), owners, strict=True)
    pairs = [*zip(plan.program.inputs, rows, strict=False), *((v, rows[count + i]) for v, i in made if i is not None)]
    return [
        Opinion(var, _parsed_dims(sharding), _parsed_origins(origins), frozenset(_parsed_edges(edges)))
        for var, (sharding, origins, edges) in pairs
    ]


def _parsed_edges(text: str) -> Iterator[tuple[str, str, str]]:
    for axis, start, ends in re.findall(r'"(\w+)"\S* = (\S+) -> \[([^\]]*)\]', text):
        for end in ends.split(", "):
            yield axis, start.replace("-", " "), end.replace("-", " ")


def _values(plan: Plan) -> list[Var]:
    return [v for eqn in plan.program.eqns for v in eqn.outputs]


def _module(
    plan: Plan, arguments: Sequence[Shown], values: Sequence[Shown], results: Sequence[str | None]
) -> tuple[Any, list[int | None]]:
    one, program = AbstractMesh((), ()), plan.program
    made = _values(plan)
    text = emit(dataclasses.replace(program, outputs=tuple(made)), one, target=target_for(one, ("cpu",)))
    numbers = {v: i for i, v in enumerate(made)} | {v: -1 - i for i, v in enumerate(program.inputs)}
    returned = [(numbers[v], sharding) for v, sharding in zip(program.outputs, results, strict=True)]
    return sharded_module(text, _mesh_text(plan.mesh), arguments, values, returned)


def _mesh_text(mesh: BaseMesh) -> str:
    axes = [f'"{name}"={size}' for name, size in mesh.shape.items()]
    return f"[{', '.join(axes)}]"


def _dims(placement: Placement) -> str:
    dims = ["{" + ", ".join(map(_axis, axes)) + "}" for axes in placement.dims]
    return f"[{', '.join(dims)}]"


def _axis(axis: AxisRef) -> str:
    return f'"{axis.name}":({axis.pre}){axis.size}' if isinstance(axis, SubAxis) else f'"{axis}"'


def _annotated(spec: PartitionSpec | None, var: Var) -> str | None:
    """As it was written: dims that are open end with `?`."""
    if spec is None:
        return None
    dims = zip(placement_of(spec, var.rank).dims, open_dims(spec, var.rank), strict=True)
    texts = ["{" + ", ".join([*map(_axis, axes), *["?"] * is_open]) + "}" for axes, is_open in dims]
    return f"[{', '.join(texts)}]"


def _constraints(plan: Plan) -> list[str | None]:
    """Of every value the user's constraint."""
    seeds = [(eqn.op.seed, eqn) for eqn in plan.program.eqns for _ in eqn.outputs]
    return [_annotated(seed(eqn.params), eqn.outputs[0]) if seed is not None else None for seed, eqn in seeds]


def _parsed_dims(text: str) -> tuple[tuple[str, ...], ...]:
    match = re.search(r"@mesh, \[(.*?)\](?:,|>)", text)
    inner = re.findall(r"\{([^}]*)\}", match[1]) if match is not None else []
    return tuple(tuple(re.findall(r'"(\w+)"', dim)) for dim in inner)


def _parsed_origins(text: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+) = "([^"]*)"', text))
