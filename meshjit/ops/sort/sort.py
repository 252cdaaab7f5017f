"""`sort`: several operands of one shape sorted together along one dim, by the first of them.

Order is that of NumPy: false before true, complex by real then imaginary part, -0.0 equal to 0.0, nan last. With the param
`descending` (left out: False) it is turned round, nan first; equal elements keep their order either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType, is_float
from meshjit.ops.base.batching import align_to_first, shifted
from meshjit.ops.base.constants import iota
from meshjit.ops.base.families import DTYPE_CLASSES, factor_names, require, require_param, widened
from meshjit.ops.index.take import take_along
from meshjit.ops.sort.sort_partition import partition_sort, passes_of_sort
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


def _type(in_types: Types, params: Params) -> Types:
    require(bool(in_types), "sort", "takes one operand or more, was given none")
    first, keys, dimension = in_types[0], params["num_keys"], params["dimension"]
    for type in in_types:
        require(type.shape == first.shape, "sort", f"operand shapes differ: {first} and {type}")
        require(DTYPE_CLASSES["comparable"](type.dtype), "sort", f"takes no operands of so few bits: {type}")
    fits = 0 <= dimension < first.rank
    require_param(fits, "sort", "dimension", dimension, f"operand {first} has {first.rank} dims")
    fits = 1 <= keys <= len(in_types)
    require_param(fits, "sort", "num_keys", keys, f"there are {len(in_types)} operands")
    return in_types


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b, a b -> a b, a b | permute b`: what shards b moves to another dim meanwhile, or every device makes its block."""
    shape, count = in_types[0].shape, len(in_types)
    names = factor_names(len(shape))
    dims = tuple((name,) for name in names)
    sizes = dict(zip(names, shape, strict=True))
    return FactorRule((dims,) * count, (dims,) * count, {names[params["dimension"]]: "permute"}, sizes)


def _evaluate(
    *arrays: Array, dimension: int, num_keys: int, is_stable: bool, descending: bool = False
) -> tuple[Array, ...]:
    keys = [part for array in arrays[:num_keys] for part in _real_keys(array)]
    if descending:  # the last of equal elements comes first, and first comes last
        order = np.lexsort(tuple(np.flip(key, dimension) for key in reversed(keys)), axis=dimension)
        order = arrays[0].shape[dimension] - 1 - np.flip(order, dimension)
    else:
        order = np.lexsort(tuple(reversed(keys)), axis=dimension)
    return tuple(np.take_along_axis(array, order, dimension) for array in arrays)


def _real_keys(array: Array) -> list[Array]:
    """Keys that NumPy can order: parts of complex numbers, small floats widened. lexsort puts nan last."""
    return [array.real, array.imag] if array.dtype.kind == "c" else [widened(array)]


# -- StableHLO


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    scalars = [t.with_shape(()) for t in ins for _ in range(2)]
    comparator = e.region(scalars, lambda inner, names: [_is_before(inner, names, params)])
    is_stable = str(bool(params["is_stable"])).lower()
    attributes = f"dimension = {params['dimension']} : i64, is_stable = {is_stable}"
    return e.op("sort", operands, outs, attributes, [comparator])


def _is_before(e: Any, names: Sequence[str], params: Params) -> str:
    """first < second (or >), or they are equal and the next keys are in order."""
    word = "GT" if params.get("descending") else "LT"
    flag = TensorType((), DTYPES["bool"])
    pairs = [
        pair
        for i in range(params["num_keys"])
        for pair in zip(_emit_keys(e, names[2 * i]), _emit_keys(e, names[2 * i + 1]), strict=True)
    ]
    result = _emit_compare(e, *pairs[-1], word)
    for pair in reversed(pairs[:-1]):
        rest = e.op("and", [_emit_compare(e, *pair, "EQ"), result], [flag])[0]
        result = e.op("or", [_emit_compare(e, *pair, word), rest], [flag])[0]
    return result


def _emit_keys(e: Any, name: str) -> list[str]:
    type = e.types[name]
    if type.dtype.kind == "c":
        part = type.with_dtype(np.zeros((), type.dtype).real.dtype)
        return [_emit_ordered(e, e.op(word, [name], [part])[0]) for word in ("real", "imag")]
    return [_emit_ordered(e, name)]


def _emit_ordered(e: Any, name: str) -> str:
    """Floats with one zero and one nan, so that their total order is NumPy's (XLA knows this pattern on GPUs)."""
    type = e.types[name]
    if not is_float(type.dtype):
        return name
    for value, direction, operand in ((0, "EQ", None), (np.nan, "NE", name)):
        constant = e.constant(np.asarray(value).astype(type.dtype))
        other = constant if operand is None else name
        test = e.op("compare", [name, other], [type.with_dtype(np.bool_)], _direction(direction))[0]
        name = e.op("select", [test, constant, name], [type])[0]
    return name


def _emit_compare(e: Any, a: str, b: str, direction: str) -> str:
    type = e.types[a]
    total = ", compare_type = #stablehlo<comparison_type TOTALORDER>" if is_float(type.dtype) else ""
    return e.op("compare", [a, b], [type.with_dtype(np.bool_)], _direction(direction) + total)[0]


def _direction(direction: str) -> str:
    return f"comparison_direction = #stablehlo<comparison_direction {direction}>"


# -- derivative and batching


def permutation(operands: Sequence[Var], params: Params) -> Var:
    """i32: where in the operands every element of the results comes from."""
    dimension, keys = params["dimension"], operands[: params["num_keys"]]
    places = iota(dtype=np.dtype(np.int32), shape=operands[0].shape, dimension=dimension)
    return sort(*keys, places, **params)[-1]


def _jvp(primals: Sequence[Var], tangents: Sequence[Var | None], outs: Any, params: Params) -> Any:
    """Tangents move as their elements do."""
    if all(t is None for t in tangents):
        return [None] * len(primals)
    places = permutation(primals, params)
    return [None if t is None else take_along(t, places, params["dimension"]) for t in tangents]


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    aligned, dim = align_to_first(operands, dims)
    outs = sort(*aligned, **{**params, "dimension": shifted(params["dimension"], dim)})
    return list(outs) if isinstance(outs, tuple) else [outs], [dim] * len(aligned)


def _samples() -> list[Sample]:
    calls = [
        (("f32",), (7,), 0, 1, False),
        (("f32", "i32"), (5, 6), 1, 1, True),
        (("i32", "f32", "f32"), (6, 5), 0, 2, True),
        (("c64", "bool"), (9, 2), 0, 1, True),
        (("bf16",), (4, 3, 5), 1, 1, True),
        (("u8", "u8"), (8,), 0, 2, False),
        (("bool", "i32"), (8, 3), 0, 1, True),
        (("f32",), (0, 3), 0, 1, True),
        (("f32",), (3, 0), 0, 1, True),
    ]
    samples: list[Sample] = []
    for dtypes, shape, dimension, num_keys, is_stable in calls:
        types = tuple(TensorType(shape, DTYPES[d]) for d in dtypes)
        params = {"dimension": dimension, "num_keys": num_keys, "is_stable": is_stable}
        samples.append(Sample(types, params))
        if is_stable:
            samples.append(Sample(types, {**params, "descending": True}))
    return samples


sort = Op(
    name="sort",
    type_rule=_type,
    factor_rule=_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    partition=lambda local: partition_sort(local, sort),
    passes=passes_of_sort,
)
