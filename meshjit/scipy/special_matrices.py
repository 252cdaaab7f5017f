"""Matrices of a known form, as `jax.scipy.linalg` has them: from a few numbers, or from a size alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.numpy.arguments import count_of
from meshjit.numpy.promote import promoted, shape_of
from meshjit.ops.base.families import part_dtype
from meshjit.scipy.operands import refuse_lists
from meshjit.trace import line_of, user_source


def _vector(name: str, x: Any, least: int = 1) -> Any:
    x = mnp.asarray(x)
    if not shape_of(x) or shape_of(x)[-1] < least:
        raise ValueError(
            f"{name} takes vectors of {least} elements or more, got shape {shape_of(x)}"
            f"\n  at {line_of(user_source())}"
        )
    return x


def _from_numpy(matrix: Any) -> Any:
    return mnp.asarray(matrix.astype(canonical(matrix.dtype, config.enable_x64)))


def _places(rows: int, columns: int) -> tuple[Any, Any]:
    """The number of every row [rows, 1] and column [1, columns]."""
    return mnp.arange(rows)[:, None], mnp.arange(columns)[None]


def _default() -> Any:
    return canonical(np.dtype(np.float64), config.enable_x64)


def circulant(c: Any) -> Any:
    """`scipy.linalg.circulant`: columns c, each turned one further; [..., n] gives [..., n, n]."""
    c = mnp.asarray(c)
    c = mnp.reshape(c, (1,)) if not shape_of(c) else c
    n = shape_of(c)[-1]
    rows, columns = _places(n, n)
    return c[..., (rows - columns) % n] if n else mnp.zeros((*shape_of(c)[:-1], 0, 0), c.dtype)


def companion(a: Any) -> Any:
    """`scipy.linalg.companion`: the matrix whose characteristic polynomial has these coefficients, the highest power first."""
    (a,), _ = promoted(_vector("companion", a, 2), inexact=True)
    n = shape_of(a)[-1] - 1
    first = -a[..., 1:] / a[..., :1]
    rest = mnp.broadcast_to(mnp.eye(n - 1, n, dtype=a.dtype), (*shape_of(a)[:-1], n - 1, n))
    return mnp.concatenate([first[..., None, :], rest], -2)


def convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    """`scipy.linalg.convolution_matrix`: the matrix whose product with a vector of n elements is its convolution with a."""
    a, n = _vector("convolution_matrix", a), count_of(n, "convolution_matrix: n")
    if n == 0:
        raise ValueError(f"convolution_matrix: n must be positive, it is 0\n  at {line_of(user_source())}")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f'convolution_matrix: mode is {mode!r}; write "full", "same" or "valid"\n  at {line_of(user_source())}')
    m = shape_of(a)[-1]
    longer, shorter = max(m, n), min(m, n)
    count = {"full": m + n - 1, "same": longer, "valid": longer - shorter + 1}[mode]
    start = {"full": 0, "same": (shorter - 1) // 2, "valid": shorter - 1}[mode]
    rows, columns = _places(count, n)
    place = rows + start - columns
    elements = mnp.take(a, mnp.clip(place, 0, m - 1), axis=-1)
    return mnp.where((place >= 0) & (place < m), elements, mnp.zeros((), a.dtype))


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Any:
    """`scipy.linalg.dft`: the matrix of the Fourier transform; scale is None, "sqrtn" or "n", what it is divided by."""
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f'dft: scale is {scale!r}; write None, "sqrtn" or "n"\n  at {line_of(user_source())}')
    kind = canonical(np.dtype(np.complex128 if dtype is None else dtype), config.enable_x64)
    n = count_of(n, "dft: n")
    rows, columns = (x.astype(np.uint32) for x in _places(n, n))
    turn = _product_modulo(rows, columns, n).astype(part_dtype(kind)) * (2 * math.pi / max(n, 1))
    factor = 1 / {None: 1, "sqrtn": math.sqrt(n) or 1, "n": n or 1}[scale]
    return ((mnp.cos(turn) - 1j * mnp.sin(turn)) * factor).astype(kind)


def _product_modulo(rows: Any, columns: Any, n: int) -> Any:
    """rows * columns % n in u32, n below 2^31: where products need more bits, one bit of `columns` after another."""
    if n <= 2**16:
        return rows * columns % max(n, 1)
    result = mnp.zeros_like(rows)
    for bit in reversed(range(n.bit_length())):
        result = (result * 2) % n
        result = (result + mnp.where((columns >> bit) & 1 == 1, rows, 0)) % n
    return result


def fiedler(a: Any) -> Any:
    """`scipy.linalg.fiedler`: |a_i - a_j|."""
    refuse_lists(a)
    a = mnp.atleast_1d(a)
    return mnp.abs(a[..., :, None] - a[..., None, :])


def fiedler_companion(a: Any) -> Any:
    """`scipy.linalg.fiedler_companion`: a companion matrix with five diagonals."""
    refuse_lists(a)
    (a,), _ = promoted(mnp.atleast_1d(a), inexact=True)
    if shape_of(a)[-1] < 2 and len(shape_of(a)) == 1:
        return mnp.zeros((0, 0), a.dtype)
    if len(shape_of(a)) != 1:
        raise ValueError(f"fiedler_companion takes one vector, got shape {shape_of(a)}\n  at {line_of(user_source())}")
    a, n = a / a[0], shape_of(a)[0] - 1
    if n == 1:
        return -a[1:][:, None]
    odd, left = mnp.arange(3, n, 2), mnp.arange(2, n, 2)
    right, far = mnp.arange(0, n - 1, 2), mnp.arange(0, n - 2, 2)
    c = mnp.zeros((n, n), a.dtype).at[0, 0].set(-a[1]).at[1, 0].set(1)
    c = c.at[right, right + 1].set(-a[right + 2]).at[far, far + 2].set(1)
    return c.at[left, left - 1].set(-a[left + 1]).at[odd, odd - 2].set(1)


def hadamard(n: int, dtype: Any = int) -> Any:
    """`scipy.linalg.hadamard`: ±1 with orthogonal rows (Sylvester's); n is a power of 2."""
    n = count_of(n, "hadamard: n")
    if n < 1 or n & (n - 1):
        raise ValueError(f"hadamard: n must be a power of 2, it is {n}\n  at {line_of(user_source())}")
    rows, columns = _places(n, n)
    odd = mnp.bitwise_count((rows & columns).astype(np.uint32)) & 1
    return mnp.where(odd == 1, -1, 1).astype(np.dtype(dtype))


def helmert(n: int, full: bool = False) -> Any:
    """`scipy.linalg.helmert`: orthonormal rows, which sum to 0; with `full` the constant row in front."""
    n = count_of(n, "helmert: n")
    if n < 1:
        raise ValueError(f"helmert: n must be positive, it is {n}\n  at {line_of(user_source())}")
    rows, columns = _places(n, n)
    size = rows.astype(_default())
    signs = mnp.where(columns < rows, 1, mnp.where(columns == rows, -size, 0)) / mnp.sqrt(mnp.maximum(size * (size + 1), 1))
    matrix = mnp.where(rows == 0, 1 / math.sqrt(n), signs).astype(_default())
    return matrix if full else matrix[1:]


def hilbert(n: int) -> Any:
    """`scipy.linalg.hilbert`: 1 / (i + j + 1)."""
    k = mnp.arange(count_of(n, "hilbert: n"), dtype=_default())
    return 1 / (k[:, None] + k + 1)


def invhilbert(n: int) -> Any:
    """`scipy.linalg.invhilbert`: the inverse of hilbert(n), of whole numbers as floats."""
    n = count_of(n, "invhilbert: n")

    def element(i: int, j: int) -> float:
        size = (i + j + 1) * math.comb(n + i, n - j - 1) * math.comb(n + j, n - i - 1) * math.comb(i + j, i) ** 2
        return float((-1) ** (i + j) * size)

    return _from_numpy(np.array([[element(i, j) for j in range(n)] for i in range(n)]).reshape(n, n))


def pascal(n: int, kind: str | None = None) -> Any:
    """`scipy.linalg.pascal`: binomial coefficients; kind is "symmetric" (default), "lower" or "upper"."""
    return _pascal("pascal", n, kind, lambda lower: lower)


def invpascal(n: int, kind: str | None = None) -> Any:
    """`scipy.linalg.invpascal`: the inverse of pascal(n, kind)."""
    size = count_of(n, "invpascal: n")
    signs = np.array([[(-1) ** (i + j) for j in range(size)] for i in range(size)], dtype=object).reshape(size, size)
    return _pascal("invpascal", n, kind, lambda lower: signs * lower, inverse=True)


def _pascal(name: str, n: int, kind: str | None, change: Any, inverse: bool = False) -> Any:
    n, kind = count_of(n, f"{name}: n"), "symmetric" if kind is None else kind
    if kind not in ("symmetric", "lower", "upper"):
        raise ValueError(f'{name}: kind is {kind!r}; write "symmetric", "lower" or "upper"\n  at {line_of(user_source())}')
    lower = np.array([[math.comb(i, j) for j in range(n)] for i in range(n)], dtype=object).reshape(n, n)
    lower = change(lower)
    factors = {"lower": lower, "upper": lower.T}
    if kind == "symmetric":
        factors["symmetric"] = (lower.T.dot(lower) if inverse else lower.dot(lower.T)) if n else lower
    return _from_numpy(factors[kind].astype(np.float64))


def leslie(f: Any, s: Any) -> Any:
    """`scipy.linalg.leslie`: births f [..., n] in the first row, survivals s [..., n - 1] below the diagonal."""
    (f, s), _ = promoted(_vector("leslie", f, 1), mnp.asarray(s))
    n = shape_of(f)[-1]
    if shape_of(s)[-1:] != (n - 1,):
        raise ValueError(
            f"leslie: s must be one shorter than f, got {shape_of(s)} and {shape_of(f)}"
            f"\n  at {line_of(user_source())}"
        )
    batch = np.broadcast_shapes(shape_of(f)[:-1], shape_of(s)[:-1])
    places = mnp.arange(n - 1)
    matrix = mnp.zeros((*batch, n, n), f.dtype).at[..., 0, :].set(f)
    return matrix.at[..., places + 1, places].set(s) if n > 1 else matrix
