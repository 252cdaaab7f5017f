"""shard_map: a function of the shards that single devices hold, as a function of whole arrays (`jax.shard_map`)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from meshjit.api.shardings import check_key_specs
from meshjit.api.tracebacks import boundary
from meshjit.core.explicit import without_axes
from meshjit.core.varying import named_in
from meshjit.lax.shard_map_checks import (
    check_inferable,
    check_placed,
    check_results,
    check_shards,
    check_specs,
    is_spec,
    manual_axes,
    mesh_of_arguments,
    mesh_of_call,
    named,
)
from meshjit.lax.shard_map_program import Frame
from meshjit.lax.sharded_refs import has_sharded_refs, specs_of_refs, store_shards, with_shards_of_refs
from meshjit.runtime.array import Array
from meshjit.runtime.placing import device_put
from meshjit.trace import (
    Argument,
    Traced,
    active_trace,
    argument_of,
    as_operand,
    bind_program,
    trace_to_program,
)
from meshjit.trace.common import Common, Operand
from meshjit.trace.explicit import governing, visible_sharding
from meshjit.trace.float0 import float0_zeros, is_float0
from meshjit.trace.members import device_axes, device_axis_names
from meshjit.trace.names import function_name, wraps
from meshjit.trace.once import traced_once
from meshjit.trees import WORDS as tree
from sharding.axes import name_of
from sharding.current import manual_mesh
from sharding.mesh import AbstractMesh, BaseMesh, Mesh
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec, entry_axes, padded

Function = Callable[..., Any]


class _Infer:
    """`in_specs` that are read off the arguments; they have to be placed on Explicit axes."""

    def __repr__(self) -> str:
        return "Infer"


Infer = _Infer()


@dataclass(frozen=True)
class Settings:
    """What shard_map was given besides the function. `out_specs` may be a function that gives one spec per result, and is called
    when these are traced."""

    out_specs: Any
    in_specs: Any = Infer
    mesh: BaseMesh | None = None
    axis_names: frozenset[str] = frozenset()
    check_vma: bool = True


def shard_map(
    f: Function | None = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any = Infer,
    mesh: BaseMesh | None = None,
    axis_names: Collection[str] = frozenset(),
    check_vma: bool = True,
) -> Any:
    """f, which computes with the shards of one device, as a function of whole arrays (`jax.shard_map`).

    Args:
      f: takes shards and gives shards; inside, collectives (`lax.psum`, `lax.ppermute`, …) name axes of the mesh.
      in_specs, out_specs: a PartitionSpec per array, or a pytree prefix of them. Without in_specs arguments stay where they
        are: all axes that f is written for have to be Explicit then. Extents are divided evenly. An axis that
        in_specs do not name brings the same to all devices along it; one that out_specs do not name promises that all have
        the same. None among in_specs hands the argument over as it is. Of a Ref f has one of its shard.
      mesh: by default that of the context (`set_mesh`, `with mesh:`).
      axis_names: the axes that f is written for; along the others it computes with whole arrays, which the compiler spreads.
      check_vma: know for every value along which axes it varies, so that a promise of out_specs that does not hold is an
        error, and derivatives send what they need and nothing else.

    Without f a decorator. ValueError for extents that do not divide, specs longer than the rank, and results that vary over
    axes that out_specs do not name; TypeError for what is no spec.
    """
    if not isinstance(axis_names, set | frozenset):
        raise TypeError(f"shard_map: axis_names must be a set of names, got {type(axis_names).__name__} {axis_names!r}")
    settings = Settings(out_specs, in_specs, mesh, frozenset(axis_names), bool(check_vma))
    return functools.partial(map_shards, settings) if f is None else map_shards(settings, f)


def smap(f: Function | None = None, /, *, in_axes: Any = Infer, out_axes: Any, axis_name: str) -> Any:
    """shard_map over the one axis `axis_name` of the context's mesh, its specs said as dims (`jax.smap`).

    in_axes, out_axes: an int, None for what is the same on all devices, or a tree of these."""
    if isinstance(axis_name, list | tuple):
        raise TypeError(f"smap: axis_name must be one name, got {axis_name!r}")
    specs = [_specs_of("smap", what, axes, axis_name) for what, axes in (("in_axes", in_axes), ("out_axes", out_axes))]
    settings = Settings(specs[1], specs[0], axis_names=frozenset({axis_name}))
    return functools.partial(map_shards, settings) if f is None else map_shards(settings, f)


def _specs_of(what: str, side: str, axes: Any, axis_name: str) -> Any:
    def spec(axis: Any) -> PartitionSpec:
        if axis is not None and not isinstance(axis, int):
            raise TypeError(f"{what}: {side} must hold ints and None, found {type(axis).__name__} {axis!r}")
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, axis_name)

    return axes if axes is Infer else tree.map(spec, axes, is_leaf=lambda x: x is None)


def map_shards(settings: Settings, f: Function) -> Function:
    if not callable(f):
        raise TypeError(f"shard_map needs a function, was given {type(f).__name__}: {f!r:.60}")

    @boundary
    @wraps(f)
    def mapped(*args: Any) -> Any:
        return _with_refs(settings, f, args) if has_sharded_refs(args) else _Call(f, settings, args).run()

    return mapped


def _with_refs(settings: Settings, f: Function, args: tuple[Any, ...]) -> Any:
    of_shards, lent = with_shards_of_refs(f, args)
    call = _Call(of_shards, settings, lent)
    of_refs = specs_of_refs(lent, call.specs)
    call.settings = replace(settings, out_specs=_beside(of_refs, settings.out_specs))
    results = call.run()
    store_shards(args, results["refs"])
    return results["value"]


def _beside(of_refs: list[PartitionSpec], own: Any) -> Any:
    """out_specs of what is written to Refs, before those of the value."""
    if not callable(own):
        return {"refs": of_refs, "value": own}
    of_values: Callable[[], list[PartitionSpec]] = own  # pyright: ignore[reportAssignmentType]
    return lambda: [*of_refs, *of_values()]


class _Call:
    """One call: what is known of the mesh and of every leaf of the arguments."""

    def __init__(self, f: Function, settings: Settings, args: tuple[Any, ...]) -> None:
        self.f, self.settings, self.name = f, settings, function_name(f)
        self.mesh = mesh_of_call(settings.mesh, self.name)
        self.names = manual_axes(settings.axis_names, self.mesh)
        self.axes = tuple((name, size) for name, size in self.mesh.shape_tuple if name in self.names)
        self.auto = [n for n in self.mesh.axis_names if n not in self.names and n not in device_axis_names()]
        self.is_inferred = settings.in_specs is Infer
        if self.is_inferred:
            check_inferable(self.mesh, self.names)
        else:
            check_specs(settings.in_specs, self.names, "in_specs", self.mesh)
        if not callable(settings.out_specs):
            check_specs(settings.out_specs, self.names, "out_specs", self.mesh)
        if isinstance(self.mesh, AbstractMesh) and active_trace() is None:
            self.mesh = mesh_of_arguments(self.mesh, self.name, tree.leaves(args))
        self.frame = Frame(self.name, self.mesh, self.axes, settings.check_vma, bool(self.auto))
        self.leaves, self.in_tree = tree.flatten((args, {}))
        self.paths = _paths(f, args)
        self.specs = self._in_specs(args)
        arguments = [
            None if s is None else argument_of(x, p, _FIX)
            for x, p, s in zip(self.leaves, self.paths, self.specs, strict=True)
        ]
        ranks = [0 if a is None else a.type.rank for a in arguments]
        check_shards(self.name, self.mesh, arguments, self.specs)
        if not self.is_inferred:  # else the specs are those of types, in which keys are words
            where = f"shard_map of {self.name}: in_specs for"
            check_key_specs(self.specs, self.in_tree, ranks, lambda i: f"{where} {self.paths[i]}")
            check_placed(self.name, self.mesh, self.names, arguments, self.specs)
        self.arguments = [a for a in arguments if a is not None]

    def _in_specs(self, args: tuple[Any, ...]) -> list[PartitionSpec | None]:
        if self.is_inferred:
            return [self._own_spec(x, path) for x, path in zip(self.leaves, self.paths, strict=True)]
        structure = tree.structures(self.in_tree)[0]
        specs = self.settings.in_specs
        if isinstance(specs, PartitionSpec) or specs is None:
            return [specs] * structure.num_leaves
        specs = tuple(specs) if isinstance(specs, list) else specs
        return tree.flatten_prefix(specs, structure, "shard_map: in_specs", is_leaf=lambda x: x is None or is_spec(x))

    def _own_spec(self, leaf: Any, path: str) -> PartitionSpec:
        """Where an argument is, over the axes that the function is written for."""
        rank = argument_of(leaf, path, _FIX).type.rank
        spec = padded(visible_sharding(leaf, rank).spec, rank)
        entries = [entry_axes(e) for e in spec]
        entries = [tuple(a for a in axes if name_of(a) in self.names) or None for axes in entries]
        return PartitionSpec(*entries, unreduced=spec.unreduced & self.names, reduced=spec.reduced & self.names)

    def run(self) -> Any:
        traced = self._traced()
        out_specs = self._out_specs(traced)
        placed = [spec for spec in self.specs if spec is not None]
        body = traced.program
        ranks = [t.rank for t in body.output_types]
        check_key_specs(out_specs, traced.out_tree, ranks, lambda i: f"shard_map of {self.name}: out_specs for result {i}")
        outputs = check_results(self.name, self.mesh, self.names, traced, out_specs, self.settings.check_vma)
        in_specs = [*placed, *[PartitionSpec()] * len(traced.captured)]
        program = self.frame.program(outputs, in_specs, out_specs)
        results = bind_program(program, [*self._operands(), *traced.captured], traced.out_weak, self._program_mesh())
        if active_trace() is None and not self.auto and isinstance(self.mesh, Mesh):
            results = [self._as_spelt(x, s) for x, s in zip(results, out_specs, strict=True)]
        return self._whole_float0(traced.out_tree, tree.unflatten(traced.out_tree, results))

    def _as_spelt(self, result: Any, spec: PartitionSpec) -> Any:
        """Outside of jit: the array under its spec as out_specs have it."""
        target = NamedSharding(self.mesh, spec)
        return device_put(result, target) if isinstance(result, Array) and result.sharding != target else result

    def _whole_float0(self, structure: Any, result: Any) -> Any:
        """The result with float0 arrays of the shapes of all devices' shards together."""
        leaves, whole = tree.flatten(result)
        if whole.num_leaves == structure.num_leaves or callable(self.settings.out_specs):
            return result
        specs = _spread_specs(self.settings.out_specs, whole)
        return tree.unflatten(whole, [self._joined(x, s) if is_float0(x) else x for x, s in zip(leaves, specs, strict=True)])

    def _joined(self, shard: Any, spec: PartitionSpec) -> Any:
        counts = [self.mesh.axes_size(axes) for axes in named(spec, shard.ndim)]
        return float0_zeros([n * count for n, count in zip(shard.shape, counts, strict=True)])

    def _program_mesh(self) -> BaseMesh | None:
        """None for an AbstractMesh under jit: the devices are those of the arguments."""
        return None if isinstance(self.mesh, AbstractMesh) and active_trace() is not None else self.mesh

    def _traced(self) -> Traced:
        """f of shards. Arguments whose spec is None reach it as they are."""
        around = {*self.names, *device_axis_names()}
        common = self._common()
        with manual_mesh(self.mesh, around):
            specs = [s for s in self.specs if s is not None]
            shards = [self._shard(a, s) for a, s in zip(self.arguments, specs, strict=True)]

        def of_shards(*values: Any) -> Any:
            rest = iter(values)
            leaves = [x if s is None else next(rest) for x, s in zip(self.leaves, self.specs, strict=True)]
            return self.f(*tree.unflatten(self.in_tree, leaves)[0])

        structure = tree.structure(((0,) * len(shards), {}))
        handed_over = tuple([(type(x), x) for x, s in zip(self.leaves, self.specs, strict=True) if s is None])
        key = ("shard_map", self.name, tuple(shards), self.in_tree, tuple(self.specs), handed_over)

        operands = [Operand(i) for i in range(len(shards))] if common is not None else None

        def trace() -> Traced:
            return trace_to_program(of_shards, shards, structure, self.name, operands=operands, common=common)

        with device_axes(self.axes, self.settings.check_vma), manual_mesh(self.mesh, around):
            return trace() if callable(self.settings.out_specs) else traced_once(self.f, key, trace)

    def _common(self) -> Common | None:
        """Outside of jit: what Python is told where all devices have the same."""
        outer = active_trace()
        if not isinstance(self.mesh, Mesh) or (outer is not None and outer.values is None):
            return None
        specs = [s for s in self.specs if s is not None]
        return Common(lambda part, leaves: self.frame.value(part, leaves, self._operands(), specs))

    def _operands(self) -> list[Any]:
        values = [x for x, spec in zip(self.leaves, self.specs, strict=True) if spec is not None]
        return [as_operand(x, a) for x, a in zip(values, self.arguments, strict=True)]

    def _shard(self, argument: Argument, spec: PartitionSpec) -> Argument:
        counts = [self.mesh.axes_size(axes) for axes in named(spec, argument.type.rank)]
        shape = tuple(n // count for n, count in zip(argument.type.shape, counts, strict=True))
        sharding, mesh = argument.sharding, governing(None)
        if sharding is not None and mesh is not None:
            sharding = NamedSharding(mesh, without_axes(sharding.spec, self.names))
        shard = argument.type.with_shape(shape)
        varying = argument.varying | named_in(spec)
        return replace(argument, type=shard, varying=varying, sharding=None if mesh is None else sharding)

    def _out_specs(self, traced: Traced) -> list[PartitionSpec]:
        specs = self.settings.out_specs
        return list(specs()) if callable(specs) else _spread_specs(specs, traced.out_tree)  # pyright: ignore[reportArgumentType]


def _spread_specs(specs: Any, structure: Any) -> list[PartitionSpec]:
    if isinstance(specs, PartitionSpec):
        return [specs] * structure.num_leaves
    return tree.flatten_prefix(specs, structure, "shard_map: out_specs", is_leaf=is_spec)


_FIX = "in_specs with None at its place hand it over as it is"


def _paths(f: Function, args: tuple[Any, ...]) -> list[str]:
    """`params['w1']` for every leaf."""
    try:
        names = list(inspect.signature(f).bind(*args).arguments)
    except (TypeError, ValueError):
        names = []
    names += [f"args[{i}]" for i in range(len(names), len(args))]
    return [path for name, x in zip(names, args, strict=False) for path in tree.path_names(x, name)]
