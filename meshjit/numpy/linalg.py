"""`jax.numpy.linalg`: systems of equations, determinants, norms and factors of batches of matrices [..., m, n].

Dims before the matrices cost no communication wherever they are sharded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from meshjit.missing import explain as _explain
from meshjit.numpy import arguments, calculus, contraction, division, factoring, rearranging, reductions, shaping, ufuncs
from meshjit.numpy.creation import eye, iota
from meshjit.numpy.factoring import NotAMatrixError, adjoint, matrices
from meshjit.numpy.norms import matrix_norm as matrix_norm, norm as norm, vector_norm as vector_norm
from meshjit.numpy.promote import asarray, broadcast_to, cast, dtype_of, promoted, shape_of
from meshjit.numpy.singular import (
    SVDResult as SVDResult,
    lstsq as lstsq,
    matrix_rank as matrix_rank,
    pinv as pinv,
    svd as svd,
    svdvals as svdvals,
)
from meshjit.ops.base.families import part_dtype
from meshjit.trace import line_of, user_source

matmul = contraction.matmul
matrix_transpose = shaping.matrix_transpose
outer = contraction.outer
tensordot = contraction.tensordot
vecdot = contraction.vecdot


class EigResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    sign: Any
    logabsdet: Any


# -- factors


def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """`jax.numpy.linalg.cholesky`: L with a = L L*, or L* (upper); nan where `a` is not positive definite."""
    factor = factoring.cholesky(a, symmetrize_input)
    return adjoint(factor) if upper else factor


def qr(a: Any, mode: str = "reduced") -> Any:
    """`jax.numpy.linalg.qr`: mode is "reduced", "complete", "r" (R alone) or "raw".

    "raw" gives (h [..., n, m], tau [..., min(m, n)]) as LAPACK has them: R and the Householder vectors in one matrix, transposed,
    and the vectors' scales. It has no derivative."""
    if mode not in ("reduced", "complete", "full", "r", "raw"):
        raise ValueError(f'qr: mode is {mode!r}; write "reduced", "complete", "r" or "raw"\n  at {line_of(user_source())}')
    if mode == "raw":
        packed, taus = factoring.geqrf(a)
        return QRResult(factoring.transposed(packed), taus)
    q, r = factoring.qr(a, mode in ("complete", "full"))
    return r if mode == "r" else QRResult(q, r)


def _is_lower(name: str, uplo: str | None) -> bool:
    if uplo not in (None, "L", "U"):
        raise ValueError(f'{name}: UPLO is {uplo!r}; write "L" or "U"\n  at {line_of(user_source())}')
    return uplo != "U"


def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:  # noqa: N803
    """`jax.numpy.linalg.eigh`: eigenvalues, rising, and eigenvectors of Hermitian `a`; UPLO reads one triangle alone."""
    is_lower = _is_lower("eigh", UPLO)
    vectors, values = factoring.eigh(a, is_lower, symmetrize_input and UPLO is None)
    return EighResult(values, vectors)


