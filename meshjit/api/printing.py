"""`debug.print` and `debug.log`: format strings, filled in with values when the program runs."""

from __future__ import annotations

import logging
import string
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.api.callbacks import call_for_debugging
from meshjit.core.program import Source
from meshjit.trace import user_source

log = logging.getLogger("meshjit")


@dataclass(frozen=True)
class _Print:
    """What formats and writes. `options` are NumPy's of when the function was traced."""

    format: str
    options: tuple[tuple[str, Any], ...]
    source: Source | None = None  # of a message to the log
    __name__ = "debug.print"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        text = self.text(args, kwargs)
        if self.source is None:
            sys.stdout.write(text + "\n")
        else:
            at = self.source
            log.handle(log.makeRecord(log.name, logging.INFO, at.file, at.line, text, (), None, at.function))

    def text(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if not _has_placeholders(self.format):
            return " ".join((self.format, *map(str, args)))
        with np.printoptions(**dict(self.options)):
            return self.format.format(*args, **kwargs)


class _Checker(string.Formatter):
    """Raises for arguments that the format string does not name, and for names that no argument has."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        unused = [x for i, x in enumerate(args) if i not in used_args]
        if unused:
            raise ValueError(f"Unused positional arguments to `debug.print`: {unused}")
        names = [name for name in kwargs if name not in used_args]
        if names:
            raise ValueError(
                f"Unused keyword arguments to `debug.print`: {names}. You may be passing an f-string (i.e, `f\"{{x}}\"`) into"
                " `debug.print` and instead should pass in a regular string."
            )


def _has_placeholders(format: str) -> bool:
    return any(field is not None for _, field, *_ in string.Formatter().parse(format))


def debug_print(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    _use_logging: bool = False,
    **kwargs: Any,
) -> Callable[..., None] | None:
    """Print values, also of traced functions, when they are computed: `debug.print("loss {x:.3f}", x=loss)` (`jax.debug.print`).

    Args:
      fmt: as of `str.format`; no f-string, which would print tracers. ValueError for arguments that it does not name.
      ordered: after all other ordered prints before it.
      partitioned: every device prints its own shards; else one device prints whole arrays.
      skip_format_check: do not compare `fmt` with the arguments.

    Also `debug.print(ordered=True)("loss {x}", x=loss)`."""

    def tell(fmt: str, *args: Any, **kwargs: Any) -> None:
        if not skip_format_check:
            _Checker().format(fmt, *args, **kwargs)
        options = tuple(np.get_printoptions().items())
        source = (user_source() or Source("", 0, "")) if _use_logging else None
        call_for_debugging(_Print(fmt, options, source), args, kwargs, ordered, partitioned)

    if fmt is not None:
        return tell(fmt, *args, **kwargs)
    if args or kwargs:
        raise TypeError(f"debug_print received unexpected arguments in the two-call form: args={args} kwargs={kwargs}")
    return tell


def debug_log(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> Callable[..., None] | None:
    """`debug.print` to the logger "meshjit", at level INFO, with the line of the call (`jax.debug.log`)."""
    how = {"ordered": ordered, "partitioned": partitioned, "skip_format_check": skip_format_check}
    return debug_print(fmt, *args, _use_logging=True, **how, **kwargs)
