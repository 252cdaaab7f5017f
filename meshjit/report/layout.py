"""Text that is broken into lines where it is too long: groups that stand on one line if they fit, and otherwise on several.

    group("f(", nest(2, SOFT, "a,", LINE, "b"), SOFT, ")")       f(a, b), or a line for each argument

The way of D. Oppen ("Prettyprinting", 1980) and P. Wadler ("A prettier printer", 1998), for groups that break as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Break:
    """The end of a line, or on one line this text."""

    flat: str


@dataclass(frozen=True)
class Group:
    """Parts of which all breaks are ends of lines, or none."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Nest:
    """Parts whose lines begin so much further to the right."""

    columns: int
    parts: tuple[Part, ...]


Part: TypeAlias = "str | Break | Group | Nest"
LINE, SOFT = Break(" "), Break("")


def group(*parts: Part) -> Group:
    return Group(parts)


def nest(columns: int, *parts: Part) -> Nest:
    return Nest(columns, parts)


def separated(parts: Sequence[Part], by: Part = LINE) -> list[Part]:
    """The parts with something between each two."""
    return [piece for part in parts for piece in (by, part)][1:]


def laid_out(part: Part, width: int) -> str:
    """The text, in lines of at most `width` characters where that can be."""
    lines, column = [""], 0
    todo: list[tuple[Part, int, bool]] = [(part, 0, False)]
    while todo:
        part, indent, flat = todo.pop()
        if isinstance(part, str):
            lines[-1] += part
            column += len(part)
        elif isinstance(part, Break):
            if flat:
                lines[-1] += part.flat
                column += len(part.flat)
            else:
                lines.append(" " * indent)
                column = indent
        elif isinstance(part, Nest):
            todo += [(p, indent + part.columns, flat) for p in reversed(part.parts)]
        else:
            fits = flat or _fits(part, width - column)
            todo += [(p, indent, fits) for p in reversed(part.parts)]
    return "\n".join(line.rstrip() for line in lines)


def _fits(part: Part, room: int) -> bool:
    todo: list[Part] = [part]
    while todo and room >= 0:
        part = todo.pop()
        if isinstance(part, Group | Nest):
            todo += reversed(part.parts)
        else:
            room -= len(part if isinstance(part, str) else part.flat)
    return room >= 0
