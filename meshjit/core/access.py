"""Where the elements of a result come from: the one fact about positions that an op states, by `Op.access`.

For each result, operand and dim of the operand it says which places of that dim an element of the result depends on:

    Same(d)                     add, dot_general's m     its own place of the result's dim d
    Moved(d, by)                slice, pad, shift        place p + by, where the operand has one; elsewhere another operand
                                update, concatenate      gives the element, or a filler; in a ring it has one everywhere
    Window(d, low, size, …)     reduce_window, conv      places p * stride - low, and so on, of the operand spread out
    Reduced(kind, factor)       reduce_sum, dot's k      all of the dim; identity elements put in change nothing
    WHOLE                       sort, cumsum, gather     all of the dim, or places computed from other operands
    NOTHING                     optimization_barrier     none: the operand belongs to another result

    slice [2:9] of 10:  Moved(0, by=2)      pad by 1:  Moved(0, by=-1)       update at 3:  Same(0) and Moved(0, by=-3)

The places of several dims are independent of one another. `positions` are the dims along which a result also depends on
where its element stands: iota, the dim that a sort or cumsum goes along, the dim of a table that a scatter writes to. Along
all others it may be computed at some places alone, or at any number of places in another order.

A rule may claim more than an element depends on, never less. By default it is derived from the factor rule.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from sharding.rule import FactorRule


@dataclass(frozen=True)
class Start:
    """An offset that is computed: `sign` times operand number `operand`, clamped to 0 … last."""

    operand: int
    last: int
    sign: int = 1

    def value(self, start: int) -> int:
        return self.sign * min(max(start, 0), self.last)


@dataclass(frozen=True)
class Same:
    dim: int


@dataclass(frozen=True)
class Moved:
    dim: int
    by: int | Start
    in_ring: bool = False


@dataclass(frozen=True)
class Window:
    """Places p * stride - low + i * window_dilation, i < size, of the operand with base_dilation - 1 holes between elements."""

    dim: int
    low: int
    size: int
    stride: int = 1
    base_dilation: int = 1
    window_dilation: int = 1

    @property
    def reach(self) -> int:
        """The extent of a window with its holes."""
        return (self.size - 1) * self.window_dilation + 1


@dataclass(frozen=True)
class Reduced:
    kind: str
    factor: str  # dims of several operands that hold it are reduced together


@dataclass(frozen=True)
class Whole:
    pass


@dataclass(frozen=True)
class Nothing:
    pass


WHOLE, NOTHING = Whole(), Nothing()
Places: TypeAlias = Same | Moved | Window | Reduced | Whole | Nothing


@dataclass(frozen=True)
class Access:
    """What the elements of one result depend on: per operand and dim, and along which dims on their own position."""

    operands: tuple[tuple[Places, ...], ...]
    positions: frozenset[int] = frozenset()


def moved(dim: int, by: int | Start, extent: int, result: int) -> Places:
    """Elements moved by `by`, from a dim of `extent` to one of `result`."""
    return Moved(dim, by) if by or extent != result else Same(dim)


def resolved(places: Places, integers: Mapping[int, int]) -> Places:
    """Without computed offsets: those of operands that are known integers, else the whole dim."""
    if not isinstance(places, Moved) or not isinstance(places.by, Start):
        return places
    number = places.by.operand
    return Moved(places.dim, places.by.value(integers[number])) if number in integers else WHOLE


@functools.lru_cache(maxsize=4096)
def derived(rule: FactorRule) -> tuple[Access, ...]:
    """What a factor rule says: factors that pass through are at the same place, unless a dim holds several; the dims of
    all others are whole."""
    merged = {name for value in (*rule.operands, *rule.results) for dim in value if len(dim) > 1 for name in dim}

    def is_plain(dim: tuple[str, ...]) -> bool:
        return len(dim) == 1 and dim[0] not in merged and dim[0] not in rule.kinds

    def of_result(result: tuple[tuple[str, ...], ...]) -> Access:
        dims = {dim[0]: e for e, dim in enumerate(result) if is_plain(dim)}
        parts = {rule.parts[name] for dim in result for name in dim}

        def places(dim: tuple[str, ...]) -> Places:
            name = dim[0] if len(dim) == 1 else ""
            if name in rule.reductions and name not in merged:
                return Reduced(rule.reductions[name], name)
            if is_plain(dim):
                return Same(dims[name]) if name in dims else WHOLE if rule.parts[name] in parts else NOTHING
            return WHOLE

        operands = tuple(tuple(map(places, value)) for value in rule.operands)
        return Access(operands, frozenset(e for e, dim in enumerate(result) if not is_plain(dim)))

    return tuple(map(of_result, rule.results))


def by_index(rule: FactorRule) -> tuple[Access, ...]:
    """As `derived`, of an op that looks places up: its reductions are no sums of what operands hold, and a dim that no
    operand has counts places."""
    held = {name for value in rule.operands for dim in value for name in dim}

    def changed(access: Access, result: tuple[tuple[str, ...], ...]) -> Access:
        operands = tuple(tuple(WHOLE if isinstance(p, Reduced) else p for p in dims) for dims in access.operands)
        counted = {e for e, dim in enumerate(result) if held.isdisjoint(dim)}
        return replace(access, operands=operands, positions=access.positions | counted)

    return tuple(map(changed, derived(rule), rule.results))
