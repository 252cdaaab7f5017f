"""Ops and Programs outside of any trace: compiled once per op, types and placements, then run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.explicit import Unclear, explicit_part, pin_of, program_specs, result_specs
from meshjit.core.memories import ANYWHERE, Memories, behind_memories, check_agree
from meshjit.core.op import Op
from meshjit.core.printer import print_program, print_value
from meshjit.core.program import Builder, Program, Source
from meshjit.core.types import type_of
from meshjit.errors import OutOfMemoryError
from meshjit.ops.base.annotations import copy, put
from meshjit.plan.make import Annotations
from meshjit.runtime import nans
from meshjit.runtime.array import Array, LeafKey, leaf_key
from meshjit.runtime.composed import is_inside
from meshjit.runtime.executable import Executable, build
from meshjit.runtime.placing import default_sharding, device_row, move, place
from meshjit.runtime.sections import has_puts, put_one, run_in_sections, with_puts_outside, without_constraints
from meshjit.runtime.shardings import ONE_DEVICE_AXES, default_mesh, fits, merged, mesh_of, spec_on, spelling_of
from meshjit.trace.explicit import unclear_placement
from meshjit.trace.meshes import Meshes, require_axes
from meshjit.trace.source import line_of, user_source
from meshjit.transform.checkify import checkify, first_error, has_checks, values_of
from meshjit.transform.checks import JaxRuntimeError
from meshjit.transform.numbers import Number, numbers_of, with_operands, without_numbers
from sharding.memory import DEVICE
from sharding.mesh import Mesh, named_mesh
from sharding.named import NamedSharding, Sharding, SingleDeviceSharding
from sharding.spec import PartitionSpec, ShardingError

Value = Any  # Array, np.ndarray or np.generic

_ops: dict[Any, Executable] = {}
_programs: dict[Any, _Compiled] = {}
MOST_PROGRAMS = 1024  # that are kept, of some 0.2 MB each (jaxlib 0.10.2, a multiplication on one CPU device)
TABLE = 16  # elements: larger constants are data, such as a batch, which differ from call to call


def run_op(op: Op, operands: Sequence[Value], params: Mapping[str, Any], weak: bool) -> list[Array]:
    """One op on concrete values. The key is the op, its params and what its operands are."""
    if op is put:
        return [put_one(operands[0], **params)]
    if op is copy and not isinstance(operands[0], Array) and _is_only_put():
        return [place(np.asarray(operands[0]), default_sharding(), committed=False, weak=weak)]
    keys = tuple(_key(x) for x in operands)
    mesh = common_mesh(operands, op.name)
    key = _op_key(op, mesh, weak, keys, params)
    executable = _ops.get(key)
    if executable is None:
        with Builder(op.name) as builder:
            inputs = [builder.input(k.type) for k in keys]
            results = op(*inputs, **params)
            program = builder.build(results if isinstance(results, tuple) else [results])
        _check_memories(program, keys)
        outputs = _specs_of_results(program, keys, mesh)
        executable = _ops[key] = compiled(program, mesh, keys, [weak] * len(program.outputs), outputs)
    return _call(executable, operands)


def _is_only_put() -> bool:
    """Whether a copy of what is on the host comes to putting it: it goes to the default device, and nobody looks at it."""
    return not isinstance(named_mesh(), Mesh) and not (config.debug_nans or config.debug_infs or config.no_execution)


def _op_key(op: Op, mesh: Mesh, weak: bool, keys: Sequence[LeafKey], params: Mapping[str, Any]) -> Any:
    return (op, mesh, weak, tuple(keys), tuple((name, _hashable(value)) for name, value in params.items()))


def executable_of(program: Program, mesh: Mesh, keys: Sequence[LeafKey], weak: Sequence[bool]) -> Executable | None:
    """What `run_op` ran for the one op that a Program is, on all of its inputs in their order; None for other Programs."""
    if len(program.eqns) != 1 or len(set(weak)) != 1:
        return None
    (eqn,) = program.eqns
    if tuple(eqn.inputs) != tuple(program.inputs) or tuple(eqn.outputs) != tuple(program.outputs):
        return None
    return _ops.get(_op_key(eqn.op, mesh, weak[0], keys, eqn.params))


def run_program(program: Program, operands: Sequence[Value], weak: Sequence[bool], named: Any = None) -> list[Array]:
    """A whole Program, such as a gradient taken outside of jit. `named`: whose axes it names.

    The key is its text but for its constants. Those that turn out to differ from call to call (a learning rate, elements of
    a batch) become operands: a Program is compiled twice, not once for each of their values."""
    program = with_puts_outside(program)
    if isinstance(named, Meshes) and not has_puts(program):
        program, named = _on_one_mesh(program, operands, named)
    if has_puts(program):
        run = lambda part, xs, flags: run_program(part, xs, flags, _mesh_of_part(part, xs, named))  # noqa: E731
        return run_in_sections(program, operands, weak, run)
    if has_checks(program):
        return _run_checked(program, operands, weak, named)
    keys = tuple(_key(x) for x in operands)
    mesh = common_mesh(operands, program.name) if named is None else _named_mesh(named, operands, program.name)
    require_axes(program, mesh)
    numbers = numbers_of(program)
    splats = tuple(n.splat for n in numbers)
    key = (print_program(without_numbers(program), sources=False), splats, mesh, tuple(weak), keys)
    entry = _programs.get(key)
    varying = _varying(numbers, entry)
    extra = [numbers[i].value for i in varying]
    if entry is None or entry.varying != varying:
        whole = with_operands(program, numbers, varying)
        outputs = _specs_of_program(whole, (*keys, *map(_key, extra)), mesh)
        executable = compiled(whole, mesh, (*keys, *map(_key, extra)), weak, outputs)
        fixed = tuple(b"" if i in varying else n.value.tobytes() for i, n in enumerate(numbers))
        entry = _Compiled(executable, varying, fixed)
    _keep(key, entry)
    return _call(entry.executable, [*operands, *extra])


def _run_checked(program: Program, operands: Sequence[Value], weak: Sequence[bool], named: Any) -> list[Array]:
    """Outside of jit a check that fails raises once everything is computed."""
    checked = checkify(program, ["FailedCheckError"])
    count = len(checked.program.outputs) - len(program.outputs)
    results = run_program(checked.program, operands, [*[False] * count, *weak], named)
    error = first_error(values_of(checked.kinds, results), checked.messages)
    if error is not None:
        raise JaxRuntimeError.of(error) from error
    return results[count:]


def _keep(key: Any, entry: _Compiled) -> None:
    """As the one used last; those used longest ago go."""
    _programs.pop(key, None)
    _programs[key] = entry
    while len(_programs) > MOST_PROGRAMS:
        _programs.pop(next(iter(_programs)), None)


@dataclass(frozen=True)
class _Compiled:
    """A Program for all values of its numbers `varying` (by position) and for `fixed`, the bytes of the others."""

    executable: Executable
    varying: tuple[int, ...]
    fixed: tuple[bytes, ...]


def _varying(numbers: Sequence[Number], entry: _Compiled | None) -> tuple[int, ...]:
    """Which numbers have to be operands."""
    if entry is None:
        return tuple(i for i, n in enumerate(numbers) if n.value.size > TABLE)
    before = set(entry.varying)
    return tuple(i for i, n in enumerate(numbers) if i in before or n.value.tobytes() != entry.fixed[i])


def compiled(
    program: Program,
    mesh: Mesh,
    keys: Sequence[LeafKey],
    weak: Sequence[bool],
    outputs: Sequence[PartitionSpec | None] = (),
    options: Mapping[str, Any] | None = None,
) -> Executable:
    """A Program for operands with these keys, which stay where they are committed; `outputs`: where its results go; `options`:
    XLA's."""
    if config.no_tracing:
        raise RuntimeError(f"{program.name} would be compiled for new operands, and config.no_tracing is set")
    annotations = Annotations([_spec(k, mesh) for k in keys], outputs or [None] * len(program.outputs))
    program = behind_memories(program, [_memories(k) for k in keys])
    spellings = [spelling_of(k) for k in keys]
    return build(program, mesh, annotations, weak, any(k.committed for k in keys), spellings, options)


