"""auto_axes and explicit_axes: functions in which axes of the mesh are of another type (`jax.sharding`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from meshjit.api.constraint import reshard
from meshjit.api.out_sharding import axes_typed
from meshjit.trace import Tracer, active_trace
from meshjit.trace.explicit import governing, sharding_in_type
from meshjit.trace.names import wraps
from meshjit.trees import WORDS as tree
from sharding.axis_types import AxisType
from sharding.current import set_mesh
from sharding.mesh import BaseMesh
from sharding.named import NamedSharding

Function = Callable[..., Any]


def auto_axes(f: Function | None = None, /, *, axes: str | tuple[str, ...] | None = None, out_sharding: Any = None) -> Any:
    """f with explicit axes (all, or `axes`) automatic inside: placements over them are the compiler's (`jax.sharding.auto_axes`).

    `out_sharding`: where the results are, a pytree prefix; here, or as a keyword of the call. TypeError without."""
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)

    @wraps(f)
    def with_auto_axes(*args: Any, **kwargs: Any) -> Any:
        target = kwargs.pop("out_sharding", None) if out_sharding is None else out_sharding
        if target is None:
            raise TypeError("auto_axes: where the results are is not said\n  fix: auto_axes(f, out_sharding=...), or in the call")
        mesh = _mesh_of(target, args)
        changed = () if mesh is None else mesh.explicit_axes if axes is None else _tuple(axes)
        if mesh is None or not set(changed) & set(mesh.explicit_axes):
            return f(*args, **kwargs)
        with axes_typed(mesh, dict.fromkeys(changed, AxisType.Auto)):
            results = f(*args, **kwargs)
        with set_mesh(mesh):
            return reshard(results, target)

    return with_auto_axes


def explicit_axes(f: Function | None = None, /, *, axes: str | tuple[str, ...] | None = None, in_sharding: Any = None) -> Any:
    """f with axes (all, or `axes`) explicit inside: its arguments are placed as `in_sharding` says, a pytree prefix given here or
    as a keyword of the call (`jax.sharding.explicit_axes`). TypeError without, ValueError without a mesh in the context."""
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)

    @wraps(f)
    def with_explicit_axes(*args: Any, **kwargs: Any) -> Any:
        placed = kwargs.pop("in_sharding", None) if in_sharding is None else in_sharding
        if placed is None:
            raise TypeError("explicit_axes: where the arguments are is not said\n  fix: explicit_axes(f, in_sharding=...)")
        trace = active_trace()
        mesh = governing(None if trace is None else trace.mesh)
        if mesh is None:
            raise ValueError("explicit_axes: there is no mesh in the context\n  fix: meshjit.set_mesh(mesh)")
        if trace is not None and trace.mesh is None:
            trace.require_mesh(mesh)
        with axes_typed(mesh, dict.fromkeys(mesh.axis_names if axes is None else _tuple(axes), AxisType.Explicit)):
            results = f(*reshard(args, placed), **kwargs)
        return tree.map(lambda x: _on(mesh, x), results)

    return with_explicit_axes


def _on(mesh: BaseMesh, x: Any) -> Any:
    """An array on the mesh whose axes it had before they became explicit; traced values need nothing."""
    sharding = getattr(x, "sharding", None) if not isinstance(x, Tracer) else None
    return reshard(x, NamedSharding(mesh, sharding.spec)) if isinstance(sharding, NamedSharding) else x


def _tuple(axes: str | tuple[str, ...]) -> tuple[str, ...]:
    return (axes,) if isinstance(axes, str) else tuple(axes)


def _mesh_of(target: Any, args: Any) -> BaseMesh | None:
    """That of the context, else of the trace, the results or the arguments."""
    trace = active_trace()
    mesh = governing(None if trace is None else trace.mesh)
    if mesh is not None:
        return mesh
    if isinstance(target, NamedSharding):
        return target.mesh
    return next((s.mesh for s in map(sharding_in_type, tree.leaves(args)) if s is not None), None)
