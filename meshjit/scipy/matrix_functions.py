"""Functions of matrices as `jax.scipy.linalg` has them: of one matrix or of batches [..., n, n]."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.autodiff import jvp
from meshjit.lax import branches, elementwise, linalg as lax_linalg, loops
from meshjit.numpy.factoring import adjoint, matrices
from meshjit.numpy.promote import promoted, shape_of
from meshjit.ops.base.families import part_dtype
from meshjit.runtime.composed import composed
from meshjit.scipy.matrix_forms import as_complex, product, refuse, schur

# -- the exponential, by Padé's approximation of A / 2^s, squared s times (Higham 2005)

_PADE = {
    7: ((17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0), 3.92572478313866),
    13: ((64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
          670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0), 5.371920351148152),
}  # fmt: skip


def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Any:  # noqa: N803 - JAX's name
    """exp(A). upper_triangular promises that A is. nan where A is so large that it takes more than max_squarings squarings."""
    (a,) = matrices("expm", A, square=True)
    if 0 in shape_of(a):
        return a
    coefficients, reach = _PADE[13 if a.dtype in (np.float64, np.complex128) else 7]
    size = elementwise.stop_gradient(mnp.abs(a).sum(-2).max(-1))
    excess = mnp.maximum(0, mnp.floor(mnp.log2(size / reach)))
    count = excess + (size > reach)
    numerator, denominator = _pade(a / (2**count)[..., None, None].astype(a.dtype), coefficients)
    by_rows = functools.partial(lax_linalg.triangular_solve, left_side=True)
    x = (by_rows if upper_triangular else mnp.linalg.solve)(denominator, numerator)

    def square(i: Any, x: Any) -> Any:
        pending = i < count
        more = lambda x: mnp.where(pending[..., None, None], product(x, x), x)  # noqa: E731
        return branches.cond(mnp.any(pending), more, lambda x: x, x)

    x = loops.fori_loop(0, int(max_squarings) + 1, square, x)
    return mnp.where((excess > max_squarings)[..., None, None] | ~mnp.isfinite(size)[..., None, None], np.nan, x)


def _pade(a: Any, coefficients: tuple[float, ...]) -> tuple[Any, Any]:
    """(numerator, denominator) of the approximation, from the even powers."""
    unit, square = mnp.eye(shape_of(a)[-1], dtype=a.dtype), product(a, a)
    weights = [c / coefficients[0] for c in coefficients]  # so that exp(0) is exact
    power, odd, even = unit, weights[1] * unit, unit
    for k in range(2, len(weights), 2):
        power = product(power, square) if k > 2 else square
        odd, even = odd + weights[k + 1] * power, even + weights[k] * power
    odd = product(a, odd)
    return even + odd, even - odd


def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:  # noqa: N803
    """(exp(A), its derivative in the direction E), or the derivative alone. `method` means nothing."""
    del method
    a, e = matrices("expm_frechet", A, E, square=True)
    if shape_of(a) != shape_of(e):
        raise refuse(f"expm_frechet: A and E must have one shape, got {shape_of(a)} and {shape_of(e)}")
    value, change = jvp(expm, (a,), (e,))
    return (value, change) if compute_expm else change


# -- functions that go by Schur's form: a triangular system for every column


def _triangular(a: Any) -> tuple[Any, Any]:
    return schur(as_complex(mnp.asarray(a)), "complex")


def _by_columns(first: Any, column: Callable[[Any, Any], Any]) -> Any:
    """Upper triangular X, from its diagonal: column j above it is column(j, X), which sees the columns before."""
    above = mnp.arange(shape_of(first)[-1])

    def step(j: Any, x: Any) -> Any:
        return x.at[..., :, j].set(mnp.where(above < j, column(j, x), x[..., :, j]))

    return loops.fori_loop(1, len(above), step, first) if len(above) > 1 else first


def _leading(t: Any, j: Any, shift: Any, fallback: Any) -> Any:
    """The first j rows and columns of triangular t, `shift` [...] added to the diagonal, its zeros `fallback`; ones beyond."""
    n = shape_of(t)[-1]
    place = mnp.arange(n)
    inside = (place[:, None] < j) & (place < j)
    diagonal = _diagonal(t) + shift[..., None]
    diagonal = mnp.where(place < j, mnp.where(diagonal == 0, fallback, diagonal), 1)
    return mnp.where(place[:, None] == place, diagonal[..., None], mnp.where(inside, t, 0))


def _solved(t: Any, right: Any) -> Any:
    return lax_linalg.triangular_solve(t, right[..., None], left_side=True)[..., 0]


def _diagonal(t: Any) -> Any:
    return mnp.diagonal(t, axis1=-2, axis2=-1)


def _placed(diagonal: Any) -> Any:
    return diagonal[..., None] * mnp.eye(shape_of(diagonal)[-1], dtype=diagonal.dtype)


def sqrtm(A: Any, blocksize: int = 1) -> Any:  # noqa: N803
    """The complex square root of A, whose eigenvalues have no negative real part. On CPU alone. blocksize must be 1."""
    if blocksize > 1:
        raise NotImplementedError("sqrtm: blocks are not there\n  fix: blocksize=1")
    t, z = _triangular(A)
    tiny = np.finfo(t.dtype).tiny
    root = _by_columns(
        _placed(mnp.sqrt(_diagonal(t))), lambda j, u: _solved(_leading(u, j, u[..., j, j], tiny), _above(t, j))
    )
    return product(z, root, adjoint(z))


def _above(t: Any, j: Any) -> Any:
    """Column j above the diagonal, zeros below."""
    return mnp.where(mnp.arange(shape_of(t)[-1]) < j, t[..., :, j], 0)


def funm(A: Any, func: Callable[[Any], Any], disp: bool = True) -> Any:  # noqa: N803
    """func of a matrix: of its eigenvalues, which func is given as a complex vector. With disp=False also an estimate of the
    1-norm error. On CPU alone. By Parlett's recurrence, which loses digits where eigenvalues are close."""
    if len(shape_of(A)) != 2 or shape_of(A)[0] != shape_of(A)[1]:
        raise refuse(f"funm: A must be one square matrix, got shape {shape_of(A)}")
    t, z = _triangular(A)
    values = func(_diagonal(t))

    def column(j: Any, f: Any) -> Any:
        known = _above(t, j)
        right = product(mnp.where(mnp.arange(len(values)) < j, f, 0), known[..., None])[..., 0] - known * f[j, j]
        return _solved(_leading(t, j, -t[j, j], -1), mnp.where(mnp.arange(len(values)) < j, right, 0))

    f = _by_columns(_placed(values.astype(t.dtype)), column)
    result = product(z, f, adjoint(z))
    return result if disp else (result, _error(t, result))


