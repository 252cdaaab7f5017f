"""`threefry2x32` and `threefry_word`: random bits as a pure function of a key and a counter.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Random123):
Threefry-2x32 with 20 rounds. Every element depends on its own counter alone, so the bits are the same however they
are sharded, and none is ever sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.batching import align, align_to_first
from meshjit.ops.base.constants import emit_splat
from meshjit.ops.base.families import SAMPLE_SHAPES, elementwise_rule, factor_names, require
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
U32 = np.dtype(np.uint32)

# Rounds come in groups of four; groups take turns with the rotations, and after group g the keys g and g + 1 are added.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_GROUPS = 5
_PARITY = 0x1BD11BDA  # the third key word is this xor the other two


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 4, "threefry2x32", f"takes two keys and two counters, was given {len(in_types)} operands")
    for type in in_types:
        require(type.dtype == U32, "threefry2x32", f"takes u32 operands, was given {type}")
        require(type.shape == in_types[0].shape, "threefry2x32", f"operand shapes differ: {in_types[0]} and {type}")
    return in_types[:2]


def threefry(
    add: Any, xor: Any, rotate: Any, number: Any, keys: Sequence[Any], counts: Sequence[Any]
) -> tuple[Any, Any]:
    """The rounds, over any arithmetic: on NumPy arrays, and on the names of StableHLO values."""
    schedule = [*keys, xor(xor(keys[0], keys[1]), number(_PARITY))]
    a, b = add(counts[0], schedule[0]), add(counts[1], schedule[1])
    for group in range(_GROUPS):
        for rotation in _ROTATIONS[group % 2]:
            a = add(a, b)
            b = xor(rotate(b, rotation), a)
        a = add(a, schedule[(group + 1) % 3])
        b = add(add(b, schedule[(group + 2) % 3]), number(group + 1))
    return a, b


def _evaluate(key0: Array, key1: Array, count0: Array, count1: Array) -> tuple[Array, Array]:
    def rotate(x: Array, by: int) -> Array:
        return np.bitwise_or(np.left_shift(x, np.uint32(by)), np.right_shift(x, np.uint32(32 - by)))

    with np.errstate(over="ignore"):
        a, b = threefry(np.add, np.bitwise_xor, rotate, np.uint32, (key0, key1), (count0, count1))
    return np.asarray(a, U32), np.asarray(b, U32)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """All rounds in a row, which compiles as fast as a loop over them."""
    return _apart(e, operands, ins, outs, lambda e, xs: threefry(*_arithmetic(e, outs[0]), xs[:2], xs[2:]))


def _apart(e: Any, operands: Sequence[str], ins: Types, outs: Types, written: Any) -> Sequence[str]:
    """`written`, into which and out of which XLA fuses nothing. XLA:CPU would fuse the hundred cheap operations of the rounds
    into every kernel that reads the words: the two numbers of a pair, a mask forwards and backwards. Where that is a minimum over
    8, 16, ... places, LLVM, which looks for hashing in loops, follows every path through the rounds, 3.7**20, and does not end.

    Nothing is fused into or out of a loop, and barriers are gone by then: so the words are made in a loop of one trip, which
    does not look like one, min(key | 1, 1) trips."""
    if not e.target.isolates_random_words or not outs[0].size:
        return written(e, operands)
    scalar = TensorType((), U32)
    zero, one = (e.constant(np.asarray(n, U32)) for n in (0, 1))
    odd = e.op("or", [_first_of(e, operands[0]), one], [scalar])
    trips = e.op("minimum", [*odd, one], [scalar])[0]
    types = [scalar, scalar, *ins]

    def condition(inner: Any, names: list[str]) -> Sequence[str]:
        attributes = "comparison_direction = #stablehlo<comparison_direction LT>"
        return inner.op("compare", names[:2], [TensorType((), DTYPES["bool"])], attributes)

    def step(inner: Any, names: list[str]) -> Sequence[str]:
        (following,) = inner.op("add", [names[0], inner.constant(np.asarray(1, U32))], [scalar])
        return [following, *names[1:4], *written(inner, names[2:]), *names[4 + len(outs) :]]

    regions = [e.region(types, condition), e.region(types, step)]
    return e.op("while", [zero, trips, *operands], types, regions=regions)[4 : 4 + len(outs)]


def _first_of(e: Any, keys: str) -> str:
    """One of the keys."""
    rank, scalar = e.types[keys].rank, TensorType((), U32)
    if not rank:
        return keys
    bounds = zip(("start_indices", "limit_indices", "strides"), ([0] * rank, [1] * rank, [1] * rank), strict=True)
    attributes = ", ".join(f"{name} = {integers(x)}" for name, x in bounds)
    return e.op("reshape", e.op("slice", [keys], [TensorType((1,) * rank, U32)], attributes), [scalar])[0]


def _arithmetic(e: Any, type: TensorType) -> tuple[Any, Any, Any, Any]:
    """add, xor, rotate and number on the names of StableHLO values of this type."""
    numbers = dict[int, str]()

    def number(value: int) -> str:
        if value not in numbers:
            numbers[value] = emit_splat(e, type, value)
        return numbers[value]

    def binary(name: str) -> Any:
        return lambda a, b: e.op(name, [a, b], [type])[0]

    def rotate(x: str, by: int) -> str:
        left, right = binary("shift_left")(x, number(by)), binary("shift_right_logical")(x, number(32 - by))
        return binary("or")(left, right)

    return binary("add"), binary("xor"), rotate, number


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    aligned, dim = align_to_first(operands, dims)
    return list(threefry2x32(*aligned)), [dim, dim]


def _samples() -> list[Sample]:
    def fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
        return generator.integers(0, 2**32, type.shape, np.uint32)

    return [Sample((TensorType(shape, DTYPES["u32"]),) * 4, {}, fill) for shape in SAMPLE_SHAPES]


threefry2x32 = Op(
    name="threefry2x32",
    type_rule=_type,
    factor_rule=elementwise_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
)


# -- threefry_word: the two words xor one another, of one key for all that lies behind the dims that keys have


def _word_type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 4, "threefry_word", f"takes two keys and two counters, was given {len(in_types)} operands")
    for type in in_types:
        require(type.dtype == U32, "threefry_word", f"takes u32 operands, was given {type}")
    require(in_types[2].shape == in_types[3].shape, "threefry_word", f"counters differ: {in_types[2]} and {in_types[3]}")
    for type in in_types[:2]:
        fits = type.shape == in_types[0].shape == in_types[2].shape[: type.rank]
        require(fits, "threefry_word", f"the shape of keys {type} is not the first dims of counters {in_types[2]}")
    return in_types[2:3]


def _word_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a, a, a b, a b -> a b`."""
    dims = tuple((name,) for name in factor_names(out_types[0].rank))
    keys = dims[: in_types[0].rank]
    return FactorRule((keys, keys, dims, dims), (dims,)).with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


