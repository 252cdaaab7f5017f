"""Numbers as a person reads them, and source lines."""

from __future__ import annotations

import functools
import linecache

from meshjit.core.program import Source

_BYTES = ("B", "kB", "MB", "GB", "TB")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def bytes_text(count: float) -> str:
    """Three digits with the decimal unit: `5.9 MB`."""
    unit = 0
    while count >= 999.5 and unit < len(_BYTES) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_BYTES[unit]}" if unit == 0 else f"{count:.3g} {_BYTES[unit]}"


def seconds_text(seconds: float) -> str:
    """Three digits with the unit: `1.83 ms`."""
    for size, unit in _SECONDS:
        if seconds >= 0.9995 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.2g} ns" if seconds else "0 us"


def times_text(times: float) -> str:
    return "once" if times == 1 else f"{times:,.4g} times"


def change_text(new: float, old: float) -> str:
    """`-12 %`, `+3.4 %`, `2.5 ×`, `the same`; from nothing, just that."""
    if new == old:
        return "the same"
    if not old:
        return "from none"
    if new > 2 * old:
        return f"{new / old:.3g} ×"
    percent = 100 * (new / old - 1)
    return "the same" if abs(percent) < 0.05 else f"{percent:+.3g} %"


def line_text(source: Source | None) -> str:
    """`train.py:31 loss (backward)`."""
    if source is None:
        return ""
    note = f" ({source.note})" if source.note else ""
    return f"{source.file.rsplit('/', 1)[-1]}:{source.line} {function_text(source)}{note}"


@functools.lru_cache(maxsize=4096)
def function_text(source: Source) -> str:
    """Without what the function is defined in: `train.<locals>.step.<locals>.<lambda>` → `step.<lambda>`."""
    *around, own = source.function.split(".<locals>.")
    while own.startswith("<") and around:
        own = f"{around.pop()}.{own}"
    return own


def code_text(source: Source | None) -> str:
    """The user's line itself, where the file can be read."""
    return "" if source is None else linecache.getline(source.file, source.line).strip()


def fitted(text: str, width: int) -> str:
    """Cut where it is longer."""
    return text if len(text) <= width else text[: width - 1] + "…"
