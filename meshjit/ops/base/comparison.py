"""Comparisons and choices: compare, is_finite, select, clamp."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import ops
from meshjit.core.op import Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.bits import and_, or_
from meshjit.ops.base.constants import zeros_like
from meshjit.ops.base.families import SAMPLE_SHAPES, elementwise, elementwise_type, require, require_param, zero_jvp

Array = np.ndarray[Any, Any]
BOOL = np.dtype(np.bool_)


# -- compare: direction is one of EQ NE LT LE GT GE; nan is unequal to everything

DIRECTIONS = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
_same_types = elementwise_type("compare", 2, "comparable", lambda types: BOOL)


def _compare_type(in_types: Types, params: Params) -> Types:
    direction = params["direction"]
    require_param(
        direction in DIRECTIONS, "compare", "direction", repr(direction), f"write one of {' '.join(DIRECTIONS)}"
    )
    out = _same_types(in_types, params)
    fits = direction in ("EQ", "NE") or in_types[0].dtype.kind != "c"
    require_param(fits, "compare", "direction", direction, f"{in_types[0]} has no order")
    return out


def _compare_samples() -> list[Sample]:
    types = [TensorType(shape, DTYPES[d]) for d in ("f32", "i32", "bool", "u8", "bf16") for shape in SAMPLE_SHAPES]
    ordered = [Sample((t, t), {"direction": d}) for t in types for d in DIRECTIONS]
    complexes = TensorType((7,), DTYPES["c64"])
    return ordered + [Sample((complexes, complexes), {"direction": d}) for d in ("EQ", "NE")]


compare = elementwise(
    "compare",
    lambda a, b, direction: DIRECTIONS[direction](a, b),
    arity=2,
    type_rule=_compare_type,
    attributes=lambda ins, params: f"comparison_direction = #stablehlo<comparison_direction {params['direction']}>",
    jvp=zero_jvp,
    samples=_compare_samples,
)

is_finite = elementwise("is_finite", np.isfinite, arity=1, accepts="float", result=lambda types: BOOL, jvp=zero_jvp)


# -- select: pred, a where it is true, b where it is not


def _select_type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 3, "select", f"takes pred and 2 branches, was given {len(in_types)} operands")
    pred, a, b = in_types
    require(pred.dtype == np.bool_, "select", f"pred must be bool, is {pred}")
    require(a == b, "select", f"the branches differ: {a} and {b}")
    require(pred.shape == a.shape, "select", f"pred {pred} and branches {a} differ in shape")
    return (a,)


def _select_transpose(cotangents, operands, in_types, params):
    (ct,), (pred, a, b) = cotangents, operands
    none = zeros_like(ct)
    return [None, select(pred, ct, none) if a is None else None, select(pred, none, ct) if b is None else None]


def _select_samples() -> list[Sample]:
    pairs = [
        (TensorType(s, BOOL), TensorType(s, DTYPES[d])) for s in SAMPLE_SHAPES for d in ("f32", "c64", "bool", "u8", "u2")
    ]
    return [Sample((p, t, t), {}) for p, t in pairs]


select = elementwise(
    "select",
    lambda pred, a, b: np.where(pred, a, b),
    arity=3,
    type_rule=_select_type,
    linear=((1, 2),),
    transpose=_select_transpose,
    samples=_select_samples,
)


# -- clamp: low, x, high; nan stays nan, and where low > high it is high


def _clamp(low: Array, x: Array, high: Array) -> Array:
    return np.minimum(np.maximum(low, x), high)


def _clamp_jvp(primals, tangents, outs, params):
    """x's tangent strictly between the bounds; a bound's where it alone decides."""
    low, x, high = primals
    chosen = [
        lambda: and_(compare(low, x, direction="GT"), compare(low, high, direction="LT")),
        lambda: and_(compare(x, low, direction="GT"), compare(x, high, direction="LT")),
        lambda: or_(compare(high, x, direction="LT"), compare(high, low, direction="LT")),
    ]
    pairs = zip(tangents, chosen, strict=True)
    return [ops.add_tangents(*(None if t is None else select(where(), t, zeros_like(t)) for t, where in pairs))]


clamp = elementwise("clamp", _clamp, arity=3, accepts="real", jvp=_clamp_jvp)


def is_nan(var: Var) -> Var:
    """bool of the shape of `var`; all false for integers."""
    return compare(var, var, direction="NE")


def masked(keep: Var, var: Var, fill: Var | None = None) -> Var:
    """`var` where `keep` is true, else `fill` (zero)."""
    return select(keep, var, zeros_like(var) if fill is None else fill)