def eigvalsh(a: Any, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Any:  # noqa: N803
    """`jax.numpy.linalg.eigvalsh`: the eigenvalues of Hermitian `a`."""
    return factoring.eigh(a, _is_lower("eigvalsh", UPLO), symmetrize_input)[1]


def eig(a: Any) -> EigResult:
    """`jax.numpy.linalg.eig`: eigenvalues and eigenvectors (columns) of any square matrices, complex. On CPU alone."""
    return EigResult(*factoring.eig(a, False, True))


def eigvals(a: Any) -> Any:
    """`jax.numpy.linalg.eigvals`: the eigenvalues of any square matrices, complex. On CPU alone."""
    return factoring.eig(a, False, False)[0]


# -- systems of equations


def solve(a: Any, b: Any) -> Any:
    """`jax.numpy.linalg.solve`: x with a x = b. `b` is one vector, or matrices [..., n, k]."""
    return factoring.solve("solve", a, b)


def inv(a: Any) -> Any:
    """`jax.numpy.linalg.inv`; inf and nan for singular matrices."""
    (a,) = matrices("inv", a, square=True)
    shape = shape_of(a)
    return factoring.solve("inv", a, broadcast_to(eye(shape[-1], dtype=dtype_of(a)), shape))


def cond(x: Any, p: Any = None) -> Any:
    """`jax.numpy.linalg.cond`: the norm of x times that of its inverse; None and 2 by singular values, any m by n."""
    (x,) = matrices("cond", x)
    if 0 in shape_of(x)[-2:]:
        raise ValueError(f"cond: a matrix of shape {shape_of(x)} has no condition number\n  at {line_of(user_source())}")
    if p in (None, 2, -2):
        s = svdvals(x)
        return ufuncs.divide(s[..., 0], s[..., -1]) if p != -2 else ufuncs.divide(s[..., -1], s[..., 0])
    (x,) = matrices("cond", x, square=True)
    product = ufuncs.multiply(norm(x, p, (-2, -1)), norm(inv(x), p, (-2, -1)))
    has_nan = reductions.any_(ufuncs.isnan(x), axis=(-2, -1))
    return ufuncs.where(ufuncs.logical_and(ufuncs.isnan(product), ufuncs.logical_not(has_nan)), np.inf, product)


def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Any:
    """`jax.numpy.linalg.tensorsolve`: x with tensordot(a, x, x.ndim) = b."""
    if axes is not None:
        rank = len(shape_of(a))
        order = [d for d in range(rank) if d not in axes] + list(axes)
        a = shaping.transpose(a, order)
    kept = shape_of(a)[len(shape_of(b)) :]
    if shape_of(a)[: len(shape_of(b))] != shape_of(b):
        raise ValueError(
            f"tensorsolve: the first dims of a, {shape_of(a)}, must be those of b, {shape_of(b)}\n  at {line_of(user_source())}\n"
            "  fix: axes=... names the dims of a that come last"
        )
    a = shaping.reshape(a, (math.prod(shape_of(b)), math.prod(kept)))
    return shaping.reshape(solve(a, shaping.ravel(b)), kept)


def tensorinv(a: Any, ind: int = 2) -> Any:
    """`jax.numpy.linalg.tensorinv`: the inverse of tensordot with `a` over its first `ind` dims."""
    ind = arguments.axis_number(ind)
    if ind <= 0:
        raise ValueError(f"tensorinv: ind must be positive, got {ind}\n  at {line_of(user_source())}")
    first, second = shape_of(a)[:ind], shape_of(a)[ind:]
    return shaping.reshape(inv(shaping.reshape(a, (math.prod(first), math.prod(second)))), (*second, *first))


# -- determinants


def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """`jax.numpy.linalg.slogdet`: sign (or phase) and log of the size of the determinant."""
    if method not in (None, "lu"):
        raise ValueError(f'slogdet: method is {method!r}; "lu" is the only one\n  at {line_of(user_source())}')
    (a,) = matrices("slogdet", a, square=True, narrow=True)
    if dtype_of(a).itemsize < 4:
        whole = det(a)
        return SlogdetResult(ufuncs.sign(whole), ufuncs.log(ufuncs.absolute(whole)))
    diagonal, parity = _lu_diagonal(a)
    sign = ufuncs.multiply(reductions.prod(ufuncs.sign(diagonal), axis=-1), parity)
    return SlogdetResult(sign, reductions.sum(ufuncs.log(ufuncs.absolute(diagonal)), axis=-1))


def _lu_diagonal(a: Any) -> tuple[Any, Any]:
    """The diagonal of U, and 1 or -1 for an even or odd number of exchanges."""
    factors, pivots, _ = factoring.lu(a)
    own = iota(np.int32, (shape_of(a)[-1],), 0)
    odd = division.remainder(reductions.sum(cast(ufuncs.not_equal(pivots, own), np.int32), axis=-1), 2)
    *batch, size, _ = shape_of(a)
    diagonal = shaping.reshape(factors, (*batch, size * size))[..., :: size + 1]
    return diagonal, cast(ufuncs.subtract(1, ufuncs.multiply(odd, 2)), dtype_of(a))


def _det4(a: Any) -> Any:
    """Laplace's expansion along two rows: the minors of the first two by those of the last two."""
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]

    def minors(row: int, places: Sequence[tuple[int, int]]) -> Any:
        left, right = (list(side) for side in zip(*places, strict=True))
        upper, lower = a[..., row, :], a[..., row + 1, :]
        return upper[..., left] * lower[..., right] - upper[..., right] * lower[..., left]

    signs = np.array([1, -1, 1, 1, -1, 1], part_dtype(dtype_of(a)))
    return reductions.sum(signs * minors(0, pairs) * minors(2, pairs[::-1]), axis=-1)


