"""Decompositions of matrices over the last two dims, and systems of equations. Imports all but window, random and fft."""

from meshjit.ops.linalg import (
    eig,
    eigh,
    lu,
    lu_solve,
    matrices,
    phases,
    pinv,
    qr,
    qr_pivoted,
    reduced,
    reflections,
    routines,
    schur,
    svd,
    triangular,
    tridiagonal_solve,
    whole,
)
