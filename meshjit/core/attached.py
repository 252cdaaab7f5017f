"""What is kept of a function of the user's, traces and compiled code, for as long as the function lives.

It hangs on the function itself. What is kept may hold the function, such as a callback that calls it, or a rule that closes over
it: the two are garbage together. In a dictionary with weak keys they would stay forever.
"""

from __future__ import annotations

import weakref
from functools import partial
from types import FunctionType
from typing import Any

NAME = "__meshjit__"  # the attribute


class Attached:
    """`kept` belongs to the owner alone: `functools.wraps` copies attributes to other functions. Pickled, it is empty."""

    __slots__ = ("_owner", "kept", "__weakref__")

    def __init__(self, owner: Any = None) -> None:
        self._owner = None if owner is None else weakref.ref(owner)
        self.kept: dict[Any, Any] = {}

    def belongs_to(self, owner: Any) -> bool:
        return self._owner is not None and self._owner() is owner

    def __reduce__(self) -> tuple[type[Attached], tuple[()]]:
        return Attached, ()


_all: weakref.WeakSet[Attached] = weakref.WeakSet()
_others: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def attached_to(fun: Any) -> dict[Any, Any] | None:
    """A dictionary that hangs on the function, or on the partial of one; None for other callables."""
    if not isinstance(fun, FunctionType | partial):
        return None
    attached = fun.__dict__.get(NAME)
    if attached is None or not attached.belongs_to(fun):
        attached = fun.__dict__[NAME] = Attached(fun)
        _all.add(attached)
    return attached.kept


def kept_of(fun: Any) -> dict[Any, Any] | None:
    """The same; for other callables one that must not hold them, None where they have no hash or no weak references."""
    if isinstance(fun, FunctionType | partial):
        return attached_to(fun)
    try:
        return _others.setdefault(fun, {})
    except TypeError:
        return None


def forget(what: str) -> None:
    """Drop this entry of every function."""
    for attached in list(_all):
        attached.kept.pop(what, None)
