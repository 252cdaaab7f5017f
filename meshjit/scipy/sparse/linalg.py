"""`jax.scipy.sparse.linalg`: systems of linear equations by Krylov's methods, with derivatives as the equation has them.

A is a matrix or a linear function of a tree like b. The result is (x, info); info is None, of gmres -1 where x is NaN, else 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit import lax, numpy as mnp, tree
from meshjit.missing import explain as _explain
from meshjit.trace import line_of, user_source

Map = Callable[[Any], Any]

_ARGUMENTS = """
    Args:
      A: a matrix [n, n], or a function x -> A x of trees like b.
      b: the right-hand side, a tree of arrays.
      x0: where to begin, by default zeros.
      tol, atol: it is over once |b - A x| is at most max(tol * |b|, atol).
      maxiter: steps at most, by default ten times the elements of b.
      M: the preconditioner, an approximate inverse of A, in the same form as A.

    ValueError where x0 or A b has another structure or other shapes than b."""


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M: Any = None  # noqa: N803
) -> tuple[Any, None]:
    return _solved("cg", _conjugate_gradients, A, b, x0, tol, atol, maxiter, M, symmetric=True), None


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M: Any = None  # noqa: N803
) -> tuple[Any, None]:
    return _solved("bicgstab", _stabilised, A, b, x0, tol, atol, maxiter, M), None


def gmres(
    A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, restart: int = 20, maxiter: int | None = None,
    M: Any = None, solve_method: str = "batched",
) -> tuple[Any, Any]:  # fmt: skip  # noqa: N803
    if solve_method not in ("batched", "incremental"):
        raise ValueError(
            f'gmres: solve_method is {solve_method!r}; write "batched" or "incremental"'
            f'\n  at {line_of(user_source())}'
        )
    size = sum(int(np.prod(mnp.shape(x))) for x in tree.leaves(b))
    method = functools.partial(_minimal_residual, restart=max(1, min(int(restart), size)))
    x = _solved("gmres", method, A, b, x0, tol, atol, maxiter, M)
    return x, mnp.where(mnp.isnan(_norm(x)), -1, 0)


cg.__doc__ = f"`scipy.sparse.linalg.cg`: conjugate gradients, of a Hermitian positive definite A.\n{_ARGUMENTS}"
bicgstab.__doc__ = f"`scipy.sparse.linalg.bicgstab`: stabilised biconjugate gradients, of any A.\n{_ARGUMENTS}"
gmres.__doc__ = f"""`scipy.sparse.linalg.gmres`: the least residual among Krylov vectors, of any A.
{_ARGUMENTS}

    restart: how many of these vectors are kept; maxiter counts rounds of so many. JAX's two methods, `solve_method`, are one."""


def _solved(
    name: str, method: Any, A: Any, b: Any, x0: Any, tol: Any, atol: Any, maxiter: int | None, M: Any, symmetric: bool = False  # noqa: N803
) -> Any:
    b = tree.map(mnp.asarray, b)
    x0 = tree.map(mnp.zeros_like, b) if x0 is None else tree.map(mnp.asarray, x0)
    b, x0 = _of_one_dtype(b, x0)
    apply, better = _map_of(A), (lambda x: x) if M is None else _map_of(M)
    shapes = [(tree.structure(t), [mnp.shape(x) for x in tree.leaves(t)]) for t in (x0, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"{name}: x0 and b must be trees of one form, got {shapes[0]} and {shapes[1]}"
            f"\n  at {line_of(user_source())}"
        )
    steps = 10 * sum(int(np.prod(s)) for s in shapes[1][1]) if maxiter is None else maxiter

    def solve(apply: Map, b: Any) -> Any:
        return method(apply, b, x0, better, mnp.maximum(tol * _norm(b), atol), steps)

    real = all(x.dtype.kind == "f" for x in tree.leaves(b))
    return lax.custom_linear_solve(apply, b, solve, solve, symmetric=symmetric and real)


def _of_one_dtype(*trees: Any) -> list[Any]:
    dtype = np.result_type(np.float32, *(x.dtype for t in trees for x in tree.leaves(t) if x.dtype.kind in "fc"))
    exact = {x.dtype for t in trees for x in tree.leaves(t) if x.dtype.kind in "fc"}
    dtype = exact.pop() if len(exact) == 1 else dtype
    return [tree.map(lambda x: x.astype(dtype), t) for t in trees]


def _map_of(A: Any) -> Map:  # noqa: N803
    if callable(A):
        return A
    matrix = mnp.asarray(A)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"A must be a square matrix or a function, it has shape {matrix.shape}\n  at {line_of(user_source())}")
    return lambda x: mnp.matmul(matrix, x, precision="highest")


def _dot(x: Any, y: Any) -> Any:
    products = tree.map(lambda a, b: mnp.vdot(a, b, precision="highest"), x, y)
    return functools.reduce(mnp.add, tree.leaves(products))


def _norm(x: Any) -> Any:
    return mnp.sqrt(mnp.real(_dot(x, x)))


def _plus(x: Any, factor: Any, y: Any) -> Any:
    """x + factor * y."""
    return tree.map(lambda a, b: (a + factor * b).astype(a.dtype), x, y)


