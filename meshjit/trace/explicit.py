"""Placements in the types of a trace: a side map from Var to spec, kept only where a mesh with explicit axes is in use.

The mesh of the context (`set_mesh`) says which axes are explicit, else that of the arguments. Where an equation combines elements
of several places, its result is pinned by a constraint, as are the inputs; planning keeps to these, and needs nothing new.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from meshjit.core.explicit import Unclear, explicit_part, follow, likeness, pin_of, program_specs, result_specs, typed
from meshjit.core.memories import Memories
from meshjit.core.op import REGISTRY, Op
from meshjit.core.program import Builder, Eqn, Program, Source, Var
from meshjit.core.rules import rule_of
from meshjit.core.varying import Axes
from meshjit.errors import ShardingTypeError
from meshjit.trace.members import device_axis_names
from meshjit.trace.source import line_of
from meshjit.trace.tracer import Tracer, origin
from sharding.mesh import AbstractMesh, BaseMesh, Mesh, named_mesh
from sharding.named import NamedSharding
from sharding.placement import Placement
from sharding.reshard import plan_reshard
from sharding.spec import PartitionSpec, placement_of, spec_text

HOLDING: Final = ("sharding_constraint", "leave_unreduced")  # ops that hold a value to a placement: where it is whole, where not
_NO_MESH = Mesh(np.empty((), object), ()).abstract_mesh


class Trace(Protocol):
    """What is asked of a trace here."""

    builder: Builder
    mesh: Any
    specs: dict[Var, PartitionSpec] | None
    varying: dict[Var, Axes] | None
    memories: dict[Var, Memories] | None
    typed: dict[Any, tuple[list[PartitionSpec], bool, Eqn]]

    def require_mesh(self, mesh: Any) -> None: ...


def governing(own: BaseMesh | None) -> BaseMesh | None:
    """The mesh whose axis types hold: that of the context, else `own`, that of the arguments. Code for single devices has
    placements along the axes that it leaves Explicit."""
    named = named_mesh()
    if device_axis_names():
        return named if is_explicit(named) else None
    return own if named is None else named


def is_explicit(mesh: BaseMesh | None) -> bool:
    return mesh is not None and bool(mesh.explicit_axes)


def mesh_in_use() -> BaseMesh | None:
    """The mesh of the context, if it has explicit axes."""
    mesh = governing(None)
    return mesh if is_explicit(mesh) else None


@functools.lru_cache(maxsize=4096)
def _sharding(mesh: BaseMesh, spec: PartitionSpec, sums: Any) -> NamedSharding:
    return NamedSharding(mesh, spec)


def sharding_on(mesh: BaseMesh, spec: PartitionSpec) -> NamedSharding:
    """One object for equal ones."""
    return _sharding(mesh, spec, (spec.unreduced, spec.reduced))


def sharding_in_type(value: Any) -> NamedSharding | None:
    """Where the value's type says that it is, in explicit axes; None where there are none."""
    if isinstance(value, Tracer):
        trace = value.tracing
        mesh = None if trace.specs is None else governing(trace.mesh)
        if trace.specs is None or mesh is None or not is_explicit(mesh):
            return None
        return sharding_on(mesh, explicit_part(trace.specs.get(value.variable), value.ndim, mesh))
    sharding, type = getattr(value, "sharding", None), getattr(value, "type", None)
    if type is None or not isinstance(sharding, NamedSharding) or not is_explicit(sharding.mesh):
        return None
    mesh = governing(sharding.mesh)
    if mesh is None or not is_explicit(mesh):
        return None
    return sharding_on(sharding.mesh, explicit_part(sharding.spec, type.rank, mesh))


def visible_sharding(value: Any, rank: int) -> NamedSharding:
    """What `typeof(value).sharding` is: on an AbstractMesh, with an entry per dim."""
    elsewhere = _on_another_mesh(value, rank)
    if elsewhere is not None:
        return elsewhere
    sharding = sharding_in_type(value)
    if sharding is not None:
        mesh = governing(sharding.mesh)
        assert isinstance(mesh, Mesh | AbstractMesh)
        return sharding_on(mesh.abstract_mesh, sharding.spec)
    return nowhere(rank)


