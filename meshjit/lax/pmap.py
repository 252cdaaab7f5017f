"""pmap: a function of one example per device (`jax.pmap`): jit of a shard_map over a mesh of one axis."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.api import jit
from meshjit.api.putting import device_put
from meshjit.api.tracebacks import boundary
from meshjit.lax.pmap_processes import of_all_processes, of_this_process
from meshjit.lax.shard_map import Settings, map_shards
from meshjit.numpy.promote import shape_of
from meshjit.runtime.array import Array
from meshjit.runtime.client import devices as all_devices, process_count
from meshjit.trace import active_trace, line_of, user_source
from meshjit.trace.members import device_axis_names
from meshjit.trace.names import function_name, wraps
from meshjit.trees import WORDS as tree
from sharding.mesh import Mesh
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec

Function = Callable[..., Any]
_ANONYMOUS = "_internal_pmap_axis_name"


def pmap(
    fun: Function,
    axis_name: str | None = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Sequence[int] = (),
) -> Pmapped:
    """fun, run once per device, each with its slice of the arguments (`jax.pmap`).

    Args:
      axis_name: what collectives inside call the axis of devices.
      in_axes: the dim of every argument that has one slice per device: an int, None for what all devices get whole, or a tree
        prefix of the positional arguments. Keyword arguments are mapped over dim 0.
      out_axes: where the results' dim of devices goes; None for results that are the same on all.
      static_broadcasted_argnums: positions of arguments that are no arrays; another value compiles again.
      devices: those that run it, by default the first ones. axis_size: how many, checked against the arguments.
      donate_argnums: positions of arguments whose memory results may use.

    With several processes each calls with one slice per device of its own, and gets their results; collectives go over all.

    Results lie on a mesh of one axis, sharded along out_axes. ValueError where the mapped extents differ, none is mapped, or
    there are fewer devices.
    """
    return Pmapped(
        fun, axis_name or _ANONYMOUS, in_axes, out_axes, _numbers(static_broadcasted_argnums), devices, backend, axis_size,
        _numbers(donate_argnums),
    )  # fmt: skip


def _numbers(numbers: int | Sequence[int]) -> tuple[int, ...]:
    return (numbers,) if isinstance(numbers, int) else tuple(numbers)


class Pmapped:
    """What `pmap` gives: callable like the function, with `.lower`."""

    def __init__(
        self, fun: Function, axis_name: str, in_axes: Any, out_axes: Any, statics: tuple[int, ...], devices: Any, backend: Any,
        axis_size: int | None, donated: tuple[int, ...],
    ) -> None:  # fmt: skip
        if not callable(fun):
            raise TypeError(f"pmap needs a function, was given {type(fun).__name__}: {fun!r:.60}")
        wraps(fun)(self)
        if devices is not None and not len(devices):
            raise ValueError("pmap: devices is empty\n  fix: at least one device, or None for the first ones")
        self.fun, self.axis_name, self.in_axes, self.out_axes = fun, axis_name, in_axes, out_axes
        self.statics, self.donated = statics, donated
        self.devices = list(devices) if devices is not None else all_devices(backend)
        self.axis_size, self.title = axis_size, f"pmap({function_name(fun)})"
        _check_axes(self.title, "in_axes", in_axes)
        _check_axes(self.title, "out_axes", out_axes)
        self.compiled: dict[Any, _Jitted] = {}  # by tree, dims, mesh and static arguments

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function, leaves, shardings = self._mapped(args, kwargs)
        if active_trace() is not None:
            return function.nested(*leaves)
        if process_count() > 1:
            everywhere = (of_all_processes(x, s) for x, s in zip(leaves, shardings, strict=True))
            return tree.map(of_this_process, function.placed(*everywhere))
        return function.placed(*(_placed(x, s) for x, s in zip(leaves, shardings, strict=True)))

    @boundary
    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Trace, plan, partition and emit for these arguments."""
        function, leaves, shardings = self._mapped(args, kwargs)
        if process_count() > 1:
            leaves = [of_all_processes(x, s) for x, s in zip(leaves, shardings, strict=True)]
        return function.placed.lower(*leaves)

    def __repr__(self) -> str:
        return f"<{self.title}>"

    def _mapped(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Jitted, list[Any], list[NamedSharding]]:
        """The jitted function of the leaves, the leaves, and where they go."""
        if device_axis_names():
            raise ValueError(
                f"{self.title}: it is called in code for single devices of axes {device_axis_names()}, as in JAX not possible\n"
                "  fix: one shard_map over a mesh of several axes"
            )
        missing = [n for n in self.statics if n >= len(args)]
        if missing:
            raise ValueError(
                f"{self.title}: static_broadcasted_argnums has {missing[0]}, but it was called with {len(args)} positional"
                f" arguments\n  at {line_of(user_source())}\n  fix: pass static arguments by position"
            )
        dynamic = [i for i in range(len(args)) if i not in self.statics]
        values = tuple(args[i] for i in dynamic)
        leaves, in_tree = tree.flatten((values, kwargs))
        paths = [*tree.path_names(values, "args"), *tree.path_names(kwargs, "kwargs")]
        dims = self._dims(values, kwargs, dynamic, leaves, paths)
        mesh = self._mesh(leaves, dims, paths)
        static = tuple((i, type(args[i]), args[i]) for i in self.statics)
        key = (in_tree, tuple(dims), mesh, static)
        specs = [_spec(self.axis_name, d) for d in dims]
        function = self.compiled.get(key)
        if function is None:
            statics = {i: args[i] for i in self.statics}
            function = self.compiled[key] = self._compiled(in_tree, dims, specs, mesh, statics, dynamic)
        return function, leaves, [NamedSharding(mesh, spec) for spec in specs]

    def _dims(
        self, values: tuple[Any, ...], kwargs: Any, dynamic: Sequence[int], leaves: Sequence[Any], paths: Sequence[str]
    ) -> list[int | None]:
        """The mapped dim of every leaf, from the front."""
        axes = tuple(self.in_axes) if isinstance(self.in_axes, list) else self.in_axes
        if isinstance(axes, tuple) and self.statics:
            axes = tuple(axes[i] for i in dynamic if i < len(axes))
        spread = _spread(axes, values, f"{self.title}: in_axes") + [0] * len(tree.leaves(kwargs))
        return [_normal(self.title, d, x, p) for d, x, p in zip(spread, leaves, paths, strict=True)]

    def _mesh(self, leaves: Sequence[Any], dims: Sequence[int | None], names: Sequence[str]) -> Mesh:
        sizes = [shape_of(x)[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
        paths = [p for p, d in zip(names, dims, strict=True) if d is not None]
        if not sizes:
            raise ValueError(f"{self.title}: no argument is mapped\n  at {line_of(user_source())}\n  fix: vmap, or jit alone")
        other = next((i for i, size in enumerate(sizes) if size != sizes[0]), None)
        if other is not None:
            raise ValueError(
                f"{self.title}: {paths[0]} has {sizes[0]} slices, and {paths[other]} has {sizes[other]}\n"
                f"  at {line_of(user_source())}\n  fix: in_axes=None for what all devices get whole"
            )
        if self.axis_size not in (None, sizes[0]):
            raise ValueError(f"{self.title}: axis_size is {self.axis_size}, the arguments have {sizes[0]} slices")
        own = [d for d in self.devices if d.process_index == d.client.process_index()]
        if process_count() > 1 and active_trace() is None:
            return self._mesh_of_processes(sizes[0], own)
        if sizes[0] > len(own):
            raise ValueError(
                f"{self.title}: the arguments have {sizes[0]} slices, there are {len(own)} devices\n"
                f"  at {line_of(user_source())}\n  fix: jit(vmap(...)) on a mesh, which takes any number of slices"
            )
        return _mesh_of(tuple(own[: sizes[0]]), self.axis_name)

    def _mesh_of_processes(self, slices: int, own: Sequence[Any]) -> Mesh:
        """All devices; ValueError where there is not one slice for each of this process's."""
        if slices != len(own):
            raise ValueError(
                f"{self.title}: the arguments have {slices} slices, and {len(own)} of the {len(self.devices)} devices are this"
                f" process's\n  at {line_of(user_source())}\n  fix: one slice for each of them"
            )
        return _mesh_of(tuple(self.devices), self.axis_name)

    def _compiled(
        self, in_tree: Any, dims: Sequence[int | None], specs: Sequence[PartitionSpec], mesh: Mesh, statics: dict[int, Any],
        dynamic: Sequence[int],
    ) -> _Jitted:  # fmt: skip
        """jit of a shard_map of the leaves."""
        out_specs, out_trees = list[PartitionSpec](), list[Any]()

        def of_slices(*leaves: Any) -> list[Any]:
            values, kwargs = tree.unflatten(in_tree, [_squeezed(x, d) for x, d in zip(leaves, dims, strict=True)])
            given = {**statics, **dict(zip(dynamic, values, strict=True))}
            result = self.fun(*(given[i] for i in range(len(given))), **kwargs)
            flat, out_tree = tree.flatten(result)
            spread = _spread(self.out_axes, result, f"{self.title}: out_axes")
            places = [None if d is None else d % (len(shape_of(x)) + 1) for d, x in zip(spread, flat, strict=True)]
            out_specs[:], out_trees[:] = [_spec(self.axis_name, d) for d in places], [out_tree]
            return [x if d is None else mnp.expand_dims(x, d) for x, d in zip(flat, places, strict=True)]

        def of_leaves(*leaves: Any) -> Any:
            settings = Settings(lambda: list(out_specs), tuple(specs), mesh, check_vma=False)
            results = map_shards(settings, of_slices)(*leaves)
            return tree.unflatten(out_trees[0], results)

        of_leaves.__name__ = function_name(self.fun)
        values = tree.unflatten(in_tree, list(range(in_tree.num_leaves)))[0]
        donated = [n for i, x in zip(dynamic, values, strict=True) if i in self.donated for n in tree.leaves(x)]
        placed = tuple(NamedSharding(mesh, spec) for spec in specs)
        return _Jitted(jit(of_leaves, in_shardings=placed, donate_argnums=tuple(donated)), jit(of_leaves))


@dataclass(frozen=True)
class _Jitted:
    """A function of the leaves: `placed`, called with arrays, and `nested`, called in other traced functions."""

    placed: Any
    nested: Any


@functools.lru_cache(maxsize=64)
def _mesh_of(devices: tuple[Any, ...], axis_name: str) -> Mesh:
    return Mesh(np.array(devices, dtype=object), (axis_name,))


def _spec(axis_name: str, dim: int | None) -> PartitionSpec:
    return PartitionSpec() if dim is None else PartitionSpec(*[None] * dim, axis_name)


def _squeezed(x: Any, dim: int | None) -> Any:
    return x if dim is None else mnp.squeeze(x, dim)


def _check_axes(title: str, what: str, axes: Any) -> None:
    for path, leaf in tree.leaves_with_path(axes, lambda x: x is None):
        if leaf is not None and not isinstance(leaf, int):
            where = f"{what}{tree.keystr(path)}"
            raise TypeError(f"{title}: {where} is {leaf!r} of type {type(leaf).__name__}; dims are ints, or None")


def _spread(axes: Any, values: Any, what: str) -> list[int | None]:
    """One per leaf of the values, from a prefix."""
    structure = tree.structure(values)
    if axes is None or isinstance(axes, int):
        return [axes] * structure.num_leaves
    return tree.flatten_prefix(axes, structure, what, is_leaf=lambda x: x is None)


def _normal(title: str, dim: int | None, x: Any, path: str) -> int | None:
    """The dim from the front; ValueError where the argument has no such dim."""
    if dim is None:
        return None
    rank = len(shape_of(x))
    if not -rank <= dim < rank:
        raise ValueError(
            f"{title}: in_axes is {dim} for {path}, which has {rank} dims\n  at {line_of(user_source())}\n"
            "  fix: in_axes=None for what all devices get whole"
        )
    return dim % rank


def _placed(x: Any, sharding: NamedSharding) -> Any:
    """Arrays that somebody put elsewhere are moved, as in JAX; others find their way by themselves."""
    is_elsewhere = isinstance(x, Array) and x.committed and x.sharding != sharding
    return device_put(x, sharding) if is_elsewhere else x