def _word(key0: Array, key1: Array, count0: Array, count1: Array) -> Array:
    shape = key0.shape + (1,) * (count0.ndim - key0.ndim)
    first, second = _evaluate(key0.reshape(shape), key1.reshape(shape), count0, count1)
    return np.bitwise_xor(first, second)


def _word_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return _apart(e, operands, ins, outs, lambda e, xs: [_written_word(e, xs, outs[0])])


def _written_word(e: Any, operands: Sequence[str], type: TensorType) -> str:
    dims = f"broadcast_dimensions = {integers(list(range(e.types[operands[0]].rank)))}"
    keys = [e.op("broadcast_in_dim", [k], [type], dims)[0] for k in operands[:2]]
    arithmetic = _arithmetic(e, type)
    return arithmetic[1](*threefry(*arithmetic, keys, operands[2:]))


def _word_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    if dims[0] is None and dims[1] is None:  # a dim of the counters alone stands behind those of keys
        place = operands[0].rank
        return [threefry_word(*operands[:2], *align(operands[2:], dims[2:], place))], [place]
    return [threefry_word(*align(operands, dims))], [0]


def _word_samples() -> list[Sample]:
    """Keys for all, for each of the first dim, and for every counter."""
    return [
        Sample((*2 * (TensorType(s.types[0].shape[:rank], U32),), *s.types[2:]), s.params, s.fill)
        for s in _samples()
        for rank in range(s.types[0].rank + 1)
    ]


threefry_word = Op(
    name="threefry_word",
    type_rule=_word_type,
    factor_rule=_word_rule,
    evaluate=_word,
    emit=_word_emit,
    samples=_word_samples,
    batch=_word_batch,
)
