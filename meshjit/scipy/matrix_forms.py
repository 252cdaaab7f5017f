"""Forms of matrices, as `jax.scipy.linalg` has them: Schur's, Hessenberg's, the polar one; of batches [..., n, n]."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.lax import linalg as lax_linalg, loops
from meshjit.numpy.factoring import adjoint, matrices
from meshjit.numpy.promote import promoted, shape_of
from meshjit.trace import line_of, user_source


def product(*factors: Any) -> Any:
    result, *others = factors
    for other in others:
        result = mnp.matmul(result, other, precision="highest")
    return result


def refuse(text: str) -> ValueError:
    return ValueError(f"{text}\n  at {line_of(user_source())}")


def as_complex(x: Any) -> Any:
    return x.astype(np.result_type(promoted(x, inexact=True)[0][0].dtype, np.complex64))


def schur(a: Any, output: str = "real") -> tuple[Any, Any]:
    """(T, Z) with a = Z T Z*; output "complex" makes T triangular where `a` is real. On CPU alone."""
    if output not in ("real", "complex"):
        raise refuse(f'schur: output is {output!r}; write "real" or "complex"')
    if output == "complex":
        a = as_complex(mnp.asarray(a))
    return tuple(lax_linalg.schur(a))  # pyright: ignore[reportReturnType]


def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Any, Any]:  # noqa: N803
    """(T, Z) of Schur's real form as the complex one: rotations make the 2 x 2 blocks triangular."""
    del check_finite
    if any(len(shape_of(x)) < 2 or shape_of(x)[-1] != shape_of(x)[-2] for x in (T, Z)) or shape_of(T)[-1] != shape_of(Z)[-1]:
        raise refuse(f"rsf2csf: T and Z must be square and of one size, got {shape_of(T)} and {shape_of(Z)}")
    t, z = (mnp.asarray(x) for x in promoted(as_complex(mnp.asarray(T)), as_complex(mnp.asarray(Z)))[0])
    n = shape_of(t)[-1]
    batch = np.broadcast_shapes(shape_of(t)[:-2], shape_of(z)[:-2])
    t, z = (mnp.broadcast_to(x, (*batch, n, n)) for x in (t, z))
    place = mnp.arange(n)

    def step(i: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        t, z = state
        m = n - i
        rotation = _rotation(t, m, place)
        t, z = product(rotation, t, adjoint(rotation)), product(z, adjoint(rotation))
        return mnp.where((place[:, None] == m) & (place < m), 0, t), z

    return loops.fori_loop(1, n, step, (t, z)) if n > 1 else (t, z)


def _rotation(t: Any, m: Any, place: Any) -> Any:
    """The unitary matrix that makes rows m - 1 and m triangular; the identity where they are."""
    a, b, c, d = t[..., m - 1, m - 1], t[..., m - 1, m], t[..., m, m - 1], t[..., m, m]
    half, product = (a + d) / 2, a * d - b * c
    value = half + mnp.sqrt(half * half - product) - d
    size = mnp.sqrt(mnp.abs(value) ** 2 + mnp.abs(c) ** 2)
    apart = mnp.abs(c) > np.finfo(t.dtype).eps * (mnp.abs(a) + mnp.abs(d))
    safe = mnp.where(apart, size, 1)
    cosine, sine = mnp.where(apart, value / safe, 1)[..., None, None], mnp.where(apart, c / safe, 0)[..., None, None]
    row, column = place[:, None], place
    first, second = (row == m - 1), (row == m)
    upper = mnp.where(column == m - 1, mnp.conj(cosine), mnp.where(column == m, mnp.conj(sine), 0))
    lower = mnp.where(column == m - 1, -sine, mnp.where(column == m, cosine, 0))
    return mnp.where(first, upper, mnp.where(second, lower, mnp.eye(len(place), dtype=t.dtype)))


def hessenberg(a: Any, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """H without elements below its first subdiagonal, Q* a Q; with calc_q (H, Q). On CPU alone."""
    del overwrite_a, check_finite
    if 0 in shape_of(a):
        return (mnp.zeros_like(a), mnp.zeros_like(a)) if calc_q else mnp.zeros_like(a)
    packed, taus = lax_linalg.hessenberg(a)
    h = mnp.triu(packed, -1)
    if not calc_q:
        return h
    n = shape_of(h)[-1]
    inner = lax_linalg.householder_product(packed[..., 1:, :-1], taus)
    q = mnp.zeros_like(h).at[..., 1:, 1:].set(inner) if n > 1 else mnp.zeros_like(h)
    return h, q.at[..., 0, 0].set(1)


def polar(
    a: Any, side: str = "right", *, method: str = "qdwh", eps: float | None = None, max_iterations: int | None = None
) -> tuple[Any, Any]:
    """(U, P) with a = U P, or a = P U of side "left": U has orthonormal columns or rows, P is Hermitian without negative
    eigenvalues. method "qdwh" takes tall matrices from the right and wide ones from the left, "svd" any."""
    if side not in ("right", "left"):
        raise refuse(f'polar: side is {side!r}; write "right" or "left"')
    if method not in ("qdwh", "svd"):
        raise refuse(f'polar: method is {method!r}; write "qdwh" or "svd"')
    (a,) = matrices("polar", a)
    rows, columns = shape_of(a)[-2:]
    if method == "svd":
        u, s, vh = lax_linalg.svd(a, full_matrices=False)
        side_of = adjoint(vh) if side == "right" else u
        return product(u, vh), product(side_of * s[..., None, :].astype(a.dtype), adjoint(side_of))
    if (rows < columns) != (side == "left"):
        raise NotImplementedError(
            f'polar: side="{side}" of {rows} x {columns} matrices is not there by "qdwh"'
            f"\n  at {line_of(user_source())}\n  fix: method='svd'"
        )
    u, p, *_ = lax_linalg.qdwh(a if side == "right" else adjoint(a), eps=eps, max_iterations=max_iterations)
    return (u, p) if side == "right" else (adjoint(u), p)


def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Any, ...]:
    """(c Q, R) of mode "right" or (Q c, R) of "left", Q being the columns that a = Q R needs; with `pivoting` the columns' order,
    too. With `conjugate` Q is conjugated."""
    del overwrite_a, overwrite_c
    if mode not in ("right", "left"):
        raise refuse(f'qr_multiply: mode is {mode!r}; write "right" or "left"')
    a, c = matrices("qr_multiply", a, c)
    is_vector = len(shape_of(c)) == 1
    c = mnp.asarray(c) if not is_vector else mnp.expand_dims(c, -1 if mode == "left" else 0)
    q, *rest = lax_linalg.qr(a, full_matrices=False, pivoting=pivoting)
    side, extent = (-2, shape_of(q)[-1]) if mode == "left" else (-1, shape_of(q)[-2])
    if shape_of(c)[side] != extent:
        own, other = ("columns", "rows") if mode == "left" else ("rows", "columns")
        raise refuse(f"qr_multiply: Q of a {shape_of(a)} has {extent} {own}, c {shape_of(c)} has {shape_of(c)[side]} {other}")
    q = mnp.conj(q) if conjugate else q
    result = product(q, c) if mode == "left" else product(c, q)
    rest = [_for_all(r, shape_of(result)[:-2], len(shape_of(q)) - 2) for r in rest]
    return (mnp.ravel(result) if is_vector else result, *rest)


def _for_all(x: Any, batch: tuple[int, ...], dims: int) -> Any:
    """One per batch of the result, also where `a` was one for all of c's."""
    return mnp.broadcast_to(x, (*batch, *shape_of(x)[dims:]))
