"""Contraction: `dot_general`, the one op behind dot, matmul, einsum and tensordot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, STORED, TensorType, is_float
from meshjit.ops.base.batching import doubled, shifted
from meshjit.ops.base.conversion import convert, in_one_dtype
from meshjit.ops.base.families import factor_names, require, require_param
from meshjit.ops.base.shape import transpose
from meshjit.ops.reduce.products_of_int8 import emit_in_int32
from sharding.rule import FactorRule

Dims = tuple[int, ...]
_OF_8_BITS = {np.dtype(np.int8), np.dtype(np.uint8)}


def _free(rank: int, *used: Sequence[int]) -> Dims:
    taken = {d for group in used for d in group}
    return tuple(d for d in range(rank) if d not in taken)


def _dims(types: Types, params: Params) -> tuple[Dims, Dims, Dims, Dims, Dims, Dims]:
    """Batch, contracted and free dims of the left operand, then of the right."""
    (lb, rb), (lc, rc) = params["batch"], params["contract"]
    return lb, lc, _free(types[0].rank, lb, lc), rb, rc, _free(types[1].rank, rb, rc)


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 2, "dot_general", f"takes 2 operands, was given {len(in_types)}")
    a, b = in_types
    for name in ("contract", "batch"):
        left, right = params[name]
        require_param(len(left) == len(right), "dot_general", name, params[name], "both sides need as many dims")
        for i, j in zip(left, right, strict=True):  # texts cost more than the checks
            if not (0 <= i < a.rank and 0 <= j < b.rank):
                require_param(False, "dot_general", name, params[name], f"operands are {a} and {b}")
            if a.shape[i] != b.shape[j]:
                require(False, "dot_general", f"{name} dims {i} of {a} and {j} of {b} differ in extent")
    for (contracted, batched), type in zip(zip(params["contract"], params["batch"], strict=True), in_types, strict=True):
        if len({*contracted, *batched}) < len(contracted) + len(batched):
            require(False, "dot_general", f"of {type} dims {contracted} are contracted and {batched} batched: one is named twice")
    if a.dtype != b.dtype:
        require(False, "dot_general", f"operand dtypes differ: {a} and {b}")
    if a.dtype in STORED or params.get("preferred") in STORED:
        require(False, "dot_general", f"{a} is multiplied in a wider dtype")
    lb, _, lf, _, _, rf = _dims(in_types, params)
    shape = [a.shape[d] for d in (*lb, *lf)] + [b.shape[d] for d in rf]
    return (TensorType(tuple(shape), params.get("preferred") or a.dtype),)


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    lb, lc, lf, rb, rc, rf = _dims(in_types, params)
    names = iter(factor_names(len(lb) + len(lf) + len(rf) + len(lc)))
    batch, left, right, inner = ([(next(names),) for _ in group] for group in (lb, lf, rf, lc))
    a = dict(zip((*lb, *lf, *lc), (*batch, *left, *inner), strict=True))
    b = dict(zip((*rb, *rf, *rc), (*batch, *right, *inner), strict=True))
    operands = (tuple(a[d] for d in range(len(a))), tuple(b[d] for d in range(len(b))))
    kind = "or" if out_types[0].dtype == np.bool_ else "sum"
    rule = FactorRule(operands, (tuple([*batch, *left, *right]),), {f: kind for (f,) in inner})
    return rule.with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


def _evaluate(a: Any, b: Any, contract: Any, batch: Any, preferred: Any = None, precision: Any = None) -> Any:
    (lc, rc), (lb, rb) = contract, batch
    out = preferred or a.dtype
    wide = np.dtype(np.float32) if is_float(a.dtype) and a.dtype.itemsize < 4 else np.promote_types(a.dtype, a.dtype)
    wide = out if preferred is not None and not is_float(out) else wide
    names = iter(range(a.ndim + b.ndim))
    left = [next(names) for _ in range(a.ndim)]
    right: list[int] = [-1] * b.ndim
    for i, j in [*zip(lb, rb, strict=True), *zip(lc, rc, strict=True)]:
        right[j] = left[i]
    right = [next(names) if n < 0 else n for n in right]
    lf, rf = _free(a.ndim, lb, lc), _free(b.ndim, rb, rc)
    result = [left[d] for d in (*lb, *lf)] + [right[d] for d in rf]
    if a.dtype == np.bool_:
        return np.einsum(a.astype(np.int64), left, b.astype(np.int64), right, result).astype(out)
    with np.errstate(all="ignore"):
        product = np.einsum(a.astype(wide), left, b.astype(wide), right, result, optimize=a.ndim <= 12)
    return np.asarray(product).astype(out)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if e.target.doubles_products_of_int8 and (ins[0].dtype, outs[0].dtype) == (np.int8, np.int32):
        return [_emit_in_int32(e, operands, ins, outs[0], params)]
    if e.target.adds_int8_in_int32 and {ins[0].dtype, outs[0].dtype} <= _OF_8_BITS:
        return _emit_cut(e, operands, ins, outs, params)
    return _emit_as_it_is(e, operands, ins, outs, params)


def _emit_cut(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """The low 8 bits of a product, and of a sum of products, are the same whether or not the factors have signs."""
    signed = tuple(type.with_dtype(np.dtype(np.int8)) for type in ins)
    factors = [
        name if type == given else e.op("bitcast_convert", [name], [type])[0]
        for name, type, given in zip(operands, signed, ins, strict=True)
    ]
    wide = outs[0].with_dtype(np.dtype(np.int32))
    return e.op("convert", [_emit_in_int32(e, factors, signed, wide, params)], outs)


def _emit_in_int32(e: Any, operands: Sequence[str], ins: Types, out: TensorType, params: Params) -> str:
    if not e.target.doubles_products_of_int8:
        return _emit_as_it_is(e, operands, ins, (out,), params)[0]
    _, _, lf, _, _, rf = _dims(ins, params)
    return emit_in_int32(e, operands, ins, out, params, (lf, rf), _emit_as_it_is)


def _emit_as_it_is(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    (lb, rb), (lc, rc) = params["batch"], params["contract"]
    numbers = ", ".join(
        f"{name} = {list(dims)}"
        for name, dims in (
            ("lhs_batching_dimensions", lb),
            ("rhs_batching_dimensions", rb),
            ("lhs_contracting_dimensions", lc),
            ("rhs_contracting_dimensions", rc),
        )
    )
    word = (params.get("precision") or "default").upper()
    if word not in ("DEFAULT", "HIGH", "HIGHEST"):
        return e.op("dot_general", operands, outs, f"dot_dimension_numbers = #stablehlo.dot<{numbers}>, {_algorithm(e, word)}")
    precision = f"precision_config = [#stablehlo<precision {word}>, #stablehlo<precision {word}>]"
    return e.op("dot_general", operands, outs, f"dot_dimension_numbers = #stablehlo.dot<{numbers}>, {precision}")


_ON_CPU = {"F16_F16_F16", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "F32_F32_F32", "F64_F64_F64"}
_FIELDS = ("lhs_precision_type", "rhs_precision_type", "accumulation_type", "lhs_component_count", "rhs_component_count",
           "num_primitive_operations", "allow_imprecise_accumulation")  # fmt: skip


class UnsupportedAlgorithm(NotImplementedError, ValueError):
    """The platform has no such algorithm for products."""


def _algorithm(e: Any, word: str) -> str:
    """The attribute for an algorithm by name, BF16_BF16_F32_X3, or by its fields, "BF16 BF16 F32 1 1 3 0"."""
    if e.target.platform == "cpu" and word not in _ON_CPU:
        raise UnsupportedAlgorithm(
            f"The precision {word!r} is not supported by dot_general on CPU\n  fix: one of {', '.join(sorted(_ON_CPU))}"
        )
    if " " in word:
        values = word.lower().split()
    else:
        factor, _, added, *more = word.lower().replace("any_f8", "f8e5m2").split("_")
        count = more[0][1:] if more and more[0][0] == "x" else "1"
        values = [factor, factor, "f32" if added == "any" else added, "1", "1", count, str(int("fast" in more))]
    values[-1] = "true" if values[-1] == "1" else "false"
    types = [f"f8{v[2:].upper()}" if v.startswith("f8") else v for v in values[:3]]
    fields = ", ".join(f"{name} = {v}" for name, v in zip(_FIELDS, (*types, *values[3:]), strict=True))
    return f"algorithm = #stablehlo.dot_algorithm<{fields}>"


def _transpose(cotangents, operands, in_types, params):
    """The cotangent contracted with the other operand over that operand's free dims, its dims brought in order."""
    ct, (a, b) = cotangents[0], operands
    lb, lc, lf, rb, rc, rf = _dims(in_types, params)
    n = len(lb)
    if a is None:
        grad = _contract_back(ct, b, n, n + len(lf), rb, rf, (lb, lf, lc, rc), in_types[0], params)
        return [grad, None]
    return [None, _contract_back(ct, a, n, None, lb, lf, (rb, rf, rc, lc), in_types[1], params)]


