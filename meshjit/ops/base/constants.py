"""Constants: `constant`, `iota`, and what other ops build constants with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import ops
from meshjit.core.access import Access
from meshjit.core.local import LocalEquation
from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Eqn, Var
from meshjit.core.splat import element_of, is_known_splat, is_splat, splat
from meshjit.core.stored import wide_of
from meshjit.core.types import DTYPES, TensorType, tensor_type
from meshjit.emit.emitter import literal, tensor
from meshjit.ops.base.families import factor_names, require, require_param
from sharding.rule import FactorRule

NO_OPERANDS = Absent("it has no operands")
PlacesOf = Callable[[int], Var | None]  # by dim, see `Op.made_at`
LONGEST = 2**31 - 1  # elements of a dim whose places, and extent, an int32 holds


def created_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """A value made from nothing: every dim is a factor of its own, so each use can have it as it likes."""
    return _created(out_types[0].shape)


@functools.lru_cache(maxsize=4096)
def _created(shape: tuple[int, ...]) -> FactorRule:
    names = factor_names(len(shape))
    return FactorRule((), (tuple([(name,) for name in names]),), {}, dict(zip(names, shape, strict=True)))


# -- constant


def _constant_type(in_types: Types, params: Params) -> Types:
    value = params["value"]
    require(not in_types, "constant", f"takes no operands, was given {len(in_types)}")
    require_param(isinstance(value, np.ndarray), "constant", "value", type(value).__name__, "a NumPy array is needed")
    return (TensorType(tuple(value.shape), value.dtype),)


def _constant_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return [e.constant(params["value"])]


def _constant_partition(local: LocalEquation) -> list[Var]:
    """Each device cuts its shard out of the whole; a splat is just made smaller."""
    value, placement, shape = local.params["value"], local.result_placements[0], local.result_types[0].shape
    if value.size == 0 or is_splat(value):
        return [full(local.result_types[0], element_of(value) if value.size else 0)]
    if shape == value.shape:
        return [constant(value=value)]
    shards = [placement.shards(dim, local.mesh) for dim in range(value.ndim)]
    padding = [(0, n * count - extent) for n, count, extent in zip(shape, shards, value.shape, strict=True)]
    starts = [_shard_start(local, axes, n) for axes, n in zip(placement.dims, shape, strict=True)]
    return [ops.dynamic_slice(constant(value=np.pad(value, padding)), *starts, slice_sizes=shape)]


def _shard_start(local: LocalEquation, axes: Sequence[Any], extent: int) -> Var:
    return ops.multiply(local.index(axes), scalar(extent, np.int32)) if axes else scalar(0, np.int32)


def place_dtype(extent: int) -> np.dtype[Any]:
    """int32, or int64 where that does not hold the places of a dim of this extent, and the extent."""
    return np.dtype(np.int32 if extent <= LONGEST else np.int64)


def first_place(index: Var, count: int, shard: int, dtype: np.dtype[Any] | None = None) -> Var:
    """A scalar, the place at which a shard begins: that number `index` of `count` shards of so many elements. Without a dtype it
    has one that holds all places."""
    dtype = dtype or place_dtype(count * shard)
    index = index if index.dtype == dtype else ops.convert(index, dtype=dtype)
    return ops.multiply(index, scalar(shard, dtype))


def _constant_access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
    value = params["value"]
    return (Access((), frozenset(range(value.ndim)) if value.size == 0 or not is_splat(value) else frozenset()),)


def _constant_made_at(type: TensorType, places: PlacesOf, cut: Callable[[Var], Var], params: Params) -> Var:
    value = params["value"]
    return full(type, element_of(value)) if is_splat(value) else cut(constant(value=value))


def _constant_localize(params: Params, in_types: Types, out_types: Types) -> Params:
    """A splat has any shape."""
    value, shape = params["value"], out_types[0].shape
    return params if shape == value.shape or not value.size or not is_splat(value) else {"value": splat(element_of(value), shape)}


def _constant_samples() -> list[Sample]:
    generator = np.random.default_rng(0)
    values = [
        np.array(2.5, np.float32),
        np.arange(6, dtype=np.int32).reshape(2, 3),
        generator.normal(size=(5, 4)).astype(np.float32),
        generator.normal(size=(8,)).astype(DTYPES["bf16"]),
        np.array([[True, False, True]]),
        np.array([1 + 2j, -3j], np.complex64),
        np.array([np.nan, np.inf, -0.0], np.float32),
        np.broadcast_to(np.float32(-0.0), (7, 3)),
        np.zeros((0, 4), np.float32),
    ]
    return [Sample((), {"value": value}) for value in values]


constant = Op(
    name="constant",
    type_rule=_constant_type,
    factor_rule=created_rule,
    access=_constant_access,
    made_at=_constant_made_at,
    localize=_constant_localize,
    evaluate=lambda value: value,
    emit=_constant_emit,
    samples=_constant_samples,
    batch=NO_OPERANDS,
    jvp=NO_OPERANDS,
    transpose=NO_OPERANDS,
    partition=_constant_partition,
)


def integer_of(eqn: Eqn) -> int | None:
    """The integer that the equation makes, if it is a constant of no dims."""
    (out,) = eqn.outputs if eqn.op is constant else (None,)
    return int(eqn.params["value"]) if out is not None and not out.shape and out.dtype.kind in "iu" else None


def is_zero(eqn: Eqn) -> bool:
    """Whether the equation makes an array of zeros, none of them -0.0."""
    if eqn.op is not constant:
        return False
    value = eqn.params["value"]
    return value.size > 0 and is_known_splat(value) and not any(element_of(value).tobytes())


def emit_splat(e: Any, type: TensorType, value: Any) -> str:
    """The name of a constant with one value everywhere, for emit rules; nothing of the shape's size is made."""
    element = np.asarray(value).astype(type.dtype).reshape(1)
    return e.op("constant", [], [type], f"value = {literal(element)} : {tensor(type)}")[0]


