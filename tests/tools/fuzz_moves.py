"""What one step of a drawn loop does to a value (`fuzz_structured`) beside stencils: other sizes, orders, lookups."""

from __future__ import annotations

from typing import Any

import numpy as np

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import NamedSharding
from tests.tools.fuzz_stencils import (
    BOUND,
    STENCILS,
    Hand,
    along,
    any_spec,
    convolved,
    plus,
    rolled_by_index,
    sloped,
    small,
    windowed,
)

# -- through another size and back


def _fitted(h: Hand, v: Any, d: int, n: int) -> Any:
    """Cut or made longer to an extent, on either side."""
    m = v.shape[d]
    if m >= n:
        start = h.number(0, m - n + 1)
        return v[along(d, slice(start, start + n))]
    low = h.number(0, n - m + 1)
    return mnp.pad(v, [(low, n - m - low) if e == d else (0, 0) for e in range(v.ndim)])


def _coarse(h: Hand, u: Any, d: int, k: int) -> Any:
    n, start = u.shape[d], h.number(0, k)
    kind = h.number(0, 3)
    if kind == 0 and n % k == 0:
        groups = u.reshape(*u.shape[:d], n // k, k, *u.shape[d + 1 :])
        return groups.max(d + 1) if u.dtype.kind != "c" else groups.sum(d + 1)
    if kind == 1 and u.dtype.kind in "fi" and n >= k:
        of, begin = (lax.add, 0) if h.coin() else (lax.max, -BOUND)
        sizes = [h.number(1, 4) if e == d else 1 for e in range(u.ndim)]
        strides = [k if e == d else 1 for e in range(u.ndim)]
        begin, padding = np.asarray(begin, u.dtype), h.one_of(("SAME", "VALID"))
        return small(lax.reduce_window(u, begin, of, tuple(sizes), tuple(strides), padding))
    return u[along(d, slice(start, None, k))]


def _fine(h: Hand, c: Any, d: int, k: int) -> Any:
    kind = h.number(0, 3)
    if kind == 0:
        return mnp.repeat(c, k, d)
    if kind == 1:
        wide = mnp.stack([c, *[mnp.roll(c, -1, d) if h.coin() else c for _ in range(k - 1)]], d + 1)
        return wide.reshape(*c.shape[:d], c.shape[d] * k, *c.shape[d + 1 :])
    zero = np.zeros((), c.dtype)
    gaps = [(h.number(0, k), h.number(0, k), k - 1) if e == d else (0, 0, 0) for e in range(c.ndim)]
    return lax.pad(c, zero, gaps)


def in_levels(h: Hand, u: Any) -> Any:
    """On a grid of every k-th place, and back, as multigrid does."""
    d, k = h.dim(u), h.number(2, 4)
    n = u.shape[d]
    c = _coarse(h, u, d, k)
    if c.shape[d] == 0:
        return u
    c = plus(h, c, mnp.roll(c, h.shift(c.shape[d]), d) if h.coin() else mnp.flip(c, d))
    return _fitted(h, _fine(h, c, d, k), d, n)


def strided_convolution(h: Hand, u: Any) -> Any:
    """Down by a stride, up by a hole between elements."""
    if u.dtype != np.float32 or u.size == 0:
        return flipped(h, u)
    d, k, width = h.dim(u), h.number(1, 4), h.number(1, 5)
    n = u.shape[d]
    lines = mnp.moveaxis(u, d, -1)
    kernels = [mnp.asarray(h.generator.integers(-1, 2, (1, 1, width)).astype(np.float32)) for _ in range(2)]
    pads = [(h.number(0, width + 1), h.number(0, width + 1)) for _ in range(2)]
    if n + sum(pads[0]) < width:
        return u
    c = lax.conv_general_dilated(lines.reshape(u.size // n, 1, n), kernels[0], (k,), [pads[0]])
    if (c.shape[2] - 1) * k + 1 + sum(pads[1]) < width:
        return u
    out = lax.conv_general_dilated(small(c), kernels[1], (1,), [pads[1]], lhs_dilation=(k,))
    return small(mnp.moveaxis(_fitted(h, out, 2, n).reshape(lines.shape), -1, d))


def over_dims(h: Hand, u: Any) -> Any:
    """A convolution over two dims, or with one of them as channels."""
    if u.dtype != np.float32 or u.ndim < 2 or u.size == 0:
        return flipped(h, u)
    n, m = u.shape[:2]
    image = mnp.moveaxis(u.reshape(n, m, u.size // (n * m)), 2, 0)
    sizes = h.number(1, 4), h.number(1, 4)
    if h.coin():
        kernel = mnp.asarray(h.generator.integers(-1, 2, (1, 1, *sizes)).astype(np.float32))
        out = lax.conv_general_dilated(image[:, None], kernel, (1, 1), "SAME", rhs_dilation=(h.number(1, 3), h.number(1, 3)))[:, 0]
    else:
        groups = h.one_of([g for g in range(1, n + 1) if n % g == 0])
        kernel = mnp.asarray(h.generator.integers(-1, 2, (n, n // groups, sizes[0])).astype(np.float32))
        out = lax.conv_general_dilated(image, kernel, (1,), "SAME", feature_group_count=groups)
    return small(mnp.moveaxis(out, 0, 2).reshape(u.shape))


def row_by_row(h: Hand, u: Any) -> Any:
    """A scan over the rows, each made of the one before it, as dynamic programming does."""
    again, is_reverse, shift = h.again(), h.coin(), h.shift(u.shape[-1])

    def step(last: Any, row: Any) -> Any:
        row = plus(again(), row, mnp.roll(last, shift, -1) if row.ndim else last)
        return row, row

    return lax.scan(step, mnp.zeros_like(u[0]), u, reverse=is_reverse)[1] if u.shape[0] else u


def multiplied(h: Hand, u: Any) -> Any:
    if u.dtype.kind not in "fi" or u.ndim < 2:
        return flipped(h, u)
    dims = tuple(range(1, u.ndim)) if h.coin() else (0,)
    other = small(mnp.tensordot(u, u, (dims, dims)))
    if other.ndim == 2 and other.shape[0] == u.shape[0]:
        return small(mnp.tensordot(other, u, 1))
    return small(mnp.tensordot(u, other, u.ndim - 1)) if other.ndim == 2 * u.ndim - 2 else u


# -- along a dim


def summed_up(h: Hand, u: Any) -> Any:
    d = h.dim(u)
    if u.dtype.kind not in "fi":
        return mnp.flip(u, d)
    op = h.one_of((lax.cumsum, lax.cummax, lax.cummin))
    if h.coin(3):
        return small(lax.associative_scan(h.one_of((mnp.add, mnp.maximum)), u, reverse=h.coin(), axis=d))
    return small(op(u, axis=d, reverse=h.coin()))


def ordered(h: Hand, u: Any) -> Any:
    d = h.dim(u)
    if u.dtype.kind == "c":
        return u
    kind = h.number(0, 4)
    if kind == 0 and u.dtype.kind != "b" and not h.smooth:
        return small(mnp.argsort(u, axis=d, stable=True).astype(u.dtype))
    if kind == 1 and u.dtype.kind in "fi" and u.shape[d]:
        values, places = lax.top_k(mnp.moveaxis(u, d, -1), h.number(1, u.shape[d] + 1))
        wide = [(0, 0)] * (u.ndim - 1) + [(0, u.shape[d] - values.shape[-1])]
        return mnp.moveaxis(mnp.pad(values if h.coin() or h.smooth else small(places.astype(u.dtype)), wide), -1, d)
    return mnp.sort(u, axis=d)


def flipped(h: Hand, u: Any) -> Any:
    return mnp.flip(u, h.dim(u))


def turned(h: Hand, u: Any) -> Any:
    """Dims change places, or are merged and split otherwise."""
    equal = [(d, e) for d in range(u.ndim) for e in range(d) if u.shape[d] == u.shape[e]]
    if equal and h.coin():
        return mnp.swapaxes(u, *h.one_of(equal))
    n = u.size
    a = h.one_of([k for k in range(1, n + 1) if n % k == 0] or [1])
    if n == 0:
        return u
    kind = h.number(0, 3)
    if kind == 0:
        return u.reshape(a, n // a).T.reshape(u.shape)
    if kind == 1:
        return mnp.roll(u.reshape(-1), h.shift(n)).reshape(u.shape)
    return mnp.roll(u.reshape(n // a, a), h.shift(a), 1).reshape(u.shape)


def transformed(h: Hand, u: Any) -> Any:
    """A roll by way of a Fourier transform."""
    d = h.dim(u)
    n = u.shape[d]
    if u.dtype not in (np.float32, np.complex64) or n == 0:
        return u
    phase = np.exp(-2j * np.pi * h.shift(n) * np.arange(n) / n).astype(np.complex64)
    lines = mnp.fft.fft(u, axis=d) * phase.reshape([n if e == d else 1 for e in range(u.ndim)])
    back = mnp.fft.ifft(lines, axis=d)
    return back if u.dtype.kind == "c" else mnp.round(back.real) if not h.smooth else back.real


# -- lookups and reductions


def taken(h: Hand, u: Any) -> Any:
    d = h.dim(u)
    n = u.shape[d]
    if n == 0:
        return u
    places = mnp.asarray(h.places(n))
    if h.index is not None and h.coin():
        places = (places + h.index) % n
    return mnp.take(u, places, axis=d)


def scattered(h: Hand, u: Any) -> Any:
    d = h.dim(u)
    n = u.shape[d]
    if n == 0:
        return u
    if h.coin():
        places = mnp.asarray(h.generator.permutation(n).astype(np.int32)[: h.number(1, n + 1)])
        return u.at[along(d, places)].set(mnp.flip(u, d)[along(d, slice(None, len(places)))])
    places = mnp.asarray(h.places(n, h.number(1, n + 2)))
    other = mnp.ones((*u.shape[:d], len(places), *u.shape[d + 1 :]), u.dtype)
    return small(u.at[along(d, places)].add(other)) if u.dtype.kind != "b" else u.at[along(d, places)].set(other)


def at_index(h: Hand, u: Any) -> Any:
    """A slice at a place that follows the iteration, put at another."""
    d = h.dim(u)
    n = u.shape[d]
    if n == 0:
        return u
    width = h.number(1, n + 1)
    start = h.index * h.number(-1, 3) + h.number(0, 2)
    part = lax.dynamic_slice_in_dim(u, start, width, d)
    if h.coin(3):
        return u.at[along(d, h.index % n)].set(u[along(d, (h.index + 1) % n)])
    return lax.dynamic_update_slice_in_dim(u, part, h.one_of((h.index, 0, n - width, h.index - 1)), d)


def masked(h: Hand, u: Any) -> Any:
    d = h.dim(u)
    places = lax.broadcasted_iota(np.int32, u.shape, d)
    limit = h.index if h.coin() else h.number(-1, u.shape[d] + 1)
    return mnp.where(h.one_of((places < limit, places == limit, places % 2 == 0)), u, mnp.flip(u, d))


def normed(h: Hand, u: Any) -> Any:
    d = h.dim(u)
    if u.dtype.kind == "b":
        return mnp.logical_xor(u, mnp.any(u, axis=d, keepdims=True))
    if u.size == 0 or u.dtype.kind == "c":
        return u
    axes = d if h.coin() else None
    of = h.one_of((mnp.max, mnp.min, mnp.sum))
    return small(u - small(of(u, axis=axes, keepdims=True)).astype(u.dtype))


def contracted(h: Hand, u: Any) -> Any:
    d = h.dim(u)
    n = u.shape[d]
    if u.dtype != np.float32:
        return flipped(h, u)
    matrix = mnp.asarray(h.generator.integers(-1, 2, (n, n)).astype(np.float32))
    return small(mnp.moveaxis(mnp.tensordot(matrix, u, ((1,), (d,))), 0, d))


def in_segments(h: Hand, u: Any) -> Any:
    n = u.shape[0]
    if n == 0 or u.dtype.kind not in "fi":
        return u
    return small(mj.ops.segment_sum(u, mnp.asarray(h.places(n)), n))


def noisy(h: Hand, u: Any) -> Any:
    """Random numbers of the iteration are added, some of them left out."""
    key = mj.random.key(h.number(0, 100))
    key = key if h.index is None else mj.random.fold_in(key, h.index)
    if u.dtype.kind == "b":
        return mnp.logical_xor(u, mj.random.bernoulli(key, 0.5, u.shape))
    noise, mask = mj.random.randint(key, u.shape, -2, 3), mj.random.bernoulli(key, 0.7, u.shape)
    return small(u + mnp.where(mask, noise, 0).astype(u.dtype))


def pinned(h: Hand, u: Any) -> Any:
    """Placed somewhere in the middle."""
    return lax.with_sharding_constraint(u, NamedSharding(h.mesh, any_spec(h.generator, u.ndim, h.mesh)))


MOVES = (
    *STENCILS, convolved, windowed, sloped, summed_up, ordered, flipped, turned, transformed, taken, scattered, masked, normed,
    contracted, in_segments, pinned, pinned, in_levels, in_levels, strided_convolution, over_dims, row_by_row, multiplied,
    noisy,
)  # fmt: skip
IN_LOOPS = (rolled_by_index, at_index, at_index)
