"""How calls of a jitted function come in. What `Wrapped.__call__` is, one of:

    fast         jaxlib's C++ itself: it looks the call up and runs it, and asks `miss` of what it has not seen.
    guarded      a frame around that. Where C++ refuses in words of its own (static values that cannot be hashed, a captured
                 array that was deleted), the call is made again in Python, which says why.
    donating     the same; donated arrays are told afterwards that they are gone, and who took them.
    in Python    for static and donated arguments at places counted from the end, which C++ does not know.

None of them holds the function: it is let go with its last user, not with the next round of garbage collection.
"""

from __future__ import annotations

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
    p, known = wrapped.parameters, weakref.ref(wrapped)
    if any(n < 0 for n in (*p.static_nums, *p.donate_nums)):
        return None, _in_python(known)
    if p.donate_nums or p.donate_names:
        return _donating(known, title)
    guard = bool(p.static_nums or p.static_names)
    function = fast.fast_function(title, _miss(known, guard), p.static_nums, p.static_names)
    return function, _guarded(known, function) if guard else function


def _called(known: weakref.ref[Wrapped]) -> Wrapped:
    found = known()
    assert found is not None, "somebody is calling it"
    return found


def _miss(known: weakref.ref[Wrapped], guarded: bool) -> Entrance:
    """A call that C++ has not seen the like of: the result, and how to run the next one."""

    def miss(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        nonlocal guarded
        try:
            wrapped = _called(known)
            result, compiled = wrapped._call_in_python(args, kwargs)
            if compiled is not None and compiled.outer and not guarded:
                guarded = True
                wrapped.__call__ = _guarded(known, wrapped.fast)
            return result, _how(compiled), False
        except Exception as error:
            if not guarded:  # else the guard needs to see that Python was reached
                hide_own_frames(error)
            raise

    return miss


def _how(compiled: Compiled | None) -> Any:
    return None if compiled is None else compiled.fast_call()


def _in_python(known: weakref.ref[Wrapped]) -> Entrance:
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return _called(known)._call_in_python(args, kwargs)[0]
        except Exception as error:
            hide_own_frames(error)
            raise

    return call


def _guarded(known: weakref.ref[Wrapped], function: Any) -> Entrance:
    in_python = _in_python(known)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if not _is_refusal(error):
                hide_own_frames(error)
                raise
        return in_python(*args, **kwargs)

    return call


def _is_refusal(error: Exception) -> bool:
    """Whether C++ itself raised it. Seen from the frame that called C++."""
    return error.__traceback__.tb_next is None  # pyright: ignore[reportOptionalMemberAccess]


class _ByPython:
    """The result of a call that C++ did not run."""

    __slots__ = ("result",)

    def __init__(self, result: Any) -> None:
        self.result = result


def _donating(known: weakref.ref[Wrapped], title: str) -> tuple[Entrance, Entrance]:
    p, in_python = _called(known).parameters, _in_python(known)
    nums, names, flatten = p.donate_nums, p.donate_names, fast.flatten
    first_only = nums == (0,)
    several = False  # devices: there C++ crashes, rather than raises, where an array is donated and another argument, too
    held: set[int] = set()  # the `memories` of arrays that it closes over, which are arguments for C++

    def miss(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        nonlocal several
        result, compiled = _called(known)._call_in_python(args, kwargs)
        if compiled is not None:
            several = several or len(compiled.executable.devices) > 1
            held.update(memories(compiled.captured))
        return _ByPython(result), _how(compiled), False

    def donated(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        every = [args[n] for n in nums if n < len(args)]
        if kwargs:
            every += [kwargs[name] for name in names if name in kwargs]
        return flatten(every)[0]

    def with_others(given: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        others = [x for n, x in enumerate(args) if n not in nums]
        if kwargs:
            others += [x for name, x in kwargs.items() if name not in names]
        return given + flatten(others)[0] if others else given

    def call(*args: Any, **kwargs: Any) -> Any:
        given: list[Any] = []
        try:
            given = flatten(args[0])[0] if first_only and not kwargs and args else donated(args, kwargs)
            if several:
                every = with_others(given, args, kwargs)
                if len(distinct := memories(every)) < len(every) or not held.isdisjoint(distinct):
                    return in_python(*args, **kwargs)
            result = function(*args, **kwargs)
            if type(result) is _ByPython:
                return result.result
            give_up(given, title)
            return result
        except Exception as error:
            if not _is_refusal(error) or _were_taken(given, title):
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
