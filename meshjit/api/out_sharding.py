"""`out_sharding=`: where a function's result shall be, in explicit axes, as `jax.numpy`, `jax.lax` and `jax.random` have it.

Inside, the axes are automatic: how the result gets there is planned for all of the function at once.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any

from meshjit.core.explicit import explicit_part, pin_of
from meshjit.errors import ShardingTypeError
from meshjit.runtime.array import Array
from meshjit.runtime.placing import device_put
from meshjit.trace import (
    Tracer,
    active_trace,
    argument_of,
    bind,
    bind_program,
    concrete_info,
    line_of,
    trace_to_program,
    user_source,
)
from meshjit.trace.explicit import governing, holding, sharding_in_type
from meshjit.trace.meshes import is_without_devices
from meshjit.trace.once import traced_once
from meshjit.trees import WORDS as tree
from sharding.axis_types import AxisType
from sharding.current import set_mesh
from sharding.mesh import AbstractMesh, BaseMesh, Mesh, named_mesh
from sharding.named import NamedSharding, refuse_auto
from sharding.spec import PartitionSpec, check_spec, entry_axes, padded


def takes_out_sharding(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with one more keyword, `out_sharding`: a NamedSharding, or a PartitionSpec under a mesh.

    Over automatic axes it is a constraint."""
    name = function.__name__

    @functools.wraps(function)
    def placing(*args: Any, out_sharding: Any = None, **kwargs: Any) -> Any:
        if out_sharding is None:
            return function(*args, **kwargs)
        sharding = checked_sharding(out_sharding, name)
        if not sharding.mesh.axis_names:  # that of a type without a mesh: it says nothing
            return function(*args, **kwargs)
        return _computed(function, args, kwargs, sharding)

    signature = inspect.signature(function)
    keyword = inspect.Parameter("out_sharding", inspect.Parameter.KEYWORD_ONLY, default=None)
    rest = [p for p in signature.parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD]
    before = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    placing.__signature__ = signature.replace(parameters=[*before, keyword, *rest])  # pyright: ignore[reportAttributeAccessIssue]
    return placing


def checked_sharding(sharding: Any, what: str) -> NamedSharding:
    """TypeError for what is no sharding, ValueError for a spec without a mesh, or of axes of code for single devices."""
    refuse_auto(sharding, f"{what}: out_sharding")
    if not isinstance(sharding, NamedSharding | PartitionSpec):
        raise TypeError(
            f"{what}: out_sharding is {sharding!r} of type {type(sharding).__name__}\n"
            "  fix: a NamedSharding, or a PartitionSpec under meshjit.set_mesh"
        )
    if isinstance(sharding, PartitionSpec):
        trace = active_trace()
        mesh = governing(None if trace is None else trace.mesh)
        if mesh is None:
            fix = "meshjit.set_mesh(mesh), or NamedSharding(mesh, spec)"
            raise ValueError(f"{what}: out_sharding={sharding} needs a mesh\n  fix: {fix}")
        check_spec(sharding, None, mesh, f"{what}: out_sharding")
        sharding = NamedSharding(mesh, sharding)
    elif (named := named_mesh()) is not None and is_without_devices(sharding.mesh, named):  # as `typeof` says where an array is
        sharding = NamedSharding(named, sharding.spec)
    types = sharding.mesh.types_by_name if named_mesh() is None else {**sharding.mesh.types_by_name, **_types_of(named_mesh())}
    for entry in sharding.spec:
        for axis in entry_axes(entry):
            if types.get(str(axis)) is AxisType.Manual:
                raise ValueError(
                    f"{what}: out_sharding={sharding.spec} names axis {axis!r}, whose type is {types.get(str(axis))}\n"
                    "  fix: leave it out: each device has its own part along it already"
                )
    return sharding


def _types_of(mesh: BaseMesh | None) -> Mapping[str, AxisType]:
    return {} if mesh is None else mesh.types_by_name


@functools.lru_cache(maxsize=256)
def _typed(mesh: Mesh | AbstractMesh, types: tuple[AxisType, ...]) -> BaseMesh:
    return mesh.update(axis_types=types)


@contextlib.contextmanager
def axes_typed(mesh: BaseMesh, types: Mapping[str, AxisType]) -> Generator[BaseMesh]:
    """Inside, these axes of the mesh are of these types."""
    assert isinstance(mesh, Mesh | AbstractMesh)
    changed = _typed(mesh, mesh.types_with(types))
    with set_mesh(changed):
        yield changed


