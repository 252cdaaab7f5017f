"""`threefry2x32`: random bits as a pure function of a key and a counter.

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
from meshjit.ops.families import SAMPLE_SHAPES, elementwise_rule, require

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
    """All rounds in a row: it compiles as fast as a loop over them, and everything around it fuses into one kernel."""
    type, numbers = outs[0], dict[int, str]()

    def number(value: int) -> str:
        if value not in numbers:
            numbers[value] = e.constant(np.broadcast_to(np.uint32(value), type.shape))
        return numbers[value]

    def binary(name: str) -> Any:
        return lambda a, b: e.op(name, [a, b], [type])[0]

    def rotate(x: str, by: int) -> str:
        left, right = binary("shift_left")(x, number(by)), binary("shift_right_logical")(x, number(32 - by))
        return binary("or")(left, right)

    return threefry(binary("add"), binary("xor"), rotate, number, operands[:2], operands[2:])


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    from meshjit.ops.batching import align_to_first

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
