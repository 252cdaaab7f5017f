"""Each call of a program that spans processes is noted: which, in which line, and whether it has ended (`launch/progress.py`).

Such calls always go by way of Python (`fast.fast_call`), so that they are noted before they begin: where a process has one
device, a call that waits for others does not come back. A note costs two microseconds, and keeps no array alive.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from typing import Any

from launch.progress import Series, What
from meshjit.trace.source import user_frame

histories: defaultdict[str, Series] = defaultdict(Series)  # by the group of processes, as `group_name` says it
waits = ("", "")  # for what this process waits outside of calls, and in which series


def group_name(processes: Sequence[int]) -> str:
    """ "0-3" or "0,2,5": the same text on each of them."""
    ranks = sorted(set(processes))
    whole = len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1))
    return f"{ranks[0]}-{ranks[-1]}" if whole else ",".join(map(str, ranks))


@contextlib.contextmanager
def waiting(processes: Sequence[int], text: str) -> Generator[None]:
    """While this process waits for others outside of calls."""
    global waits
    outer, waits = waits, (text, group_name(processes))
    try:
        yield
    finally:
        waits = outer


_host_calls: dict[int, tuple[str, float]] = {}  # Python functions that programs have called and wait for, and since when
_host_numbers = itertools.count()


@contextlib.contextmanager
def host_call(name: str) -> Generator[None]:
    """While a program waits for a Python function."""
    number = next(_host_numbers)
    _host_calls[number] = name, time.monotonic()
    try:
        yield
    finally:
        del _host_calls[number]


def longest_host_call() -> tuple[str, float]:
    """(the function that a program has waited for longest, seconds); ("", 0.0) where none does."""
    name, since = min(list(_host_calls.values()), key=lambda call: call[1], default=("", time.monotonic()))
    return name, time.monotonic() - since


def pasts() -> dict[str, str]:
    """For each series how many calls, and which: texts that are the same on processes that have made the same ones."""
    return {name: f"{series.count}:{series.check:08x}" for name, series in sorted(histories.items())}


def note(processes: Sequence[int], text: str) -> None:
    """Note something else than a call that these processes do together."""
    frame = user_frame()
    histories[group_name(processes)].add(What.of(text), frame and frame.f_code, frame.f_lasti if frame else 0)


def noted(run: Callable[[Sequence[Any]], list[Any]], name: str, devices: Sequence[Any], result: Any) -> Callable[..., Any]:
    """`run`, each call of which is noted before it begins. `result` is the type of its first result."""
    series = histories[group_name([device.process_index for device in devices])]
    what = What.of(_text(name, result))

    def running(arrays: Sequence[Any]) -> list[Any]:
        frame = user_frame()
        pending: list[Any] = [_never]
        series.add(what, frame and frame.f_code, frame.f_lasti if frame else 0, lambda: pending[0]())
        try:
            results = run(arrays)
        except BaseException:
            pending[0] = _nothing
            raise
        pending[0] = weakref.ref(results[0]) if results else _nothing
        return results

    return running


def _text(name: str, result: Any) -> str:
    return f"{name} → {result}" if result is not None else name


class _Never:
    """Stands for the result of a call that has not come back."""

    is_ready = staticmethod(lambda: False)
    is_deleted = staticmethod(lambda: False)


def _never() -> Any:
    return _Never


def _nothing() -> Any:
    return None


def wait_for_calls() -> None:
    """Until the calls that this process has made with others have ended."""
    for series in histories.values():
        result = series.tail[-1][4] if series.tail else None
        array = result() if result is not None else None
        if array is not None and not array.is_deleted():
            array.block_until_ready()


def is_pending(series: Series) -> bool:
    """Whether the last call has not ended, as far as its result can still be asked."""
    if not series.tail:
        return False
    result = series.tail[-1][4]
    array = result() if result is not None else None
    try:
        return array is not None and not array.is_deleted() and not array.is_ready()
    except RuntimeError:  # deleted meanwhile, or its program has failed
        return False
