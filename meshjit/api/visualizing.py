"""`debug.visualize_sharding`: which devices hold which part of an array, drawn as boxes; `debug.inspect_array_sharding`."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from meshjit.api.callbacks import apply_host
from meshjit.core.host import host_function
from meshjit.core.types import TensorType, short_name
from meshjit.runtime.array import Array
from meshjit.trace import argument_of, as_operand, trace_for
from meshjit.trees import WORDS as tree
from sharding.drawing import slice_text, spans_of
from sharding.named import NamedSharding, Sharding
from sharding.spec import placement_of

WIDTH_OF_HEIGHT = 2.5  # a line of a terminal is so many columns high
BASE_HEIGHT = 10  # lines of a whole array at scale 1


@dataclass(frozen=True)
class Inspect:
    """What planning's answer is told to."""

    function: Callable[[Sharding], Any]

    def __call__(self, arrays: Sequence[Any]) -> Sequence[Any]:
        (sharding,) = arrays
        self.function(sharding)
        return []


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], Any]) -> None:
    """Call `callback` with the sharding of each array of a tree (`jax.debug.inspect_array_sharding`).

    Of arrays with values at once; in a traced function when it is compiled, with where planning put the value, and not again
    while it stays compiled."""
    for leaf in tree.leaves(value):
        argument = argument_of(leaf)
        operand = as_operand(leaf, argument)
        if isinstance(operand, Array) and trace_for([operand]) is None:
            callback(operand.sharding)
        else:
            apply_host("inspect_sharding", host_function(Inspect(callback), "inspect", 1, ()), [operand], [argument], {})


def print_placement(value: Any, name: str = "value") -> None:
    """Print the type of each array of a tree with its placement, `x: f32[8@data, 4]`; in a traced function once, when it is
    compiled, with where planning put it."""
    for leaf, path in zip(tree.leaves(value), tree.path_names(value, name), strict=True):
        inspect_array_sharding(leaf, callback=_Print(path, argument_of(leaf).type))


@dataclass(frozen=True)
class _Print:
    name: str
    type: TensorType

    def __call__(self, sharding: Sharding) -> None:
        kind, shape = short_name(self.type.dtype), self.type.shape
        where = placement_of(sharding.spec, len(shape)).annotate(shape) if isinstance(sharding, NamedSharding) else ""
        print(f"{self.name}: {kind}[{where}]" if where else f"{self.name}: {self.type} on {sharding}", flush=True)


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """`visualize_sharding` of an array's own sharding, also of one that is traced (`jax.debug.visualize_array_sharding`)."""
    inspect_array_sharding(arr, callback=_Visualize(tuple(arr.shape), tuple(sorted(kwargs.items()))))


@dataclass(frozen=True)
class _Visualize:
    shape: tuple[int, ...]
    options: tuple[tuple[str, Any], ...]

    def __call__(self, sharding: Sharding) -> None:
        visualize_sharding(self.shape, sharding, **dict(self.options))


def visualize_sharding(
    shape: Sequence[int],
    sharding: Sharding,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: Callable[[float], tuple[float, ...]] | None = None,
) -> None:
    """Print a box per part of an array, with the devices that hold it (`jax.debug.visualize_sharding`).

    Of an array of more than two dims the last two are drawn, once for each part along the dims before them.

    Args:
      use_color: fill the boxes, where the terminal has colors; else draw their borders.
      scale, min_width, max_width: how large a box is, in columns; `max_width` also of the whole.
      color_map: numbers from 0 to 1 -> (red, green, blue, …) in the same range; by default the colors of the rainbow."""
    if not shape:
        raise ValueError("`visualize_sharding`: a scalar has no parts\n  fix: print(sharding)")
    if len(shape) > 2:
        options = {"use_color": use_color, "scale": scale, "min_width": min_width, "max_width": max_width, "color_map": color_map}
        for leading, plane in _planes(tuple(shape), sharding):
            print(slice_text(leading))
            visualize_sharding(shape[-2:], plane, **options)
        return
    from rich.align import Align  # rich takes time to load, and few programs draw
    from rich.box import SQUARE
    from rich.console import Console
    from rich.padding import Padding
    from rich.style import Style
    from rich.table import Table

    console = Console(width=max_width)
    colored = use_color and console.color_system is not None
    grid = _grid(tuple(shape), sharding)
    colors = _colors(color_map or _rainbow, sum(map(len, grid)))
    table = Table(
        show_header=False, show_lines=not colored, padding=0, highlight=not colored, pad_edge=False,
        box=None if colored else SQUARE,
    )  # fmt: skip
    for blocks in grid:
        cells: list[Padding] = []
        for block in blocks:
            style = Style.parse("{1} on {0}".format(*next(colors))) if colored else Style()
            space = block.space(scale, shape, min_width, max_width, 1 if colored else 0)
            cells.append(Padding(Align(block.text, "center", vertical="middle"), space, style=style))
        table.add_row(*cells)
    console.print(table, end="\n\n")