def _contract_back(ct, other, n, start, other_batch, other_free, mine, type, params):
    batch, free, contracted, other_contracted = mine
    first = start if start is not None else n
    ct_free = tuple(range(first, first + len(other_free)))
    ct, other = in_one_dtype(ct, other)
    # Either way the result's dims are batch, then those left of the first operand, then those left of the second.
    left = [contracted[other_contracted.index(d)] for d in sorted(other_contracted)]
    sides = ((ct, ct_free, tuple(range(n)), free), (other, tuple(other_free), tuple(other_batch), left))
    if [*left, *free] == list(range(len(left) + len(free))) and _is_better_first(ct, other, ct_free, n):
        sides = sides[::-1]  # nothing to bring in order
    (x, x_free, x_batch, x_left), (y, y_free, y_batch, y_left) = sides
    out = dot_general(
        x, y, contract=(x_free, y_free), batch=(x_batch, y_batch), preferred=None, precision=params.get("precision")
    )
    if out.dtype != type.dtype:
        out = convert(out, dtype=type.dtype)
    places = [*batch, *x_left, *y_left]
    if places == list(range(len(places))):
        return out
    return transpose(out, permutation=tuple(places.index(d) for d in range(len(places))))


def _is_better_first(ct: Var, other: Var, contracted: Sequence[int], batch_dims: int) -> bool:
    """Whether XLA:CPU gains by the other order: it multiplies matrices either way, but of several contracted dims it copies
    the first operand to merge them, and of batches both."""
    return batch_dims == 0 and (len(contracted) <= 1 or other.type.nbytes <= ct.type.nbytes)


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    def moved(group: Sequence[int], dim: int | None) -> Dims:
        return tuple(group) if dim is None else tuple(shifted(d, dim) for d in group)

    (lb, rb), (lc, rc) = params["batch"], params["contract"]
    i, j = dims
    contract = (moved(lc, i), moved(rc, j))
    batch = (moved(lb, i), moved(rb, j))
    if i is not None and j is not None:
        batch, out_dim = ((i, *batch[0]), (j, *batch[1])), 0
    elif i is not None:
        free = _free(operands[0].rank, *batch[:1], *contract[:1])
        out_dim = len(lb) + free.index(i)
    else:
        assert j is not None
        free = _free(operands[1].rank, batch[1], contract[1])
        out_dim = len(lb) + operands[0].rank - len(lb) - len(lc) + free.index(j)
    return [dot_general(*operands, **{**params, "contract": contract, "batch": batch})], [out_dim]


