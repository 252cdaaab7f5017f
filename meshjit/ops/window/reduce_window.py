"""reduce_window: every window that slides over the operand reduced to one element (pooling).

Params, each with one entry per dim: `window`, its extents; `strides`; `padding`, pairs (low, high); `base_dilation` and
`window_dilation`; and `kind`, the reduction: sum, prod, max, min, and, or. Padding and holes hold the identity of the
reduction. XLA's `init_value` is that identity; other starts are the caller's to combine with the result.

Along a sharded dim shards exchange the border rows that their windows see (sliding.py). Where one window sees the whole
dim each device reduces what it holds of it, and the result is partial.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from meshjit.core.access import Access
from meshjit.core.local import LocalEquation
from meshjit.core.op import Inside, Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.emit.emitter import integers, literal, tensor
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import full, full_like, ones, scalar, zeros
from meshjit.ops.base.families import DTYPE_CLASSES, factor_names, require, require_param, widened
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.base.shape import require_one
from meshjit.ops.slicing.halos import shard_axes
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.ops.window.params import PER_DIM, batched_windows, check_windows, places_in, places_seen, slides_of, window_samples
from meshjit.ops.window.select_and_gather import select_and_gather
from meshjit.ops.window.sliding import dilated, only_window, padded, window_views, windows_seen
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]

# kind -> the NumPy reduction and the dtypes it takes
_KINDS: dict[str, tuple[Any, str]] = {
    "sum": (np.add, "number"),
    "prod": (np.multiply, "number"),
    "max": (np.maximum, "ordered"),
    "min": (np.minimum, "ordered"),
    "and": (np.bitwise_and, "bits"),
    "or": (np.bitwise_or, "bits"),
}


def _type(in_types: Types, params: Params) -> Types:
    type, kind = require_one("reduce_window", in_types), params["kind"]
    require_param(kind in _KINDS, "reduce_window", "kind", repr(kind), f"write one of {', '.join(_KINDS)}")
    accepts = _KINDS[kind][1]
    require(DTYPE_CLASSES[accepts](type.dtype), "reduce_window", f"{kind} takes {accepts} operands, was given {type}")
    check_windows("reduce_window", type, params)
    return (type.with_shape(tuple(slide.out for slide in slides_of(type, params))),)


def _evaluate(x: Array, **params: Any) -> Array:
    """Floats of 8 and 16 bits are reduced in float32 and rounded once."""
    slides, kind = slides_of(TensorType(x.shape, x.dtype), params), params["kind"]
    wide = widened(x)
    start = np.asarray(identity_element(kind, x.dtype)).astype(wide.dtype)[()]
    for dim, slide in enumerate(slides):
        wide = padded(wide, dim, slide, start)
    places = tuple(range(x.ndim, 2 * x.ndim))
    with np.errstate(all="ignore"):
        return _KINDS[kind][0].reduce(window_views(wide, slides), axis=places, initial=start).astype(x.dtype)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """Negative padding is cut off first: not every backend has it here."""
    start = e.constant(np.asarray(identity_element(params["kind"], outs[0].dtype)))
    x, padding, base = operands[0], params["padding"], params["base_dilation"]
    if any(n < 0 for pair in padding for n in pair):
        x, rank = _emit_pad(e, x, ins[0], params, start), ins[0].rank
        padding, base = ((0, 0),) * rank, (1,) * rank
    sides = np.array(padding, np.int64).reshape(-1, 2)
    pads = f"{literal(sides)} : {tensor(TensorType(sides.shape, sides.dtype))}"
    names = {"base_dilations": base, "window_dilations": params["window_dilation"]}
    names |= {"window_dimensions": params["window"], "window_strides": params["strides"]}
    attributes = ", ".join([f"padding = {pads}", *(f"{name} = {integers(n)}" for name, n in names.items())])
    return e.op("reduce_window", [x, start], outs, attributes, [e.reducer(params["kind"], outs[0].dtype)])


def _emit_pad(e: Any, x: str, type: TensorType, params: Params, start: str) -> str:
    low, high = zip(*params["padding"], strict=True)
    holes = integers([n - 1 for n in params["base_dilation"]])
    attributes = f"edge_padding_low = {integers(low)}, edge_padding_high = {integers(high)}, interior_padding = {holes}"
    shape = tuple(slide.padded for slide in slides_of(type, params))
    return e.op("pad", [x, start], [type.with_shape(shape)], attributes)[0]


# -- placement


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b c -> a b 1 | permute b, sum c`: a is not pooled, b is, along c there is one window."""
    slides, names = slides_of(in_types[0], params), factor_names(in_types[0].rank)
    kinds: dict[str, str] = {}
    for name, slide in zip(names, slides, strict=True):
        if not slide.is_trivial:
            kinds[name] = params["kind"] if slide.out == 1 else "permute"
    results = tuple(() if kinds.get(name, "permute") != "permute" else (name,) for name in names)
    sizes = dict(zip(names, in_types[0].shape, strict=True))
    return FactorRule((tuple((name,) for name in names),), (results,), kinds, sizes)


def _access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
    return (Access((tuple(places_seen(d, slide) for d, slide in enumerate(slides_of(in_types[0], params))),)),)