def _error(t: Any, result: Any) -> Any:
    """SciPy's estimate, from the least distance of eigenvalues."""
    n, eps = shape_of(t)[0], np.finfo(t.dtype).eps
    d = _diagonal(t)
    apart = mnp.where(mnp.tri(n, k=-1, dtype=bool), mnp.abs(d[:, None] - d), np.inf).min(initial=np.inf)
    least = mnp.minimum(apart, mnp.abs(t[0, 0]))
    least = mnp.where(least == 0, eps, least)
    size = mnp.abs(mnp.triu(t, 1)).sum(0).max()
    error = mnp.minimum(1, mnp.maximum(eps, eps / least * size))
    return mnp.where(mnp.all(mnp.isfinite(result)), error, np.inf).astype(part_dtype(t.dtype))


def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Any:  # noqa: N803
    """X with A X + X B = C, of A [..., m, m], B [..., n, n] and C [..., m, n]; nan where eigenvalues of A and -B are closer than
    tol. method is "schur" or "eigen". On CPU alone."""
    if method not in ("schur", "eigen"):
        raise refuse(f'solve_sylvester: method is {method!r}; write "schur" or "eigen"')
    (a, b, c), _ = promoted(A, B, C, inexact=True)
    m, n = shape_of(c)[-2:]
    if shape_of(a)[-2:] != (m, m) or shape_of(b)[-2:] != (n, n):
        raise refuse(f"solve_sylvester: A {shape_of(a)}, B {shape_of(b)} and C {shape_of(c)} do not fit: [m, m], [n, n], [m, n]")
    if 0 in (m, n):
        return mnp.asarray(c)
    batch = np.broadcast_shapes(*(shape_of(x)[:-2] for x in (a, b, c)))
    a, b, c = (mnp.broadcast_to(x, (*batch, *shape_of(x)[-2:])) for x in (a, b, c))
    x, first, second = (_sylvester_schur if method == "schur" else _sylvester_eigen)(a, b, as_complex(c))
    close = mnp.any(mnp.abs(first[..., :, None] + second[..., None, :]) < tol, (-2, -1))
    x = x if c.dtype.kind == "c" else x.real
    return mnp.where(close[..., None, None], np.nan, x)


def _sylvester_schur(a: Any, b: Any, c: Any) -> tuple[Any, Any, Any]:
    """With A = U R U* and B = V S V*: R Y + Y S = U* C V, a column at a time."""
    (r, u), (s, v) = _triangular(a), _triangular(b)
    f = product(adjoint(u), c, v)
    rows, columns = shape_of(f)[-2:]

    def step(j: Any, y: Any) -> Any:
        before = mnp.where(mnp.arange(columns) < j, s[..., :, j], 0)
        right = f[..., :, j] - product(y, before[..., None])[..., 0]
        return y.at[..., :, j].set(_solved(_leading(r, rows, s[..., j, j], np.finfo(r.dtype).tiny), right))

    y = loops.fori_loop(0, columns, step, mnp.zeros_like(f))
    return product(u, y, adjoint(v)), _diagonal(r), _diagonal(s)


def _sylvester_eigen(a: Any, b: Any, c: Any) -> tuple[Any, Any, Any]:
    (first, u), (second, v) = mnp.linalg.eig(a), mnp.linalg.eig(b)
    inside = mnp.linalg.solve(u, product(c, v)) / (first[..., :, None] + second[..., None, :])
    return product(u, inside, mnp.linalg.inv(v)), first, second


composed(globals())