def _on_another_mesh(value: Any, rank: int) -> NamedSharding | None:
    """The same of an array that was put on a mesh with other axes than the context's: what it is on its own."""
    here, own = named_mesh(), None if isinstance(value, Tracer) else getattr(value, "sharding", None)
    if here is None or not isinstance(own, NamedSharding) or not getattr(value, "committed", False):
        return None
    mesh = own.mesh
    if mesh.shape_tuple == here.shape_tuple or not isinstance(mesh, Mesh | AbstractMesh):
        return None
    return sharding_on(mesh.abstract_mesh, explicit_part(own.spec, rank, mesh))


def without_devices(sharding: NamedSharding | None) -> NamedSharding | None:
    """The same on an AbstractMesh: a type names no devices."""
    if sharding is None:
        return None
    assert isinstance(sharding.mesh, Mesh | AbstractMesh)
    return sharding_on(sharding.mesh.abstract_mesh, sharding.spec)


def nowhere(rank: int) -> NamedSharding:
    """The same of a value that no explicit axis shards."""
    mesh = named_mesh()
    whole = PartitionSpec(*[None] * rank)
    return sharding_on(mesh.abstract_mesh if isinstance(mesh, Mesh | AbstractMesh) else _NO_MESH, whole)


# -- in a trace


def type_value(trace: Trace, var: Var, sharding: NamedSharding | None) -> None:
    """Note where a Var that the trace is given is."""
    if sharding is None:
        return
    if trace.specs is None:
        trace.specs = {}
    trace.require_mesh(sharding.mesh)
    trace.specs[var] = sharding.spec


def pinned_input(trace: Trace, var: Var) -> Var:
    """The input behind a constraint that holds it, and so its cotangent, where its type says."""
    mesh = governing(trace.mesh)
    if trace.specs is None or var not in trace.specs or mesh is None or not is_explicit(mesh):
        return var
    spec = trace.specs[var]
    return _pinned(trace, var, spec, mesh) if var.rank or spec.unreduced or spec.reduced else var


def _pinned(trace: Trace, var: Var, spec: PartitionSpec, mesh: BaseMesh) -> Var:
    assert trace.specs is not None
    if trace.mesh is None:
        trace.require_mesh(mesh)
    (held,) = trace.builder.emit(holding(spec), [var], {"spec": pin_of(spec, mesh)})
    trace.specs[held] = spec
    if trace.memories is not None and var in trace.memories:
        trace.memories[held] = trace.memories[var]
    if trace.varying is not None and var in trace.varying:
        trace.varying[held] = trace.varying[var]
    return held


def holding(spec: PartitionSpec) -> Op:
    """The op that holds a value where the spec says."""
    return REGISTRY[HOLDING[bool(spec.unreduced)]]


def type_results(trace: Trace, operands: Sequence[Tracer], source: Source | None) -> Sequence[Var]:
    """The results of the equation that was staged last, typed, behind constraints where it combines elements of several places.
    ShardingTypeError where its operands' placements do not say where they are."""
    eqn, mesh = trace.builder.eqns[-1], governing(trace.mesh)
    assert trace.specs is not None
    if mesh is None or not is_explicit(mesh):
        return eqn.outputs
    specs = [explicit_part(trace.specs.get(v), v.rank, mesh) for v in eqn.inputs]
    key = mesh, likeness(eqn, specs)
    entry = trace.typed.get(key)
    if entry is None:
        try:
            entry = trace.typed[key] = result_specs(eqn, specs, mesh), _combines(eqn), eqn  # which keeps its identity
        except Unclear as unclear:
            raise unclear_placement(eqn, specs, mesh, unclear, source, lambda i: origin(operands[i])) from None
    results, pinned, _ = entry
    trace.specs.update(zip(eqn.outputs, results, strict=True))
    pairs = zip(eqn.outputs, results, strict=True)
    is_held = eqn.op.seed is not None or eqn.op.pinned is not None
    return [_pinned(trace, v, s, mesh) if (v.rank and pinned) or (s.unreduced and not is_held) else v for v, s in pairs]


def _combines(eqn: Eqn) -> bool:
    if eqn.op.seed is not None or eqn.op.regions is not None or eqn.op.pinned is not None:
        return False
    return not (rule_of(eqn).is_passthrough and rule_of(eqn).is_simple)


