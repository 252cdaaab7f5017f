"""In which order the elements of a shard lie in memory (`jax.experimental.layout`). Told, not chosen: XLA's is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshjit.runtime import _jaxlib


@dataclass(frozen=True)
class Layout:
    """Dims from the slowest varying to the fastest: (0, 1) is C order."""

    major_to_minor: tuple[int, ...]


@dataclass(frozen=True)
class Format:
    """Where an array lives and how its shards lie there."""

    layout: Layout | None = None
    sharding: Any = None


def place_of(place: Any, what: str) -> Any:
    """A Format's sharding, and any other place as it is. NotImplementedError for an order other than C's."""
    if not isinstance(place, Format):
        return place
    order = () if place.layout is None else tuple(place.layout.major_to_minor)
    if order != tuple(range(len(order))):
        raise NotImplementedError(
            f"{what}: {place.layout} is not C order {tuple(range(len(order)))}, and only XLA chooses another order here\n"
            "  fix: pass the sharding without a layout"
        )
    return place.sharding


def formats(orders: Sequence[Sequence[int]], shardings: Sequence[Any]) -> list[Format]:
    return [Format(Layout(tuple(order)), sharding) for order, sharding in zip(orders, shardings, strict=True)]


def format_of(array: Any) -> Format:
    """Where an array lives and how its shards lie there (`x.format`)."""
    return Format(Layout(_jaxlib.array_layout(array)), array.sharding)
