"""Calls of compiled functions in C++: jaxlib's `pjit`, told by Python how to run what looks alike."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

from meshjit.runtime._jaxlib.base import ShardType
from meshjit.runtime._jaxlib.layouts import Aval, Layout
from meshjit.runtime._jaxlib.trees import words_registry
from meshjit.runtime._jaxlib.without_jax import jax_is_here


class CompiledCall(NamedTuple):
    """What jaxlib's C++ needs to run a call that looks like one that it has seen. Names and order are jaxlib's."""

    xla_executable: Any
    out_pytree_def: Any
    in_shardings: Sequence[Layout]
    out_shardings: Sequence[Layout]
    out_avals: Sequence[Any]
    out_committed: Sequence[bool]
    kept_var_bitvec: Sequence[bool]
    in_device_local_layouts: Sequence[None]
    const_args: Sequence[Any]


def compiled_call(
    executable: Any,
    kept: Sequence[bool],
    in_layouts: Sequence[Layout],
    outputs: Sequence[tuple[ShardType, Layout]],
    out_tree: Any,
    leading: Sequence[Any] = (),
) -> CompiledCall:
    """Run the executable on `leading` arrays, then on the arguments that are `kept`, and make a tree of its outputs.

    `in_layouts` are those of all the arrays that the program takes."""
    if len(leading) + sum(kept) != len(in_layouts):  # C++ does not count, but reads on
        taken = f"{len(leading) or ''}{' and ' if leading else ''}{sum(kept)} of {len(kept)}"
        raise ValueError(f"the program takes {len(in_layouts)} arguments, {taken} are kept")
    return CompiledCall(
        executable, out_tree, in_layouts, [layout for _, layout in outputs], [Aval(*shard) for shard, _ in outputs],
        [True] * len(outputs), [True] * len(leading) + list(kept), [None] * len(in_layouts), leading,
    )  # fmt: skip


def fast_function(
    name: str,
    miss: Callable[..., tuple[Any, CompiledCall | None, bool]],
    static_nums: Sequence[int] = (),
    static_names: Iterable[str] = (),
) -> Callable[..., Any]:
    """A function of trees of arrays whose calls run in C++, once `miss` has said how for a call that looks alike.

    Calls look alike if their trees are equal, their arrays have the same layouts, their static arguments (at these positions
    and names) the same types and values, and the thread's `call_context` is the same or equal. `miss`, called likewise, runs
    the call and gives (the result, how to run further ones without it or None, False). What is no array, or deleted, comes to
    `miss` every time. While `miss` first runs for a call, calls of other threads that look alike wait; of the same
    thread they are RecursionErrors.

    Errors of C++ itself have no traceback below the line of the call; those of `miss` have."""
    _prepare_calls()
    return _jax.pjit(name, None, miss, list(static_nums), list(static_names), name, words_registry, _refuse_argument)


def forget_calls(function: Callable[..., Any]) -> None:
    """All calls of a `fast_function` come to its `miss` again."""
    function._clear_cache()  # pyright: ignore[reportFunctionMemberAccess]


# What calls depend on besides their arguments. Has a value for all threads and, if `set_local` gave one, a thread's own.
call_context = _jax.config.Config("meshjit_context", None, include_in_jit_key=True, include_in_trace_context=False)


def _refuse_argument(*_: Any) -> Any:
    raise RuntimeError("an array lies on other devices than those of the program that its layout leads to")


@functools.cache
def _prepare_calls() -> None:
    """jaxlib's C++ reads three settings of jax at every call; without jax nobody has made them."""
    if jax_is_here():
        return
    settings = {
        name: _jax.config.Config(name, value, include_in_jit_key=True, include_in_trace_context=True)
        for name, value in {"enable_x64": True, "disable_jit": False, "post_hook": None}.items()
    }
    _jax.jax_jit.set_enable_x64_state(settings["enable_x64"])
    _jax.jax_jit.set_disable_jit_state(settings["disable_jit"])
    _jax.jax_jit.set_post_hook_state(settings["post_hook"])