def _split(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> list[Var]:
    pairs = {k: tuple(doubled(g, d) for g, d in zip(params[k], dims, strict=True)) for k in ("contract", "batch")}
    return [dot_general(*operands, **{**params, **pairs})]


def _samples() -> Iterable[Sample]:
    calls = [
        ((4, 6), (6, 8), ((1,), (0,)), ((), ())),
        ((6,), (6,), ((0,), (0,)), ((), ())),
        ((4,), (3,), ((), ()), ((), ())),
        ((), (), ((), ()), ((), ())),
        ((2, 4, 6), (2, 6, 8), ((2,), (1,)), ((0,), (0,))),
        ((4, 2, 5, 3), (3, 5, 7, 2), ((3, 2), (0, 1)), ((1,), (3,))),
        ((4, 0), (0, 3), ((1,), (0,)), ((), ())),
        ((5, 3), (3, 2), ((1,), (0,)), ((), ())),
    ]
    for left, right, contract, batch in calls:
        for name in ("f32", "i32", "c64", "bool", *(("i8", "u8") if batch[0] else ())):
            types = (TensorType(left, DTYPES[name]), TensorType(right, DTYPES[name]))
            yield Sample(types, {"contract": contract, "batch": batch, "preferred": None, "precision": None})
    types = (TensorType((4, 6), DTYPES["bf16"]), TensorType((6, 8), DTYPES["bf16"]))
    for preferred in (None, DTYPES["f32"]):
        dims = {"contract": ((1,), (0,)), "batch": ((), ())}
        yield Sample(types, {**dims, "preferred": preferred, "precision": "highest"})


def _best_orders(in_types: Types, params: Params) -> Sequence[Sequence[int]]:
    """Batches major; matrices may lie either way."""
    sides = zip(in_types, params["batch"], strict=True)
    return [[*batch, *[d for d in range(type.rank) if d not in batch]] for type, batch in sides]


dot_general = Op(
    name="dot_general",
    type_rule=_type,
    factor_rule=_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    linear=((0,), (1,)),
    transpose=_transpose,
    split=_split,
    best_orders=_best_orders,
)

