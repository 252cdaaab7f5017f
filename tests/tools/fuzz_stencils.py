"""What one step of a drawn loop does to a value (`fuzz_structured`): stencils, and what is set at borders.

Every move takes an array to one of the same shape and dtype. Numbers stay small integers (`small`), so that results are exact in
whichever order they are added up. A `Hand` draws what a move needs, again the same whenever the function is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax

BOUND: Final = 7  # of absolute values


@dataclass
class Hand:
    """A generator, the mesh, the iteration (None outside of loops), and whether what is drawn is to have a derivative."""

    generator: np.random.Generator
    mesh: Any
    index: Any = None
    smooth: bool = False
    is_deep: bool = False
    is_plain: bool = False  # stencils alone, mostly along the first dim

    def number(self, low: int, high: int) -> int:
        return int(self.generator.integers(low, high))

    def one_of(self, options: Sequence[Any]) -> Any:
        return options[self.number(0, len(options))]

    def coin(self, of: int = 2) -> bool:
        return self.number(0, of) == 0

    def shift(self, n: int) -> int:
        """Often half of a ring, a shard, all of it, or more."""
        shards = self.one_of((2, 3, 4, 8))
        near, half = (1, -1, 2, -2, 0), (n // 2, n // 2, -(n // 2))
        far = n - 1, n, n + 1, 2 * n + 1, self.number(-n - 1, n + 2)
        return self.one_of((*near, *half, *far, -(-n // shards), -(n // shards)))

    def dim(self, u: Any) -> int:
        return 0 if self.is_plain and not self.coin(4) else self.number(0, u.ndim)

    def places(self, n: int, count: int | None = None) -> np.ndarray[Any, Any]:
        return self.generator.integers(0, max(n, 1), n if count is None else count).astype(np.int32)

    def again(self) -> Callable[[], Hand]:
        """Hands that draw the same, for functions that are traced more than once."""
        seed = self.number(0, 2**31)
        return lambda: Hand(np.random.default_rng(seed), self.mesh, self.index, self.smooth, self.is_deep, self.is_plain)


def small(u: Any) -> Any:
    """Within bounds, as far as the dtype has some."""
    if u.dtype.kind == "b" or u.dtype == np.uint8:
        return u
    if u.dtype.kind == "c":
        return lax.complex(small(u.real), small(u.imag))
    return mnp.clip(u, -BOUND, BOUND)


def plus(h: Hand, u: Any, v: Any) -> Any:
    if u.dtype.kind == "b":
        return h.one_of((mnp.logical_xor, mnp.logical_or, mnp.logical_and))(u, v)
    options = [lambda: u + v, lambda: u - v, lambda: 2 * v - u, lambda: v]
    options += [lambda: mnp.maximum(u, v)] if u.dtype.kind != "c" else []
    return small(h.one_of(options)())


def along(dim: int, at: slice | int | Any) -> tuple[Any, ...]:
    return (*(slice(None),) * dim, at)


def any_spec(generator: np.random.Generator, rank: int, mesh: Any) -> Any:
    dims: list[list[str]] = [[] for _ in range(rank)]
    for axis in generator.permutation(list(mesh.axis_names)):
        if rank and generator.random() < 0.75:
            dims[int(generator.integers(rank))].append(str(axis))
    return mj.P(*[tuple(d) if d else None for d in dims])


# -- stencils


def rolled(h: Hand, u: Any) -> Any:
    d = h.dim(u)
    return mnp.roll(u, h.shift(u.shape[d]), d)


def two_rolls(h: Hand, u: Any) -> Any:
    d = h.dim(u)
    return plus(h, mnp.roll(u, h.shift(u.shape[d]), d), mnp.roll(u, h.shift(u.shape[d]), d))


def rolled_along_all(h: Hand, u: Any) -> Any:
    dims = tuple(range(u.ndim))
    return mnp.roll(u, tuple(h.shift(u.shape[d]) for d in dims), dims)


def rolled_by_index(h: Hand, u: Any) -> Any:
    return mnp.roll(u, h.index if h.coin() else h.index * h.number(-2, 3), h.dim(u))


def padded(h: Hand, u: Any) -> Any:
    """Part of what is longer on both sides."""
    d = h.dim(u)
    n = u.shape[d]
    mode = h.one_of(("constant", "constant", "wrap", "edge", "reflect", "symmetric"))
    most = {"constant": n + 3, "reflect": n}.get(mode, n + 1) if n else 1
    low, high = (h.number(0, min(most, 5)) if h.coin() else h.number(0, max(most, 1)) for _ in range(2))
    if n == 0:
        mode = "constant"
    wide = mnp.pad(u, [(low, high) if e == d else (0, 0) for e in range(u.ndim)], mode=mode)
    start = h.number(0, low + high + 1)
    return wide[along(d, slice(start, start + n))]


def joined(h: Hand, u: Any) -> Any:
    """Two parts in the other order, or one of them beside something else."""
    d = h.dim(u)
    n = u.shape[d]
    k = min(abs(h.shift(n)), n)
    a, b = u[along(d, slice(None, k))], u[along(d, slice(k, None))]
    parts = h.one_of(((b, a), (b, mnp.zeros_like(a)), (mnp.zeros_like(b), a), (mnp.flip(a, d), b)))
    return mnp.concatenate(parts, d)


def updated(h: Hand, u: Any) -> Any:
    """The interior is set from neighbours, or added to."""
    d = h.dim(u)
    n = u.shape[d]
    if n < 3:
        return u
    k = h.number(1, (n - 1) // 2 + 1)
    left, right, own = u[along(d, slice(None, n - 2 * k))], u[along(d, slice(2 * k, None))], slice(k, n - k)
    at = u.at[along(d, own)]
    return at.set(plus(h, left, right)) if h.coin() or u.dtype.kind == "b" else small(at.add(plus(h, left, right)))


def at_border(h: Hand, u: Any) -> Any:
    d = h.dim(u)
    n = u.shape[d]
    if n == 0:
        return u
    to, of = (h.one_of((0, -1, n // 2, h.number(0, n))) for _ in range(2))
    value = u[along(d, of)] if h.coin() else mnp.ones_like(u[along(d, of)])
    return u.at[along(d, to)].set(value)


def red_black(h: Hand, u: Any) -> Any:
    """Every k-th is set from its neighbours."""
    d, k = h.dim(u), h.number(2, 4)
    start = h.number(0, k)
    value = plus(h, mnp.roll(u, 1, d), mnp.roll(u, h.one_of((-1, 1, 2)), d))[along(d, slice(start, None, k))]
    return u.at[along(d, slice(start, None, k))].set(value)


def convolved(h: Hand, u: Any) -> Any:
    """A convolution along a dim, with holes or strides whose gaps are filled again."""
    if u.dtype != np.float32 or u.size == 0:
        return rolled(h, u)
    d = h.dim(u)
    n, width, hole = u.shape[d], h.number(1, 5), h.number(1, 4)
    lines = mnp.moveaxis(u, d, -1)
    reach = (width - 1) * hole
    low = h.number(0, reach + 1)
    kernel = mnp.asarray(h.generator.integers(-1, 2, (1, 1, width)).astype(np.float32))
    out = lax.conv_general_dilated(lines.reshape(u.size // max(n, 1), 1, n), kernel, (1,), [(low, reach - low)], rhs_dilation=(hole,))
    return small(mnp.moveaxis(out.reshape(lines.shape), -1, d))


def windowed(h: Hand, u: Any) -> Any:
    if u.dtype.kind not in "fi":
        return rolled(h, u)
    dims = [h.number(1, 4) if h.coin() or u.ndim == 1 else 1 for _ in range(u.ndim)]
    start, of = (0, lax.add) if h.coin() else (-BOUND, lax.max)
    start = np.asarray(start, u.dtype)
    return small(lax.reduce_window(u, start, of, tuple(dims), (1,) * u.ndim, "SAME"))


def sloped(h: Hand, u: Any) -> Any:
    d = h.dim(u)
    if u.shape[d] < 2 or u.dtype.kind != "f":
        return u
    return small(2 * mnp.gradient(u, axis=d))


STENCILS = (
    rolled, rolled, two_rolls, two_rolls, rolled_along_all, padded, padded, joined, updated, updated, at_border, red_black,
)  # fmt: skip
FAMILIES = (  # that go together
    (rolled, two_rolls), (padded, joined, updated, at_border), (padded, convolved, windowed), STENCILS,
)  # fmt: skip