def _check_memories(program: Program, keys: Sequence[LeafKey]) -> None:
    """ValueError where an op's operands lie in different memories."""
    if not all(k.memory == DEVICE for k in keys):
        (eqn,) = program.eqns
        types = [f"an array {k.type}" for k in keys]
        check_agree(eqn, [_memories(k) for k in keys], types, line_of(user_source()))


def _memories(key: LeafKey) -> Memories:
    """Where an operand lies: what nobody placed, wherever others do."""
    return frozenset({key.memory}) if key.committed or key.memory != DEVICE else ANYWHERE


def _specs_of_results(program: Program, keys: Sequence[LeafKey], mesh: Mesh) -> list[PartitionSpec]:
    """In explicit axes: where the results of one op are. ShardingTypeError where its operands' placements do not say."""
    if not mesh.explicit_axes:
        return []
    specs = [explicit_part(_spec(k, mesh), k.type.rank, mesh) for k in keys]
    eqn, *others = program.eqns
    if others:  # computed in bytes
        return _specs_of_program(program, keys, mesh)
    try:
        return [pin_of(s, mesh) for s in result_specs(eqn, specs, mesh)]
    except Unclear as unclear:
        raise unclear_placement(eqn, specs, mesh, unclear, user_source(), lambda i: "an array") from None


