"""What fft and linear algebra say when something does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.op import REGISTRY
from meshjit.core.types import TensorType
from meshjit.scipy import linalg as scipy_linalg

pytestmark = pytest.mark.usefixtures("eager")

fft, linalg = mnp.fft, mnp.linalg
COMPLEX, REAL = np.zeros((2, 3), np.complex64), np.zeros((2, 3), np.float32)
SQUARE = np.eye(3, dtype=np.float32)


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: fft.rfft(COMPLEX), ValueError, "rfft takes real arrays, got complex64"),
    (lambda: fft.fft(REAL, 0), ValueError, "fft: the number of points along axis 1 is 0, it must be at least 1"),
    (lambda: fft.irfft(REAL, n=0), ValueError, "irfft: the number of points along axis 1 is 0"),
    (lambda: fft.fftn(REAL, axes=(0, -2)), ValueError, r"fftn: axes \(0, -2\) name a dim twice"),
    (lambda: fft.fftn(REAL, s=(2,), axes=(0, 1)), ValueError, "fftn: s has 1 entries and axes 2; they must be equally many"),
    (lambda: fft.fft(REAL, axis=2), IndexError, "axis 2 is out of range for an array of 2 dims"),
    (lambda: fft.fft(REAL, norm="other"), ValueError, 'fft: norm is \'other\'; write "backward", "ortho" or "forward"'),
    (lambda: fft.fft2(REAL, axes=(0,)), ValueError, r"fft2: axes must name 2 dims, got \(0,\)"),
    (lambda: fft.fftfreq(0), ValueError, "fftfreq: n must be an int of at least 1 and d a number, got n=0, d=1.0"),
    (lambda: fft.fftfreq(4, dtype=np.int32), ValueError, "fftfreq: dtype must be floating, got int32"),
    (lambda: lax.fft(REAL, "XFT", (3,)), ValueError, "fft: fft_type is 'XFT'; write one of \"FFT\", \"IFFT\""),
    (lambda: lax.fft(REAL, "FFT", (4,)), ValueError, r"FFT of lengths \(4,\) needs an operand whose last dims are \(4,\), got \(2, 3\)"),
    (lambda: linalg.inv(REAL), ValueError, r"inv: argument 0 must have shape \[..., n, n\], got \(2, 3\)"),
    (lambda: linalg.cholesky(REAL), ValueError, r"cholesky: argument 0 must have shape \[..., n, n\], got \(2, 3\)"),
    (lambda: linalg.qr(REAL[0]), ValueError, r"qr: argument 0 must have shape \[..., m, n\], got \(3,\)"),
    (lambda: linalg.inv(SQUARE.astype(np.float16)), TypeError, "inv takes float32, float64 or complex arrays, got float16"),
    (lambda: linalg.solve(SQUARE, np.ones(2)), ValueError, r"matrices \(3, 3\) and right-hand side \(2,\) do not fit: columns have 3"),
    (lambda: linalg.solve(SQUARE, np.ones((2, 2))), ValueError, r"a batch of vectors is solved as b\[..., None\]"),
    (lambda: linalg.norm(REAL, 3), ValueError, "norm: ord 3 is no norm of matrices; write None, 'fro', 'nuc', 1, 2, inf or the negative"),
    (lambda: linalg.lstsq(SQUARE[None], SQUARE), ValueError, r"lstsq: takes one matrix \[m, n\] and \[m\] or \[m, k\], got f32\[1,3,3\]"),
    (lambda: linalg.matrix_rank(SQUARE, 0.1, tol=0.1), ValueError, "matrix_rank: give tol or rtol, not both"),
    (lambda: linalg.svd(SQUARE, subset_by_index=(0, 2)), ValueError, "needs full_matrices=False"),
    (lambda: linalg.norm(REAL, "fro", axis=0), ValueError, "norm: ord 'fro' is no norm of vectors; write a number"),
    (lambda: linalg.norm(REAL[None], 2), ValueError, "norm: 3 axes; name one for vectors or two for matrices"),
    (lambda: linalg.eigh(SQUARE, "X"), ValueError, "eigh: UPLO is 'X'; write \"L\" or \"U\""),
    (lambda: scipy_linalg.eigh(SQUARE, SQUARE, type=4), ValueError, "eigh: type is 4; write 1, 2 or 3"),
    (lambda: linalg.qr(SQUARE, "economic"), ValueError, 'qr: mode is \'economic\'; write "reduced", "complete", "r" or "raw"'),
    (lambda: linalg.matrix_power(REAL, 2), ValueError, r"matrix_power: argument 0 must have shape \[..., n, n\]"),
    (lambda: linalg.multi_dot([REAL[None], REAL]), ValueError, "multi_dot: takes two matrices or more; the first and the last may be vectors"),
    (lambda: lax.linalg.triangular_solve(SQUARE, np.ones((4, 2)), left_side=True), ValueError,
     r"triangular_solve: matrices \(3, 3\) and right-hand side \(4, 2\) do not fit: .* columns have 3 elements"),
    (lambda: linalg.cholesky(REAL), TypeError, "cholesky: argument 0 must have shape"),  # as JAX; NumPy's is a ValueError
    (lambda: linalg.multi_dot([REAL]), ValueError, "multi_dot: takes two matrices or more"),
    (lambda: linalg.cross(REAL[:, :2], REAL), ValueError, r"linalg.cross: argument 0 has shape \(2, 2\), whose dim -1 has 2 elements, not 3"),
    (lambda: mnp.tril(REAL[0]), ValueError, r"tril: the argument has shape \(3,\), a matrix is needed"),
    (lambda: mnp.tri(3, M=-1), ValueError, "tri: M must not be negative, it is -1"),
    (lambda: mnp.diag(REAL[None]), ValueError, r"diag: the argument has shape \(1, 2, 3\), a vector or a matrix is needed"),
    (lambda: mnp.compress(np.array([1, 0, 1]), REAL, axis=0), ValueError, r"compress: the condition holds at 2, dim 0 of \(2, 3\) has 2"),
    (lambda: scipy_linalg.solve_triangular(SQUARE, SQUARE, trans=3), ValueError, "trans is 3; write 0, 1 or 2"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[r[2][:40] for r in REFUSED])
def test_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as found:
        call()
    assert "test_linalg_errors.py" in str(found.value) or error is NotImplementedError


OPS: list[tuple[str, str, dict[str, Any], str]] = [
    ("fft", "f32[4]", {"kind": "FFT", "axes": (0,), "lengths": (4,)}, "fft: FFT takes c64 or c128, was given f32[4]"),
    ("fft", "c64[4]", {"kind": "DFT", "axes": (0,), "lengths": (4,)}, "fft: param kind is 'DFT': write one of FFT, IFFT, RFFT, IRFFT"),
    ("fft", "c64[4,4]", {"kind": "FFT", "axes": (0, 0), "lengths": (4, 4)},
     "fft: param axes is (0, 0): name one to three different dims of operand c64[4,4]"),
    ("fft", "c64[4]", {"kind": "IRFFT", "axes": (0,), "lengths": (4,)},
     "fft: param lengths is (4,): dim 0 of operand c64[4] has extent 4, IRFFT needs 3"),
    ("cholesky", "f32[3,4]", {}, "cholesky: operand f32[3,4] is not square"),
    ("lu", "f32[4]", {}, "lu: operand f32[4] needs at least 2 dims"),
    ("qr", "i32[4,4]", {"full_matrices": True}, "qr: operand must be f32, f64, c64 or c128, is i32[4,4]"),
    ("triangular_solve", "f32[3,3] f32[2,3]", {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "none"},
     "triangular_solve: dim 0 of right-hand side f32[2,3] has extent 2, matrix f32[3,3] needs 3"),
    ("triangular_solve", "f32[3,3] f32[3,3]", {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "yes"},
     "triangular_solve: param transpose_a is 'yes': write one of none, transpose, adjoint"),
    ("lu_solve", "f32[3,3] f32[3,3] i32[2] f32[3,1]", {"transpose_a": "none"},
     "lu_solve: f32[3,3] has factors f32[3,3] and i32[3], not f32[3,3] and i32[2]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "types", "params", "message"), OPS, ids=[f"{o[0]}-{o[1]}" for o in OPS])
def test_type_rules_say_what_does_not_fit(name: str, types: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as error:
        REGISTRY[name].type_rule(tuple(map(TensorType.parse, types.split())), params)
    assert str(error.value) == message
