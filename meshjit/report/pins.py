"""The same program with further annotations, planned again: what why-not, suggestions and prices of constraints stand on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set

from meshjit.core.garbage import rarely_collected
from meshjit.core.once import once_per_program
from meshjit.core.op import REGISTRY
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import with_regions_changed
from meshjit.plan.graph import programs_in
from meshjit.report.subject import Subject
from sharding.spec import PartitionSpec, Placement, check_spec, padded, spec_of

Pins = Mapping[Var, PartitionSpec]


@rarely_collected
def planned_with(subject: Subject, pins: Pins) -> Subject:
    """The plan in which these values are placed so: inputs as if in_shardings said so, others as if a
    `with_sharding_constraint` stood behind them. ShardingError for a spec that cannot place its value.

    It is made of what was planned first: what planning rewrote for the plan in question, such as layers that it computes again
    where memory is short, need not be for this one. Only where a value is of a rewritten part it is made of that."""
    plan = subject.plan
    for var, spec in pins.items():
        check_spec(spec, var.shape, plan.mesh, f"{subject.labels[var]}, {subject.type_text(var)}")
    inputs = [pins.get(v, spec) for v, spec in zip(plan.program.inputs, subject.annotations.inputs, strict=True)]
    outputs = [_output(v, spec, pins) for v, spec in zip(plan.program.outputs, subject.annotations.outputs, strict=True)]
    made = {v: spec for v, spec in pins.items() if v not in plan.program.inputs}
    base = plan.program if subject.program is None or not made.keys() <= values_of(subject.program) else subject.program
    program = _constrained(base, made, top=True) if made else base
    annotations = dataclasses.replace(subject.annotations, inputs=inputs, outputs=outputs)
    return subject.of(subject.plan_again(program, plan.mesh, annotations, plan.target), annotations)


@once_per_program
def values_of(program: Program) -> Set[Var]:
    """Nested ones included."""
    return {v for part in programs_in(program) for v in part.vars()}


def _output(var: Var, spec: PartitionSpec | None, pins: Pins) -> PartitionSpec | None:
    """A result that is pinned is handed over as pinned, whatever was asked for."""
    return pins.get(var, spec)


def spec_at(placement: Placement) -> PartitionSpec:
    """The spec of a placement, an entry per dim."""
    return padded(spec_of(placement), placement.rank)


def _constrained(program: Program, pins: Pins, top: bool = False) -> Program:
    """A constraint behind every pinned value that the Program makes, and behind the inputs of nested ones."""
    names: dict[Var, Var] = {}
    eqns: list[Eqn] = []
    for var in () if top else program.inputs:
        eqns += _constraint(var, pins, names, None)
    for eqn in program.eqns:
        inputs = tuple([names.get(v, v) for v in eqn.inputs])
        renamed = eqn if inputs == eqn.inputs else eqn.with_inputs(inputs)
        eqns.append(with_regions_changed(renamed, lambda nested: _constrained(nested, pins)))
        for var in eqn.outputs:
            eqns += _constraint(var, pins, names, eqn)
    if len(eqns) == len(program.eqns) and all(a is b for a, b in zip(eqns, program.eqns, strict=True)):
        return program
    return dataclasses.replace(program, eqns=tuple(eqns), outputs=tuple([names.get(v, v) for v in program.outputs]))


def _constraint(var: Var, pins: Pins, names: dict[Var, Var], maker: Eqn | None) -> Sequence[Eqn]:
    if var not in pins:
        return []
    names[var] = Var(var.type)
    source = maker.source if maker is not None else None
    return [Eqn(REGISTRY["sharding_constraint"], (var,), (names[var],), {"spec": pins[var]}, source)]
