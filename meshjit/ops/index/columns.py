"""Index vectors, shared by gather and scatter: the last dim of the indices holds one *column* per indexed dim.

Both ops move windows of the operand. Of every operand dim a window takes

    one element, dropped from the window     (collapsed, inserted)  the usual indexed dim
    one element, tied to an index dim        (batching)             every member of a batch has its own operand
    `sizes[d]` elements from a start on      (window)               start 0 unless the dim has a column

A window is *in bounds* if it lies inside the operand in all dims; modes act on whole windows. "clip" moves a window
inside, "fill" drops it (a gather fills it instead), "promise_in_bounds" clips in a gather and drops single elements in a scatter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.core.local import LocalEquation
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import minimum, subtract
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import clamp, compare
from meshjit.ops.base.constants import emit_splat, first_place, full_like, place_dtype, scalar, spread, zeros
from meshjit.ops.base.conversion import in_dtype
from meshjit.ops.base.families import require, require_param
from meshjit.ops.base.shape import expand, squeeze
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.halos import between, cut

Array = np.ndarray[Any, Any]
Dims = tuple[int, ...]
MODES = ("clip", "fill", "promise_in_bounds")
I32 = np.dtype(np.int32)


@dataclass(frozen=True)
class Windows:
    """What gather and scatter have in common: which dims windows have, and where they come from or go to.

    `kept` are the operand's window dims, in order; `places` where they stand in the result of a gather (in the updates
    of a scatter), sorted; the other dims there are the indices' dims without the last.
    """

    op: str
    operand: Dims  # shape
    sizes: Dims  # of a window, per operand dim
    places: Dims
    dropped: Dims
    batching: Dims
    index_batching: Dims
    columns: Dims  # operand dim of every column

    @property
    def kept(self) -> Dims:
        return tuple(d for d in range(len(self.operand)) if d not in self.dropped and d not in self.batching)

    @property
    def limits(self) -> Dims:
        """The last start that is in bounds, per operand dim."""
        return tuple(n - m for n, m in zip(self.operand, self.sizes, strict=True))

    def outer(self, rank: int) -> Dims:
        """The dims of a gather's result (a scatter's updates) that come from the indices."""
        return tuple(d for d in range(rank) if d not in self.places)

    def check(self, operand: TensorType, indices: TensorType, names: Mapping[str, str]) -> None:
        """TypeError unless the dim numbers are legal for these types. `names`: what the op calls its params."""
        require(indices.rank >= 1, self.op, f"indices {indices} need a last dim that holds one column per indexed dim")
        require(indices.dtype.kind in "iu", self.op, f"indices must be integers, got {indices}")
        count = indices.shape[-1]
        fits = len(self.columns) == count
        require_param(fits, self.op, names["columns"], self.columns, f"indices {indices} hold {count} columns")
        for name in ("dropped", "batching", "columns"):
            self._check_dims(names[name], getattr(self, name), operand, name != "columns")
        overlap = set(self.dropped) & set(self.batching) or set(self.columns) & set(self.batching)
        require_param(not overlap, self.op, names["batching"], self.batching, f"dims {sorted(overlap)} are used twice")
        self._check_batching(operand, indices, names)
        fits = len(self.places) == len(self.kept)
        require_param(fits, self.op, names["places"], self.places, f"windows have {len(self.kept)} dims")

    def _check_dims(self, name: str, dims: Dims, operand: TensorType, ordered: bool) -> None:
        fits = len(set(dims)) == len(dims) and all(0 <= d < operand.rank for d in dims)
        fits = fits and (not ordered or list(dims) == sorted(dims))
        word = "different ascending" if ordered else "different"
        require_param(fits, self.op, name, dims, f"{word} dims of operand {operand} are needed")

    def _check_batching(self, operand: TensorType, indices: TensorType, names: Mapping[str, str]) -> None:
        name, dims = names["index_batching"], self.index_batching
        fits = len(dims) == len(self.batching) == len(set(dims)) and all(0 <= d < indices.rank - 1 for d in dims)
        require_param(fits, self.op, name, dims, f"one dim of indices {indices} per {names['batching']} is needed")
        for d, i in zip(self.batching, dims, strict=True):
            same = operand.shape[d] == indices.shape[i]
            require(same, self.op, f"dims {d} of operand {operand} and {i} of indices {indices} have other extents")

    # -- NumPy meaning

    def starts(self, indices: Array) -> tuple[list[Array], Array]:
        """Per operand dim the clipped start of every window, and which windows are in bounds."""
        outer = indices.shape[:-1]
        starts: list[Array] = [np.zeros((), np.int64)] * len(self.operand)
        inside = np.ones(outer, np.bool_)
        for column, d in enumerate(self.columns):
            numbers, last = indices[..., column], self.limits[d]
            inside &= (numbers >= 0) & (numbers <= last)
            starts[d] = np.clip(_int64(numbers), 0, last)
        for d, i in zip(self.batching, self.index_batching, strict=True):
            starts[d] = _along(np.arange(outer[i]), i, len(outer))
        return starts, inside

    def elements(self, indices: Array) -> tuple[tuple[Array, ...], Array]:
        """For fancy indexing of the operand, a scalar as one of shape (1,): arrays of [*outer dims, *window dims];
        and `inside`, which broadcasts to them."""
        starts, inside = self.starts(indices)
        kept, outer = self.kept, indices.shape[:-1]
        shape = (*outer, *(self.sizes[d] for d in kept))
        index: list[Array] = []
        for d, start in enumerate(starts):
            place = np.broadcast_to(start, outer).reshape(outer + (1,) * len(kept))
            if d in kept:
                place = place + _along(np.arange(self.sizes[d]), len(outer) + kept.index(d), len(shape))
            index.append(np.broadcast_to(place, shape))
        if not index:
            index.append(np.zeros(shape, np.int64))
        return tuple(index), inside.reshape(outer + (1,) * len(kept))


def _int64(numbers: Array) -> Array:
    """As int64; what an int64 cannot hold is as far out of bounds as its highest value."""
    if numbers.dtype == np.uint64:
        numbers = np.minimum(numbers, np.iinfo(np.int64).max)
    return numbers.astype(np.int64)


def _along(line: Array, dim: int, rank: int) -> Array:
    return line.reshape([-1 if d == dim else 1 for d in range(rank)])


# -- StableHLO


def emit_signed(e: Any, indices: str) -> str:
    """Indices in a dtype that holds every extent with its sign, so that clamping is what it says: i32 or i64."""
    type = e.types[indices]
    if type.dtype in (np.int32, np.int64):
        return indices
    wide = np.dtype(np.int64 if type.dtype == np.uint64 else np.int32)
    if type.dtype.itemsize == wide.itemsize:
        top = emit_splat(e, type, np.iinfo(wide).max)
        indices = e.op("minimum", [indices, top], [type])[0]
    return e.op("convert", [indices], [type.with_dtype(wide)])[0]


def emit_row(e: Any, indices: str, values: Sequence[int]) -> str:
    """One value per column, repeated to the shape of the indices."""
    type = e.types[indices]
    row = e.constant(np.array(values, type.dtype))
    return e.op("broadcast_in_dim", [row], [type], f"broadcast_dimensions = array<i64: {type.rank - 1}>")[0]


def emit_clamped(e: Any, indices: str, limits: Sequence[int]) -> str:
    low, high = emit_row(e, indices, [0] * len(limits)), emit_row(e, indices, limits)
    return e.op("clamp", [low, indices, high], [e.types[indices]])[0]


def emit_inside(e: Any, indices: str, limits: Sequence[int]) -> str:
    """bool[outer dims]: whether all columns are between 0 and their limits."""
    type = e.types[indices]
    flags = type.with_dtype(np.bool_)
    low, high = emit_row(e, indices, [0] * len(limits)), emit_row(e, indices, limits)
    above, below = (
        e.op("compare", [indices, bound], [flags], f"comparison_direction = #stablehlo<comparison_direction {word}>")[0]
        for bound, word in ((low, "GE"), (high, "LE"))
    )
    both = e.op("and", [above, below], [flags])[0]
    true = e.constant(np.array(True))
    return e.op(
        "reduce", [both, true], [flags.with_shape(type.shape[:-1])], f"dimensions = array<i64: {type.rank - 1}>",
        [e.reducer("and", flags.dtype)],
    )[0]  # fmt: skip


# -- columns as Vars, for rules that build equations


def split_columns(indices: Var, windows: Windows) -> list[Var]:
    """Every column, i32[outer dims], or i64 where the indices are, or a dim needs it. What the dtype does not hold counts as
    its highest value."""
    is_wide = indices.dtype.kind in "iu" and indices.dtype.itemsize == 8
    wide = np.dtype(np.int64) if is_wide else place_dtype(1 + max(windows.operand, default=0))
    if indices.dtype.kind == "u" and indices.dtype.itemsize == wide.itemsize:
        indices = minimum(indices, full_like(indices, np.iinfo(wide).max))
    indices, last = in_dtype(indices, wide), indices.rank - 1
    return [squeeze(cut(indices, last, k, k + 1), last) for k in range(indices.shape[last])]


def join_columns(columns: Sequence[Var], outer: Sequence[int]) -> Var:
    """The inverse of `split_columns`; `outer` is the shape of a column, for when there is none."""
    if not columns:
        return zeros(TensorType((*outer, 0), I32))
    wide = [expand(c, len(outer)) for c in columns]
    return wide[0] if len(wide) == 1 else concatenate(*wide, dimension=len(outer))


def clamp_column(column: Var, low: int, high: int) -> Var:
    return clamp(full_like(column, low), column, full_like(column, high))


def localized(local: LocalEquation, column: Var, shard: int, axes: Sequence[Any]) -> tuple[Var, Var]:
    """A column in [-1, extent] as a place in this device's shard of `shard` elements, and whether it is there."""
    begin = first_place(local.index(axes), local.mesh.axes_size(axes), shard, column.dtype)
    place = subtract(column, spread(begin, column.shape))
    return place, between(place, 0, shard)


def conjunction(flags: Sequence[Var]) -> Var:
    total = flags[0]
    for flag in flags[1:]:
        total = and_(total, flag)
    return total


def is_first(local: LocalEquation, axes: Sequence[Any]) -> Var:
    """bool[]: whether this device is the first along these axes."""
    return compare(local.index(axes), scalar(0, I32), direction="EQ")
