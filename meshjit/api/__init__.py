"""jit and pjit, as `jax.jit` and `jax.experimental.pjit.pjit` document them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from meshjit.api.leaves import stack_level
from meshjit.api.shardings import UNSPECIFIED
from meshjit.api.wrapped import Wrapped
from meshjit.runtime import client

_MISSING: Any = object()


def jit(
    fun: Callable[..., Any] = _MISSING,
    /,
    *,
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    abstracted_axes: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> Any:
    """Compile a function with XLA, partitioned over a mesh where shardings or arguments name one.

    Args:
      fun: a pure function of arrays, Python numbers, and trees of them. May be left out: `@jit(static_argnames=...)`.
      in_shardings: pytree prefix of the positional arguments: NamedSharding; PartitionSpec under a mesh context; None, AUTO
        or left out: committed arguments stay where they are and others go where propagation likes. A committed argument
        that is elsewhere raises ShardingError.
      out_shardings: pytree prefix of the result; None, AUTO or left out: propagation's choice.
      static_argnums, static_argnames: arguments that are part of the program; hashable. One implies the other.
      donate_argnums, donate_argnames: arguments whose memory results may take; they are deleted by the call. A result
        that nobody placed is placed like a donated argument of its type that would otherwise find no use.
      keep_unused: also pass arguments to the devices that no result depends on; otherwise they stay where they are.
      device, backend: deprecated, as in JAX: run there, moving the arguments.
      inline: inside another traced function, become part of its Program rather than one call in it.
      abstracted_axes: pytree prefix of the positional arguments: names of dims, `{0: "n"}` or `("n", None)`. Each size
        is compiled for itself; the names stand in printed Programs, and must mean one size within a call.
      compiler_options: passed on to XLA; unknown ones raise when it compiles. Only for functions that are called from
        outside of any other jitted one.

    Returns: a `Wrapped` function; see `.trace`, `.lower`, `.eval_shape`, `.clear_cache`.  Source: jax.jit's documentation.
    """
    return _jitted(
        fun,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
        keep_unused=keep_unused,
        device=device,
        backend=backend,
        inline=inline,
        abstracted_axes=abstracted_axes,
        compiler_options=compiler_options,
    )


def pjit(
    fun: Callable[..., Any] = _MISSING,
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    abstracted_axes: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> Any:
    """`jit`, under its old name and with the old order of parameters (`jax.experimental.pjit.pjit`).

    Called within `with mesh:`, None in in_shardings or out_shardings, also as a leaf or prefix of a tree, means replicated."""
    return _jitted(
        fun,
        replicates_none=True,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
        keep_unused=keep_unused,
        device=device,
        backend=backend,
        inline=inline,
        abstracted_axes=abstracted_axes,
        compiler_options=compiler_options,
    )


def _jitted(fun: Any, *, device: Any, backend: str | None, in_shardings: Any, out_shardings: Any, **options: Any) -> Any:
    """A Wrapped function, or where `fun` was left out, what makes one."""
    device = _device(device, backend, in_shardings, out_shardings)

    def wrap(f: Callable[..., Any]) -> Wrapped:
        return Wrapped(f, in_shardings=in_shardings, out_shardings=out_shardings, device=device, **options)

    return wrap if fun is _MISSING else wrap(fun)


def _device(device: Any, backend: str | None, in_shardings: Any, out_shardings: Any) -> Any:
    """The device that `device` or `backend` names, with a warning that both are deprecated."""
    if device is None and backend is None:
        return None
    if device is not None and backend is not None:
        raise ValueError(f"jit: device={device!r} and backend={backend!r} were both given\n  fix: give one of them")
    if in_shardings is not UNSPECIFIED or out_shardings is not UNSPECIFIED:
        other = "in_shardings" if in_shardings is not UNSPECIFIED else "out_shardings"
        what = "device" if device is not None else "backend"
        raise ValueError(f"jit: {what} and {other} were both given\n  fix: leave {what} out; shardings name devices")
    if device is not None and not hasattr(device, "process_index"):
        raise TypeError(f"jit: device must be one of meshjit.devices(), got {device!r}\n  fix: device=meshjit.devices()[0]")
    chosen = device if device is not None else client.local_devices(backend=backend)[0]
    warnings.warn(
        "jit: device= and backend= are deprecated, as in JAX\n"
        "  fix: put the arguments there with meshjit.device_put(x, device), or name devices by in_shardings",
        DeprecationWarning,
        stacklevel=stack_level(),
    )
    return chosen


__all__ = ["Wrapped", "jit", "pjit"]
