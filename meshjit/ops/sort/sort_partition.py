"""`sort` along a dim that stays sharded: every device makes its own block of the result and sorts no more than that.

All keys are gathered, as they must be, for a shard may hold any block's elements. But where sorting is dear and looking
through elements is cheap (`Target.selects_above`), device i finds, bit by bit, the elements at ranks i·b and (i+1)·b of
every line (b: elements of a shard), as pairs of key and place, for equal keys stay in order; it takes the elements between
them and sorts these. Worked example, device 1 of 3, b = 2:

    keys 5 3 8 3 1 5    sorted 1 3 | 3 5 | 5 8    at ranks 2 and 4 are (3, 3) and (5, 5)
                        between them (3, 3) and (5, 0): the elements 5 and 3 of places 0 and 3, which are sorted
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.core.local import LocalEquation
from meshjit.core.op import Params, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.target import Target
from meshjit.core.types import TensorType, is_float
from meshjit.ops.base.arithmetic import add, maximum, minimum, multiply, subtract
from meshjit.ops.base.batching import move
from meshjit.ops.base.bits import and_, bitcast_convert, not_, or_, popcnt, shift_left, shift_right_logical, xor
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import first_place, full, full_like, iota, scalar, spread, zeros
from meshjit.ops.base.conversion import convert, in_dtype
from meshjit.ops.base.families import factor_names
from meshjit.ops.base.reduction import reduce_sum
from meshjit.ops.base.shape import broadcast_in_dim, reshape
from meshjit.ops.control.scan import scan
from meshjit.ops.index.dynamic import dynamic_slice
from meshjit.ops.index.take import take_along
from meshjit.ops.reduce.cumulative import cumsum
from meshjit.ops.slicing.halos import positions, shard_axes
from meshjit.ops.slicing.slices import pad

_I32, _U32 = np.dtype(np.int32), np.dtype(np.uint32)
_BITS = 32  # of a word

# Of the operands, for each halving of a line. On 8 CPU devices of 2 cores, lines of 8 to 262,144 elements: floats take as long as
# 100 reads, for they are compared as integers that are made of them, and integers 18. One price between the two is for both.
READS_PER_HALVING = 40.0


def passes_of_sort(in_types: Types, params: Params) -> float:
    return READS_PER_HALVING * max(1, in_types[0].shape[params["dimension"]]).bit_length()


def _can_select(in_types: Types, params: Params, target: Target) -> bool:
    """One real key, and enough elements that selecting pays. It does not for integers alone, which XLA sorts fast."""
    extent = in_types[0].shape[params["dimension"]]
    if len(in_types) == 1 and not is_float(in_types[0].dtype):
        return False
    return params["num_keys"] == 1 and in_types[0].dtype.kind != "c" and target.selects_above < extent < 2**31


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
    whole = [local.bring(i, p.with_dim(dim, ())) for i, p in enumerate(local.operand_placements)]
    size = width * local.mesh.axes_size(axes)
    begin = first_place(local.index(axes), local.mesh.axes_size(axes), width)
    if not _can_select(types, params, local.target):
        return [_block(var, dim, begin, size, width) for var in _listed(sort(*whole, **params))]
    key = whole[0] if whole[0].dtype.kind != "b" else convert(whole[0], dtype=np.dtype(np.int8))
    places = _own_places(key, bool(params.get("descending")), dim, in_dtype(begin, _I32), width)
    own = [take_along(var, places, dim) for var in whole]
    if size == types[0].shape[dim]:
        return _listed(sort(*own, **params))
    at = positions(local, own[0].shape, dim, axes)
    is_padding = compare(at, full_like(at, types[0].shape[dim]), direction="GE")
    first = not_(is_padding) if params.get("descending") else is_padding
    return _listed(sort(first, *own, **{**params, "num_keys": 2}))[1:]


def _listed(results: Any) -> list[Var]:
    return list(results) if isinstance(results, tuple) else [results]


def _block(var: Var, dim: int, begin: Var, size: int, width: int) -> Var:
    """`width` elements from `begin`, of a dim grown to `size` first."""
    high = tuple(size - n if d == dim else 0 for d, n in enumerate(var.shape))
    none = (0,) * var.rank
    if any(high):
        var = pad(var, scalar(0, var.dtype), low=none, high=high, interior=none)
    starts = [begin if d == dim else scalar(0, begin.dtype) for d in range(var.rank)]
    return dynamic_slice(var, *starts, slice_sizes=tuple(width if d == dim else n for d, n in enumerate(var.shape)))


# -- the order of keys

# A code is an integer as wide as the key, in the order in which keys are sorted: nan one and last, zeros equal. Only what
# elements are compared with is ever a code: elements themselves are compared as what they are.


def _code_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{dtype.itemsize}")


def _key_of(code: Var, dtype: np.dtype[Any]) -> Var:
    """The key that has this code; some nan where there is none."""
    if is_float(dtype):
        negative = compare(code, zeros(code.type), direction="LT")
        code = select(negative, xor(code, full_like(code, np.iinfo(code.dtype).max)), code)
    elif dtype.kind == "u":
        code = _with_sign_turned(bitcast_convert(code, dtype=dtype))
    return code if code.dtype == dtype else bitcast_convert(code, dtype=dtype)


def _codes_of(dtype: np.dtype[Any]) -> list[int]:
    """Of -inf, inf and nan."""
    signed = _code_type(dtype)
    values = (-np.inf, np.inf, abs(np.float32(np.nan)))
    bits = [int(np.asarray(value, dtype).reshape(1).view(signed)[0]) for value in values]
    return [code if code >= 0 else code ^ np.iinfo(signed).max for code in bits]


def _compared(key: Var, code: Var, dim: int, descending: bool) -> tuple[Var, Var]:
    """bool: which elements stand before those of this code (shaped as a line's sum); and which of the others are of it.

    Nothing is asked about elements alone, such as which are nan: what is the same in every round of a loop XLA would
    write out before it."""
    if descending:
        return _compared_descending(key, not_(code), dim)
    bound = _key_of(code, key.dtype)
    less, equal = (compare(key, _along(bound, key.shape, dim), direction=word) for word in ("LT", "EQ"))
    if not is_float(key.dtype):
        return less, equal
    _, highest, nan = _codes_of(key.dtype)
    is_real = _least(key, _is(code, "GT", highest), dim)
    less = or_(or_(less, is_real), _along(_is(code, "GT", nan), key.shape, dim))
    return less, or_(equal, _along(_is(code, "EQ", nan), key.shape, dim))


def _compared_descending(key: Var, code: Var, dim: int) -> tuple[Var, Var]:
    bound = _key_of(code, key.dtype)
    if not is_float(key.dtype):
        more, equal = (compare(key, _along(bound, key.shape, dim), direction=word) for word in ("GT", "EQ"))
        return more, equal
    _, highest, nan = _codes_of(key.dtype)
    infinite = and_(_is(code, "GT", highest), _is(code, "LT", nan))  # behind nan, before infinity
    bound = select(infinite, spread(scalar(np.inf, key.dtype), bound.shape), bound)
    no_more = compare(key, _along(bound, key.shape, dim), direction="LE")
    equal = compare(key, _along(bound, key.shape, dim), direction="EQ")
    more = and_(not_(no_more), _along(_is(code, "LT", nan), key.shape, dim))
    is_nan = _is(code, "EQ", nan)
    return more, or_(equal, and_(_along(is_nan, key.shape, dim), not_(_least(key, is_nan, dim))))


def _least(key: Var, flag: Var, dim: int) -> Var:
    """bool: which elements are no nan, in lines whose flag is set; no others."""
    least, none = (spread(scalar(value, key.dtype), flag.shape) for value in (-np.inf, np.nan))
    return compare(key, _along(select(flag, least, none), key.shape, dim), direction="GE")


def _is(code: Var, word: str, of: int) -> Var:
    return compare(code, full_like(code, of), direction=word)


def _with_sign_turned(bits: Var) -> Var:
    return xor(bits, full_like(bits, 1 << (8 * bits.dtype.itemsize - 1)))


# -- finding the elements of ranks [begin, begin + width)

# No temporary is as long as the line, except the line itself; membership is stored as a bit mask.


def _own_places(key: Var, descending: bool, dim: int, begin: Var, width: int) -> Var:
    """i32, `width` along `dim`: where in every line these elements are, in their order there."""
    extent = key.shape[dim]
    first, end = (minimum(rank, scalar(extent, _I32)) for rank in (begin, add(begin, scalar(width, _I32))))
    low, high = _elements_at(key, descending, dim, first, end)
    mine = and_(_stands_before(key, descending, dim, high), not_(_stands_before(key, descending, dim, low)))
    return minimum(_places_of(mine, dim, width), full(TensorType(_with_extent(key.shape, dim, width), _I32), extent - 1))


def _places_of(mine: Var, dim: int, count: int) -> Var:
    """i32, `count` along `dim`: the places of the flags that are set, in order; some place behind the last."""
    words = _words(mine, dim)
    running = cumsum(_ones(words), axis=words.rank - 1, reverse=False)
    last = running.rank - 1
    number = _words_before(running, count)
    word = take_along(words, number, last)
    until = take_along(running, number, last)
    skipped = subtract(_numbers(number.shape), subtract(until, _ones(word)))
    place = add(multiply(number, full_like(number, _BITS)), _bit_at(word, skipped))
    return move(place, last, dim)


def _numbers(shape: tuple[int, ...]) -> Var:
    return iota(dtype=_I32, shape=shape, dimension=len(shape) - 1)


def _words_before(running: Var, count: int) -> Var:
    """i32, `count` along the last dim: number i is how many words have no more than i flags until their end, by halves of
    the extent. The last word stands for what is behind all. One array is all that the loop carries."""
    extent = running.shape[-1]
    shape, half = (*running.shape[:-1], count), 1 << ((extent - 1).bit_length() - 1) if extent > 1 else 0
    if not half:
        return zeros(TensorType(shape, _I32))
    with Builder("half") as builder:
        table, step, low = (builder.input(t) for t in (running.type, TensorType((), _I32), TensorType(shape, _I32)))
        next_low = add(low, spread(step, shape))
        entry = take_along(table, minimum(subtract(next_low, full_like(low, 1)), full_like(low, extent - 1)), len(shape) - 1)
        is_before = compare(entry, _numbers(shape), direction="LE")
        body = builder.build([shift_right_logical(step, scalar(1, _I32)), select(is_before, next_low, low)])
    position = scan(
        running, scalar(half, _I32), zeros(TensorType(shape, _I32)), body=body,
        length=half.bit_length(), reverse=False, num_consts=1, num_carry=2, unroll=1,
    )[1]  # fmt: skip
    return minimum(position, full_like(position, extent - 1))


def _words(flags: Var, dim: int) -> Var:
    """u32, flags along `dim` in words of 32, the first in the lowest bit; words along the last dim."""
    flags, count = _whole_words(flags, dim)
    bits = convert(reshape(flags, shape=(*flags.shape[:dim], count, _BITS, *flags.shape[dim + 1 :])), dtype=_U32)
    shifted = shift_left(bits, iota(dtype=_U32, shape=bits.shape, dimension=dim + 1))
    return move(reduce_sum(shifted, axes=(dim + 1,)), dim, flags.rank - 1)


def _whole_words(flags: Var, dim: int) -> tuple[Var, int]:
    count = -(-flags.shape[dim] // _BITS)
    spare = tuple(count * _BITS - n if d == dim else 0 for d, n in enumerate(flags.shape))
    if any(spare):
        none = (0,) * flags.rank
        flags = pad(flags, scalar(False, flags.dtype), low=none, high=spare, interior=none)
    return flags, count


def _counted(flags: Var, dim: int) -> Var:
    """i32: how many of a line are set. In two sums with something between them: in one, XLA on CPUs writes out a number for
    every flag."""
    flags, count = _whole_words(flags, dim)
    flags = reshape(flags, shape=(*flags.shape[:dim], count, _BITS, *flags.shape[dim + 1 :]))
    some = reduce_sum(convert(flags, dtype=_I32), axes=(dim + 1,))
    return reduce_sum(maximum(some, zeros(some.type)), axes=(dim,))


def _ones(words: Var) -> Var:
    return bitcast_convert(popcnt(words), dtype=_I32)


def _bit_at(word: Var, skipped: Var) -> Var:
    """i32: the number of the bit set in `word` that has `skipped` ones below it, by halves of what is left of the word."""
    place = full_like(skipped, 0)
    for half in (16, 8, 4, 2, 1):
        below = and_(word, full_like(word, (1 << half) - 1))
        ones = _ones(below)
        above = compare(skipped, ones, direction="GE")
        skipped = select(above, subtract(skipped, ones), skipped)
        word = select(above, shift_right_logical(word, full_like(word, half)), below)
        place = select(above, add(place, full_like(place, half)), place)
    return place


def _stands_before(key: Var, descending: bool, dim: int, element: tuple[Var, Var]) -> Var:
    """bool: which elements stand before this one of their line, once it is sorted; equal ones by their place."""
    code, place = element
    less, equal = _compared(key, code, dim, descending)
    here = iota(dtype=_I32, shape=key.shape, dimension=dim)
    return or_(less, and_(equal, compare(here, _along(place, key.shape, dim), direction="LT")))


def _elements_at(key: Var, descending: bool, dim: int, *ranks: Var) -> list[tuple[Var, Var]]:
    """(code, place) of the elements at these ranks of every line, bit by bit from the top: the highest pair that no more
    than `rank` elements stand before, beyond the end the highest there is."""
    wide = _code_type(key.dtype)
    unsigned, places = np.dtype(f"u{wide.itemsize}"), key.shape[dim].bit_length()
    none = zeros(TensorType(_without(key.shape, dim), unsigned)), zeros(TensorType(_without(key.shape, dim), _I32))
    bits = scalar(1 << (8 * unsigned.itemsize - 1), unsigned), scalar(0, _I32)
    state = [*bits, *(var for _ in ranks for var in none)]
    carries = scan(
        key, *ranks, *state, body=_next_bit(key.type, descending, dim, len(ranks), unsigned),
        length=8 * unsigned.itemsize + places, reverse=False, num_consts=1 + len(ranks), num_carry=len(state), unroll=1,
    )[2:]  # fmt: skip
    codes = [bitcast_convert(_with_sign_turned(code), dtype=wide) for code in carries[::2]]
    return list(zip(codes, carries[1::2], strict=True))


def _next_bit(key_type: TensorType, descending: bool, dim: int, count: int, unsigned: np.dtype[Any]) -> Program:
    """key, ranks, this bit of the codes (0 below the last) and of the places (0 above the first), and for every rank the
    bits above it of its code and place -> the next bits, and for every rank these with it."""
    with Builder("next_bit") as builder:
        key = builder.input(key_type)
        ranks = [builder.input(TensorType((), _I32)) for _ in range(count)]
        bits = builder.input(TensorType((), unsigned)), builder.input(TensorType((), _I32))
        lines = _without(key_type.shape, dim)
        pairs = [tuple(builder.input(TensorType(lines, dtype)) for dtype in (unsigned, _I32)) for _ in range(count)]
        longer = [
            var for rank, pair in zip(ranks, pairs, strict=True) for var in _with_bits(key, descending, dim, rank, bits, pair)
        ]
        top = scalar(1 << (key_type.shape[dim].bit_length() - 1), _I32)
        was_last = compare(bits[0], scalar(1, unsigned), direction="EQ")
        following = shift_right_logical(bits[0], scalar(1, unsigned)), shift_right_logical(bits[1], scalar(1, _I32))
        return builder.build([following[0], select(was_last, top, following[1]), *longer])


def _with_bits(key: Var, descending: bool, dim: int, rank: Var, bits: tuple[Var, Var], pair: tuple[Var, ...]) -> list[Var]:
    """The bit is set if no more than `rank` elements stand before the pair with it."""
    code, place = (or_(var, spread(bit, var.shape)) for var, bit in zip(pair, bits, strict=True))
    bound = bitcast_convert(_with_sign_turned(code), dtype=_code_type(key.dtype))
    before = _stands_before(key, descending, dim, (bound, place))
    count = _counted(before, dim)
    is_set = compare(count, spread(rank, count.shape), direction="LE")
    return [select(is_set, with_bit, var) for with_bit, var in zip((code, place), pair, strict=True)]


def _along(var: Var, shape: tuple[int, ...], dim: int) -> Var:
    """One element a line, repeated along it."""
    return broadcast_in_dim(var, shape=shape, dimensions=tuple(d for d in range(len(shape)) if d != dim))


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*shape[:dim], *shape[dim + 1 :])


def _with_extent(shape: tuple[int, ...], dim: int, extent: int) -> tuple[int, ...]:
    return (*shape[:dim], extent, *shape[dim + 1 :])
