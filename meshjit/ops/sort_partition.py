"""`sort` along a dim that stays sharded: every device makes its own block of the result and sorts no more than that.

All keys are gathered, as they must be, for a shard may hold any block's elements. But sorting is dear, and looking through
elements is cheap: device i finds, bit by bit, the keys at ranks i·b and (i+1)·b of every line (b: elements of a shard),
takes the elements between them, of equal keys as many in order as belong there, and sorts these. Worked example, device 1
of 3, b = 2:

    keys 5 3 8 3 1 5    sorted 1 3 | 3 5 | 5 8    ranks 2 and 4 have the keys 3 and 5
                        of the 3s the second, of the 5s the first: places 0 and 3, keys 5 and 3, which are sorted
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from meshjit.core.op import Params, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import TensorType, is_float
from meshjit.ops.arithmetic import add, minimum, multiply, subtract
from meshjit.ops.bits import and_, bitcast_convert, not_, or_, shift_right_logical, xor
from meshjit.ops.comparison import compare, select
from meshjit.ops.constants import full, full_like, iota, scalar, spread, zeros
from meshjit.ops.conversion import convert
from meshjit.ops.cumulative import cumsum
from meshjit.ops.families import factor_names
from meshjit.ops.indexing import take_along
from meshjit.ops.reduction import reduce_sum
from meshjit.ops.shape import broadcast_in_dim
from meshjit.ops.windows import positions, shard_axes
from sharding.cost import collective_seconds
from sharding.mesh import BaseMesh
from sharding.topology import Topology

if TYPE_CHECKING:
    from meshjit.partition.local import LocalEquation

_I32 = np.dtype(np.int32)
_SHORT = 2048  # up to this extent sorting everything is no dearer than finding one's own
_SELECTION = 90.0  # how often finding one's own goes over the keys


def price_of_sort(in_types: Types, params: Params, assignment: Mapping[str, Any], mesh: BaseMesh, topology: Topology) -> float:
    """Seconds of what a sort along a sharded dim does besides sorting a shard: gathering, finding what is its own."""
    axes = tuple(assignment.get(factor_names(in_types[0].rank)[params["dimension"]], ()))
    if not axes:
        return 0.0
    shares = math.prod(mesh.axes_size(over) for over in assignment.values())
    local = [type.nbytes / shares for type in in_types]
    seconds = sum(collective_seconds("all_gather", size, axes, mesh, topology, params["dimension"]) for size in local)
    passes = _SELECTION
    if not _can_select(in_types, params):
        passes = 40.0 * max(1, in_types[0].shape[params["dimension"]]).bit_length()
    return seconds + passes * local[0] * mesh.axes_size(axes) / topology.memory_bandwidth


def _can_select(in_types: Types, params: Params) -> bool:
    """One real key, and enough elements that it pays."""
    extent = in_types[0].shape[params["dimension"]]
    return params["num_keys"] == 1 and in_types[0].dtype.kind != "c" and _SHORT < extent < 2**31


def partition_sort(local: LocalEquation, sort: Any) -> list[Var]:
    """`sort` is the op."""
    params, types = local.params, local.eqn.input_types
    dim = params["dimension"]
    axes = shard_axes(local, factor_names(types[0].rank)[dim])
    if not axes:
        return _listed(sort(*local.operands, **params))
    width = local.operands[0].shape[dim]
    if 0 in local.operands[0].shape:
        return [zeros(t) for t in local.result_types]
    whole = [local.wanted(i, p.with_dim(dim, ())) for i, p in enumerate(local.operand_placements)]
    begin = multiply(local.index(axes), scalar(width, _I32))
    if not _can_select(types, params):
        size = width * local.mesh.axes_size(axes)
        return [_block(var, dim, begin, size, width) for var in _listed(sort(*whole, **params))]
    places = _own_places(_code(whole[0], bool(params.get("descending"))), dim, begin, width)
    own = [take_along(var, places, dim) for var in whole]
    if width * local.mesh.axes_size(axes) == types[0].shape[dim]:
        return _listed(sort(*own, **params))
    is_padding = compare(positions(local, own[0].shape, dim, axes), full(places.type, types[0].shape[dim]), direction="GE")
    first = not_(is_padding) if params.get("descending") else is_padding
    return _listed(sort(first, *own, **{**params, "num_keys": 2}))[1:]


def _listed(results: Any) -> list[Var]:
    return list(results) if isinstance(results, tuple) else [results]


def _block(var: Var, dim: int, begin: Var, size: int, width: int) -> Var:
    """`width` elements from `begin`, of a dim grown to `size` first."""
    from meshjit.ops.dynamic import dynamic_slice
    from meshjit.ops.slicing import pad

    high = tuple(size - n if d == dim else 0 for d, n in enumerate(var.shape))
    none = (0,) * var.rank
    if any(high):
        var = pad(var, scalar(0, var.dtype), low=none, high=high, interior=none)
    starts = [begin if d == dim else scalar(0, _I32) for d in range(var.rank)]
    return dynamic_slice(var, *starts, slice_sizes=tuple(width if d == dim else n for d, n in enumerate(var.shape)))


# -- keys as integers


def _code(key: Var, descending: bool) -> Var:
    """i32 or i64 in the order in which the keys are sorted: nan one and last, zeros equal."""
    wide = key.dtype.itemsize == 8
    signed = np.dtype(np.int64) if wide else _I32
    if is_float(key.dtype):
        real = np.dtype(np.float64 if wide else np.float32)
        key = key if key.dtype == real else convert(key, dtype=real)
        key = select(compare(key, zeros(key.type), direction="EQ"), zeros(key.type), key)
        key = select(compare(key, key, direction="NE"), full_like(key, np.nan), key)
        bits = bitcast_convert(key, dtype=signed)
        negative = compare(bits, zeros(bits.type), direction="LT")
        code = select(negative, xor(bits, full_like(bits, np.iinfo(signed).max)), bits)
    elif key.dtype.kind == "u" and key.dtype.itemsize == signed.itemsize:
        code = bitcast_convert(_with_sign_turned(key), dtype=signed)
    else:
        code = key if key.dtype == signed else convert(key, dtype=signed)
    return not_(code) if descending else code


def _with_sign_turned(bits: Var) -> Var:
    return xor(bits, full_like(bits, 1 << (8 * bits.dtype.itemsize - 1)))


# -- finding the elements of ranks [begin, begin + width)


def _own_places(codes: Var, dim: int, begin: Var, width: int) -> Var:
    """i32, `width` along `dim`: where in every line these elements are, in their order there."""
    from meshjit.ops.batching import move
    from meshjit.ops.searching import searchsorted

    extent = codes.shape[dim]
    last = codes.rank - 1
    lines = move(codes, dim, last)
    end = minimum(add(begin, scalar(width, _I32)), scalar(extent, _I32))
    first, second = _keys_at(lines, begin, end)
    mine = and_(_ranked_below(lines, end, second), not_(_ranked_below(lines, begin, first)))
    running = cumsum(convert(mine, dtype=_I32), axis=last, reverse=False)
    order = iota(dtype=_I32, shape=(*lines.shape[:-1], width), dimension=last)
    order = add(order, full_like(order, 1))
    places = searchsorted(running, order, side="left", batch_dims=last, method="scan")
    return move(minimum(places, full_like(places, extent - 1)), last, dim)


def _ranked_below(lines: Var, rank: Var, key: Var) -> Var:
    """bool: which elements stand before this rank, whose key is `key`, once their line is sorted; equal ones by order."""
    last = lines.rank - 1
    less, equal = (compare(lines, _along(key, lines), direction=word) for word in ("LT", "EQ"))
    left = subtract(spread(rank, key.shape), reduce_sum(convert(less, dtype=_I32), axes=(last,)))  # equal ones to take
    earlier = cumsum(convert(equal, dtype=_I32), axis=last, reverse=False)
    return or_(less, and_(equal, compare(earlier, _along(left, lines), direction="LE")))


def _keys_at(lines: Var, *ranks: Var) -> tuple[Var, ...]:
    """The keys at these ranks of every line, bit by bit from the top: the highest of which no more than `rank` are less,
    and beyond the end the highest there is."""
    from meshjit.ops.scan import scan

    unsigned = np.dtype(f"u{lines.dtype.itemsize}")
    key = zeros(TensorType(lines.shape[:-1], unsigned))
    top = scalar(1 << (8 * unsigned.itemsize - 1), unsigned)
    found = scan(
        lines, *ranks, top, *(key for _ in ranks), body=_next_bit(lines.type, len(ranks), unsigned),
        length=8 * unsigned.itemsize, reverse=False, num_consts=1 + len(ranks), num_carry=1 + len(ranks), unroll=1,
    )  # fmt: skip
    return tuple(bitcast_convert(_with_sign_turned(key), dtype=lines.dtype) for key in found[1:])


def _next_bit(lines_type: TensorType, count: int, unsigned: np.dtype[Any]) -> Program:
    """lines, ranks, this bit, the bits of the keys above it -> the next bit, the bits of the keys with it."""
    with Builder("next_bit") as builder:
        lines = builder.input(lines_type)
        ranks = [builder.input(TensorType((), _I32)) for _ in range(count)]
        bit = builder.input(TensorType((), unsigned))
        keys = [builder.input(TensorType(lines.shape[:-1], unsigned)) for _ in range(count)]
        longer = [_with_bit(lines, rank, bit, key) for rank, key in zip(ranks, keys, strict=True)]
        return builder.build([shift_right_logical(bit, scalar(1, unsigned)), *longer])


def _with_bit(lines: Var, rank: Var, bit: Var, key: Var) -> Var:
    """The bit is set if no more than `rank` are less than the key with it."""
    guess = or_(key, spread(bit, key.shape))
    bound = bitcast_convert(_with_sign_turned(guess), dtype=lines.dtype)
    less = compare(lines, _along(bound, lines), direction="LT")
    count = reduce_sum(convert(less, dtype=_I32), axes=(lines.rank - 1,))
    return select(compare(count, spread(rank, key.shape), direction="LE"), guess, key)


def _along(var: Var, lines: Var) -> Var:
    """One element a line, repeated along it."""
    return broadcast_in_dim(var, shape=lines.shape, dimensions=tuple(range(var.rank)))