def type_inlined(trace: Trace, first: int) -> None:
    """Type the equations from number `first` on, which a transformation wrote: what they leave unclear is whole."""
    mesh = governing(trace.mesh)
    if trace.specs is not None and mesh is not None and is_explicit(mesh):
        follow(trace.builder.eqns[first:], trace.specs, mesh)


def brought(program: Program, operands: Sequence[Any], shardings: Sequence[NamedSharding | None], mesh: Any) -> Program:
    """The Program with outputs that are where `shardings` say (None: anywhere): behind constraints where the placements of its
    operands do not say so, as of zeros, which are made from nothing."""
    known = next((s for s in shardings if s is not None), None)
    mesh = None if known is None else governing(known.mesh if mesh is None else mesh)
    if mesh is None or not is_explicit(mesh):
        return program
    given = zip(program.inputs, map(sharding_in_type, operands), strict=True)
    specs = program_specs(program, [explicit_part(s.spec if s is not None else None, v.rank, mesh) for v, s in given], mesh)
    asked = [s if s is None else explicit_part(s.spec, v.rank, mesh) for v, s in zip(program.outputs, shardings, strict=True)]
    if all(spec is None or spec == own for spec, own in zip(asked, specs, strict=True)):
        return program
    with Builder(program.name) as builder:
        values = builder.inline(program, [builder.input(v.type, v.hint) for v in program.inputs])
        return builder.build([
            v if spec is None or spec == own else builder.emit(holding(spec), [v], {"spec": pin_of(spec, mesh)})[0]
            for v, spec, own in zip(values, asked, specs, strict=True)
        ])


def unclear_placement(
    eqn: Eqn,
    specs: Sequence[PartitionSpec],
    mesh: BaseMesh,
    unclear: Unclear,
    source: Source | None,
    origin_of: Callable[[int], str],
) -> ShardingTypeError:
    """The error, with both operands' types and lines, and what each way out sends."""
    operands = eqn.inputs
    lines = [f"{eqn.op.name} at {line_of(source)}: {unclear.what}"]
    lines += [f"  operand {i} is {typed(operands[i].type, specs[i])}: {origin_of(i)}" for i in unclear.operands]
    ways: list[str] = []
    for i, dims in zip(unclear.operands, unclear.resharded, strict=False):
        sent = _bytes(operands[i], placement_of(specs[i], operands[i].rank), dims, mesh)
        ways.append(f"meshjit.sharding.reshard(operand {i}, {_text(dims)}) before, which sends {sent}")
    if unclear.left is not None:
        left, result = unclear.left, eqn.outputs[0]
        ways += [f"out_sharding={_text(dims)}, which sends {_bytes(result, left, dims, mesh)}" for dims in unclear.choices]
    ways = ways or ["say where the result shall be by out_sharding=, or leave it to the compiler by meshjit.sharding.auto_axes"]
    return ShardingTypeError("\n".join([*lines, *(f"  {'fix:' if n == 0 else '  or'} {way}" for n, way in enumerate(ways))]))


def addends_not_taken(
    eqn: Eqn, specs: Sequence[PartitionSpec], unclear: Unclear, source: Source | None, origin_of: Callable[[int], str]
) -> ShardingTypeError:
    """The error where code for single devices uses addends otherwise than in a sum."""
    types = eqn.input_types
    lines = [f"{eqn.op.name} at {line_of(source)}: {unclear.what}"]
    lines += [f"  operand {i} is {typed(types[i], specs[i])}: {origin_of(i)}" for i in unclear.operands]
    first = unclear.operands[0]
    lines.append(f"  fix: lax.psum(operand {first}, {tuple(sorted(specs[first].unreduced))}) before finishes the sum")
    return ShardingTypeError("\n".join(lines))


def _text(dims: Sequence[Any]) -> str:
    return spec_text((axes[0] if len(axes) == 1 else axes or None) for axes in dims)


def _bytes(var: Var, source: Placement, dims: Any, mesh: BaseMesh) -> str:
    return f"{plan_reshard(var.shape, var.dtype.itemsize, source, Placement(dims), mesh).bytes:,.0f} bytes per device"