def full(type: TensorType, value: Any) -> Var:
    """A constant of this type with one value everywhere; it takes no memory however large it is."""
    return constant(value=splat(np.asarray(value).astype(type.dtype), type.shape))


def zeros(type: TensorType) -> Var:
    return full(type, 0)


def ones(type: TensorType) -> Var:
    return full(type, 1)


def zeros_like(var: Var) -> Var:
    return full(var.type, 0)


def full_like(var: Var, value: Any) -> Var:
    return full(var.type, value)


def scalar(value: Any, dtype: Any) -> Var:
    return full(TensorType((), np.dtype(dtype)), value)


# -- iota


def _iota_type(in_types: Types, params: Params) -> Types:
    shape, dimension = params["shape"], params["dimension"]
    require_param(0 <= dimension < len(shape), "iota", "dimension", dimension, f"shape {shape} has {len(shape)} dims")
    require_param(params["dtype"] != np.bool_, "iota", "dtype", "bool", "a number is needed")
    return (tensor_type(shape, params["dtype"]),)


def _iota(dtype: np.dtype[Any], shape: tuple[int, ...], dimension: int) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        line = np.arange(shape[dimension]).astype(dtype)
    return np.broadcast_to(line.reshape([-1 if d == dimension else 1 for d in range(len(shape))]), shape)


def _iota_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    wide = [t.with_dtype(wide_of(t.dtype)) for t in outs]
    count = e.op("iota", [], wide, f"iota_dimension = {params['dimension']} : i64")
    return count if wide == list(outs) else e.op("convert", count, outs)


def _iota_partition(local: LocalEquation) -> list[Var]:
    """The local iota plus where the shard begins; in integers, because a short float would round the sum twice."""
    type, dimension = local.result_types[0], local.params["dimension"]
    axes, dtype = local.result_placements[0].dims[dimension], type.dtype
    if not axes:
        return [iota(dtype=dtype, shape=type.shape, dimension=dimension)]
    exact = dtype if dtype.kind in "iu" else place_dtype(local.eqn.outputs[0].shape[dimension])
    begin = first_place(local.index(axes), local.mesh.axes_size(axes), type.shape[dimension], exact)
    count = iota(dtype=exact, shape=type.shape, dimension=dimension)
    total = ops.add(count, spread(begin, type.shape))
    return [total if exact == dtype else ops.convert(total, dtype=dtype)]


def spread(value: Var, shape: Sequence[int]) -> Var:
    """A scalar repeated to `shape`."""
    return ops.broadcast_in_dim(value, shape=tuple(shape), dimensions=()) if shape else value


def _iota_made_at(type: TensorType, places: PlacesOf, cut: Callable[[Var], Var], params: Params) -> Var:
    dim, here = params["dimension"], places(params["dimension"])
    if here is None:
        return iota(dtype=params["dtype"], shape=type.shape, dimension=dim)
    return ops.broadcast_in_dim(ops.convert(here, dtype=type.dtype), shape=type.shape, dimensions=(dim,))


def _iota_samples() -> list[Sample]:
    calls = [
        ("i32", (5,), 0),
        ("f32", (4, 6), 1),
        ("bf16", (300,), 0),
        ("u8", (3, 300), 1),
        ("c64", (3, 2), 0),
        ("i32", (0,), 0),
    ]
    return [Sample((), {"dtype": DTYPES[d], "shape": s, "dimension": n}) for d, s, n in calls]


iota = Op(
    name="iota",
    type_rule=_iota_type,
    factor_rule=created_rule,
    access=lambda in_types, out_types, params: (Access((), frozenset({params["dimension"]})),),
    evaluate=_iota,
    emit=_iota_emit,
    samples=_iota_samples,
    batch=NO_OPERANDS,
    jvp=NO_OPERANDS,
    transpose=NO_OPERANDS,
    made_at=_iota_made_at,
    localize=lambda params, in_types, out_types: {**params, "shape": out_types[0].shape},
    partition=_iota_partition,
)
