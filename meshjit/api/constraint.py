"""with_sharding_constraint: pin where an intermediate lives."""

from __future__ import annotations

from typing import Any

from meshjit import tree
from meshjit.core.op import REGISTRY
from meshjit.runtime.array import Array
from meshjit.runtime.placing import device_put
from meshjit.trace import active_trace, argument_of, as_operand, bind, require_mesh
from sharding.mesh import current_mesh
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec, ShardingError, check_spec


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """`jax.lax.with_sharding_constraint`: the arrays of a tree, placed as `shardings` (a pytree prefix) say.

    NamedSharding anywhere, PartitionSpec under a mesh context; dims marked P.UNCONSTRAINED are left to the compiler.
    Outside of jit the arrays are moved at once.
    """
    leaves, structure = tree.flatten(x)
    if _is_leaf(shardings):
        given = [shardings] * len(leaves)
    else:
        given = tree.flatten_prefix(shardings, structure, "shardings", is_leaf=_is_leaf)
    names = tree.path_names(x, "x")
    return tree.unflatten(structure, [_constrained(v, s, n) for v, s, n in zip(leaves, given, names, strict=True)])


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, NamedSharding | PartitionSpec)


def _constrained(x: Any, sharding: Any, name: str) -> Any:
    if sharding is None:
        return x
    if not isinstance(sharding, NamedSharding | PartitionSpec):
        raise TypeError(
            f"with_sharding_constraint of {name}: {sharding!r} is no sharding\n"
            "  fix: use a NamedSharding, or a PartitionSpec under a mesh"
        )
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else current_mesh()
    if mesh is None:
        raise ShardingError(
            f"with_sharding_constraint of {name}: {sharding} needs a mesh, and there is none\n"
            "  fix: call inside `with mesh:`, or write NamedSharding(mesh, spec)"
        )
    spec = sharding.spec if isinstance(sharding, NamedSharding) else sharding
    argument = argument_of(x, name)
    shape = argument.type.shape
    check_spec(spec, shape, mesh, f"with_sharding_constraint of {name}")
    full = PartitionSpec(*spec, *[None] * (len(shape) - len(spec)))
    if active_trace() is None:
        closed = PartitionSpec(*(None if e is PartitionSpec.UNCONSTRAINED else e for e in full))
        return device_put(x if isinstance(x, Array) else as_operand(x, argument), NamedSharding(mesh, closed))
    require_mesh(mesh)
    return bind(REGISTRY["sharding_constraint"], as_operand(x, argument), spec=full)
