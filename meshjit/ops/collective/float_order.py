"""Floats as integers of the same order, NaN being the extreme: XLA's CPU collectives lose NaN among maxima and minima.

    bits of x >= 0 (as a signed integer)   are themselves         0.0 -> 0, inf -> 0x7f800000
    bits of x < 0                          all but the sign flip  -0.0 -> -1, -inf -> -0x7f800001
    NaN                                    the largest integer for maxima, the smallest for minima; both are NaN again

The keys are as long as the floats, so that nothing more goes over the wire.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.core.types import DTYPES, TensorType, is_float
from meshjit.ops.base.constants import emit_splat


def loses_nan(e: Any, type: TensorType, kind: str) -> bool:
    """Whether a collective of this kind may give the largest number instead of NaN."""
    return kind in ("max", "min") and is_float(type.dtype) and type.dtype.itemsize > 1 and type.size > 0 and e.target.loses_nan


def key_type(type: TensorType) -> TensorType:
    return TensorType(type.shape, DTYPES[f"i{8 * type.dtype.itemsize}"])


def emit_keys(e: Any, x: str, type: TensorType, kind: str) -> str:
    keys, flags = key_type(type), TensorType(type.shape, DTYPES["bool"])
    limits = np.iinfo(keys.dtype)
    (bits,) = e.op("bitcast_convert", [x], [keys])
    extreme = emit_splat(e, keys, limits.max if kind == "max" else limits.min)
    (is_nan,) = e.op("compare", [x, x], [flags], "comparison_direction = #stablehlo<comparison_direction NE>")
    return e.op("select", [is_nan, extreme, _flipped(e, bits, keys)], [keys])[0]


def emit_floats(e: Any, keys: str, type: TensorType) -> str:
    """What `emit_keys` was given."""
    return e.op("bitcast_convert", [_flipped(e, keys, key_type(type))], [type])[0]


def _flipped(e: Any, bits: str, type: TensorType) -> str:
    """All bits but the sign, flipped where that is set; the inverse of itself."""
    count = emit_splat(e, type, 8 * type.dtype.itemsize - 1)
    (signs,) = e.op("shift_right_arithmetic", [bits, count], [type])
    (others,) = e.op("and", [signs, emit_splat(e, type, np.iinfo(type.dtype).max)], [type])
    return e.op("xor", [bits, others], [type])[0]
