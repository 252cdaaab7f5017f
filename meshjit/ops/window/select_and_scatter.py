"""select_and_scatter: each window's element of another array added at the chosen place (see choice.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.access import by_index
from meshjit.core.local import LocalEquation
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import emit_splat, full, full_like, scalar, zeros, zeros_like
from meshjit.ops.base.families import factor_names, require
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.slicing.halos import cut_at, fetch_run, shard_axes
from meshjit.ops.slicing.slices import pad
from meshjit.ops.window.choice import (
    CHOICE_KINDS,
    CHOICE_PARAMS,
    UNROLLED,
    alone_params,
    at_place,
    bounds,
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
from meshjit.ops.window.reduce_window import reduce_window
from meshjit.ops.window.select_and_gather import owners, select_and_gather
from meshjit.ops.window.sliding import Slide, filled, padded
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
I32 = np.dtype(np.int32)


def _scatter_type(in_types: Types, params: Params) -> Types:
    operand, source = check_choice("select_and_scatter", in_types, params)
    check_windows("select_and_scatter", operand, params)
    expected = pooled(operand, params)
    require(source == expected, "select_and_scatter", f"source {source} is not {expected}, one element per window of {operand}")
    return (operand,)


def _scatter(operand: Array, source: Array, **params: Any) -> Array:
    slides, kind = slides_of(TensorType(operand.shape, operand.dtype), params), params["kind"]
    start = identity_element(kind, operand.dtype)
    if 0 in (source.size, operand.size):
        return np.zeros_like(operand)
    wide = operand
    for dim, slide in enumerate(slides):
        wide = padded(wide, dim, slide, start)
    best, chosen = np.full(source.shape, start, wide.dtype), np.full(source.shape, -1)
    for number, place in enumerate(places_in(params["window"])):
        here = wide[index(place, slides)]
        keep = best >= here if kind == "max" else best <= here
        best, chosen = np.where(keep, best, here), np.where(keep, chosen, number)
    total = np.zeros_like(wide)
    for number, place in enumerate(places_in(params["window"])):
        total[index(place, slides)] += np.where(chosen == number, source, 0).astype(source.dtype)
    return _pad_back(total, operand.shape, slides)


def _pad_back(total: Array, shape: Sequence[int], slides: Sequence[Slide]) -> Array:
    """Without the padding; zeros where elements had been cut off."""
    for dim, (n, slide) in enumerate(zip(shape, slides, strict=True)):
        opposite = Slide(total.shape[dim], 1, 1, -slide.low, -slide.high, 1, 1)
        total = padded(total, dim, opposite, 0)
        assert total.shape[dim] == n
    return total


def _scatter_body(params: Params) -> Callable[[Var, Var], Var]:
    def body(operand: Var, source: Var) -> Var:
        start = identity_element(params["kind"], operand.dtype)
        slides = slides_of(operand.type, params)
        wide = with_padding(operand, params, start)
        best, chosen = full(source.type, start), full(source.type.with_dtype(I32), -1)
        for number, place in enumerate(places_in(params["window"])):
            here = at_place(wide, place, slides)
            keep = compare(best, here, direction=keeps(params["kind"]))
            best, chosen = select(keep, best, here), select(keep, chosen, full_like(chosen, number))
        total = None
        for number, place in enumerate(places_in(params["window"])):
            mine = select(compare(chosen, full_like(chosen, number), direction="EQ"), source, zeros_like(source))
            spaced = _spaced(mine, place, slides)
            total = spaced if total is None else add(total, spaced)
        assert total is not None
        return total

    return body


def _spaced(var: Var, place: Sequence[int], slides: Sequence[Slide]) -> Var:
    """One element per window, put where this place of its window is in the operand; zeros elsewhere."""
    pairs = list(zip(bounds(place, slides), slides, strict=True))
    low = tuple(start - s.low for (start, _), s in pairs)
    high = tuple(s.extent + s.low - end for (_, end), s in pairs)
    return pad(var, scalar(0, var.dtype), low=low, high=high, interior=tuple(s.stride - 1 for s in slides))


def _scatter_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """Large windows: XLA's select_and_scatter, with nothing to scatter where no element is chosen."""
    if 0 in (ins[0].size, ins[1].size):
        return [emit_splat(e, outs[0], 0)]
    if math.prod(params["window"]) <= UNROLLED or set(params["window_dilation"]) != {1}:
        return emit_body(e, operands, ins, _scatter_body(params))

    kind, dtype = params["kind"], ins[0].dtype
    start = identity_element(kind, dtype)

    def scattered(x: Var, source: Var) -> Var:
        extremes = reduce_window(x, **params, base_dilation=(1,) * x.rank)
        return select(compare(extremes, full_like(extremes, start), direction="EQ"), zeros_like(source), source)

    source = emit_body(e, operands, ins, scattered)
    wide = emit_body(e, operands[:1], ins[:1], lambda x: with_padding(x, params, start))
    element, flag = TensorType((), dtype), TensorType((), np.dtype(np.bool_))
    word = f"comparison_direction = #stablehlo<comparison_direction {keeps(kind)}>"
    region = e.region([element] * 2, lambda inner, names: inner.op("compare", names, [flag], word))
    zero = e.constant(np.zeros((), dtype))
    attributes = window_attributes(params, [(0, 0)] * ins[0].rank)
    type = e.types[wide[0]]
    total = e.op("select_and_scatter", [*wide, *source, zero], [type], attributes, [region, e.reducer("sum", dtype)])
    opposite = {"padding": tuple((-low, -high) for low, high in params["padding"])}
    return emit_body(e, total, (type,), lambda x: with_padding(x, opposite, 0))


