"""`eigh_tridiagonal`: eigenvalues of matrices of three diagonals, without the matrix where no vectors are wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.autodiff import jvp
from meshjit.custom_derivatives import custom_jvp
from meshjit.lax import loops
from meshjit.lax.carries import as_varying_as
from meshjit.numpy import factoring
from meshjit.numpy.factoring import adjoint
from meshjit.numpy.promote import shape_of
from meshjit.scipy.matrix_forms import refuse
from meshjit.trace import line_of, user_source


def eigh_tridiagonal(
    d: Any,
    e: Any,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Any = None,
) -> Any:
    """(eigenvalues, rising, eigenvectors as columns), or the eigenvalues alone, of the Hermitian matrix with the diagonal d [n]
    and e [n - 1] below it.

    select "i": those numbered select_range[0] to select_range[1], the last included. Without vectors by bisection, down to `tol`,
    with memory for n numbers. TypeError unless d and e have one inexact dtype; NotImplementedError for select="v"."""
    del key
    d, e = mnp.asarray(d), mnp.asarray(e)
    if d.dtype != e.dtype or d.dtype.kind not in "fc" or d.dtype.itemsize < 4:
        raise TypeError(
            f"eigh_tridiagonal takes float32, float64 or complex d and e of one dtype, got {d.dtype} and {e.dtype}"
            f"\n  at {line_of(user_source())}"
        )
    n = shape_of(d)[0]
    first, end = _range(n, select, select_range)
    if n <= 1:
        return d.real if eigvals_only else (d.real, mnp.eye(n, dtype=d.dtype))
    if eigvals_only:
        return _values(d, e)(first, end, tol)
    values, vectors = _dense(d, e)
    return values[first:end], vectors[:, first:end]


def _range(n: int, select: str, chosen: Any) -> tuple[int, int]:
    if select == "v":
        raise NotImplementedError('eigh_tridiagonal: select="v" is not there\n  fix: select="i", or a mask of all eigenvalues')
    if select not in ("a", "i"):
        raise refuse(f'eigh_tridiagonal: select is {select!r}; write "a" or "i"')
    if select == "a":
        return 0, n
    if chosen is None or chosen[0] > chosen[1]:
        raise refuse(f'eigh_tridiagonal: select="i" needs select_range=(first, last), got {chosen}')
    return int(chosen[0]), int(chosen[1]) + 1


def _dense(d: Any, e: Any) -> tuple[Any, Any]:
    below = mnp.diag(e, -1)
    vectors, values = factoring.eigh(mnp.diag(d) + below + adjoint(below), True, False)
    return values, vectors


def _values(d: Any, e: Any) -> Callable[..., Any]:
    """Eigenvalues by bisection; their derivatives are those of the whole matrix."""

    def of(first: int, end: int, tol: float | None) -> Any:
        @custom_jvp
        def values(d: Any, e: Any) -> Any:
            return _bisected(d.real, mnp.abs(e) ** 2, first, end, tol)

        @values.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            _, change = jvp(lambda d, e: _dense(d, e)[0][first:end], primals, tangents)
            return values(*primals), change

        return values(d, e)

    return of


def _bisected(d: Any, squares: Any, first: int, end: int, tol: float | None) -> Any:
    """Every eigenvalue by itself, between bounds that Gershgorin's discs give: how many lie below x is how many pivots of
    T - x are negative (Sturm)."""
    facts = np.finfo(d.dtype)
    sides = mnp.sqrt(squares)
    reach = mnp.pad(sides, (0, 1)) + mnp.pad(sides, (1, 0))
    least = facts.tiny * mnp.maximum(1, squares.max())
    size = mnp.maximum(mnp.abs(d - reach).max(), mnp.abs(d + reach).max())
    slack = 4 * len(d) * facts.eps * size + least
    targets = mnp.arange(first, end)
    low, high = (mnp.broadcast_to(x, targets.shape) for x in ((d - reach).min() - slack, (d + reach).max() + slack))

    def count(x: Any) -> Any:
        def step(state: tuple[Any, Any], each: tuple[Any, Any]) -> tuple[Any, None]:
            pivot, below = state
            pivot = each[0] - x - each[1] / pivot
            pivot = mnp.where(mnp.abs(pivot) <= least, -least, pivot)
            return (pivot, below + (pivot < 0)), None

        start = as_varying_as((mnp.ones_like(x), mnp.zeros_like(targets)), squares)
        return loops.scan(step, start, (d, mnp.pad(squares, (1, 0))))[0][1]

    def halve(_: Any, bounds: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = bounds
        middle = (low + high) / 2
        is_above = count(middle) <= targets
        wide = high - low > (0 if tol is None else tol)
        return mnp.where(is_above & wide, middle, low), mnp.where(is_above | ~wide, high, middle)

    count_of_halvings = facts.nmant + 4 + int(np.ceil(np.log2(len(d) + 1)))
    low, high = loops.fori_loop(0, count_of_halvings, halve, as_varying_as((low, high)))
    return (low + high) / 2