def _specs_of_program(program: Program, keys: Sequence[LeafKey], mesh: Mesh) -> list[PartitionSpec]:
    if not mesh.explicit_axes:
        return []
    specs = program_specs(program, [explicit_part(_spec(k, mesh), k.type.rank, mesh) for k in keys], mesh)
    return [pin_of(s, mesh) for s in specs]


def _call(executable: Executable, operands: Sequence[Value]) -> list[Array]:
    pairs = zip(operands, executable.in_shardings, strict=True)
    arguments = [_placed(x, s) for x, s in pairs]
    try:
        results = executable.run_placed(arguments)
    except OutOfMemoryError as error:
        name = executable.lowering.plan.program.name
        raise OutOfMemoryError(f"{name} at {line_of(user_source())}{str(error).removeprefix(name)}") from None
    if (config.debug_nans or config.debug_infs) and not is_inside():
        _check(executable, arguments, results)
    return results


def _check(executable: Executable, arguments: Sequence[Array], results: Sequence[Array]) -> None:
    program = executable.lowering.plan.program
    nans.check_results(
        f"{program.name} at {line_of(user_source())}",
        results,
        lambda: ["the result"] * len(results),
        program,
        arguments,
        lambda: [f"operand {i}" for i in range(len(arguments))],
    )


def _placed(value: Value, sharding: Sharding) -> Array:
    if not isinstance(value, Array):
        return place(np.asarray(value), sharding, committed=False)
    return value if fits(value._key, sharding) else move(value, sharding)


def _key(value: Value) -> LeafKey:
    return getattr(value, "_key", None) or leaf_key(type_of(np.asarray(value)), False, None, False)


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray | Program) or (isinstance(value, tuple) and value):
        return print_value(value)
    return (type(value), value)


def _spec(key: LeafKey, mesh: Mesh) -> PartitionSpec | None:
    """Committed arrays stay where they are; others go where propagation likes."""
    return spec_on(mesh, key.sharding, key.type.rank) if key.committed and key.sharding is not None else None


def common_mesh(values: Sequence[Value], what: str) -> Mesh:
    """The mesh that all committed arrays live on; where none is committed, that of the context, else the default device's.

    ShardingError, naming two of them and a fix, where committed arrays live on different devices.
    """
    first: Array | None = None
    for value in values:
        key = getattr(value, "_key", None)
        if key is None or not key.committed:
            continue
        if first is None:
            first = value
        elif (both := merged(mesh_of(first.sharding), mesh_of(value.sharding))) is None:
            raise ShardingError(different_devices(what, "one operand", first, "another", value, user_source()))
        elif _has_other_axes(mesh_of(first.sharding), mesh_of(value.sharding)):
            raise ShardingError(_different_axes(what, first, value))
        elif both != mesh_of(first.sharding):
            first = value
    named = named_mesh()
    if isinstance(named, Mesh):  # whose axis types hold, also for arrays on a mesh of the same axes
        mesh = None if first is None else mesh_of(first.sharding)
        if mesh is None or (mesh.axis_names, mesh.flat_devices) == (named.axis_names, named.flat_devices):
            return named
    return default_mesh() if first is None else mesh_of(first.sharding)


