"""Families of ops: everything that all elementwise ops share, so that one op is one line."""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from meshjit import ops
from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, STORED, TensorType, is_float, is_inexact
from sharding.rule import FactorRule

_SCALES = DTYPES["f8e8m0fnu"]
Predicate = Callable[[np.dtype[Any]], bool]
Attributes = str | Callable[[Types, Params], str]

NO_GRADIENT = "its result is not a continuous function of its operands"

# Which dtypes an op takes, by the words that its error message uses. Those that are stored, and computed with in wider ones
# (`core/stored.py`), are among "any" alone.
DTYPE_CLASSES: dict[str, Predicate] = {
    "any": lambda d: True,
    "comparable": lambda d: d not in STORED,
    "number": lambda d: d != np.bool_ and d not in STORED,
    "real": lambda d: d != np.bool_ and d.kind != "c" and d not in STORED,
    "ordered": lambda d: d.kind != "c" and d not in STORED,
    "float": lambda d: is_float(d) and d not in STORED,
    "inexact": lambda d: is_inexact(d) and d not in STORED,
    "integer": lambda d: d.kind in "iu",
    "bits": lambda d: d.kind in "iub",
    "bool": lambda d: d == np.bool_,
    "complex": lambda d: d.kind == "c",
}


class TypeRuleError(TypeError, ValueError):
    """Operands and params that do not fit together. JAX has TypeError for some ops and ValueError for others."""


def require(condition: bool, op: str, message: str) -> None:
    """Type rules say what does not fit through this."""
    if not condition:
        raise TypeRuleError(f"{op}: {message}")


def require_param(condition: bool, op: str, name: str, value: Any, message: str) -> None:
    """`slice: param start is (3,): operand f32[8, 4] needs 2 entries`."""
    require(condition, op, f"param {name} is {value}: {message}")


def require_zero(op: str, type: TensorType) -> None:
    """Of ops that add up, over devices, what each of them has of a result's elements: the others have zeros."""
    if type.dtype == _SCALES:
        require(False, op, f"takes no operand without a zero, was given {type}")


def factor_names(count: int) -> tuple[str, ...]:
    """Readable names of this many factors: a, b, c, …"""
    return tuple(string.ascii_lowercase[:count]) if count <= 26 else tuple(f"d{i}" for i in range(count))


def part_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of a complex number's real part; any other dtype is its own."""
    return {DTYPES["c64"]: DTYPES["f32"], DTYPES["c128"]: DTYPES["f64"]}.get(dtype, dtype)


def widened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Floats of 8 and 16 bits as float32, in which NumPy's meaning is computed before it is rounded back once."""
    return array.astype(np.float32) if is_float(array.dtype) and array.dtype.itemsize < 4 else array


def elementwise_type(name: str, arity: int, accepts: str, result: Callable[[Types], np.dtype[Any]]) -> Any:
    accepted = DTYPE_CLASSES[accepts]

    def type_rule(in_types: Types, params: Params) -> Types:
        require(len(in_types) == arity, name, f"takes {arity} operands, was given {len(in_types)}")
        first = in_types[0]
        if any(type != first for type in in_types) or not accepted(first.dtype):  # texts cost more than the checks
            for type in in_types:
                require(type.shape == first.shape, name, f"operand shapes differ: {first} and {type}")
                require(type.dtype == first.dtype, name, f"operand dtypes differ: {first} and {type}")
                require(accepted(type.dtype), name, f"takes {accepts} operands, was given {type}")
        return (TensorType(first.shape, result(in_types)),)

    return type_rule


def elementwise_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """Every dim of every operand is the same dim of every result."""
    shape = out_types[0].shape
    if all(t.shape == shape for t in (*in_types, *out_types)):
        return _alike(shape, len(in_types), len(out_types))
    rule = FactorRule.elementwise(len(shape), len(in_types), len(out_types))
    return rule.with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


