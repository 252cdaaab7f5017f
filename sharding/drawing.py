"""Meshes, shardings and arrays as HTML, for notebooks: a grid of devices, and which of them hold which part of an array."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

MOST_CELLS: Final = 256  # of one picture; of more only the count is told
_CELL: Final = "border: 1px solid #8886; padding: .2em .6em; text-align: center"


class Grid(Protocol):
    """What a mesh is here: axes, and devices where it has some."""

    @property
    def axis_names(self) -> tuple[str, ...]: ...
    @property
    def axis_sizes(self) -> tuple[int, ...]: ...


def color_of(mesh: Grid, axis: str) -> str:
    """A color for each axis of a mesh, the same everywhere."""
    return f"hsl({210 + 360 * mesh.axis_names.index(axis) // len(mesh.axis_names)} 70% 50% / .3)"


def axes_html(mesh: Grid) -> str:
    """`data=4 model=2`, each in its color."""
    sizes = zip(mesh.axis_names, mesh.axis_sizes, strict=True)
    parts = [f'<span style="background: {color_of(mesh, n)}; padding: 0 .3em">{html.escape(n)}={s}</span>' for n, s in sizes]
    return " ".join(parts)


def mesh_html(mesh: Grid, devices: Sequence[object] = ()) -> str:
    """Axes and, unless they are many, devices: rows along the first axis, columns along the others."""
    if not devices or len(devices) > MOST_CELLS:
        return f"<div>{axes_html(mesh)}{f', {len(devices)} devices' if devices else ', without devices'}</div>"
    columns = len(devices) // (mesh.axis_sizes[0] if mesh.axis_sizes else 1)
    rows = [devices[at : at + columns] for at in range(0, len(devices), columns)]
    return f"<div>{axes_html(mesh)}</div>{_table([[str(d) for d in row] for row in rows])}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f'<td style="{_CELL}">{html.escape(cell)}</td>' for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def spec_html(mesh: Grid, spec: object) -> str:
    """A spec, its axes in their colors."""
    text = html.escape(repr(spec))
    for axis in mesh.axis_names:
        written = html.escape(repr(axis))
        text = text.replace(written, f'<span style="background: {color_of(mesh, axis)}">{written}</span>')
    return text


def parts_html(shape: Sequence[int], indices: Mapping[Any, tuple[slice, ...]]) -> str:
    """Who holds which part: a picture of two dims; of arrays of more dims one for each part along the dims before them.
    `indices` are those of `Sharding.devices_indices_map`."""
    holders: dict[tuple[tuple[int, int], ...], list[Any]] = {}
    for device, index in indices.items():
        holders.setdefault(spans_of(index, shape), []).append(device)
    if len(holders) > MOST_CELLS:
        return f"<div>{len(holders)} parts</div>"
    pictures: list[str] = []
    for leading, parts in itertools.groupby(sorted(holders), key=lambda spans: spans[:-2]):
        rows = [list(row) for _, row in itertools.groupby(parts, key=lambda spans: spans[-2:-1])]
        title = f"<div>{slice_text(leading)}</div>" if leading else ""
        pictures.append(title + _table([[", ".join(map(_device, holders[spans])) for spans in row] for row in rows]))
    return "".join(pictures)


def spans_of(index: Sequence[slice], shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Where a part begins and ends along every dim."""
    return tuple([part.indices(n)[:2] for part, n in zip(index, shape, strict=True)])


def slice_text(spans: Iterable[tuple[int, int]]) -> str:
    """`[0:4, 2:3, …]`."""
    return f"[{', '.join(f'{start}:{stop}' for start, stop in spans)}, …]"


def _device(device: Any) -> str:
    return f"{str(getattr(device, 'platform', '')).upper()} {getattr(device, 'id', device)}".strip()