@dataclass(frozen=True)
class _Plane:
    """The last two dims of a part of an array, as much of a sharding as drawing asks for."""

    parts: dict[Any, tuple[slice, ...]]

    @property
    def device_set(self) -> frozenset[Any]:
        return frozenset(self.parts)

    def devices_indices_map(self, shape: Sequence[int]) -> dict[Any, tuple[slice, ...]]:
        return self.parts


def _planes(shape: tuple[int, ...], sharding: Sharding) -> Iterator[tuple[tuple[tuple[int, int], ...], Any]]:
    """For each part along the dims before the last two: where it is, and who holds what of the last two."""
    planes: dict[tuple[tuple[int, int], ...], dict[Any, tuple[slice, ...]]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        planes.setdefault(spans_of(index, shape)[:-2], {})[device] = index[-2:]
    yield from ((leading, _Plane(parts)) for leading, parts in sorted(planes.items(), key=lambda item: item[0]))


@dataclass(frozen=True)
class _Block:
    """One part of an array: its shares of the height (None of an array of one dim) and of the width, and who holds it."""

    text: str
    height: float | None
    width: float

    def space(
        self, scale: float, shape: Sequence[int], min_width: int, max_width: int, more: int
    ) -> tuple[int, int, int, int]:
        """Lines and columns around the text: top, right, bottom, left."""
        base = int(BASE_HEIGHT * scale)
        across = int(base * (shape[1] if len(shape) == 2 else 1) / shape[0])
        columns = min(max(int(self.width * across * WIDTH_OF_HEIGHT), min_width), max_width) - len(self.text) - 2
        lines = (1 if self.height is None else int(self.height * base)) - 2
        left, top = columns // 2, lines // 2
        return tuple(max(n + more, 0) for n in (top, columns - left, lines - top, left))  # pyright: ignore[reportReturnType]


def _grid(shape: tuple[int, ...], sharding: Sharding) -> list[list[_Block]]:
    holders: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        spans = tuple(part.indices(n)[:2] for part, n in zip(index, shape, strict=True))
        holders.setdefault(spans, []).append(device.id)
    kind = next(iter(sharding.device_set)).platform.upper()
    rows: dict[tuple[int, int], list[_Block]] = {}
    for spans, ids in sorted(holders.items()):
        shares = [(stop - start) / max(n, 1) for (start, stop), n in zip(spans, shape, strict=True)]
        block = _Block(f"{kind} {','.join(map(str, sorted(ids)))}", shares[0] if len(shape) == 2 else None, shares[-1])
        rows.setdefault(spans[0] if len(shape) == 2 else (0, 0), []).append(block)
    return list(rows.values())


def _rainbow(x: float) -> tuple[float, float, float]:
    return colorsys.hsv_to_rgb(x * 0.9, 0.6, 0.7)


def _colors(color_map: Callable[[float], tuple[float, ...]], count: int) -> Iterator[tuple[str, str]]:
    """As many colors, neighbours far apart, each with the color of text that can be read on it."""
    step = count // 2 + (count % 2 == 0)
    for i in range(count):
        red, green, blue = (int(255 * part) for part in color_map(i * step % count / max(count - 1, 1))[:3])
        is_light = red * 0.299 + green * 0.587 + blue * 0.114 > 186
        yield f"#{red:02X}{green:02X}{blue:02X}", "#000000" if is_light else "#ffffff"
