"""Objects that are indexed instead of called, as NumPy's: `mgrid`, `ogrid`, `r_`, `c_`, `s_`, `index_exp`; and `ix_`."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.numpy.creation import arange, linspace, meshgrid
from meshjit.numpy.promote import asarray, dtype_of, lifted, promoted, shape_of
from meshjit.numpy.shaping import concatenate, expand_dims, reshape, stack
from meshjit.numpy.sorting import nonzero
from meshjit.trace import line_of, user_source

s_, index_exp = np.s_, np.index_exp


def _numbers(key: slice) -> Any:
    """start:stop:step as arange, start:stop:nj as linspace of n numbers, both ends included."""
    if not isinstance(key, slice):
        raise TypeError(f"mgrid, ogrid and r_ take slices here, not {type(key).__name__}\n  at {line_of(user_source())}")
    start = 0 if key.start is None else key.start
    if isinstance(key.step, complex):
        return linspace(start, key.stop, int(abs(key.step)), endpoint=True)
    return arange(start, key.stop, 1 if key.step is None else key.step)


class _Grid:
    """A grid of the numbers that slices name (`jax.numpy.mgrid`, `ogrid`)."""

    def __init__(self, sparse: bool) -> None:
        self.sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, tuple):
            return _numbers(key)
        grids = meshgrid(*promoted(*(_numbers(k) for k in key))[0], indexing="ij", sparse=self.sparse)
        return grids if self.sparse else stack(grids) if grids else arange(0)

    def __len__(self) -> int:
        return 0


class _Concatenation:
    """Arrays, numbers and slices one after the other (`jax.numpy.r_`, `c_`).

    A leading string "axis,ndmin,trans1d" says along which axis, to how many dims each part is raised, and where the dims of a
    part that has fewer go; "r" and "c" make matrices of vectors, rows or columns."""

    def __init__(self, axis: int, least_rank: int, place: int) -> None:
        self.directive = axis, least_rank, place

    def __getitem__(self, key: Any) -> Any:
        parts = list(key) if isinstance(key, tuple) else [key]
        axis, least_rank, place = self.directive
        if parts and isinstance(parts[0], str):
            axis, least_rank, place = self._read(parts.pop(0))
        if any(isinstance(p, str) for p in parts):
            raise ValueError(f"r_ and c_: a string must stand first\n  at {line_of(user_source())}")
        parts = [self._raised(p, least_rank, place) for p in parts]
        return concatenate(promoted(*parts)[0], axis)

    def _read(self, text: str) -> tuple[int, int, int]:
        if text in ("r", "c"):
            return (0, 2, 0) if text == "c" else (-1, 2, -1)
        try:
            numbers = [int(n) for n in text.split(",")]
            return (*numbers, *self.directive[len(numbers) :])  # pyright: ignore[reportReturnType]
        except ValueError:
            raise ValueError(
                f"r_ and c_: {text!r} is no directive\n  at {line_of(user_source())}\n"
                "  fix: 'axis,ndmin,trans1d' of whole numbers, 'r' or 'c'"
            ) from None

    def _raised(self, part: Any, least_rank: int, place: int) -> Any:
        """A part with at least `least_rank` dims; its own end before dim `place`, counted among the new ones."""
        x = _numbers(part) if isinstance(part, slice) else asarray(part)
        rank = len(shape_of(x))
        if not rank and least_rank <= 1:
            return reshape(x, (1,))
        new = least_rank - rank
        if new <= 0:
            return lifted(x)
        start = place % (new + 1) if place < 0 else min(place, new)
        return expand_dims(x, tuple(d for d in range(least_rank) if not start <= d < start + rank))


mgrid, ogrid = _Grid(False), _Grid(True)
r_, c_ = _Concatenation(0, 1, -1), _Concatenation(-1, 2, 0)


def ix_(*args: Any) -> tuple[Any, ...]:
    """`jax.numpy.ix_`: vectors as an open mesh, x[ix_(rows, columns)]; those of booleans are replaced by where they are true.

    ValueError for what has not one dim."""
    vectors = []
    for i, arg in enumerate(args):
        x = asarray(arg)
        if len(shape_of(x)) != 1:
            raise ValueError(f"ix_: argument {i} has shape {shape_of(x)}, not one dim\n  at {line_of(user_source())}")
        if shape_of(x) == (0,):
            x = x.astype(np.int32)
        vectors.append(nonzero(x)[0] if dtype_of(x) == np.bool_ else x)
    return tuple(reshape(lifted(x), [-1 if i == j else 1 for j in range(len(args))]) for i, x in enumerate(vectors))