def det(a: Any) -> Any:
    """`jax.numpy.linalg.det`: written out up to 4 by 4, which also has the derivatives of singular matrices; beyond by LU."""
    size = shape_of(matrices("det", a, square=True, narrow=True)[0])[-1]
    (a,) = matrices("det", a, square=True, narrow=1 <= size <= 4)
    if size == 1:
        return a[..., 0, 0]
    if size == 2:
        return a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]
    if size == 3:
        return reductions.sum(a[..., 0, :] * calculus.cross(a[..., 1, :], a[..., 2, :]), axis=-1)
    if size == 4:
        return _det4(a)
    diagonal, parity = _lu_diagonal(a)
    return ufuncs.multiply(reductions.prod(diagonal, axis=-1), parity)


# -- products


def matrix_power(a: Any, n: int) -> Any:
    """`jax.numpy.linalg.matrix_power`: by repeated squaring; of the inverse for negative n."""
    (a,) = promoted(a)[0]
    shape = shape_of(a)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise NotAMatrixError(f"matrix_power: argument 0 must have shape [..., n, n], got {shape}\n  at {line_of(user_source())}")
    if n < 0:
        return matrix_power(inv(a), -n)
    result = None
    while n:
        if n % 2:
            result = a if result is None else matmul(result, a)
        n //= 2
        a = matmul(a, a) if n else a
    return broadcast_to(eye(shape[-1], dtype=dtype_of(a)), shape) if result is None else result


def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Any:
    """`jax.numpy.linalg.multi_dot`: the product of matrices in the cheapest order (Cormen et al., 15.2). The first and the
    last may be vectors."""
    xs = [asarray(x) for x in arrays]
    shapes = [shape_of(x) for x in xs]
    wide = [s if len(s) == 2 else (1, *s) if i == 0 else (*s, 1) for i, s in enumerate(shapes)]
    if len(xs) < 2 or any(len(s) != 2 for s in shapes[1:-1]) or any(len(s) not in (1, 2) for s in shapes):
        raise ValueError(
            f"multi_dot: takes two matrices or more; the first and the last may be vectors; got {shapes}\n"
            f"  at {line_of(user_source())}"
        )
    extents = (*(s[0] for s in wide), wide[-1][1])
    first, last = len(shapes[0]) == 1, len(shapes[-1]) == 1

    @functools.cache
    def best(i: int, j: int) -> tuple[float, int]:
        """The cheapest way to multiply matrices i to j: multiplications, and the last of the left factor."""
        costs = (
            (best(i, k)[0] + best(k + 1, j)[0] + extents[i] * extents[k + 1] * extents[j + 1], k) for k in range(i, j)
        )
        return min(costs) if i < j else (0.0, i)

    def product(i: int, j: int) -> Any:
        if i == j:
            return shaping.reshape(xs[i], wide[i])
        k = best(i, j)[1]
        return matmul(product(i, k), product(k + 1, j), precision=precision)

    result = product(0, len(xs) - 1)
    return shaping.reshape(result, tuple(n for n, gone in zip(shape_of(result), (first, last), strict=True) if not gone))


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """`jax.numpy.linalg.cross`: of vectors of 3 elements; ValueError for others."""
    for n, x in enumerate((x1, x2)):
        shape = shape_of(x)
        if shape and shape[axis] != 3:
            raise ValueError(
                f"linalg.cross: argument {n} has shape {shape}, whose dim {axis} has {shape[axis]} elements, not 3\n"
                f"  at {line_of(user_source())}\n  fix: numpy.cross takes vectors of 2 elements, too"
            )
    return calculus.cross(x1, x2, axis=axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """`jax.numpy.linalg.diagonal`: of the last two dims."""
    return rearranging.diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """`jax.numpy.linalg.trace`: of the last two dims."""
    return reductions.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)

_explain(__name__)
