"""Dtypes that are stored and moved as they are, and computed with in wider ones: integers of 2 and 4 bits, and float8_e8m0fnu.

The type rule of an op that computes refuses them. Who applies it then converts the operands, to integers of 8 bits or to float32,
and results back: of integers that keeps the lowest bits, as arithmetic with so few bits does. `add %x, %y` of i4[3] is written

    %1 = convert %x dtype=i8        %2 = convert %y dtype=i8        %3 = add %1, %2        %4 = convert %3 dtype=i4

So no rule of an op that computes knows of them. XLA computes with no dtype whose elements share a byte, where it makes mistakes
(`docs/xla.md`); and no sum over devices begins with the zero that float8_e8m0fnu does not have. Ops that move elements by adding
up what each device has of them refuse that one, too. `Op.few_bits` says how an op sees the bits that an integer does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from meshjit.core.splat import splat
from meshjit.core.types import SMALL_INTEGERS, STORED, TensorType, bits_of, kind_of

if TYPE_CHECKING:
    from meshjit.core.op import Op

Params = Mapping[str, Any]
Emit = Callable[["Op", Sequence[Any], Params], Sequence[Any]]  # of Vars or Tracers; what has a type and a dtype


_WIDE = {"i": np.dtype(np.int8), "u": np.dtype(np.uint8), "f": np.dtype(np.float32)}


def wide_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What is computed with instead: i4 → i8, u2 → u8, f8e8m0fnu → f32. Other dtypes are their own."""
    return _WIDE[kind_of(dtype)] if dtype in STORED else dtype


def types_in_wider(op: Op, in_types: Sequence[TensorType], params: Params) -> tuple[TensorType, ...] | None:
    """The types of an op's results where it refuses these operands, and takes them in wider dtypes; None where it does not."""
    narrow = _narrow([type.dtype for type in in_types])
    if not narrow or (op.few_bits == "none" and any(dtype in SMALL_INTEGERS for dtype in narrow.values())):
        return None
    try:
        wide = op.type_rule(tuple(type.with_dtype(wide_of(type.dtype)) for type in in_types), params)
    except TypeError:
        return None
    return tuple(type.with_dtype(_result(type.dtype, narrow, params)) for type in wide)


def in_wider(op: Op, operands: Sequence[Any], params: Params, ops: Mapping[str, Op], emit: Emit) -> Sequence[Any] | None:
    """Apply an op that refuses these operands to what they are in wider dtypes; None where it refuses that, too.

    `emit` applies an op to values, which are Vars or Tracers."""
    types = types_in_wider(op, [TensorType(tuple(x.shape), x.dtype) for x in operands], params)
    if types is None:
        return None

    def converted(x: Any, dtype: np.dtype[Any]) -> Any:
        return x if x.dtype == dtype else emit(ops["convert"], [x], {"dtype": dtype})[0]

    def extended(x: Any) -> Any:
        """The operand's byte, filled with its sign, or with zeros where the op asks for them."""
        if op.few_bits != "zero" or x.dtype not in SMALL_INTEGERS:
            return converted(x, wide_of(x.dtype))
        unsigned = converted(converted(x, np.dtype(f"uint{bits_of(x.dtype)}")), np.dtype(np.uint8))
        return converted(unsigned, wide_of(x.dtype))

    def bounded(x: Any, dtype: np.dtype[Any]) -> Any:
        """The identity of a maximum of bytes becomes that of the few bits."""
        if op.few_bits != "order" or x.dtype == dtype or dtype not in SMALL_INTEGERS:
            return x
        for bound, name in (ml_dtypes.iinfo(dtype).min, "maximum"), (ml_dtypes.iinfo(dtype).max, "minimum"):
            (limit,) = emit(ops["constant"], [], {"value": splat(np.asarray(bound, x.dtype), x.shape)})
            (x,) = emit(ops[name], [x, limit], {})
        return x

    results = emit(op, [extended(x) for x in operands], params)
    return [converted(bounded(x, type.dtype), type.dtype) for x, type in zip(results, types, strict=True)]


def _narrow(dtypes: Sequence[np.dtype[Any]]) -> dict[np.dtype[Any], np.dtype[Any]]:
    """wider dtype → the stored one that operands have."""
    return {wide_of(dtype): dtype for dtype in dtypes if dtype in STORED}


def _result(dtype: np.dtype[Any], narrow: Mapping[np.dtype[Any], np.dtype[Any]], params: Params) -> np.dtype[Any]:
    """What a result that is computed in a wider dtype becomes; one whose dtype the params name stays."""
    named = any(isinstance(value, np.dtype) and value == dtype for value in params.values())
    return dtype if named else narrow.get(dtype, dtype)
