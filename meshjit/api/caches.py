"""Compiled functions, found again: one cache per function and per way of jitting it.

`jit(f)` twice with the same parameters shares one cache, so that `jit(f)(x)` in a loop compiles once. The cache hangs on the
function (`core/attached.py`): once nobody else holds it, what was compiled for it and the arrays it closed over are let go.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from meshjit.api.shardings import is_sharding_leaf
from meshjit.config import config
from meshjit.core.attached import forget, kept_of
from meshjit.runtime import eager, resharding
from meshjit.trees import WORDS as tree

if TYPE_CHECKING:
    from meshjit.api.compiled import Compiled
    from meshjit.api.wrapped import Wrapped
    from meshjit.trace import Traced as TracedProgram


class Cache:
    """By what a call looks like, and whether its arguments lie where they are wanted (`by_look`). Many looks may lead to
    one compiled function, by what the call means (`by_meaning`). `traced`: before anything is planned; `nested`: the same for
    calls from other traced functions, where shardings become constraints."""

    __slots__ = ("by_look", "by_meaning", "traced", "nested", "fast", "__weakref__")

    def __init__(self) -> None:
        self.by_look: dict[Any, tuple[Compiled, bool]] = {}
        self.by_meaning: dict[Any, Compiled] = {}
        self.traced: dict[Any, TracedProgram] = {}
        self.nested: dict[Any, TracedProgram] = {}
        self.fast: weakref.WeakSet[Wrapped] = weakref.WeakSet()  # whose calls C++ looks up in a cache of its own
        _all.add(self)

    def clear(self) -> None:
        self.by_look.clear()
        self.by_meaning.clear()
        self.traced.clear()
        self.nested.clear()
        self.forget_fast()

    def forget_fast(self) -> None:
        for wrapped in list(self.fast):
            wrapped.forget_fast()


_all: weakref.WeakSet[Cache] = weakref.WeakSet()


def cache_of(fun: Callable[..., Any], parameters: tuple[Any, ...]) -> Cache:
    """The cache of `fun` jitted with these parameters; a new one where either cannot be looked up."""
    kept = kept_of(fun)
    if kept is None:
        return Cache()
    caches = kept.setdefault("jit", {})
    try:
        key = tuple(_hashable(p) for p in parameters)
        return caches.setdefault(key, Cache()) if key not in caches else caches[key]
    except TypeError:  # a parameter has no hash
        return Cache()


def _hashable(parameter: Any) -> Any:
    """A parameter of jit's as part of a key: trees of shardings may be dicts and lists."""
    if isinstance(parameter, dict | list | tuple):
        leaves, structure = tree.flatten(parameter, is_sharding_leaf)
        return (*((type(x), x, _priorities(x)) for x in leaves), structure)
    return (parameter, _priorities(parameter))


def _priorities(parameter: Any) -> Any:
    """What a spec's equality leaves out."""
    return getattr(getattr(parameter, "spec", parameter), "priorities", ())


on_forgetting: list[Callable[[], Any]] = []  # what else is told when calls in C++ are to be forgotten


def clear_caches() -> None:
    """Forget everything that was traced and compiled: jitted functions, single ops, resharding programs."""
    for cache in list(_all):
        cache.clear()
    forget("traced")
    for tell in on_forgetting:
        tell()
    eager._ops.clear()  # pyright: ignore[reportPrivateUsage]
    eager._programs.clear()  # pyright: ignore[reportPrivateUsage]
    resharding._identity.cache_clear()  # pyright: ignore[reportPrivateUsage]
    resharding._broadcasting.cache_clear()  # pyright: ignore[reportPrivateUsage]


@config.on_update.append
def _options_changed() -> None:
    """Calls in C++ do not look at the options of all threads."""
    for cache in list(_all):
        cache.forget_fast()
    for tell in on_forgetting:
        tell()
