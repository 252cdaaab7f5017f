"""`jax.api_util`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshjit.as_jax.jax.core import get_aval as shaped_abstractify
from meshjit.as_jax.jax.extend.linear_util import WrappedFun
from meshjit.missing import explain as _explain
from meshjit.trees import USERS

__all__ = ["DebugInfo", "debug_info", "flatten_fun", "flatten_fun_nokwargs", "safe_map", "shaped_abstractify"]


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


def _flattened(fun: WrappedFun, call: Callable[[Sequence[Any]], Any]) -> tuple[WrappedFun, Callable[[], Any]]:
    structures: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        results, structure = USERS.flatten(call(leaves))
        structures[:] = [structure]
        return results

    return WrappedFun(flat, fun.debug_info), lambda: structures[0]


_explain(__name__)
