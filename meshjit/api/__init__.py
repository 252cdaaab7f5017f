"""jit and pjit, as `jax.jit` and `jax.experimental.pjit.pjit` document them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from meshjit.api.wrapped import Wrapped
from sharding.named import UNSPECIFIED


def jit(
    fun: Callable[..., Any] | None = None,
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
    compiler_options: Mapping[str, Any] | None = None,
) -> Any:
    """Compile a function with XLA, partitioned over a mesh where shardings or arguments name one.

    Args:
      fun: a pure function of arrays, Python numbers, and trees of them. May be left out: `@jit(static_argnames=...)`.
      in_shardings: pytree prefix of the positional arguments: NamedSharding; PartitionSpec under a mesh context; None
        (replicated under a mesh context, else the compiler's choice); left out, committed arguments stay where they
        are and others go where propagation likes. A committed argument that is elsewhere raises ShardingError.
      out_shardings: the same for the result.
      static_argnums, static_argnames: arguments that are part of the program; hashable. One implies the other.
      donate_argnums, donate_argnames: arguments whose memory results may take; they are deleted by the call.
      compiler_options: passed on to XLA; unknown ones raise.

    Returns: a `Wrapped` function; see `.trace`, `.lower`.  Source: jax.jit's documentation.
    """
    del backend, inline  # one backend per process; nested calls always become part of the outer program

    def wrap(f: Callable[..., Any]) -> Wrapped:
        return Wrapped(
            f,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            keep_unused=keep_unused,
            device=device,
            compiler_options=compiler_options,
        )

    return wrap if fun is None else wrap(fun)


pjit = jit
