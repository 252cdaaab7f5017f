"""Refs among the xs of a scan: an iteration has a Ref of its own slice, and what it writes there is in that slice afterwards."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from meshjit.core.ref import Ref
from meshjit.trace import line_of, user_source
from meshjit.trace.refs import borrowed, check_distinct, lend, refs_in, store, type_of_ref
from meshjit.trace.thread import innermost

Step = Callable[[Any, Any], Any]


def has_sliced_refs(xs: Any) -> bool:
    return Ref.made and bool(refs_in(xs))


def scan_of_slices(what: str, f: Step, xs: Any, scan: Callable[[Step, Any], tuple[Any, Any]]) -> tuple[Any, Any]:
    """`scan(step, xs)` with arrays for the Refs among xs: their contents are taken and given back a slice at a time.

    ValueError for a Ref that is twice among xs, or that f uses beside its slice."""
    check_distinct(what, ((xs,), {}))
    refs = refs_in(xs)

    @functools.wraps(f)
    def step(carry: Any, x: Any) -> Any:
        x, slices = borrowed(x)
        result = f(carry, x)
        _check_apart(what, refs)
        if not (isinstance(result, tuple | list) and len(result) == 2):
            return result  # which is an error, as of any function
        return result[0], (result[1], [s.content for s in slices])

    last, (ys, contents) = scan(step, lend(xs))
    for ref, content in zip(refs, contents, strict=True):
        store(ref, content)
    return last, ys


def _check_apart(what: str, refs: list[Ref]) -> None:
    trace = innermost()
    used = [ref for ref in refs if trace is not None and id(ref) in trace.refs]
    if used:
        raise ValueError(
            f"{what}: the function uses a {type_of_ref(used[0])} that it gets slices of, too\n  at {line_of(user_source())}\n"
            "  fix: pass it among xs, or close over it"
        )