def _aligned(operands: Sequence[Var], dims: Collection[int], inside: Inside, params: Params) -> Var:
    (x,), mask = operands, inside(0, operands[0].shape)
    if mask is not None:
        x = select(mask, x, full(x.type, identity_element(params["kind"], x.dtype)))
    padding = tuple((0, 0) if d in dims else sides for d, sides in enumerate(params["padding"]))
    return reduce_window(x, **{**params, "padding": padding})


def _partition(local: LocalEquation) -> list[Var]:
    (var,), (type,), params = local.operands, local.result_types, dict(local.params)
    if 0 in (type.size, var.type.size):
        return [full_like(zeros(type), identity_element(params["kind"], type.dtype))]
    fill = identity_element(params["kind"], var.dtype)
    changed = {name: list(params[name]) for name in PER_DIM}
    for dim, slide in enumerate(slides_of(local.eqn.inputs[0].type, params)):
        axes = shard_axes(local, factor_names(var.rank)[dim])
        if slide.is_trivial or not axes:
            continue
        if slide.out == 1:
            var = only_window(local, var, dim, slide, axes, fill)
            entries = (var.shape[dim], 1, (0, 0), 1, 1)
        else:
            view = windows_seen(local, var, dim, slide, axes, type.shape[dim], fill)
            var = view.var
            entries = (slide.size, slide.stride, view.padding, view.base_dilation, slide.window_dilation)
        for name, entry in zip(PER_DIM, entries, strict=True):
            changed[name][dim] = entry
    return [reduce_window(var, **params | {name: tuple(values) for name, values in changed.items()})]


# -- derivatives, batching


def _linear(in_types: Types, params: Params) -> tuple[tuple[int, ...], ...]:
    return ((0,),) if params["kind"] == "sum" else ()


def _jvp(primals, tangents, outs, params):
    (x,), (t,), kind = primals, tangents, params["kind"]
    if t is None or kind in ("and", "or"):
        return [None]
    if kind == "sum":
        return [reduce_window(t, **params)]
    if 0 in (x.type.size, outs[0].type.size):
        return [zeros(outs[0].type)]
    if kind == "prod":
        return [_product_tangent(x, t, params)]
    base = params["base_dilation"]
    rest = {name: value for name, value in params.items() if name != "base_dilation"}
    if any(n > 1 for n in base):
        holes = tuple(n - 1 for n in base)
        x, t = _filled(x, rest["padding"], holes, identity_element(kind, x.dtype)), _filled(t, rest["padding"], holes, 0)
        rest["padding"] = ((0, 0),) * x.rank
    return [select_and_gather(t, x, **rest)]


def _filled(x: Var, padding: Sequence[tuple[int, int]], holes: Sequence[int], fill: Any) -> Var:
    low, high = zip(*padding, strict=True) if padding else ((), ())
    return pad(x, scalar(fill, x.dtype), low=tuple(low), high=tuple(high), interior=tuple(holes))


def _product_tangent(x: Var, t: Var, params: Params) -> Var:
    """The sum over the places of a window of the tangent there times the product of all other elements: a running pair
    (product, tangent of the product), so that zeros are right."""
    slides = slides_of(x.type, params)
    holes = tuple(n - 1 for n in params["base_dilation"])
    x, t = (_filled(v, params["padding"], holes, fill) for v, fill in ((x, 1), (t, 0)))
    shape = tuple(slide.out for slide in slides)
    product, total = ones(x.type.with_shape(shape)), zeros(x.type.with_shape(shape))
    for place in places_in(params["window"]):
        start = tuple(p * s.window_dilation for p, s in zip(place, slides, strict=True))
        limit = tuple(a + (s.out - 1) * s.stride + 1 for a, s in zip(start, slides, strict=True))
        here, moved = (slice_(v, start=start, limit=limit, strides=params["strides"]) for v in (x, t))
        total = add(multiply(total, here), multiply(product, moved))
        product = multiply(product, here)
    return total


def _transpose(cotangents, operands, in_types, params):
    """Each element gets the sum of the cotangents of the windows that see it: windows over the cotangent, spread out by
    the strides, turned round (which a window of ones does not notice)."""
    ct, (type,) = cotangents[0], in_types
    if 0 in (ct.type.size, type.size):
        return [zeros(type)]
    slides = slides_of(type, params)
    padding = tuple(
        (s.reach - 1 - s.low, dilated(s.extent, s.base_dilation) + s.low - dilated(n, s.stride))
        for n, s in zip(ct.shape, slides, strict=True)
    )
    swapped = {"strides": params["base_dilation"], "base_dilation": params["strides"], "padding": padding}
    return [reduce_window(ct, **{**params, **swapped})]


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    dim = dims[0] or 0
    return [reduce_window(operands[0], **batched_windows(params, dim))], [dim]


def _samples() -> list[Sample]:
    pairs = [("sum", "f32"), ("max", "f32"), ("min", "i32"), ("prod", "f32"), ("sum", "bf16"), ("sum", "c64")]
    pairs += [("max", "u8"), ("or", "bool"), ("and", "i32"), ("prod", "i32"), ("max", "bool")]
    return window_samples(PER_DIM, pairs, lambda type, params: (type,))


reduce_window = Op(
    name="reduce_window",
    type_rule=_type,
    factor_rule=_rule,
    access=_access,
    aligned=_aligned,
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    linear=_linear,
    jvp=_jvp,
    transpose=_transpose,
    partition=_partition,
    few_bits="order",
)