def _scatter_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    return choice_rule(slides_of(in_types[0], params), "io", "i")


def _scatter_partition(local: LocalEquation) -> list[Var]:
    """A shard looks at all windows that see an element of it: these need their part of the source, and all that they
    see of the operand. What they add outside of the shard is its neighbours' business. A window that sees a whole sharded
    dim has its part of the source where the chosen element is."""
    (operand, source), (type,), params = local.operands, local.result_types, dict(local.params)
    if 0 in (type.size, source.type.size):
        return [zeros(type)]
    padding, slides = list(params["padding"]), slides_of(local.eqn.inputs[0].type, params)
    back: list[tuple[int, Any, list[int], int]] = []
    operand, alone = seen_alone(local, operand, slides, identity_element(params["kind"], operand.dtype))
    for dim, (name, slide) in enumerate(zip(factor_names(len(slides)), slides, strict=True)):
        axes = shard_axes(local, name)
        if axes and not slide.is_trivial and dim not in alone:
            shard, padding[dim] = operand.shape[dim], (0, 0)
            shards = [i * shard for i in range(local.mesh.axes_size(axes))]
            firsts = [-(-(begin + slide.low - slide.reach + 1) // slide.stride) for begin in shards]
            count = max((b + shard - 1 + slide.low) // slide.stride - f + 1 for b, f in zip(shards, firsts, strict=True))
            places = [first * slide.stride - slide.low for first in firsts]
            reach = (max(count, 1) - 1) * slide.stride + slide.reach
            fill = identity_element(params["kind"], operand.dtype)
            operand = _part(local, operand, dim, slide.extent, axes, places, reach, fill)
            source = _part(local, source, dim, slide.out, axes, firsts, max(count, 1), 0)
            back.append((dim, axes, [b - p for b, p in zip(shards, places, strict=True)], shard))
    params = alone_params(params | {"padding": tuple(padding)}, operand.shape, tuple(alone))
    if alone:
        source = select(owners(local, operand, alone, params), source, zeros_like(source))
    result = select_and_scatter(operand, source, **params)
    for dim, axes, begins, shard in back:
        result = cut_at(local, [result], dim, axes, begins, shard)
    return [result]


def _part(
    local: LocalEquation, var: Var, dim: int, extent: int, axes: Any, starts: Sequence[int], width: int, fill: Any
) -> Var:
    """`width` elements from `starts[i]` on, on shard i; `fill` outside of the dim."""
    var = fetch_run(local, var, dim, extent, axes, starts, width)
    is_inside = all(0 <= start and start + width <= extent for start in starts)
    return var if is_inside else filled(local, var, dim, extent, axes, starts, fill)


def _scatter_jvp(primals, tangents, outs, params):
    return [None if tangents[1] is None else select_and_scatter(primals[0], tangents[1], **params)]


def _scatter_transpose(cotangents, operands, in_types, params):
    return [None, select_and_gather(cotangents[0], operands[0], **params)]


def _scatter_samples() -> list[Sample]:
    return window_samples(CHOICE_PARAMS, CHOICE_KINDS, lambda type, params: (type, pooled(type, params)))


select_and_scatter = Op(
    name="select_and_scatter",
    type_rule=_scatter_type,
    factor_rule=_scatter_rule,
    access=lambda in_types, out_types, params: by_index(_scatter_rule(in_types, out_types, params)),
    evaluate=_scatter,
    emit=_scatter_emit,
    samples=_scatter_samples,
    batch=choice_batch(lambda: select_and_scatter),
    linear=((1,),),
    jvp=_scatter_jvp,
    transpose=_scatter_transpose,
    partition=_scatter_partition,
)
