"""Programs that only move or copy: an array under another sharding, in memory of its own, a value broadcast over devices."""

from __future__ import annotations

import functools

from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder
from meshjit.plan.make import Annotations
from meshjit.runtime import _jaxlib
from meshjit.runtime.array import Array, LeafKey, leaf_key
from meshjit.runtime.executable import Executable, build
from meshjit.runtime.placing import move
from meshjit.runtime.shardings import mesh_of, whole_spec
from sharding.memory import DEVICE, memory_of
from sharding.named import NamedSharding, Sharding
from sharding.spec import PartitionSpec


def reshard(array: Array, target: NamedSharding) -> Array:
    """The array under another sharding of the same devices, by the cheapest walk of collectives."""
    (result,) = _identity(array._key, target).run_placed([array])
    return Array(leaf_key(array.type, array.weak_type, target, True), result)  # the target as it was spelt


def filled(value: Array, shape: tuple[int, ...], target: Sharding) -> Array:
    """`value` broadcast to a shape, each device of `target` making its own part of it."""
    there = target.with_memory_kind(DEVICE)
    (result,) = _broadcasting(value._key, shape, there)([value])
    made = Array(leaf_key(result.type, value.weak_type, there, True), result)  # the target as it was spelt
    return made if memory_of(target) == DEVICE else move(made, target)


def copied(array: Array) -> Array:
    """The same elements, sharding and commitment in memory of their own."""
    if memory_of(array.sharding) != DEVICE:
        return Array(array._key, _jaxlib.copy_to_layout(array._live(), array._key.layout))
    (result,) = _identity(array._key, array.sharding).run_placed([array])
    return Array(array._key, result)


@functools.lru_cache(maxsize=4096)
def _identity(key: LeafKey, target: Sharding) -> Executable:
    """A program that gives its argument back, on other memory and as `target` says."""
    with Builder("device_put") as builder:
        var = builder.input(key.type)
        program = builder.build([var])
    assert key.sharding is not None
    annotations = Annotations([whole_spec(key.sharding, var.rank)], [whole_spec(target, var.rank)])
    return build(program, mesh_of(target), annotations, [key.weak], key.committed)


@functools.lru_cache(maxsize=4096)
def _broadcasting(key: LeafKey, shape: tuple[int, ...], target: Sharding) -> Executable:
    dims = tuple(range(len(shape) - key.type.rank, len(shape)))
    with Builder("full") as builder:
        operand = builder.input(key.type)
        results = builder.emit(REGISTRY["broadcast_in_dim"], [operand], {"shape": shape, "dimensions": dims})
        program = builder.build(results)
    annotations = Annotations([PartitionSpec(*[None] * key.type.rank)], [whole_spec(target, len(shape))])
    return build(program, mesh_of(target), annotations, [key.weak], True)
