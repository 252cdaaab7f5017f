"""Tools that watch a script: they are told of the stages that its functions go through, or answer in their place."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

Watcher = Callable[[Any], None]  # told of a Traced that somebody asked for, of every Lowered and of every Compiled

watchers: list[Watcher] = []
imaginers: list[Callable[[Any], Any]] = []  # while there is one, the last of them makes what a Traced or Lowered compiles to


@contextmanager
def watching(watcher: Watcher) -> Generator[None]:
    """Inside the block `watcher` is told of stages."""
    watchers.append(watcher)
    try:
        yield
    finally:
        watchers.remove(watcher)


@contextmanager
def unwatched() -> Generator[None]:
    """Inside the block nobody is told: a watcher lowers and compiles what it was told of."""
    before = [*watchers]
    watchers.clear()
    try:
        yield
    finally:
        watchers[:] = before


def tell(stage: Any) -> None:
    for watcher in [*watchers]:
        watcher(stage)
