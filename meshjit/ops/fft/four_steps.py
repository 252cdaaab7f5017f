"""`fft` of a line that stays sharded, in four steps (Bailey 1990): rows and columns of the line written as a matrix.

With n = n1·n2, j = n2·j1 + j2 and k = k1 + n1·k2 a transform is transforms of the columns, a factor per element, and
transforms of the rows:

    X[k1 + n1·k2] = sum over j2 of w^(n1·j2·k2) · w^(j2·k1) · (sum over j1 of w^(n2·j1·k1) · x[n2·j1 + j2]),   w = exp(-2πi/n)

A shard of the line holds whole rows of the matrix x[j1, j2]. An all-to-all makes them whole columns, another one whole
rows of k1, and a third one brings the elements in order: [k1, k2] is the result transposed. So a device sends three
times its shard, where gathering gives it all other shards, and does its part of the work only. Worked example, 16
elements over 2 devices, written as 4 rows of 4:

    holds        j = 0..7 | 8..15        rows j1 = 0 1 | 2 3
    all-to-all   columns j2 = 0 1 | 2 3  transformed along j1, times w^(j2·k1)
    all-to-all   rows k1 = 0 1 | 2 3     transformed along j2
    all-to-all   columns k2 = 0 1 | 2 3  that is k = 0 1 2 3 4 5 6 7 | 8..15

Both n1 and n2 have to be multiples of the number of devices; other lines are gathered. Real transforms are done as complex
ones: of the result half is brought home, or the missing half of the rows is fetched from where its mirror is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit.core.local import LocalEquation
from meshjit.core.op import Params
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, multiply, subtract
from meshjit.ops.base.bits import or_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full_like, iota, place_dtype, scalar, zeros
from meshjit.ops.base.conversion import complex_, conjugate, convert, imag, real
from meshjit.ops.base.families import factor_names
from meshjit.ops.base.shape import broadcast_in_dim, reshape, transpose
from meshjit.ops.base.transcendental import cosine, sine
from meshjit.ops.collective.collectives import all_to_all
from meshjit.ops.slicing.concatenation import reverse
from meshjit.ops.slicing.halos import cut, cut_at, fetch_run, positions, shard_axes
from meshjit.ops.slicing.slices import pad

Axes = tuple[Any, ...]
_COMPLEX = [("all_to_all", 1.0)] * 3


def rows_and_columns(n: int, devices: int) -> tuple[int, int] | None:
    """n1·n2 = n, both multiples of `devices` and as alike as can be; None if there are none."""
    rest, left = divmod(n, devices * devices)
    if left or not rest:
        return None
    small = next(d for d in range(math.isqrt(rest), 0, -1) if rest % d == 0)
    return devices * small, devices * (rest // small)


def partition_fft(local: LocalEquation, fft: Any) -> list[Var]:
    """`fft` is the op."""
    (var,), (out,), params = local.operands, local.result_types, local.params
    dim, n = params["axes"][-1], params["lengths"][-1]
    axes = shard_axes(local, factor_names(var.rank)[dim])
    if not axes:
        return [fft(var, **params)]
    if 0 in var.shape or 0 in out.shape:
        return [zeros(out)]
    sizes = rows_and_columns(n, local.mesh.axes_size(axes))
    if sizes is None:
        whole = local.bring(0, local.operand_placements[0].with_dim(dim, ()))
        begins = [i * out.shape[dim] for i in range(local.mesh.axes_size(axes))]
        return [cut_at(local, [fft(whole, **params)], dim, axes, begins, out.shape[dim])]
    order = (*(d for d in range(var.rank) if d != dim), dim)
    back = tuple(int(d) for d in np.argsort(order))
    lines = transpose(var, permutation=order)
    lines = (_real_steps if params["kind"] == "IRFFT" else _four_steps)(local, lines, axes, sizes, params["kind"], fft)
    result = transpose(lines, permutation=back)
    if params["kind"] == "RFFT":
        width = out.shape[dim]
        starts = [i * width for i in range(local.mesh.axes_size(axes))]
        result = fetch_run(local, result, dim, n // 2 + 1, axes, starts, width)
    return [result]


def _four_steps(local: LocalEquation, lines: Var, axes: Axes, sizes: tuple[int, int], kind: str, fft: Any) -> Var:
    """The transform of lines of n1·n2 elements; a real line travels as such. Of its transform the result has those rows k2
    that hold the first half, in shards of as many each, so that they may be longer than those of the half."""
    (n1, n2), devices = sizes, local.mesh.axes_size(axes)
    once, towards = {"axes": axes, "size": devices}, "IFFT" if kind == "IFFT" else "FFT"
    lead, row, column = lines.shape[:-1], lines.rank - 1, lines.rank
    matrix = reshape(lines, shape=(*lead, n1 // devices, n2))
    matrix = all_to_all(matrix, **once, split_dim=column, concat_dim=row)
    matrix = complex_(matrix, zeros(matrix.type)) if kind == "RFFT" else matrix
    matrix = fft(matrix, kind=towards, axes=(row,), lengths=(n1,))
    matrix = multiply(matrix, _twiddles(local, matrix, axes, n1 * n2, 1 if towards == "IFFT" else -1))
    matrix = all_to_all(matrix, **once, split_dim=row, concat_dim=column)
    matrix = fft(matrix, kind=towards, axes=(column,), lengths=(n2,))
    if kind == "RFFT":
        needed = n2 // 2 + 1
        n2 = -(-needed // devices) * devices
        matrix = cut(matrix, column, 0, n2)
    matrix = all_to_all(matrix, **once, split_dim=column, concat_dim=row)
    return _flat(matrix)


def _flat(matrix: Var) -> Var:
    """The last two dims, turned, as one."""
    row, column = matrix.rank - 2, matrix.rank - 1
    turned = transpose(matrix, permutation=(*range(row), column, row))
    return reshape(turned, shape=(*matrix.shape[:row], matrix.shape[row] * matrix.shape[column]))


def _real_steps(local: LocalEquation, half: Var, axes: Axes, sizes: tuple[int, int], kind: str, fft: Any) -> Var:
    """Real lines of n1·n2 elements from the first half of their transforms: the steps of RFFT backwards."""
    (n1, n2), devices = sizes, local.mesh.axes_size(axes)
    once, inverse = {"axes": axes, "size": devices}, {"kind": "IFFT"}
    lead, row, column = half.shape[:-1], half.rank - 1, half.rank
    rows, width = -(-(n2 // 2 + 1) // devices), n1 // devices
    starts = [i * rows * n1 for i in range(devices)]
    half = fetch_run(local, half, row, n1 * n2 // 2 + 1, axes, starts, rows * n1)
    matrix = reshape(half, shape=(*lead, rows, n1))
    matrix = all_to_all(matrix, **once, split_dim=column, concat_dim=row)  # [k2, a shard of k1]
    there = fetch_run(local, matrix, column, n1, axes, [n1 - (i + 1) * width + 1 for i in range(devices)], width)
    matrix = _with_mirror(local, matrix, reverse(there, dimensions=(column,)), axes, sizes)
    matrix = fft(matrix, **inverse, axes=(row,), lengths=(n2,))
    matrix = multiply(matrix, _twiddles(local, matrix, axes, n1 * n2, 1))
    matrix = all_to_all(matrix, **once, split_dim=row, concat_dim=column)  # [a shard of j2, k1]
    matrix = real(fft(matrix, **inverse, axes=(column,), lengths=(n1,)))
    return _flat(all_to_all(matrix, **once, split_dim=column, concat_dim=row))


def _twiddles(local: LocalEquation, like: Var, axes: Axes, n: int, sign: int) -> Var:
    """exp(sign·2πi·j2·k1/n): k1 along the last dim but one, j2 along the last, of which this is a shard."""
    shape, rank = like.shape[-2:], like.rank
    dtype = np.dtype(np.float64 if like.dtype.itemsize == 16 else np.float32)
    places = positions(local, shape, 1, axes, place_dtype(n))
    product = multiply(iota(dtype=places.dtype, shape=shape, dimension=0), places)  # less than n
    over = compare(product, full_like(product, n // 2), direction="GT")
    product = select(over, subtract(product, full_like(product, n)), product)  # small angles are more exact
    angle = convert(product, dtype=dtype)
    angle = multiply(angle, full_like(angle, sign * 2 * math.pi / n))
    return broadcast_in_dim(complex_(cosine(angle), sine(angle)), shape=like.shape, dimensions=(rank - 2, rank - 1))


def _with_mirror(local: LocalEquation, here: Var, there: Var, axes: Axes, sizes: tuple[int, int]) -> Var:
    """All n2 rows [k2, k1] of the first half, that is k = k1 + n1·k2 up to n/2; the others are conjugates of those of n - k.

    These stand in row n2 - 1 - k2 of the columns n1 - k1, which `there` has; of column 0 in row n2 - k2 of itself. Elements
    that are their own mirror, 0 and n/2, have no freedom and are made real.
    """
    (n1, n2), row = sizes, here.rank - 2
    missing = n2 - here.shape[row]
    direct = _grown(here, row, 0, missing)
    mirrored, own = (conjugate(reverse(v, dimensions=(row,))) for v in (there, here))
    mirrored, own = _grown(mirrored, row, missing, 0), _grown(own, row, missing + 1, -1)
    k1 = positions(local, direct.shape, row + 1, axes, place_dtype(n1 * n2))
    mirrored = select(compare(k1, full_like(k1, 0), direction="EQ"), own, mirrored)
    k2 = iota(dtype=k1.dtype, shape=direct.shape, dimension=row)
    k = add(k1, multiply(k2, full_like(k2, n1)))
    full = select(compare(k, full_like(k, n1 * n2 // 2), direction="LE"), direct, mirrored)
    first, twice = compare(k, full_like(k, 0), direction="EQ"), subtract(full_like(k, n1 * n2), k)
    alone = or_(first, compare(k, twice, direction="EQ"))
    return complex_(real(full), select(alone, zeros(k.type.with_dtype(real(full).dtype)), imag(full)))


def _grown(var: Var, dim: int, low: int, high: int) -> Var:
    before, after = (tuple(n if d == dim else 0 for d in range(var.rank)) for n in (low, high))
    return pad(var, scalar(0, var.dtype), low=before, high=after, interior=(0,) * var.rank)


def is_line(type: TensorType, params: Params) -> bool:
    """Whether there is one transformed dim and next to nothing beside it that its axes could be dealt out to."""
    axes = params["axes"]
    return len(axes) == 1 and all(m <= 3 for d, m in enumerate(type.shape) if d != axes[0])


