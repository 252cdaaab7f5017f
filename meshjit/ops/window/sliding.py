"""Windows that slide along a dim: the geometry that convolution and reduce_window share, and its halos.

Of one dim the operand is spread out (`base_dilation - 1` holes between elements), padded, and looked at by windows of
`size` places, `window_dilation` apart, that begin every `stride` places. All positions below are those of the spread
operand before it is padded, so the first window begins at -low. Worked example, 10 elements over 4 devices, windows of
3, stride 1, padding (1, 1), so that the result has 10, too:

    device                0          1          2          3
    holds               0 1 2      3 4 5      6 7 8        9
    windows begin at   -1 0 1      2 3 4      5 6 7        8
    needs             . 0 1 2 3  2 3 4 5 6  5 6 7 8 9    8 9 .         one row from each side; . is masked padding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.core.local import LocalEquation
from meshjit.core.program import Var
from meshjit.ops.base.arithmetic import add, multiply, remainder
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full, full_like, iota, place_dtype, scalar, spread
from meshjit.ops.base.conversion import in_dtype
from meshjit.ops.slicing.halos import between, cut_at, fetch_run, positions, table
from meshjit.ops.slicing.slices import pad
from sharding.axes import AxisRef

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Slide:
    """One dim of `extent` elements, and how windows of `size` places slide along it."""

    extent: int
    size: int
    stride: int
    low: int
    high: int
    base_dilation: int
    window_dilation: int

    @property
    def padded(self) -> int:
        """The operand with holes and padding."""
        return dilated(self.extent, self.base_dilation) + self.low + self.high

    @property
    def reach(self) -> int:
        """The extent of a window with its holes."""
        return dilated(self.size, self.window_dilation)

    @property
    def out(self) -> int:
        """How many windows fit."""
        room = self.padded - self.reach
        return room // self.stride + 1 if room >= 0 else 0

    @property
    def is_trivial(self) -> bool:
        """Every window sees just the element at its place."""
        return (self.size, self.stride, self.base_dilation, self.low, self.high) == (1, 1, 1, 0, 0)


def dilated(extent: int, dilation: int) -> int:
    """An extent with its holes."""
    return (extent - 1) * dilation + 1 if extent else 0


# -- NumPy


def padded(x: Array, dim: int, slide: Slide, fill: Any) -> Array:
    """Holes and padding of `fill` put in, or elements cut off where padding is negative."""
    shape = list(x.shape)
    shape[dim] = dilated(slide.extent, slide.base_dilation)
    spaced = np.full(shape, fill, x.dtype)
    spaced[(slice(None),) * dim + (slice(None, None, slide.base_dilation),)] = x
    pads = [(max(slide.low, 0), max(slide.high, 0)) if d == dim else (0, 0) for d in range(x.ndim)]
    spaced = np.pad(spaced, pads, constant_values=fill)
    low, high = max(-slide.low, 0), spaced.shape[dim] - max(-slide.high, 0)
    return spaced[(slice(None),) * dim + (slice(low, max(high, low)),)]


def window_views(x: Array, slides: Sequence[Slide], first: int = 0) -> Array:
    """A read-only view [*leading dims, *windows, *places in a window] of an array already `padded`; the slides are
    those of the dims from `first` on."""
    shape = (*x.shape[:first], *(s.out for s in slides), *(s.size for s in slides))
    if 0 in shape:
        return np.zeros(shape, x.dtype)
    pairs = list(zip(x.strides[first:], slides, strict=True))
    strides = (*x.strides[:first], *(n * s.stride for n, s in pairs), *(n * s.window_dilation for n, s in pairs))
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


# -- partitioning


@dataclass(frozen=True)
class Seen:
    """What a shard's windows see: `var` along one dim, with the padding and the base dilation that are left to do."""

    var: Var
    padding: tuple[int, int]
    base_dilation: int