@functools.lru_cache(maxsize=4096)
def _alike(shape: tuple[int, ...], operands: int, results: int) -> FactorRule:
    """The rule where all have one shape, as they have nearly always."""
    return FactorRule.elementwise(len(shape), operands, results).with_sizes([shape] * operands, [shape] * results)


def elementwise_batch(op: Callable[[], Op]) -> Any:
    """Batch dims stay where the first of them is; operands without one are broadcast."""

    def batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
        aligned, dim = ops.align_to_first(operands, dims)
        return [op()(*aligned, **params)], [dim]

    return batch


def elementwise(
    name: str,
    evaluate: Callable[..., Any],
    *,
    arity: int,
    accepts: str = "number",
    result: Callable[[Types], np.dtype[Any]] = lambda types: types[0].dtype,
    stablehlo: str | None = None,
    attributes: Attributes = "",
    emit: Any = None,
    linear: Any = (),
    keeps_sums: Callable[[Types, Params], bool] | None = None,
    stops: bool = False,
    jvp: Any = None,
    transpose: Any = None,
    fill: Any = "small",
    sample_dtypes: Sequence[str] | None = None,
    sample_params: Sequence[Params] = ({},),
    type_rule: Any = None,
    samples: Callable[[], Iterable[Sample]] | None = None,
    widen: bool = True,
    memory: Callable[[Params], str] | None = None,
    few_bits: Any = "sign",
) -> Op:
    """An op that computes each element from the elements at the same place.

    `evaluate` is given arrays of the operands' dtype (with `widen`, floats of 8 and 16 bits as float32); its result is
    cast to the result dtype, because NumPy widens some.
    """
    rule = type_rule or elementwise_type(name, arity, accepts, result)

    def run(*arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
        (out_type,) = rule(tuple(TensorType(a.shape, a.dtype) for a in arrays), params)
        with np.errstate(all="ignore"):
            out = evaluate(*(map(widened, arrays) if widen else arrays), **params)
            return np.asarray(out).astype(out_type.dtype, copy=False)

    def emit_one(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
        texts = attributes(ins, params) if callable(attributes) else attributes
        return e.op(stablehlo or name, operands, outs, texts)

    def default_samples() -> Iterable[Sample]:
        dtypes = sample_dtypes or [n for n in SAMPLE_DTYPES if DTYPE_CLASSES[accepts](DTYPES[n])]
        for params in sample_params:
            for dtype in dtypes:
                for shape in SAMPLE_SHAPES:
                    yield Sample((TensorType(shape, DTYPES[dtype]),) * arity, params, fill)

    op = Op(
        name=name,
        type_rule=rule,
        factor_rule=elementwise_rule,
        evaluate=run,
        emit=emit or emit_one,
        samples=samples or default_samples,
        batch=elementwise_batch(lambda: op),
        linear=linear,
        keeps_sums=keeps_sums,
        stops=stops,
        jvp=jvp or Absent(NO_GRADIENT),
        transpose=Absent("the op is linear in none of its operands") if transpose is None else transpose,
        memory=memory,
        few_bits=few_bits,
    )
    return op


SAMPLE_DTYPES = ("f32", "i32", "bool", "c64", "bf16", "u8")
SAMPLE_SHAPES = ((8, 6), (5,), (), (0, 3))


def zero_jvp(primals: Sequence[Var], tangents: Sequence[Var | None], outs: Sequence[Var], params: Params) -> Any:
    """Where there is a derivative it is zero: floor, sign, comparisons."""
    return [None] * len(outs)


def unary_jvp(derivative: Callable[[Var, Var, Var], Var]) -> Any:
    """A jvp from `derivative(tangent, operand, result)`, which gives the result's tangent."""

    def jvp(primals: Sequence[Var], tangents: Sequence[Var | None], outs: Sequence[Var], params: Params) -> Any:
        return [None if tangents[0] is None else derivative(tangents[0], primals[0], outs[0])]

    return jvp
