"""`jax.api_util`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshjit.as_jax.jax.core import get_aval as shaped_abstractify
from meshjit.as_jax.jax.extend.linear_util import WrappedFun
from meshjit.missing import explain as _explain
from meshjit.trees import USERS

__all__ = ["DebugInfo", "argnums_partial", "debug_info", "flatten_fun", "flatten_fun_nokwargs", "safe_map", "shaped_abstractify"]


@dataclass(frozen=True)
class DebugInfo:
    """Which function libraries trace, and what for. Errors of meshjit say it without."""

    traced_for: str
    func_src_info: str


def debug_info(traced_for: str, fun: Callable[..., Any], *_: Any, **__: Any) -> DebugInfo:
    return DebugInfo(traced_for, getattr(fun, "__name__", str(fun)))


def safe_map(fun: Callable[..., Any], *sequences: Any) -> list[Any]:
    """What fun gives for the first elements, for the second ones, ...; ValueError for sequences of different lengths."""
    return [fun(*elements) for elements in zip(*sequences, strict=True)]


def flatten_fun_nokwargs(fun: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Callable[[], Any]]:
    """(the function of its arguments' leaves that gives its results' leaves, what says their structure once it has run)."""
    return _flattened(fun, lambda leaves: fun.call_wrapped(*USERS.unflatten(in_tree, leaves)))


def flatten_fun(fun: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Callable[[], Any]]:
    """The same where `in_tree` is that of (arguments, arguments by name)."""

    def call(leaves: Sequence[Any]) -> Any:
        args, kwargs = USERS.unflatten(in_tree, leaves)
        return fun.call_wrapped(*args, **kwargs)

    return _flattened(fun, call)


def argnums_partial(
    f: WrappedFun, dyn_argnums: int | Sequence[int], args: Sequence[Any], require_static_args_hashable: bool = True
) -> tuple[WrappedFun, tuple[Any, ...]]:
    """(f as a function of the arguments with these numbers, these arguments); the others stay what they are in `args`.

    Raises ValueError for others without a hash, unless require_static_args_hashable is False."""
    numbers = [dyn_argnums] if isinstance(dyn_argnums, int) else list(dyn_argnums)
    numbers = [n % len(args) for n in numbers]
    for i, x in enumerate(args):
        if require_static_args_hashable and i not in numbers and getattr(type(x), "__hash__", None) is None:
            raise ValueError(f"argnums_partial: argument {i} stays what it is and has no hash, being a {type(x).__name__}")

    def call(*given: Any) -> Any:
        full = list(args)
        for n, x in zip(numbers, given, strict=True):
            full[n] = x
        return f.call_wrapped(*full)

    return WrappedFun(call, f.debug_info), tuple(args[n] for n in numbers)


def _flattened(fun: WrappedFun, call: Callable[[Sequence[Any]], Any]) -> tuple[WrappedFun, Callable[[], Any]]:
    structures: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        results, structure = USERS.flatten(call(leaves))
        structures[:] = [structure]
        return results

    return WrappedFun(flat, fun.debug_info), lambda: structures[0]


_explain(__name__)