def automatic(mesh: BaseMesh) -> contextlib.AbstractContextManager[BaseMesh]:
    """Inside, the explicit axes of the mesh are automatic."""
    return axes_typed(mesh, dict.fromkeys(mesh.explicit_axes, AxisType.Auto))


def _computed(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], sharding: NamedSharding) -> Any:
    """What the function gives, placed; outside of a trace it becomes one Program, traced once for equal calls."""
    what = function.__name__
    _check_sums(sharding.spec, (args, kwargs), what)
    trace = active_trace()
    mesh = named_mesh() or (trace.mesh if trace is not None and trace.mesh is not None else sharding.mesh)

    def placed(*args: Any, **kwargs: Any) -> Any:
        with automatic(mesh):
            result = function(*args, **kwargs)
        return held(result, sharding, what)

    if trace is not None:
        return placed(*args, **kwargs)
    leaves, structure = tree.flatten((args, kwargs))
    inputs = [x for x in leaves if concrete_info(x) is not None]
    arguments = [argument_of(x) for x in inputs]

    def of_arrays(*values: Any) -> Any:
        rest = iter(values)
        given, named = tree.unflatten(structure, [x if concrete_info(x) is None else next(rest) for x in leaves])
        return placed(*given, **named)

    settings = tuple((type(x), x) if concrete_info(x) is None else None for x in leaves)
    key = ("out_sharding", what, sharding, sharding.spec.unreduced, sharding.spec.reduced, structure, settings, tuple(arguments))
    flat = tree.structure(((0,) * len(inputs), {}))
    traced = traced_once(function, key, lambda: trace_to_program(of_arrays, arguments, flat, what, None, inputs), share=True)
    results = bind_program(traced.program, [*inputs, *traced.captured], traced.out_weak, traced.mesh)
    return tree.unflatten(traced.out_tree, [_as_spelt(x, sharding) for x in results])


def _as_spelt(x: Any, sharding: NamedSharding) -> Any:
    if not isinstance(x, Array):
        return x
    return device_put(x, NamedSharding(sharding.mesh, padded(sharding.spec, x.ndim)))


def _check_sums(spec: PartitionSpec, arguments: Any, what: str) -> None:
    """ShardingTypeError where a sum is to be left unfinished over axes over which no argument is sharded or unreduced."""
    shardings = [s for x in tree.leaves(arguments) if hasattr(x, "ndim") and (s := sharding_in_type(x)) is not None]
    if not spec.unreduced or not shardings:
        return
    known = {str(axis) for s in shardings for entry in s.spec for axis in entry_axes(entry)}
    missing = sorted(spec.unreduced.difference(known, *(s.spec.unreduced for s in shardings)))
    if missing:
        raise ShardingTypeError(
            f"{what} at {line_of(user_source())}: out_sharding={spec} leaves a sum over {missing[0]} unfinished, but"
            f" no argument is sharded over it\n  fix: leave {missing[0]!r} out of unreduced"
        )


def held(x: Any, sharding: NamedSharding, what: str) -> Any:
    """The values of a tree, in a trace, where `sharding` says, in their types too."""
    return tree.map(lambda leaf: _held(leaf, sharding, what), x)


def _held(x: Any, sharding: NamedSharding, what: str) -> Any:
    trace = active_trace()
    assert trace is not None
    tracer = trace.lift(x) if not isinstance(x, Tracer) or x.tracing is not trace else x
    mesh, surplus = named_mesh() or sharding.mesh, sharding.spec[tracer.ndim :]
    if surplus and all(entry is None for entry in surplus):  # that of another value's type, which has more dims
        sharding = sharding.with_spec(sharding.spec.update(partitions=sharding.spec[: tracer.ndim]))
    check_spec(sharding.spec, tracer.shape, sharding.mesh, f"{what}: out_sharding of {tracer.type}")
    spec = explicit_part(sharding.spec, tracer.ndim, mesh)
    if trace.specs is None and mesh.explicit_axes:
        trace.specs = {}
    if trace.mesh is None:
        trace.require_mesh(sharding.mesh)
    specs = {} if trace.specs is None else trace.specs
    before = explicit_part(specs.get(tracer.variable), tracer.ndim, mesh)
    full = padded(sharding.spec, tracer.ndim)
    pins = zip(pin_of(full, mesh) if mesh.explicit_axes else full, before, strict=True)
    pin = full.update(partitions=[None if p is PartitionSpec.UNCONSTRAINED and was else p for p, was in pins])
    result = bind(holding(pin), tracer, spec=pin)
    result.weak_type = tracer.weak_type
    if trace.specs is not None:
        trace.specs[result.variable] = spec
    return result
