"""Gradients of functions of complex and real matrices against central differences, in double precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.scipy import linalg as scipy_linalg
from tests.tools.numpy_eager import host, numpy_eager

linalg, fft = mnp.linalg, mnp.fft
_DRAW = np.random.default_rng(0)
W = _DRAW.normal(size=6) + 1j * _DRAW.normal(size=6)
B = _DRAW.normal(size=(4, 3))
WEIGHTS = np.arange(16.0).reshape(4, 4)


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with mj.config.using(enable_x64=True), numpy_eager():
        yield


def square(kind: str) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(1)
    a = generator.normal(size=(4, 4)) + 4 * np.eye(4)
    return a + 1j * generator.normal(size=(4, 4)) if kind == "complex" else a


def positive(a: Any) -> Any:
    return a @ mnp.conj(a.T) + mnp.eye(4)


VECTORS: dict[str, Callable[[Any], Any]] = {
    "fft": lambda x: mnp.abs(fft.fft(x) * W).sum(),
    "ifft, longer": lambda x: mnp.abs(fft.ifft(x * W, 9, norm="ortho")).sum(),
    "irfft": lambda x: (fft.irfft(x * W, 9) ** 2 * np.arange(9)).sum(),
    "hfft": lambda x: (fft.hfft(x * W) ** 3).sum(),
    "products and parts": lambda x: mnp.real(x * x * mnp.conj(W)).sum() + mnp.imag(mnp.exp(x)).sum() + mnp.abs(x).sum(),
    "norm": lambda x: linalg.norm(x * W) + linalg.norm(x, 3),
}

MATRICES: dict[str, Callable[[Any], Any]] = {
    "fft2": lambda a: (mnp.real(fft.ifft2(fft.fft2(a) * WEIGHTS)) ** 3).sum(),
    "cholesky": lambda a: mnp.abs(linalg.cholesky(positive(a)) * WEIGHTS).sum(),
    "solve": lambda a: mnp.abs(linalg.solve(a, B) ** 2).sum(),
    "inv": lambda a: mnp.abs(linalg.inv(a) * WEIGHTS).sum(),
    "det": lambda a: mnp.abs(linalg.det(a)),
    "det of 3": lambda a: mnp.abs(linalg.det(a[:3, 1:])),
    "slogdet": lambda a: linalg.slogdet(a)[1] + mnp.real(linalg.slogdet(a)[0] * (1 + 2j)),
    "expm": lambda a: mnp.abs(scipy_linalg.expm(a / 4) * WEIGHTS).sum(),
    "polar": lambda a: (mnp.abs(scipy_linalg.polar(a)[0]) ** 3 * WEIGHTS).sum(),
    "three diagonals": lambda a: (
        scipy_linalg.eigh_tridiagonal(mnp.real(a[0]), mnp.real(a[1, 1:]), eigvals_only=True) ** 3 * np.arange(4)
    ).sum(),
    "qr": lambda a: (mnp.abs(linalg.qr(a)[0]) ** 3 * WEIGHTS).sum() + mnp.abs(linalg.qr(a)[1]).sum(),
    "qr, wide": lambda a: (mnp.abs(linalg.qr(a[:3])[1]) ** 3).sum(),
    "eigenvalues": lambda a: (linalg.eigvalsh(positive(a)) ** 2).sum(),
    "eigenvectors": lambda a: (mnp.abs(linalg.eigh(positive(a))[1]) ** 3 * WEIGHTS).sum(),
    "singular values": lambda a: (linalg.svdvals(a[:3]) ** 2 * np.arange(3)).sum() + linalg.norm(a, "nuc"),
    "singular vectors": lambda a: sum(
        (mnp.abs(x) ** 3 * WEIGHTS[: x.shape[0], : x.shape[1]]).sum() for x in linalg.svd(a[:, :3], full_matrices=False)[::2]
    ),
    "pinv": lambda a: mnp.abs(linalg.pinv(a[:3]) * WEIGHTS[:, :3]).sum(),
    "lstsq": lambda a: mnp.abs(linalg.lstsq(a[:, :3], B)[0]).sum(),
    "lu": lambda a: mnp.abs(lax.linalg.lu(a)[0] * WEIGHTS).sum(),
    "triangular": lambda a: mnp.abs(lax.linalg.triangular_solve(a, B, left_side=True, transpose_a=True, conjugate_a=True)).sum(),
    "cho_solve": lambda a: mnp.abs(scipy_linalg.cho_solve(scipy_linalg.cho_factor(positive(a)), B) ** 2).sum(),
    "lu_solve": lambda a: mnp.abs(scipy_linalg.lu_solve(scipy_linalg.lu_factor(a), B, 2) ** 2).sum(),
    "matrix_power": lambda a: mnp.abs(linalg.matrix_power(a, -3)).sum(),
}


def check(fun: Callable[[Any], Any], x: np.ndarray[Any, Any]) -> None:
    """jax.grad's convention: the change along t is Re(sum(gradient * t)), without conjugation."""
    gradient = np.asarray(mj.grad(fun)(host(x)))
    assert gradient.shape == x.shape and gradient.dtype == x.dtype
    generator = np.random.default_rng(2)
    for _ in range(2):
        t = generator.normal(size=x.shape)
        t = t + 1j * generator.normal(size=x.shape) if x.dtype.kind == "c" else t
        step = 1e-6
        change = (float(fun(host(x + step * t))) - float(fun(host(x - step * t)))) / (2 * step)
        np.testing.assert_allclose(np.real(np.sum(gradient * t)), change, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("name", VECTORS)
def test_of_vectors(name: str, kind: str) -> None:
    check(VECTORS[name], W.copy() if kind == "complex" else W.real.copy())


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("name", MATRICES)
def test_of_matrices(name: str, kind: str) -> None:
    check(MATRICES[name], square(kind))


def test_of_real_transforms() -> None:
    check(lambda x: mnp.abs(fft.rfft(x) * W[:4]).sum(), W.real.copy())
    check(lambda x: mnp.abs(fft.rfftn(x)).sum(), square("real"))
    check(lambda x: mnp.abs(fft.ihfft(x) * W[:4]).sum(), W.real.copy())


def test_second_derivatives() -> None:
    """A solution's derivative has one itself, although no derivative flows through the factors it is made with."""
    a, b = square("real"), B[:, 0]

    def at(t: Any) -> Any:
        return (linalg.solve(a + t * WEIGHTS, b) ** 2).sum() + linalg.slogdet(a + t * WEIGHTS)[1]

    step = 1e-5
    first = mj.grad(at)
    change = (float(first(host(0.3 + step))) - float(first(host(0.3 - step)))) / (2 * step)
    np.testing.assert_allclose(float(mj.grad(first)(host(0.3))), change, rtol=1e-6)


def test_a_full_q_has_no_derivative() -> None:
    with pytest.raises(NotImplementedError, match="qr has no jvp rule: with full_matrices the columns of Q beyond"):
        mj.grad(lambda a: linalg.qr(a, mode="complete")[0].sum())(host(B))
