"""Placements in the types of a jaxpr: where values are in explicit axes, those of Programs inside of it included.

    { lambda ; a:f32[8@x,4]. let b:f32[8@x,4] = sin a in (b,) }

Constraints that hold a value where its type says that it is are no equations of the jaxpr.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshjit.core.explicit import explicit_part, follow, of_slice
from meshjit.core.program import Program, Var
from meshjit.core.region import run_regions
from meshjit.trace.explicit import HOLDING, governing, is_explicit
from sharding.mesh import BaseMesh
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec


def placements_in(program: Program, shardings: Sequence[Any], own: BaseMesh | None) -> Mapping[Var, PartitionSpec]:
    """By value, of a Program whose inputs have these shardings, on its own mesh or the context's; none without explicit axes."""
    mesh = governing(own)
    if mesh is None or not is_explicit(mesh):
        return {}
    specs = [s.spec if isinstance(s, NamedSharding) else None for s in shardings]
    return _followed(program, [explicit_part(s, v.rank, mesh) for s, v in zip(specs, program.inputs, strict=True)], mesh)


def _followed(program: Program, inputs: Sequence[PartitionSpec], mesh: BaseMesh) -> dict[Var, PartitionSpec]:
    """Of a Program that runs several times, as it runs first."""
    specs = dict(zip(program.inputs, inputs, strict=True))
    follow(program.eqns, specs, mesh)
    for eqn in program.eqns:
        for region in run_regions(eqn) if eqn.op.pinned is None else ():  # what is on single devices lies nowhere
            given = [specs[eqn.inputs[o]] for o in region.operands]
            given = [of_slice(spec) if i in region.sliced else spec for i, spec in enumerate(given)]
            for var, spec in _followed(region.program, given, mesh).items():
                specs.setdefault(var, spec)
    return specs


def held(program: Program, specs: Mapping[Var, PartitionSpec]) -> dict[Var, Var]:
    """The results of constraints that hold a value where it is, and these values."""
    values: dict[Var, Var] = {}
    for eqn in program.eqns if specs else ():
        if eqn.op.name in HOLDING and specs.get(eqn.inputs[0]) == specs.get(eqn.outputs[0]):
            values[eqn.outputs[0]] = values.get(eqn.inputs[0], eqn.inputs[0])
    return values
