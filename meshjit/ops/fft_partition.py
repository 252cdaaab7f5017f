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
ones: of the result half is kept, or the half that is missing is fetched from where its mirror is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from meshjit.core.op import Params, Types
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.ops.arithmetic import multiply, subtract
from meshjit.ops.bits import or_
from meshjit.ops.collectives import all_to_all
from meshjit.ops.comparison import compare, select
from meshjit.ops.constants import full_like, iota, zeros
from meshjit.ops.conversion import complex_, conjugate, convert, imag, real
from meshjit.ops.families import factor_names
from meshjit.ops.ordering import reverse
from meshjit.ops.shape import broadcast_in_dim, reshape, transpose
from meshjit.ops.transcendental import cosine, sine
from meshjit.ops.windows import cut, cut_at, positions, shard_axes, window
from sharding.cost import collective_seconds
from sharding.mesh import BaseMesh
from sharding.topology import Topology

if TYPE_CHECKING:
    from meshjit.partition.local import LocalEquation

Axes = tuple[Any, ...]
_COMPLEX = [("all_to_all", 1.0)] * 3
_EXCHANGES = {  # what is exchanged, in shards of the operand
    "FFT": _COMPLEX,
    "IFFT": _COMPLEX,
    "RFFT": [("all_to_all", 1.0), ("all_to_all", 2.0), ("all_to_all", 1.0), ("collective_permute", 0.5)],
    "IRFFT": [("collective_permute", 1.0)] * 4 + [("all_to_all", 2.0), ("all_to_all", 2.0), ("all_to_all", 1.0)],
}
_I32 = np.dtype(np.int32)


