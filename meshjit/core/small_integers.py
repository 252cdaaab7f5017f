"""Integers of 2 and 4 bits: stored and moved as they are, and computed with in bytes.

The type rule of an op that computes refuses them. Who applies it then converts the operands to integers of 8 bits, and results
back, which keeps their lowest bits, as arithmetic with so few bits does. `add %x, %y` of i4[3] is written

    %1 = convert %x dtype=i8        %2 = convert %y dtype=i8        %3 = add %1, %2        %4 = convert %3 dtype=i4

So no rule of an op that computes knows of them, and XLA computes with no dtype whose elements share a byte, in which it makes
mistakes (`docs/xla.md`). `Op.few_bits` says how an op sees the bits that an operand does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from meshjit.core.splat import splat
from meshjit.core.types import SMALL_INTEGERS, TensorType, bits_of, kind_of

if TYPE_CHECKING:
    from meshjit.core.op import Op

Params = Mapping[str, Any]
Emit = Callable[["Op", Sequence[Any], Params], Sequence[Any]]  # of Vars or Tracers; what has a type and a dtype


def byte_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The integer of 8 bits with the same sign: i4 → i8, u2 → u8. Other dtypes are their own."""
    return np.dtype(np.int8 if kind_of(dtype) == "i" else np.uint8) if dtype in SMALL_INTEGERS else dtype


def types_in_bytes(op: Op, in_types: Sequence[TensorType], params: Params) -> tuple[TensorType, ...] | None:
    """The types of results where the op refuses these operands, and computes with bytes; None if none of them has few bits."""
    narrow = _narrow([type.dtype for type in in_types])
    if not narrow or op.few_bits == "none":
        return None
    wide = op.type_rule(tuple(type.with_dtype(byte_of(type.dtype)) for type in in_types), params)
    return tuple(type.with_dtype(_result(type.dtype, narrow, params)) for type in wide)


def in_bytes(op: Op, operands: Sequence[Any], params: Params, ops: Mapping[str, Op], emit: Emit) -> Sequence[Any] | None:
    """Apply an op that refuses these operands to their bytes; None if none of them has few bits. `emit` applies ops."""
    narrow = _narrow([x.dtype for x in operands])
    if not narrow or op.few_bits == "none":
        return None

    def converted(x: Any, dtype: np.dtype[Any]) -> Any:
        return x if x.dtype == dtype else emit(ops["convert"], [x], {"dtype": dtype})[0]

    def extended(x: Any) -> Any:
        """The operand's byte, filled with its sign, or with zeros where the op asks for them."""
        if op.few_bits != "zero" or x.dtype not in SMALL_INTEGERS:
            return converted(x, byte_of(x.dtype))
        unsigned = converted(converted(x, np.dtype(f"uint{bits_of(x.dtype)}")), np.dtype(np.uint8))
        return converted(unsigned, byte_of(x.dtype))

    def bounded(x: Any, dtype: np.dtype[Any]) -> Any:
        """The identity of a maximum of bytes becomes that of the few bits."""
        if op.few_bits != "order" or x.dtype == dtype:
            return x
        for bound, name in (ml_dtypes.iinfo(dtype).min, "maximum"), (ml_dtypes.iinfo(dtype).max, "minimum"):
            (limit,) = emit(ops["constant"], [], {"value": splat(np.asarray(bound, x.dtype), x.shape)})
            (x,) = emit(ops[name], [x, limit], {})
        return x

    results = emit(op, [extended(x) for x in operands], params)
    dtypes = [_result(x.dtype, narrow, params) for x in results]
    return [converted(bounded(x, dtype), dtype) for x, dtype in zip(results, dtypes, strict=True)]


def _narrow(dtypes: Sequence[np.dtype[Any]]) -> dict[np.dtype[Any], np.dtype[Any]]:
    """byte → the dtype of few bits that operands have."""
    return {byte_of(dtype): dtype for dtype in dtypes if dtype in SMALL_INTEGERS}


def _result(dtype: np.dtype[Any], narrow: Mapping[np.dtype[Any], np.dtype[Any]], params: Params) -> np.dtype[Any]:
    """What a result that is computed in bytes becomes; one whose dtype the params name stays."""
    named = any(isinstance(value, np.dtype) and value == dtype for value in params.values())
    return dtype if named else narrow.get(dtype, dtype)
