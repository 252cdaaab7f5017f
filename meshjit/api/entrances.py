"""How calls of a jitted function come in. What `Wrapped.__call__` is, one of:

    fast         jaxlib's C++ itself: it looks the call up and runs it, and asks `miss` of what it has not seen.
    guarded      a frame of Python around that, where C++ may refuse in words of its own (static values that cannot be hashed, a
                 captured array that was deleted, no memory): that call is made again in Python, which says why.
    donating     the same; donated arrays are told afterwards that they are gone, and who took them.
    in Python    for static and donated arguments at places counted from the end, which C++ does not know.

None of them holds the function: it is let go with its last user, not with the next round of garbage collection.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from meshjit.api.tracebacks import hide_own_frames
from meshjit.runtime import fast
from meshjit.runtime.array import give_up, memories

if TYPE_CHECKING:
    from meshjit.api.compiled import Compiled
    from meshjit.api.wrapped import Wrapped

Entrance = Callable[..., Any]


def entrances(wrapped: Wrapped, title: str) -> tuple[Entrance | None, Entrance]:
    """The function in C++, if there is one, and what to call."""
    p, reference = wrapped.parameters, weakref.ref(wrapped)
    if any(n < 0 for n in (*p.static_nums, *p.donate_nums)):
        return None, _in_python(reference)
    if p.donate_nums or p.donate_names:
        return _donating(reference, title)
    function = fast.fast_function(title, _miss(reference), p.static_nums, p.static_names)
    wrapped.unguarded = not p.static_nums and not p.static_names
    return function, _guarded(reference, function)


def _called(reference: weakref.ref[Wrapped]) -> Wrapped:
    wrapped = reference()
    assert wrapped is not None, "somebody is calling it"
    return wrapped


def _miss(reference: weakref.ref[Wrapped]) -> Entrance:
    """A call that C++ has not seen the like of: the result, and how to run the next one."""

    def miss(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        try:
            wrapped = _called(reference)
            result, compiled = wrapped._call_in_python(args, kwargs)
            if compiled is not None and _may_be_refused(compiled):
                wrapped.unguarded = False
                wrapped.__call__ = _guarded(reference, wrapped.fast)
            elif compiled is not None and wrapped.unguarded:
                wrapped.__call__ = wrapped.fast  # pyright: ignore[reportAttributeAccessIssue] - it is there, it called
            return result, _how(compiled), False
        except Exception as error:
            _reached_python(error)
            hide_own_frames(error)
            raise

    return miss


def _may_be_refused(compiled: Compiled) -> bool:
    """Whether C++ may fail to run it with arrays that are not deleted. (For those that are it asks Python by itself.)"""
    return bool(compiled.outer) or compiled.executable.devices[0].platform != "cpu"


def _how(compiled: Compiled | None) -> Any:
    return None if compiled is None else compiled.fast_call()


def _in_python(reference: weakref.ref[Wrapped]) -> Entrance:
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return _called(reference)._call_in_python(args, kwargs)[0]
        except Exception as error:
            _reached_python(error)
            hide_own_frames(error)
            raise

    return call


def _guarded(reference: weakref.ref[Wrapped], function: Any) -> Entrance:
    in_python = _in_python(reference)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if not _is_refusal(error):
                hide_own_frames(error)
                raise
        return in_python(*args, **kwargs)

    return call


def _reached_python(error: Exception) -> None:
    with contextlib.suppress(Exception):  # a class that takes no attributes
        error._meshjit = True  # pyright: ignore[reportAttributeAccessIssue]


def _is_refusal(error: Exception) -> bool:
    """Whether C++ itself raised it."""
    return not hasattr(error, "_meshjit")


class _ByPython:
    """The result of a call that C++ did not run."""

    __slots__ = ("result",)

    def __init__(self, result: Any) -> None:
        self.result = result


def _donating(reference: weakref.ref[Wrapped], title: str) -> tuple[Entrance, Entrance]:
    p, in_python = _called(reference).parameters, _in_python(reference)
    nums, names, first_only = p.donate_nums, p.donate_names, p.donate_nums == (0,)
    several = False  # devices: there C++ crashes, rather than raises, where an array is donated and another argument, too
    held: set[int] = set()  # the `memories` of arrays that it closes over, which are arguments for C++
    flatten_alike = fast.flatten(())[1].flatten_up_to  # a tree built like the last one: quicker than to find out how it is built

    def miss(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        nonlocal several
        try:
            result, compiled = _called(reference)._call_in_python(args, kwargs)
        except Exception as error:
            _reached_python(error)
            raise
        if compiled is not None:
            several = several or len(compiled.executable.devices) > 1
            held.update(memories(compiled.captured))
        return _ByPython(result), _how(compiled), False

    def donated(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return [args[n] for n in nums if n < len(args)] + [kwargs[name] for name in names if name in kwargs]

    def flatten(tree: Any) -> list[Any]:
        nonlocal flatten_alike
        leaves, structure = fast.flatten(tree)
        flatten_alike = structure.flatten_up_to
        return leaves

    def may_clash(flat: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        others = [x for n, x in enumerate(args) if n not in nums] + [x for name, x in kwargs.items() if name not in names]
        every = flat + fast.flatten(others)[0] if others else flat
        distinct = memories(every)
        return len(distinct) < len(every) or not held.isdisjoint(distinct)

    def call(*args: Any, **kwargs: Any) -> Any:
        flat: list[Any] = []
        try:
            tree = args[0] if first_only and args and not kwargs else donated(args, kwargs)
            try:
                flat = flatten(tree) if several else flatten_alike(tree)
            except ValueError:
                flat = flatten(tree)
            if several and may_clash(flat, args, kwargs):
                return in_python(*args, **kwargs)
            result = function(*args, **kwargs)
            if type(result) is _ByPython:
                return result.result
            try:
                give_up(flat, title)
            except TypeError:  # where there was a leaf there is a tree now
                give_up(flatten(tree), title)
            return result
        except Exception as error:
            if not _is_refusal(error) or _were_taken(flat, title):
                hide_own_frames(error)
                raise
        return in_python(*args, **kwargs)

    function = fast.fast_function(title, miss, p.static_nums, p.static_names)
    return function, call


def _were_taken(leaves: list[Any], title: str) -> bool:
    """Whether a call that failed has consumed donated arrays before, which cannot be called with again."""
    taken = [x for x in leaves if fast.is_consumed(x)]
    give_up(taken, title)
    return bool(taken)
