"""Calls of the fft and linalg surfaces as text, for the comparison with JAX: with jax installed

    python -m tests.tools.linalg_cases > tests/goldens/linalg_surface.txt

writes what it gives; tests/test_linalg_surface.py holds ours against it. Names are those of tests/tools/numpy_cases.py.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

from tests.tools.numpy_cases import operands, print_call


def calls() -> Iterator[str]:
    """Every call, in the order of the goldens."""
    yield from _fft()
    yield from _linalg()
    yield from _scipy()
    yield from _singular()
    yield from _forms()


_LINE = "np.array([4., 5., 6.], np.float32)"


def _forms() -> Iterator[str]:
    """Forms of matrices and functions of them; what is unique up to phases as sizes."""
    for x in ("q", "(c[:, :2] + np.eye(2))", "(t + 2.5 * np.eye(2))"):
        yield from (f"lax.linalg.hessenberg({x})", f"scipy.linalg.hessenberg({x}, calc_q=True)", f"scipy.linalg.expm({x} / 4)")
        yield from (f"lax.linalg.tridiagonal({x}, lower={lower})" for lower in (True, False))
        yield from (f"np.abs(lax.linalg.schur({x}{how})[0])" for how in ("", ", compute_schur_vectors=False"))
        yield f"scipy.linalg.polar({x}, method='svd')"
        yield f"lax.linalg.householder_product({x}, {x}[..., 0, :])"
        yield from (f"lax.linalg.ormqr({x}, {x}[..., 0, :1], {x}{how})" for how in ("", ", left=False", ", transpose=True"))
        yield from (f"scipy.linalg.qr_multiply({x}, {x}{how})" for how in ("", ", 'left'", ", pivoting=True", ", conjugate=True"))
    for x in ("q", "(c[:, :2] + np.eye(2))"):
        yield from (f"np.abs(np.diagonal(scipy.linalg.schur({x}, 'complex')[0]))", f"scipy.linalg.sqrtm({x} @ {x}.T.conj())")
        yield f"lax.linalg.qdwh({x})[:2]"
        yield from (f"scipy.linalg.funm({x}, np.exp)", f"scipy.linalg.funm({x}, np.sin)", f"scipy.linalg.polar({x})")
        yield from (f"scipy.linalg.solve_sylvester({x}, {x} * 2, {x}{how})" for how in ("", ", method='eigen'"))
        yield from (f"scipy.linalg.expm_frechet({x}, {x} * 2)", f"scipy.linalg.expm_frechet({x}, {x} + 1, compute_expm=False)")
        yield f"scipy.linalg.expm(np.triu({x}), upper_triangular=True)"
    yield from (f"scipy.linalg.polar(f{how})" for how in (".T", ", 'left'", ", method='svd'", ", 'left', method='svd'"))
    some = (", eigvals_only=True", ", eigvals_only=True, select='i', select_range=(1, 2)")
    yield from (f"scipy.linalg.eigh_tridiagonal({_LINE}, {_LINE}[:2]{how})" for how in some)
    yield from (f"scipy.linalg.eigh_tridiagonal({_LINE}, {_LINE}[:2])[0]", f"scipy.linalg.eigh_tridiagonal({_LINE}[:1], {_LINE}[:0])")
    yield from (f"lax.linalg.tridiagonal_solve({_LINE}, {_LINE} * 3, {_LINE}, {b})" for b in ("q", "f.T", "q[:, :0]"))
    yield from ("lax.linalg.symmetric_product(f, q[:2, :2], alpha=2., beta=3., symmetrize_output=True)", "scipy.linalg.expm(i[:, :2] / 8)")
    yield from ("lax.linalg.cholesky_update(np.triu(q) + 3 * np.eye(3), q[0])", "lax.linalg.cholesky_update(np.eye(3) * 2., v[:3])")
    yield from ("scipy.linalg.expm(q * 1e9)", "scipy.linalg.expm(q * 0)", "scipy.linalg.dft(3)")


def _fft() -> Iterator[str]:
    one = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    for name, x in itertools.product(one, "fihbcev"):
        yield f"np.fft.{name}({x})"
    for name, how in itertools.product(one, ("5", "2", "3, 0", "axis=0", "norm='ortho'", "norm='forward'", "4, 0, 'backward'")):
        yield f"np.fft.{name}({'f' if name in ('rfft', 'ihfft') else 'c'}, {how})"
    several = ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
    for name, x in itertools.product(several, "fctu"):
        yield f"np.fft.{name}({x})"
    ways = ("(3, 4)", "(2, 2), (1, 0)", "axes=(0, 1), norm='ortho'", "norm='forward'", "(4, 3), axes=(0, 2)")
    for name, how in itertools.product(several, ways):
        yield f"np.fft.{name}({'t' if 'r' not in name or 'ir' not in name else 't * 1j'}, {how})"
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        yield from (f"np.fft.{name}(t, {how})" for how in ("(3,)", "axes=(1,)", "axes=(-1, 0, 1)", "(4, 2, 3)"))
    for n, d in itertools.product((1, 2, 5, 8), ("", ", 0.5", ", d=3")):
        yield from (f"np.fft.{name}({n}{d})" for name in ("fftfreq", "rfftfreq"))
    for name, how in itertools.product(("fftshift", "ifftshift"), ("v", "f", "t", "f, 0", "f, -1", "t, (0, 2)", "t, axes=(1, 2)")):
        yield f"np.fft.{name}({how})"
    yield from (
        "lax.fft(c, 'FFT', (3,))", "lax.fft(f, 'fft', (2, 3))", "lax.fft(c, lax.FftType.IFFT, (2, 3))",
        "lax.fft(f, 'RFFT', (3,))", "lax.fft(f, lax.FftType.RFFT, (2, 3))", "lax.fft(c, 'IRFFT', (4,))",
        "lax.fft(c, 'IRFFT', (2, 5))", "lax.fft(t, 'FFT', (2, 2, 2))", "lax.fft(i, 'FFT', (3,))",
    )  # fmt: skip


_POSITIVE = ("(q @ q.T + 3 * np.eye(3))", "(c @ c.T.conj() + 2 * np.eye(2))", "(t @ np.swapaxes(t, 1, 2) + 1.0 * np.eye(2))")
_SQUARE = ("q", "(c[:, :2] + np.eye(2))", "(t + 2.5 * np.eye(2))", "i[:, :2]")


def _linalg() -> Iterator[str]:
    for x in _POSITIVE:
        yield from (f"np.linalg.cholesky({x}{how})" for how in ("", ", upper=True", ", symmetrize_input=False"))
        yield from (f"lax.linalg.cholesky({x})", f"np.linalg.eigvalsh({x})", f"np.linalg.eigvalsh({x}, UPLO='U')")
        yield from (f"np.linalg.eigh({x})[0]", f"np.abs(np.linalg.eigh({x})[1])", f"np.abs(lax.linalg.eigh({x})[0])")
    yield from ("np.linalg.cholesky(q - 9 * np.eye(3))", "np.linalg.cholesky(j[:, :2])", "np.linalg.eigvalsh(q, symmetrize_input=False)")
    for x in _SQUARE:
        yield from (f"np.linalg.{name}({x})" for name in ("inv", "det", "slogdet", "qr", "norm", "trace", "diagonal"))
        yield from (f"np.linalg.matrix_power({x}, {n})" for n in (0, 1, 3, -2))
        yield f"np.linalg.solve({x}, {x}[..., :1])"
        yield f"np.linalg.solve({x}, {x} * 2)"
    for x in ("f", "c", "q", "f.T", "t * 1.0"):
        yield from (f"np.linalg.qr({x}, mode='{mode}')" for mode in ("reduced", "complete", "r", "raw"))
        yield f"lax.linalg.lu({x})"
        yield f"lax.linalg.qr({x}, full_matrices=False)"
    yield from (
        "np.linalg.solve(q, v[:3])", "np.linalg.solve(q, f.T)", "np.linalg.solve(q, np.stack([f.T, f.T + 1]))",
        "np.linalg.solve(t + 2.5 * np.eye(2), f)", "np.linalg.solve(q, q[0] * 1j)", "np.linalg.solve(i[:, :2], w[:2])",
        "np.linalg.det(np.eye(4) * 2 + np.ones((4, 4)))", "np.linalg.slogdet(-np.eye(5) + np.tri(5))", "np.linalg.det(q[:1, :1])",
        "np.linalg.tensorsolve(np.reshape(np.eye(6) * 2 + np.tri(6), (2, 3, 6)), f)",
        "np.linalg.tensorinv(np.reshape(np.eye(6) * 2 + np.tri(6), (2, 3, 6)))",
        "np.linalg.multi_dot([f, q, f.T])", "np.linalg.multi_dot([v[:3], q, f.T, v[:2]])", "np.linalg.cross(q, q[::-1])",
        "np.linalg.trace(f, offset=1)", "np.linalg.diagonal(t, offset=-1)", "np.linalg.outer(v, w)", "np.linalg.matmul(f, q)",
        "np.linalg.matrix_transpose(t)", "np.linalg.vecdot(f, g)", "np.linalg.tensordot(f, q, axes=1)",
        "np.linalg.matrix_power(i[:, :2], 3)",
    )  # fmt: skip
    for x, ord in itertools.product("ficht", ("", "1", "-1", "np.inf", "-np.inf", "'fro'")):
        yield f"np.linalg.norm({x}{', axis=(0, 1)' if x == 't' else ''}{', ord=' + ord if ord else ''})"
    for x, ord in itertools.product("vwfc", ("", "0", "1", "2", "3", "-2.5", "np.inf", "-np.inf")):
        yield f"np.linalg.norm({x}, {ord + ', ' if ord else ''}axis=-1)"
        if x != "w":  # JAX takes powers of integers as integers here
            yield f"np.linalg.vector_norm({x}{', ord=' + ord if ord else ''})"
    yield from (
        "np.linalg.norm(f, axis=0, keepdims=True)", "np.linalg.norm(f, keepdims=True)", "np.linalg.norm(t, axis=(2, 0))",
        "np.linalg.norm(t, 1, axis=(2, 0), keepdims=True)", "np.linalg.matrix_norm(t)", "np.linalg.matrix_norm(t, ord=1)",
        "np.linalg.vector_norm(t, axis=(0, 2), keepdims=True)", "np.linalg.norm(e)", "np.linalg.norm(t)", "np.linalg.norm(n)",
    )  # fmt: skip
    flags = ("left_side=True", "lower=True", "left_side=True, transpose_a=True", "transpose_a=True, conjugate_a=True",
             "left_side=True, conjugate_a=True, lower=True", "left_side=True, unit_diagonal=True")  # fmt: skip
    for (a, b), how in itertools.product((("q", "q * 2"), ("t + 2.5 * np.eye(2)", "t * 1.0"), ("c[:, :2] + np.eye(2)", "c[:, 1:]")), flags):
        yield f"lax.linalg.triangular_solve({a}, {b}, {how})"
    yield from ("lax.linalg.triangular_solve(q, v[:3], left_side=True)", "lax.linalg.triangular_solve(q, f)", "lax.linalg.triangular_solve(h[:, :2], h, left_side=True, lower=True)",
                "lax.linalg.lu_pivots_to_permutation(np.array([1, 1, 2]), 4)",
                "lax.linalg.lu_pivots_to_permutation(np.array([[2, 2], [0, 1]]), 3)")  # fmt: skip


def _singular() -> Iterator[str]:
    matrices = ("f", "f.T", "q", "c", "i", "t * 1.0")
    for x in matrices:
        yield from (f"np.linalg.svdvals({x})", f"np.linalg.svd({x}, compute_uv=False)", f"np.linalg.pinv({x})", f"np.linalg.cond({x})")
        yield from (f"np.abs(np.linalg.svd({x}, full_matrices=False)[{k}])" for k in (0, 2))
        yield from (f"np.abs(lax.linalg.svd({x}, full_matrices={full})[1])" for full in (True, False))
        axes = "" if "t *" not in x else ", axis=(0, 2)"
        yield from (f"np.linalg.norm({x}, {ord}{axes}{keep})" for ord in ("2", "-2", "'nuc'") for keep in ("", ", keepdims=True"))
        yield from (f"np.linalg.matrix_rank({x})", f"np.linalg.matrix_rank({x}, tol=3.0)")
    yield from (
        "np.linalg.pinv(np.ones((3, 3)))", "np.linalg.pinv(q + q.T, hermitian=True)", "np.linalg.pinv(f, rtol=0.6)",
        "np.linalg.svd(q + q.T, hermitian=True)[1]", "np.linalg.matrix_rank(np.ones((3, 3)))", "np.linalg.matrix_rank(v)",
        "np.linalg.matrix_rank(np.ones((2, 3, 3)))", "np.linalg.cond(q, 1)", "np.linalg.cond(q, 'fro')", "np.linalg.cond(q, -2)",
        "np.linalg.lstsq(f.T, f.T[:, :1])[0]", "np.linalg.lstsq(f.T, q[0])", "np.linalg.lstsq(f, f[:, 0])", "np.linalg.lstsq(c, f[0, :2])",
        "np.linalg.lstsq(f.T, q, rcond=0.5)", "np.linalg.lstsq(f, f, numpy_resid=True)", "np.linalg.matrix_norm(t, ord='nuc')",
        "scipy.linalg.svd(f, compute_uv=False)", "np.abs(scipy.linalg.svd(q)[0])", "np.linalg.svd(f, full_matrices=True)[0].shape",
        "np.linalg.svd(f.T, full_matrices=True)[0].shape", "np.linalg.svd(q, False, subset_by_index=(0, 2))[1]",
    )  # fmt: skip


def _scipy() -> Iterator[str]:
    for x in _POSITIVE:
        yield from (f"scipy.linalg.cholesky({x})", f"scipy.linalg.cho_factor({x}, lower=True)[0]")
        yield from (f"scipy.linalg.cho_solve(scipy.linalg.cho_factor({x}, {low}), {x} * 2)" for low in (True, False))
        yield from (f"scipy.linalg.solve({x}, {x}[..., :1], assume_a='pos', lower={low})" for low in (True, False))
        yield f"scipy.linalg.eigh({x}, eigvals_only=True)"
    for x in _SQUARE[:3]:
        yield from (f"scipy.linalg.solve_triangular({x}, {x} + 1, trans={t}, lower={t == 1})" for t in (0, 1, 2))
        yield from (f"scipy.linalg.lu_solve(scipy.linalg.lu_factor({x}), {x} + 1, {t})" for t in (0, 1, 2))
        yield from (f"scipy.linalg.lu({x})", f"scipy.linalg.lu({x}, permute_l=True)", f"scipy.linalg.inv({x})")
        yield from (f"scipy.linalg.qr({x})", f"scipy.linalg.solve({x}, {x})")
    yield from (
        "scipy.linalg.lu(f)", "scipy.linalg.lu(f.T)", "scipy.linalg.lu(f.T, permute_l=True)", "scipy.linalg.qr(f.T, mode='economic')",
        "scipy.linalg.qr(f, mode='r')", "scipy.linalg.solve_triangular(q, v[:3])", "scipy.linalg.lu_solve(scipy.linalg.lu_factor(q), v[:3])",
        "scipy.linalg.block_diag(f, 3, v)", "scipy.linalg.block_diag(i, j)", "scipy.linalg.toeplitz(v)", "scipy.linalg.toeplitz(v, f[0])",
        "scipy.linalg.toeplitz(c[0])", "scipy.linalg.hankel(v)", "scipy.linalg.hankel(v, f[0])", "scipy.linalg.det(q)",
        "scipy.linalg.cho_solve((np.eye(2) * 2, True), v[:2])", "scipy.linalg.solve_triangular(h[:, :2], h, lower=True)",
        "scipy.linalg.solve_triangular(f.astype(np.float16)[:, 1:] + np.eye(2, dtype=np.float16), v[:2].astype(np.float16))",
        "scipy.linalg.cho_solve((h[:, :2], True), h)",
    )  # fmt: skip


def main() -> None:
    """Write the goldens with JAX; what it refuses is left out."""
    import warnings

    import jax.lax
    import jax.numpy as jnp
    import jax.scipy.linalg

    warnings.simplefilter("ignore")
    names = operands(jnp.asarray)
    for call in dict.fromkeys(calls()):
        if call.startswith(tuple(sys.argv[1:]) or ""):
            print_call(call, {"np": jnp, "lax": jax.lax, "scipy": jax.scipy}, names)


if __name__ == "__main__":
    main()
