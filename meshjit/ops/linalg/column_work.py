"""What going through a matrix column by column takes, for pricing.

Large matrices take multiplications, at the rate of products of matrices; small ones reads of their elements; and on machines that
start each step anew, the steps that follow one another (`Target.step_seconds`). Fitted to times of float32 on two cores of a
server of 2024 (LAPACK; n from 8 to 2,048), and of an H200 (cuSOLVER; n = 1,024):

    n x n             multiplications     reads     steps     ms: 2 cores, n = 1,024     H200, n = 1,024
    cholesky                n ** 3           8     0.16 n           17                        0.49
    lu                 0.85 n ** 3          10      0.5 n           14                        2.8, with lu_solve
    a triangle, k sides 0.8 n ** 2 k         3      0.2 n           10, k = n
    qr                    6 n ** 3          36      1.6 n          104                        4.9
    eigh                  9 n ** 3         100      3.5 n          134                       10.8
    svd, values alone     8 n ** 3          60        6 n          128
    svd                  28 n ** 3         125       17 n          396                       54
    eig                  50 n ** 3         190       51 n          690                      158

The others are set beside these by the operations that LAPACK's users' guide counts.
"""

from __future__ import annotations

from collections.abc import Callable

from meshjit.core.op import ColumnWork, Params, Types


def by_columns(multiplications: float, steps: float) -> Callable[[Types, Params], ColumnWork]:
    """The rule of an op whose first operand is [..., m, n]: so many of each for every row and column of the shorter side."""

    def column_work(in_types: Types, params: Params) -> ColumnWork:
        n = min(in_types[0].shape[-2:])
        return ColumnWork(steps * n, multiplications * n)

    return column_work
