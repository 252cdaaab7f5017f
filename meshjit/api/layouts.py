"""In which order the elements of a shard lie in memory (`jax.experimental.layout`). Told, not chosen: XLA's is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from meshjit.runtime import _jaxlib
from meshjit.trees import USERS as tree
from sharding.named import Sharding
from sharding.spec import PartitionSpec


class _Auto:
    """Type of Layout.AUTO: XLA may choose the order."""

    def __repr__(self) -> str:
        return "AUTO"


@dataclass(frozen=True)
class Layout:
    """Dims from the slowest varying to the fastest: (0, 1) is C order. `Layout.AUTO` in a Format leaves the order to XLA."""

    major_to_minor: tuple[int, ...]

    AUTO: ClassVar[_Auto] = _Auto()


@dataclass(frozen=True)
class Format:
    """Where an array lives and how its shards lie there. TypeError for what is no layout or no sharding."""

    layout: Layout | _Auto | None = None
    sharding: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.layout, Layout | _Auto | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Format: layout is {self.layout!r}\n  fix: a Layout, Layout.AUTO, or None")
        if not isinstance(self.sharding, Sharding | None):
            raise TypeError(f"Format: sharding is {self.sharding!r}\n  fix: a NamedSharding, or None")


def place_of(place: Any, what: str) -> Any:
    """A Format's sharding, and any other place as it is. NotImplementedError for an order other than C's, ValueError for AUTO:
    what lies somewhere lies there in one order."""
    if isinstance(place, Format) and isinstance(place.layout, _Auto):
        fix = "the formats of a compiled function, such as compiled.input_formats"
        raise ValueError(f"{what}: {place} says no order\n  fix: {fix}")
    return _place_in_rows(place, what)


def places_of(places: Any, what: str) -> Any:
    """A tree of shardings, with those of the Formats in it: AUTO leaves the order to XLA, which takes C order."""
    if not any(isinstance(x, Format) for x in tree.leaves(places, is_leaf=_is_place)):
        return places
    return tree.map(lambda place: _place_in_rows(place, what), places, is_leaf=_is_place)


def _is_place(x: Any) -> bool:
    return isinstance(x, Format | Sharding | PartitionSpec)


def _place_in_rows(place: Any, what: str) -> Any:
    if not isinstance(place, Format):
        return place
    order = place.layout.major_to_minor if isinstance(place.layout, Layout) else ()
    if tuple(order) != tuple(range(len(order))):
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
