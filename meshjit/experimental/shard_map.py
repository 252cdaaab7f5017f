"""`jax.experimental.shard_map`: shard_map with the arguments of before."""

from collections.abc import Callable
from typing import Any

from meshjit.lax.shard_map import shard_map as _shard_map
from meshjit.missing import explain as _explain
from sharding.mesh import BaseMesh


def shard_map(
    f: Callable[..., Any],
    mesh: BaseMesh,
    in_specs: Any,
    out_specs: Any,
    check_rep: bool = True,
    auto: frozenset[str] = frozenset(),
) -> Any:
    """`meshjit.shard_map`; `check_rep` is its check_vma, and `auto` are the axes that axis_names leave out."""
    names = set(mesh.axis_names) - auto
    return _shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_rep, axis_names=names)


_explain(__name__)