def rows_and_columns(n: int, devices: int) -> tuple[int, int] | None:
    """n1·n2 = n, both multiples of `devices` and as alike as can be; None if there are none."""
    rest, left = divmod(n, devices * devices)
    if left or not rest or n >= 2**31:
        return None
    small = next(d for d in range(math.isqrt(rest), 0, -1) if rest % d == 0)
    return devices * small, devices * (rest // small)


def price_of_fft(in_types: Types, params: Params, assignment: Mapping[str, Any], mesh: BaseMesh, topology: Topology) -> float:
    """Seconds of the exchanges, or of gathering the line and transforming all of it."""
    axes = _axes_of(in_types[0], params, assignment)
    if not axes:
        return 0.0
    shares = math.prod(mesh.axes_size(over) for over in assignment.values())
    local, size = in_types[0].nbytes / shares, mesh.axes_size(axes)
    if rows_and_columns(params["lengths"][-1], size) is not None:
        return sum(collective_seconds(kind, n * local, axes, mesh, topology) for kind, n in _EXCHANGES[params["kind"]])
    passes = 4.0 + params["lengths"][-1].bit_length()
    gathering = collective_seconds("all_gather", local, axes, mesh, topology, params["axes"][-1])
    return gathering + passes * (size - 1) * local / topology.memory_bandwidth


def _axes_of(type: TensorType, params: Params, assignment: Mapping[str, Any]) -> Axes:
    return tuple(assignment.get(factor_names(type.rank)[params["axes"][-1]], ()))


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
        whole = local.wanted(0, local.operand_placements[0].with_dim(dim, ()))
        begins = [i * out.shape[dim] for i in range(local.mesh.axes_size(axes))]
        return [cut_at(local, [fft(whole, **params)], dim, axes, begins, out.shape[dim])]
    if params["kind"] == "IRFFT":
        var = _with_mirror(local, var, dim, axes, n)
    result = _four_steps(local, var, dim, axes, sizes, params["kind"], fft)
    if params["kind"] == "RFFT":
        width = out.shape[dim]
        starts = [i * width for i in range(local.mesh.axes_size(axes))]
        result = window(local, result, dim, n // 2 + 1, axes, starts, width)
    return [result]


def _four_steps(local: LocalEquation, var: Var, dim: int, axes: Axes, sizes: tuple[int, int], kind: str, fft: Any) -> Var:
    """The transform of lines of n1·n2 elements; what is real travels as such. Of a real line's transform the result has those
    rows k2 that hold the first half, in shards of as many each, so that they may be longer than those of the half."""
    (n1, n2), devices, rank = sizes, local.mesh.axes_size(axes), var.rank
    once = {"axes": axes, "size": devices}
    towards = "IFFT" if kind in ("IFFT", "IRFFT") else "FFT"
    order = (*(d for d in range(rank) if d != dim), dim)
    lines = transpose(var, permutation=order) if order != tuple(range(rank)) else var
    lead, row, column = lines.shape[:-1], rank - 1, rank
    matrix = reshape(lines, shape=(*lead, n1 // devices, n2))
    matrix = all_to_all(matrix, **once, split_dim=column, concat_dim=row)
    matrix = complex_(matrix, zeros(matrix.type)) if kind == "RFFT" else matrix
    matrix = fft(matrix, kind=towards, axes=(row,), lengths=(n1,))
    matrix = multiply(matrix, _twiddles(local, matrix, axes, n1 * n2, 1 if towards == "IFFT" else -1))
    matrix = all_to_all(matrix, **once, split_dim=row, concat_dim=column)
    matrix = fft(matrix, kind=towards, axes=(column,), lengths=(n2,))
    if kind == "IRFFT":
        matrix = real(matrix)
    elif kind == "RFFT":
        needed = n2 // 2 + 1
        n2 = -(-needed // devices) * devices
        matrix = cut(matrix, column, 0, n2)
    matrix = all_to_all(matrix, **once, split_dim=column, concat_dim=row)
    turned = transpose(matrix, permutation=(*range(row), column, row))
    lines = reshape(turned, shape=(*lead, n1 * n2 // devices))
    back = tuple(int(d) for d in np.argsort(order))
    return transpose(lines, permutation=back) if order != tuple(range(rank)) else lines


def _twiddles(local: LocalEquation, like: Var, axes: Axes, n: int, sign: int) -> Var:
    """exp(sign·2πi·j2·k1/n): k1 along the last dim but one, j2 along the last, of which this is a shard."""
    shape, rank = like.shape[-2:], like.rank
    dtype = np.dtype(np.float64 if like.dtype.itemsize == 16 else np.float32)
    product = multiply(iota(dtype=_I32, shape=shape, dimension=0), positions(local, shape, 1, axes))  # less than n
    over = compare(product, full_like(product, n // 2), direction="GT")
    product = select(over, subtract(product, full_like(product, n)), product)  # small angles are more exact
    angle = convert(product, dtype=dtype)
    angle = multiply(angle, full_like(angle, sign * 2 * math.pi / n))
    return broadcast_in_dim(complex_(cosine(angle), sine(angle)), shape=like.shape, dimensions=(rank - 2, rank - 1))


def _with_mirror(local: LocalEquation, var: Var, dim: int, axes: Axes, n: int) -> Var:
    """The shard of the n elements of which `var` has the first n//2 + 1: element k is the conjugate of element n - k.

    What has no freedom, elements 0 and n/2, is made real.
    """
    half, devices = n // 2 + 1, local.mesh.axes_size(axes)
    width = n // devices
    here = window(local, var, dim, half, axes, [i * width for i in range(devices)], width)
    there = window(local, var, dim, half, axes, [n - (i + 1) * width + 1 for i in range(devices)], width)
    there = conjugate(reverse(there, dimensions=(dim,)))
    places = positions(local, here.shape, dim, axes)
    full = select(compare(places, full_like(places, n // 2), direction="LE"), here, there)
    first, middle = (compare(places, full_like(places, k), direction="EQ") for k in (0, n // 2))
    alone = or_(first, middle) if n % 2 == 0 else first
    flat = select(alone, zeros(imag(full).type), imag(full))
    return complex_(real(full), flat)


def is_line(type: TensorType, params: Params) -> bool:
    """Whether there is one transformed dim and next to nothing beside it that its axes could be dealt out to."""
    axes = params["axes"]
    return len(axes) == 1 and all(m <= 3 for d, m in enumerate(type.shape) if d != axes[0])


