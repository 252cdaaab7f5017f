"""Threads for what leaves Python's lock: copying, hashing, writing."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from meshjit.checkpoints.index import THREADS

T = TypeVar("T")
R = TypeVar("R")


def in_threads(run: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """run(item) for all. Once the script has ended an executor refuses, and so does, from Python 3.12 on, a new thread."""
    results, errors, todo = dict[int, R](), list[BaseException](), queue.SimpleQueue[int]()

    def work() -> None:
        try:
            while not errors:
                i = todo.get_nowait()
                results[i] = run(items[i])
        except queue.Empty:
            return
        except BaseException as error:  # noqa: B036 - raised below
            errors.append(error)

    for i in range(len(items)):
        todo.put(i)
    threads = [threading.Thread(target=work) for _ in range(min(THREADS, len(items)) - 1)]
    with contextlib.suppress(RuntimeError):  # Python ends, and starts no more: this one does it all
        for thread in threads:
            thread.start()
    work()
    for thread in threads:
        if thread.ident is not None:
            thread.join()
    if errors:
        raise errors[0]
    return [results[i] for i in range(len(items))]
