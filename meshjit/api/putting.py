"""Putting trees of arrays onto devices and getting them back; shapes without values; meshes of all devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import sharding.named
from meshjit.api.bringing import brought, memory_of_space, put_in_memory
from meshjit.api.constraint import put_traced
from meshjit.api.layouts import Format, Layout, place_of
from meshjit.api.leaves import key_of_value
from meshjit.api.shardings import check_key_specs, is_sharding_leaf
from meshjit.config import config
from meshjit.core.keys import KeyType, PRNGKeyArray
from meshjit.core.memories import MemorySpace
from meshjit.runtime import _jaxlib, client
from meshjit.runtime.array import Array, memories
from meshjit.runtime.assembling import make_array_from_process_local_data as _from_process_local_data
from meshjit.runtime.equal_values import check_equal
from meshjit.runtime.placing import asarray_host, device_put as _put_one
from meshjit.trace import Tracer, active_trace
from meshjit.trace.float0 import is_float0
from meshjit.trace.outlived import as_array
from meshjit.trace.shaped import shaped_array_of
from meshjit.trees import USERS, WORDS as tree
from sharding.axis_types import AxisType
from sharding.manual_type import ManualAxisType
from sharding.memory import DEVICE, memory_of
from sharding.mesh import Mesh, current_mesh
from sharding.named import NamedSharding, Sharding, SingleDeviceSharding, refuse_auto
from sharding.spec import PartitionSpec, ShardingError, check_spec


@dataclass(frozen=True)
class ShapeDtypeStruct:
    """Shape, dtype and, if wanted, sharding of an array that need not exist (`jax.ShapeDtypeStruct`). `sharding` may be a Format,
    whose layout is kept, or a spec under a mesh.

    manual_axis_type: how it stands to the axes of shard_map around it, as `typeof` says; by `eval_shape`, for `typeof` and
    `full_like`."""

    shape: tuple[int, ...]
    dtype: Any
    sharding: Any = None
    weak_type: bool = False
    manual_axis_type: ManualAxisType | None = None
    layout: Layout | None = None

    def __post_init__(self) -> None:
        if self.dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype is None\n  fix: numpy.float32, or another dtype")
        refuse_auto(self.sharding, "ShapeDtypeStruct")
        if isinstance(self.sharding, Format):
            object.__setattr__(self, "layout", self.sharding.layout)
            object.__setattr__(self, "sharding", self.sharding.sharding)
        elif isinstance(self.sharding, PartitionSpec) and (mesh := current_mesh()) is not None:
            object.__setattr__(self, "sharding", NamedSharding(mesh, self.sharding))
        if not (self.sharding is None or isinstance(self.sharding, Sharding | PartitionSpec)):
            raise ValueError(
                f"ShapeDtypeStruct: sharding is {self.sharding!r} of type {type(self.sharding).__name__}\n"
                "  fix: use a NamedSharding, or a PartitionSpec under a mesh"
            )
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", self.dtype if isinstance(self.dtype, KeyType) else np.dtype(self.dtype))

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """That of an array, a traced value or a number; TypeError for anything else."""
        if isinstance(x, ShapeDtypeStruct):
            return x
        if isinstance(x, PRNGKeyArray):
            return cls(x.shape, x.dtype)
        type = shaped_array_of(x)
        placed = type.sharding if isinstance(x, Tracer) else x.sharding if isinstance(x, Array) and x.committed else None
        sharding = None if isinstance(placed, NamedSharding) and placed.mesh.empty else placed
        return cls(type.shape, type.dtype, sharding, type.weak_type, None if type.mat.empty else type.mat)

    def update(self, **fields: Any) -> ShapeDtypeStruct:
        """The same with other fields. ValueError for another sharding where a layout is known: a Format says both."""
        if self.layout is not None and isinstance(fields.get("sharding"), Sharding):
            raise ValueError(
                f"ShapeDtypeStruct.update: sharding is {fields['sharding']}, and the layout {self.layout} is known\n"
                "  fix: sharding=Format(layout, sharding)"
            )
        return replace(self, **fields)

    @property
    def format(self) -> Format:
        """Layout and sharding."""
        return Format(self.layout, self.sharding if isinstance(self.sharding, Sharding) else None)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a ShapeDtypeStruct without dims")
        return self.shape[0]

    def __repr__(self) -> str:
        more = f", sharding={self.sharding}" if self.sharding is not None else ""
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{more}{weak})"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def with_words(x: Any) -> Any:
    """A tree with keys made of the shapes of words where it has shapes of keys."""

    def opened(leaf: Any) -> Any:
        dtype = getattr(leaf, "dtype", None)
        if not isinstance(dtype, KeyType):
            return leaf
        words = ShapeDtypeStruct((*leaf.shape, dtype.words), np.uint32, getattr(leaf, "sharding", None))
        return PRNGKeyArray(dtype, words)

    return tree.map(opened, x)


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None) -> Any:
    """The arrays of a tree on a device or sharding, or on a pytree prefix of them (`jax.device_put`).

    A `meshjit.memory.Space` in a sharding's place brings arrays into another memory of the devices that they are on; so does
    the `memory_kind` of a sharding. Extents need not divide. Inside jit it is a sharding constraint, and one device none. What is
    differentiated or batched outside of jit is moved, and its cotangents go back to where it was.

    `donate` deletes Arrays that had to be moved. `may_alias` lets CPU devices read NumPy arrays where they lie, instead of
    copying them: do not write to them any more. False gives every result memory of its own; without it, an Array that need not
    move is the result itself. Both are bools, or pytree prefixes of them; ValueError where both are true. `src` says where the
    arrays come from, which they know themselves. Across processes each puts its own shards, of NumPy arrays that must be equal
    everywhere, or DivergenceError says which differs: all processes of the devices call it, and compare fingerprints (those of
    `make_array_from_callback` and its kin are not compared). An Array can go to any sharding that covers the same processes.
    """
    del src
    if device is None and type(x) is np.ndarray and x.dtype.kind in "fiub" and may_alias is None and donate is False:
        with _jaxlib.asked_for(is_put=True):
            return _put_one(x)
    leaves, structure = tree.flatten(x)
    leaves = [as_array(leaf) for leaf in leaves]
    places = _of_leaves(device, structure, "device_put's shardings", _is_place)
    donated = _of_leaves(donate, structure, "device_put's donate", _is_flag)
    aliases = _of_leaves(may_alias, structure, "device_put's may_alias", _is_flag)
    names = tree.path_names(x, "x")
    _check_flags(donated, aliases, names)
    check_key_specs(places, structure, [getattr(v, "ndim", 0) for v in leaves], lambda i: f"device_put of {names[i]}")
    with _jaxlib.asked_for(is_put=True):
        results = [v if is_float0(v) else _put(v, d, a, n) for v, d, a, n in zip(leaves, places, aliases, names, strict=True)]
    _check_equal(leaves, results, names)
    _give_up([v for v, flag in zip(leaves, donated, strict=True) if flag], results)
    return tree.unflatten(structure, results)


def _check_equal(values: Sequence[Any], results: Sequence[Any], names: Sequence[str]) -> None:
    """DivergenceError where processes have put different values of their own onto devices of several of them."""
    if client.process_count() == 1:
        return
    sides = zip(names, values, results, strict=True)
    own = [(n, v, r) for n, v, r in sides if isinstance(r, Array) and not isinstance(v, Array) and not r.is_fully_addressable]
    check_equal("device_put", [(name, asarray_host(value)[0], result.sharding) for name, value, result in own])


def _of_leaves(prefix: Any, structure: Any, what: str, is_leaf: Callable[[Any], bool]) -> list[Any]:
    """One entry per leaf, of an entry for all or a pytree prefix."""
    return [prefix] * structure.num_leaves if is_leaf(prefix) else tree.flatten_prefix(prefix, structure, what, is_leaf=is_leaf)


def _is_place(x: Any) -> bool:
    return is_sharding_leaf(x) or isinstance(x, Format) or not tree.is_container(x)


def _is_flag(x: Any) -> bool:
    return x is None or not tree.is_container(x)


def _check_flags(donated: Sequence[Any], aliases: Sequence[Any], names: Sequence[str]) -> None:
    for donate, alias, name in zip(donated, aliases, names, strict=True):
        if donate and alias:
            raise ValueError(
                f"device_put of {name}: donate and may_alias are both true\n"
                "  the result cannot read memory that is given back\n"
                "  fix: leave one of them out"
            )


def _give_up(donated: Sequence[Any], results: Sequence[Any]) -> None:
    """Delete the donated Arrays whose memory no result has."""
    if donated:
        kept = memories(results)
        for value in donated:
            if isinstance(value, Array) and id(value.memory) not in kept:
                value.delete()


def _put(value: Any, place: Any, may_alias: Any, name: str) -> Any:
    if not isinstance(value, Tracer):
        _check_array(value, name)
    place = place_of(place, f"device_put of {name}")
    if isinstance(place, MemorySpace):
        memory = memory_of_space(place, f"device_put of {name}")
        return brought(value, memory) if isinstance(value, Tracer) else put_in_memory(value, memory)
    if isinstance(place, PartitionSpec):
        place = _on_current_mesh(place, shape_of_leaf(value), f"device_put of {name}")
    elif isinstance(place, NamedSharding):
        check_spec(place.spec, shape_of_leaf(value), place.mesh, f"device_put of {name}")
    elif not (place is None or isinstance(place, Sharding) or hasattr(place, "process_index")):
        refuse_auto(place, f"device_put of {name}")
        raise ValueError(
            f"device_put of {name}: {place!r} is neither a device nor a sharding\n"
            "  fix: use one of meshjit.devices(), a NamedSharding, a PartitionSpec under a mesh, or a meshjit.memory.Space"
        )
    if isinstance(value, Tracer):
        return value if place is None else put_traced(value, place)
    if _is_left_to_the_function(value, place):
        return _put_one(value, None, bool(may_alias))
    result = _put_one(value, place, bool(may_alias))
    shares = may_alias is not None and not may_alias and isinstance(value, Array) and result.memory is value.memory
    return result.copy() if shares else result


def _on_current_mesh(spec: PartitionSpec, shape: tuple[int, ...], what: str) -> NamedSharding:
    """ShardingError where there is no mesh, or where the spec fits neither it nor an array of this shape."""
    mesh = current_mesh()
    if mesh is None:
        raise ShardingError(f"{what}: {spec} needs a mesh\n  fix: write NamedSharding(mesh, {spec})")
    check_spec(spec, shape, mesh, what)
    return NamedSharding(mesh, spec)


def _is_left_to_the_function(value: Any, place: Any) -> bool:
    """Under jit a constant that is put on one device goes where the function runs, as in JAX."""
    trace = active_trace()
    if trace is None or trace.values is not None or (isinstance(value, Array) and value.committed):
        return False
    return hasattr(place, "process_index") or (isinstance(place, SingleDeviceSharding) and memory_of(place) == DEVICE)


def _check_array(value: Any, name: str) -> None:
    """TypeError for what is no array, before its place is looked at."""
    try:
        key_of_value(value, name)
    except TypeError as error:
        what = str(error).split("\n")[0].removeprefix("argument ")
        raise TypeError(f"device_put: {what}\n  fix: leave it out of the tree") from None


def shape_of_leaf(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)


def device_get(x: Any) -> Any:
    """The arrays of a tree as NumPy arrays, read-only; numbers, keys and traced values as they are (`jax.device_get`). Copies run
    side by side."""
    with _jaxlib.asked_for(is_put=False):
        x = USERS.map(as_array, x)
        copy_to_host_async(x)
        return USERS.map(lambda v: v if isinstance(v, Tracer | PRNGKeyArray) or not hasattr(v, "__array__") else v.__array__(), x)


def copy_to_host_async(x: Any) -> Any:
    """Start copying the Arrays of a tree to where NumPy can read them; gives the tree (`jax.copy_to_host_async`)."""
    for leaf in tree.leaves(x):
        if isinstance(leaf, Array):
            leaf.copy_to_host_async()
    return x


def block_until_ready(x: Any) -> Any:
    """Wait for everything in a tree that can be waited for; gives the tree (`jax.block_until_ready`)."""
    for leaf in tree.leaves(x):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """Global arrays of what each process has (`jax.make_array_from_process_local_data`): an array, or a tree of them.

    `sharding` may be a pytree prefix of `local_data`, of shardings, devices, and specs under a mesh; `global_shape` is None, or
    one shape for an array, or a tree of shapes like `local_data`. See `meshjit.runtime.assembling` for how extents fit."""
    leaves, structure = tree.flatten(local_data)
    shardings = tree.flatten_prefix(sharding, structure, "sharding", is_leaf=is_sharding_leaf)
    shapes = [global_shape] if not tree.is_container(local_data) else [None] * len(leaves)
    if tree.is_container(local_data) and global_shape is not None:
        shapes = tree.flatten_prefix(global_shape, structure, "global_shape", is_leaf=_is_shape)
    shardings = [_sharding_of_local_data(s, leaf) for s, leaf in zip(shardings, leaves, strict=True)]
    pairs = zip(shardings, leaves, shapes, strict=True)
    return tree.unflatten(structure, [_from_process_local_data(*each) for each in pairs])


def _sharding_of_local_data(place: Any, data: Any) -> Sharding:
    what = "make_array_from_process_local_data"
    if isinstance(place, PartitionSpec):
        return _on_current_mesh(place, shape_of_leaf(data), what)
    if hasattr(place, "process_index"):
        return SingleDeviceSharding(place)
    if isinstance(place, Sharding):
        return place
    refuse_auto(place, what)
    raise TypeError(f"{what}: expected a sharding, got {place!r}\n  fix: NamedSharding(mesh, P(...)), or P(...) under a mesh")


def _is_shape(x: Any) -> bool:
    return x is None or (isinstance(x, tuple | list) and all(n is None or isinstance(n, int) for n in x))


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], axis_types: Any = None, *, devices: Sequence[Any] | None = None
) -> Mesh:
    """A mesh of the first devices (`jax.make_mesh`). `axis_types`: one for all axes, or one for each; by default what
    `config.mesh_axis_types` says: Auto, or Explicit, which is JAX 0.10's default."""
    if axis_types is None:
        axis_types = AxisType.Explicit if config.mesh_axis_types == "explicit" else AxisType.Auto
    try:
        return sharding.named.make_mesh(axis_shapes, axis_names, devices or client.devices(), axis_types=axis_types)
    except sharding.named.TooFewDevices as error:
        if devices or client.process_count() > 1:
            raise
        platform = "" if client.default_backend() == "cpu" else "MESHJIT_PLATFORMS=cpu "
        variables = f"{platform}MESHJIT_NUM_CPU_DEVICES={error.needed}"
        fix = f"fix: {variables} in the environment, before devices are used, makes so many of this CPU"
        raise ValueError(f"{error}\n  {fix}") from None


__all__ = [
    "ShapeDtypeStruct",
    "Sharding",
    "block_until_ready",
    "copy_to_host_async",
    "device_get",
    "device_put",
    "make_array_from_process_local_data",
    "make_mesh",
]