def _has_other_axes(a: Mesh, b: Mesh) -> bool:
    """Whether types of values on two meshes name axes that the other has not, so that a result's would be of one or the other."""
    named = ONE_DEVICE_AXES not in (a.axis_names, b.axis_names)
    return named and bool(a.explicit_axes or b.explicit_axes) and a.shape_tuple != b.shape_tuple


def _different_axes(what: str, a: Array, b: Array) -> str:
    return (
        f"{what} at {line_of(user_source())}: operands are on two meshes, and the result's type can name the axes of one alone\n"
        f"  one operand {a.type} is on {_where(a)}\n  another {b.type} is on {_where(b)}\n"
        "  fix: put one on the other's mesh first: meshjit.device_put(x, NamedSharding(mesh, spec))"
    )


def _mesh_of_part(part: Program, values: Sequence[Value], named: Any) -> Any:
    """Of a Program whose constraints are on `named`: None for a part that has none of them, or runs on other devices."""
    committed = [mesh_of(x.sharding) for x in values if isinstance(x, Array) and x.committed]
    if isinstance(named, Meshes):
        return named
    if named is None or any(merged(named, mesh) is None for mesh in committed):
        return None
    return named if committed or any(eqn.op.seed or eqn.op.regions for eqn in part.eqns) else None


def _on_one_mesh(program: Program, values: Sequence[Value], meshes: Meshes) -> tuple[Program, Any]:
    """A part of a Program on several meshes, and the one that it is on: where its operands are. Where nobody put these anywhere,
    that of its code for single devices; constraints say nothing there, since they do not say of which mesh they are."""
    first = next((mesh_of(x.sharding) for x in values if isinstance(x, Array) and x.committed), None)
    if first is not None:
        return program, meshes.of(first)
    axes = [dict(eqn.params["mesh"]) for eqn in program.eqns if eqn.op.pinned is not None and eqn.op.regions is not None]
    mesh = next((m for m in meshes if axes and axes[0].items() <= m.shape.items()), None)
    return without_constraints(program), mesh


def _named_mesh(named: Any, values: Sequence[Value], what: str) -> Any:
    """The mesh of a Program's constraints; ShardingError where committed operands are on other devices."""
    for value in values:
        if isinstance(value, Array) and value.committed and merged(named, mesh_of(value.sharding)) is None:
            raise ShardingError(
                f"{what} at {line_of(user_source())}: its sharding constraints are on {named}\n"
                f"  an operand {value.type} is on {_where(value)}, and these are not the same devices in the same order\n"
                "  fix: move it there first with meshjit.device_put, or use its mesh in the constraints"
            )
    return named


def different_devices(what: str, first: str, a: Array, second: str, b: Array, source: Source | None) -> str:
    """The text of the error for values committed to different devices or meshes."""
    at = f" at {line_of(source)}" if source else ""
    is_order = a.sharding.device_set == b.sharding.device_set
    rows = [f" of devices {[d.id for d in device_row(each.sharding)]}" if is_order else "" for each in (a, b)]
    return (
        f"{what}{at}: arguments live on {'devices in another order' if is_order else 'different devices'}\n"
        f"  {first} {a.type} is on {_where(a)}{rows[0]}\n"
        f"  {second} {b.type} is on {_where(b)}{rows[1]}\n"
        f"  fix: move one to the other's place first: meshjit.device_put(x, y.sharding)"
    )


def _where(array: Array) -> str:
    sharding = array.sharding
    if isinstance(sharding, SingleDeviceSharding):
        return f"device {next(iter(sharding.device_set))} (committed there by device_put)"
    return f"{sharding.mesh}, {sharding.spec}" if isinstance(sharding, NamedSharding) else str(sharding)
