"""`jax._src.api_util`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from meshjit.missing import explain as _explain

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def infer_argnums_and_argnames(
    sig: inspect.Signature, argnums: int | Iterable[int] | None, argnames: str | Iterable[str] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Which arguments are meant, by their positions and by their names; what is not given follows from the other."""
    if argnums is None and argnames is None:
        return (), ()
    places = [name for name, parameter in sig.parameters.items() if parameter.kind in _POSITIONAL]
    nums = None if argnums is None else (argnums,) if isinstance(argnums, int) else tuple(argnums)
    names = None if argnames is None else (argnames,) if isinstance(argnames, str) else tuple(argnames)
    if names is None:
        names = tuple(places[n] for n in nums or () if -len(places) <= n < len(places))
    if nums is None:
        nums = tuple(places.index(name) for name in names if name in places)
    return nums, names


_explain(__name__)
