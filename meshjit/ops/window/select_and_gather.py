"""select_and_gather: of each window the element of another array at the chosen place (see choice.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import ops
from meshjit.core.access import by_index
from meshjit.core.local import LocalEquation
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import emit_splat, full, full_like, zeros
from meshjit.ops.base.conversion import convert
from meshjit.ops.base.families import factor_names, require
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.collective.collectives import all_reduce
from meshjit.ops.slicing.halos import positions, shard_axes
from meshjit.ops.window.choice import (
    CHOICE_KINDS,
    CHOICE_PARAMS,
    UNROLLED,
    alone_params,
    at_place,
    check_choice,
    choice_batch,
    choice_rule,
    emit_body,
    index,
    keeps,
    pooled,
    seen_alone,
    window_attributes,
    with_padding,
)
from meshjit.ops.window.params import check_windows, places_in, slides_of, window_samples
from meshjit.ops.window.sliding import padded, windows_seen
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
I32 = np.dtype(np.int32)


def _gather_type(in_types: Types, params: Params) -> Types:
    moved, operand = check_choice("select_and_gather", in_types, params)
    require(moved.shape == operand.shape, "select_and_gather", f"operand shapes differ: {moved} and {operand}")
    check_windows("select_and_gather", operand, params)
    return (pooled(operand, params).with_dtype(moved.dtype),)


def _gather(moved: Array, operand: Array, **params: Any) -> Array:
    slides, kind = slides_of(TensorType(operand.shape, operand.dtype), params), params["kind"]
    start = identity_element(kind, operand.dtype)
    for dim, slide in enumerate(slides):
        moved, operand = padded(moved, dim, slide, 0), padded(operand, dim, slide, start)
    best = np.full([s.out for s in slides], start, operand.dtype)
    result = np.zeros(best.shape, moved.dtype)
    for place in places_in(params["window"]) if best.size else ():
        here = operand[index(place, slides)]
        keep = best >= here if kind == "max" else best <= here
        best, result = np.where(keep, best, here), np.where(keep, result, moved[index(place, slides)])
    return result


def _gather_body(params: Params) -> Callable[[Var, Var], Var]:
    def body(moved: Var, operand: Var) -> Var:
        start = identity_element(params["kind"], operand.dtype)
        slides, type = slides_of(operand.type, params), pooled(operand.type, params)
        operand, moved = with_padding(operand, params, start), with_padding(moved, params, 0)
        best, result = full(type, start), zeros(type.with_dtype(moved.dtype))
        for place in places_in(params["window"]):
            here = at_place(operand, place, slides)
            keep = compare(best, here, direction=keeps(params["kind"]))
            best, result = select(keep, best, here), select(keep, result, at_place(moved, place, slides))
        return result

    return body


def _gather_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """Large windows: a reduce_window of pairs (element, what it brings)."""
    if outs[0].size == 0:
        return [emit_splat(e, outs[0], 0)]
    if math.prod(params["window"]) <= UNROLLED:
        return emit_body(e, operands, ins, _gather_body(params))
    brought, dtype = (type.dtype for type in ins)
    element, flag = TensorType((), dtype), TensorType((), np.dtype(np.bool_))

    def choose(inner: Any, names: Sequence[str]) -> list[str]:
        a, b, c, d = names
        word = f"comparison_direction = #stablehlo<comparison_direction {keeps(params['kind'])}>"
        keep = inner.op("compare", [a, c], [flag], word)[0]
        pairs = (((a, c), element), ((b, d), element.with_dtype(brought)))
        return [inner.op("select", [keep, *pair], [type])[0] for pair, type in pairs]

    moved, operand = emit_body(e, operands[:1], ins[:1], lambda x: with_padding(x, params, 0)), None
    start = identity_element(params["kind"], dtype)
    operand = emit_body(e, operands[1:], ins[1:], lambda x: with_padding(x, params, start))
    ones = integers((1,) * ins[0].rank)
    attributes = window_attributes(params, [(0, 0)] * ins[0].rank)
    attributes += f", base_dilations = {ones}, window_dilations = {integers(params['window_dilation'])}"
    starts = [e.constant(np.asarray(start, dtype)), e.constant(np.zeros((), brought))]
    region = e.region([element, element.with_dtype(brought)] * 2, choose)
    types = [outs[0].with_dtype(dtype), outs[0]]
    return e.op("reduce_window", [*operand, *moved, *starts], types, attributes, [region])[1:]


def _gather_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    return choice_rule(slides_of(in_types[1], params), "ii", "o")


def _gather_partition(local: LocalEquation) -> list[Var]:
    """As reduce_window: both operands bring their borders. Who owns the chosen element gives what it brings."""
    (moved, operand), (type,), params = local.operands, local.result_types, dict(local.params)
    if 0 in (type.size, operand.type.size):
        return [zeros(type)]
    padding, fill = list(params["padding"]), identity_element(params["kind"], operand.dtype)
    slides = slides_of(local.eqn.inputs[1].type, params)
    operand, alone = seen_alone(local, operand, slides, fill)
    for dim, (name, slide) in enumerate(zip(factor_names(len(slides)), slides, strict=True)):
        axes = shard_axes(local, name)
        if axes and not slide.is_trivial and dim not in alone:
            count, padding[dim] = type.shape[dim], (0, 0)
            moved = windows_seen(local, moved, dim, slide, axes, count, 0).var
            operand = windows_seen(local, operand, dim, slide, axes, count, fill).var
    params = alone_params(params | {"padding": tuple(padding)}, operand.shape, tuple(alone))
    result = select_and_gather(moved, operand, **params)
    if not alone:
        return [result]
    return [select(owners(local, operand, alone, params), result, zeros(result.type))]


def owners(local: LocalEquation, operand: Var, alone: dict[int, Any], params: Params) -> Var:
    """bool, one per window: whether its chosen element is this device's.

    Windows go through their elements in the order of the operand's, so the first of equal elements is the one whose number,
    counted along all dims along which windows extend, is lowest. What devices hold of other dims is the same for all that
    compare notes, so there a number of its own will do.
    """
    kind, shape = params["kind"], operand.shape
    extents = [n * (local.mesh.axes_size(alone[d]) if d in alone else 1) for d, n in enumerate(shape)]
    long = np.dtype(np.int64 if math.prod(extents) >= 2**31 else np.int32)
    number = full(operand.type.with_dtype(long), 0)
    for dim, n in enumerate(extents):
        place = convert(positions(local, shape, dim, alone.get(dim, ())), dtype=long)
        number = add(multiply(number, full_like(number, n)), place)
    number = add(number, full_like(number, 1))  # 0 is what a window without a chosen element brings
    best, chosen = select_and_gather(operand, operand, **params), select_and_gather(number, operand, **params)
    has_one = compare(chosen, full_like(chosen, 0), direction="GT")
    is_number = compare(best, best, direction="EQ")
    best = select(and_(has_one, is_number), best, full_like(best, identity_element(kind, best.dtype)))
    axes = tuple(axis for each in alone.values() for axis in each)
    is_best = and_(has_one, compare(best, all_reduce(best, axes=axes, kind=kind), direction="EQ"))
    chosen = select(is_best, chosen, full_like(chosen, np.iinfo(long).max))
    return and_(is_best, compare(chosen, all_reduce(chosen, axes=axes, kind="min"), direction="EQ"))


def _gather_jvp(primals, tangents, outs, params):
    """The choice does not move."""
    return [None if tangents[0] is None else select_and_gather(tangents[0], primals[1], **params)]


def _gather_transpose(cotangents, operands, in_types, params):
    return [ops.select_and_scatter(operands[1], cotangents[0], **params), None]


def _gather_samples() -> list[Sample]:
    return window_samples(CHOICE_PARAMS, CHOICE_KINDS, lambda type, params: (type, type))


select_and_gather = Op(
    name="select_and_gather",
    type_rule=_gather_type,
    factor_rule=_gather_rule,
    access=lambda in_types, out_types, params: by_index(_gather_rule(in_types, out_types, params)),
    evaluate=_gather,
    emit=_gather_emit,
    samples=_gather_samples,
    batch=choice_batch(lambda: select_and_gather),
    linear=((0,),),
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    partition=_gather_partition,
)