def _conjugate_gradients(apply: Map, b: Any, x0: Any, better: Map, limit: Any, maxiter: int) -> Any:
    residual = _plus(b, -1, apply(x0))
    direction = better(residual)

    def more(state: Any) -> Any:
        _, r, _, _, k = state
        return (_norm(r) > limit) & (k < maxiter)

    def step(state: Any) -> Any:
        x, r, p, gain, k = state
        image = apply(p)
        alpha = gain / _dot(p, image)
        x, r = _plus(x, alpha, p), _plus(r, -alpha, image)
        z = better(r)
        new = _dot(r, z)
        return x, r, _plus(z, new / gain, p), new.astype(gain.dtype), k + 1

    state = (x0, residual, direction, _dot(residual, direction), mnp.asarray(0))
    return lax.while_loop(more, step, state)[0]


def _stabilised(apply: Map, b: Any, x0: Any, better: Map, limit: Any, maxiter: int) -> Any:
    residual = _plus(b, -1, apply(x0))
    one = mnp.ones_like(_dot(b, b))

    def more(state: Any) -> Any:
        r, k = state[1], state[-1]
        return (_norm(r) > limit) & (k < maxiter) & (k >= 0)

    def step(state: Any) -> Any:
        x, r, alpha, omega, rho, p, q, k = state
        rho_next = _dot(residual, r)
        beta = rho_next / rho * alpha / omega
        p = _plus(r, beta, _plus(p, -omega, q))
        p_better = better(p)
        q = apply(p_better)
        alpha = rho_next / _dot(residual, q)
        s = _plus(r, -alpha, q)
        early = _norm(s) <= limit
        s_better = better(s)
        t = apply(s_better)
        omega = _dot(t, s) / _dot(t, t)
        whole = _plus(_plus(x, alpha, p_better), omega, s_better)
        x = tree.map(lambda a, c: mnp.where(early, a, c), _plus(x, alpha, p_better), whole)
        r = tree.map(lambda a, c: mnp.where(early, a, c), s, _plus(s, -omega, t))
        broken = ((omega == 0) & ~early) | (alpha == 0)
        return x, r, alpha, omega, rho_next, p, q, mnp.where(broken, -11, k + 1)

    state = (x0, residual, one, one, one, residual, tree.map(mnp.zeros_like, residual), mnp.asarray(0))
    first = (*state[:5], tree.map(mnp.zeros_like, residual), *state[6:])
    return lax.while_loop(more, step, first)[0]


def _minimal_residual(apply: Map, b: Any, x0: Any, better: Map, limit: Any, maxiter: int, restart: int) -> Any:
    def residual_of(x: Any) -> Any:
        return better(_plus(b, -1, apply(x)))

    def more(state: Any) -> Any:
        _, r, k = state
        return (_norm(r) > goal) & (k < maxiter)

    def round_(state: Any) -> Any:
        x, r, k = state
        x = _plus(x, 1, _best_correction(lambda v: better(apply(v)), r, restart))
        return x, residual_of(x), k + 1

    first = residual_of(x0)
    scale = _norm(better(b)) / mnp.where(_norm(b) == 0, 1, _norm(b))
    goal = limit * scale
    return lax.while_loop(more, round_, (x0, first, mnp.asarray(0)))[0]


def _best_correction(apply: Map, r: Any, count: int) -> Any:
    """The combination y of `count` Krylov vectors with the least |r - apply(y)|: Arnoldi's basis, then least squares."""
    length = _norm(r)
    unit = 1 / mnp.where(length == 0, 1, length)
    basis = tree.map(lambda x: mnp.zeros((count + 1, *x.shape), x.dtype).at[0].set(x * unit), r)
    kind = tree.leaves(r)[0].dtype

    def step(k: Any, state: Any) -> Any:
        basis, h = state
        v = apply(tree.map(lambda x: x[k], basis))
        column = mnp.zeros(count + 1, kind)
        for _ in range(2):  # once more: what rounding left of the earlier directions
            shares = _shares(basis, v)
            v = _plus(v, -1, _combined(shares, basis))
            column = column + shares
        size = _norm(v)
        unit = mnp.where(size > 0, 1 / mnp.where(size > 0, size, 1), 0)
        basis = tree.map(lambda q, a: q.at[k + 1].set((a * unit).astype(q.dtype)), basis, v)
        return basis, h.at[k].set(column.at[k + 1].set(size.astype(kind)))

    basis, h = lax.fori_loop(0, count, step, (basis, mnp.zeros((count, count + 1), kind)))
    right = mnp.zeros(count + 1, kind).at[0].set(length.astype(kind))
    y = mnp.linalg.lstsq(h.T, right)[0]
    return _combined(y, tree.map(lambda q: q[:-1], basis))


def _combined(shares: Any, basis: Any) -> Any:
    """The sum of the basis' vectors, each times its share."""
    return tree.map(lambda q: mnp.tensordot(shares, q, 1, precision="highest").astype(q.dtype), basis)


def _shares(basis: Any, v: Any) -> Any:
    """The component of v along each vector of the basis."""
    def of_leaf(q: Any, a: Any) -> Any:
        return mnp.tensordot(mnp.conj(mnp.reshape(q, (q.shape[0], -1))), mnp.reshape(a, -1), 1, precision="highest")

    return functools.reduce(mnp.add, tree.leaves(tree.map(of_leaf, basis, v)))


_explain(__name__)