def windows_seen(
    local: LocalEquation, var: Var, dim: int, slide: Slide, axes: Sequence[AxisRef], count: int, fill: Any
) -> Seen:
    """What the `count` windows of each shard of the result see."""
    width = (count - 1) * slide.stride + slide.reach
    end = (slide.out - 1) * slide.stride - slide.low + slide.reach
    return seen(local, var, dim, slide, axes, count * slide.stride, width, fill, end)


def seen(
    local: LocalEquation, var: Var, dim: int, slide: Slide, axes: Sequence[AxisRef], step: int, width: int, fill: Any,
    end: int | None = None,
) -> Seen:
    """The `width` places of `dim` from `i * step - low` on, on shard i; holes and what is outside of the dim are `fill`.

    `var` is a shard of the dim over `axes`. Places from `end` on are of no consequence.
    """  # fmt: skip
    dilation, count = slide.base_dilation, local.mesh.axes_size(axes)
    begins = [divmod(i * step - slide.low, dilation) for i in range(count)]
    firsts, rests = [first for first, _ in begins], [rest for _, rest in begins]
    elements = (max(rests) + width - 1) // dilation + 1
    ends = [b + elements if end is None else min(b + elements, -(-end // dilation)) for b in firsts]
    needed = max(min(slide.extent, max(ends)), 0)
    windows = list(zip(firsts, ends, strict=True))
    is_inside = all(begin >= min(0, e) and e <= max(slide.extent, begin) for begin, e in windows)
    # Where shards are whole, and every window has a part of the dim, what comes from nowhere is zero already.
    touches = all(begin < needed and e > 0 or e <= begin for begin, e in windows)
    is_clean = touches and not np.any(fill) and count * var.shape[dim] == slide.extent
    var = fetch_run(local, var, dim, needed, axes, firsts, elements)
    if not is_inside and not is_clean:
        var = filled(local, var, dim, slide.extent, axes, firsts, fill)
    if dilation == 1:
        return Seen(var, (0, 0), 1)
    if len(set(rests)) == 1:
        return Seen(var, (-rests[0], width + rests[0] - dilated(elements, dilation)), dilation)
    return Seen(_spaced(local, var, dim, dilation, axes, rests, width, fill), (0, 0), 1)


def filled(
    local: LocalEquation, var: Var, dim: int, extent: int, axes: Sequence[AxisRef], starts: Sequence[int], fill: Any
) -> Var:
    """A window that begins at `starts[i]` on shard i, with `fill` where it is outside of the dim."""
    dtype = place_dtype(max(extent, *map(abs, starts)) + var.shape[dim])
    begin = in_dtype(table(local, axes, starts), dtype)
    places = add(iota(dtype=begin.dtype, shape=var.shape, dimension=dim), spread(begin, var.shape))
    return select_or(between(places, 0, extent), var, fill)


def only_window(local: LocalEquation, var: Var, dim: int, slide: Slide, axes: Any, fill: Any) -> Var:
    """The shard with `fill` wherever the only window does not look: element i is at place i * base + low of it."""
    places = positions(local, var.shape, dim, axes)
    base, low = slide.base_dilation, slide.low
    mask = between(places, -(low // base), min(slide.extent, -((low - slide.reach) // base)))
    if slide.window_dilation > 1:
        steps = add(multiply(places, full_like(places, base)), full_like(places, low))
        rest = remainder(steps, full_like(places, slide.window_dilation))
        mask = and_(mask, compare(rest, full_like(rest, 0), direction="EQ"))
    return select_or(mask, var, fill)


def select_or(mask: Var, var: Var, fill: Any) -> Var:
    return select(mask, var, full(var.type, fill))


def _spaced(
    local: LocalEquation, var: Var, dim: int, dilation: int, axes: Sequence[AxisRef], rests: Sequence[int], width: int,
    fill: Any,
) -> Var:
    """Holes put in, then `width` places from `rests[i]` on, on shard i."""  # fmt: skip

    none, holes = (0,) * var.rank, tuple(dilation - 1 if d == dim else 0 for d in range(var.rank))
    var = pad(var, scalar(fill, var.dtype), low=none, high=holes, interior=holes)
    return cut_at(local, [var], dim, axes, rests, width)
