"""Putting trees of arrays onto devices and getting them back; shapes without values; meshes of all devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import sharding.named
from meshjit import tree
from meshjit.api.leaves import key_of_value
from meshjit.api.shardings import is_sharding_leaf
from meshjit.runtime import client
from meshjit.runtime.array import Array
from meshjit.runtime.placing import device_put as _put_one
from meshjit.trace import Tracer
from sharding.mesh import Mesh
from sharding.named import NamedSharding, Sharding
from sharding.spec import PartitionSpec, ShardingError, check_spec


@dataclass(frozen=True)
class ShapeDtypeStruct:
    """Shape, dtype and, if wanted, sharding of an array that need not exist (`jax.ShapeDtypeStruct`)."""

    shape: tuple[int, ...]
    dtype: Any
    sharding: Any = None
    weak_type: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype))

    def update(self, **fields: Any) -> ShapeDtypeStruct:
        """The same with other fields."""
        return replace(self, **fields)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a ShapeDtypeStruct without dims")
        return self.shape[0]

    def __repr__(self) -> str:
        more = f", sharding={self.sharding}" if self.sharding is not None else ""
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype}{more}{weak})"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def device_put(x: Any, device: Any = None, *, donate: bool = False, may_alias: bool | None = None) -> Any:
    """The arrays of a tree on a device or sharding, or on a pytree prefix of them (`jax.device_put`).

    Extents need not divide. Inside jit it is a sharding constraint. `donate` deletes Arrays that had to be moved.
    """
    leaves, structure = tree.flatten(x)
    given = (
        [device] * len(leaves)
        if _is_place(device)
        else tree.flatten_prefix(device, structure, "device_put's shardings", is_leaf=_is_place)
    )
    names = tree.path_names(x, "x")
    return tree.unflatten(structure, [_put(v, d, donate, n) for v, d, n in zip(leaves, given, names, strict=True)])


def _is_place(x: Any) -> bool:
    return is_sharding_leaf(x) or not tree.is_container(x)


def _put(value: Any, place: Any, donate: bool, name: str) -> Any:
    if isinstance(place, PartitionSpec):
        from sharding.mesh import current_mesh

        mesh = current_mesh()
        if mesh is None:
            raise ShardingError(f"device_put of {name}: {place} needs a mesh\n  fix: write NamedSharding(mesh, {place})")
        check_spec(place, shape_of_leaf(value), mesh, f"device_put of {name}")
        place = NamedSharding(mesh, place)
    elif isinstance(place, NamedSharding):
        check_spec(place.spec, shape_of_leaf(value), place.mesh, f"device_put of {name}")
    elif not (place is None or isinstance(place, Sharding) or hasattr(place, "process_index")):
        raise TypeError(
            f"device_put of {name}: {place!r} is neither a device nor a sharding\n"
            "  fix: use one of meshjit.devices(), a NamedSharding, or a PartitionSpec under a mesh"
        )
    if isinstance(value, Tracer):
        from meshjit.api.constraint import with_sharding_constraint

        return with_sharding_constraint(value, place) if isinstance(place, NamedSharding) else value
    key_of_value(value, name)
    result = _put_one(value, place)
    if donate and isinstance(value, Array) and result.memory is not value.memory:
        value.delete()
    return result


def shape_of_leaf(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)


def device_get(x: Any) -> Any:
    """The arrays of a tree as NumPy arrays."""
    return tree.map(lambda v: v.numpy() if isinstance(v, Array) else np.asarray(v), x)


def block_until_ready(x: Any) -> Any:
    """Wait for every Array of a tree; gives the tree."""
    for leaf in tree.leaves(x):
        if isinstance(leaf, Array):
            leaf.block_until_ready()
    return x


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Shapes and dtypes of fun's results, without computing them (`jax.eval_shape`)."""
    from meshjit.api import jit

    return jit(fun).eval_shape(*args, **kwargs)


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], axis_types: Any = None, *, devices: Sequence[Any] | None = None
) -> Mesh:
    """A mesh of the first devices (`jax.make_mesh`)."""
    return sharding.named.make_mesh(axis_shapes, axis_names, devices or client.devices(), axis_types=axis_types)


__all__ = ["ShapeDtypeStruct", "Sharding", "block_until_ready", "device_get", "device_put", "eval_shape", "make_mesh"]
