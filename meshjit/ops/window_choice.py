"""What the largest (smallest) element of each window decides: select_and_gather, select_and_scatter.

They are the derivative of reduce_window with max and min. Of each window the *chosen* element is the first that is
larger (smaller) than all before it, the last dim fastest; an element that is the identity of the reduction, as padding
is, is never chosen. Params: those of reduce_window without base_dilation, and `kind`, max or min.

    select_and_gather(moved, operand)        of each window the element of `moved` at the chosen place; 0 if there is none
    select_and_scatter(operand, source)      each window's element of `source` added to zeros at the chosen place

For small windows both are written as a few elementwise operations per place, which XLA fuses into one loop over the
result; XLA's own select-and-scatter walks its windows one by one on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Var
from meshjit.core.types import TensorType
from meshjit.emit.emitter import integers, literal, tensor
from meshjit.ops.arithmetic import add
from meshjit.ops.comparison import compare, select
from meshjit.ops.constants import full, full_like, scalar, zeros, zeros_like
from meshjit.ops.families import DTYPE_CLASSES, factor_names, require, require_param
from meshjit.ops.identity import identity_element
from meshjit.ops.slicing import pad, slice_
from meshjit.ops.sliding import Slide, padded, select_or, windows_seen
from meshjit.ops.window_params import batched_windows, check_windows, places_in, slides_of, window_samples
from meshjit.ops.windows import between, cut_at, shard_axes, table, window
from sharding.rule import FactorRule

if TYPE_CHECKING:
    from meshjit.partition.local import LocalEquation

Array = np.ndarray[Any, Any]
I32 = np.dtype(np.int32)
_UNROLLED = 64  # places of a window up to which these ops are written out
_PARAMS = ("window", "strides", "padding", "window_dilation")


def _check(name: str, in_types: Types, params: Params) -> tuple[TensorType, TensorType]:
    require(len(in_types) == 2, name, f"takes 2 operands, was given {len(in_types)}")
    require_param(params["kind"] in ("max", "min"), name, "kind", repr(params["kind"]), "write max or min")
    first, second = in_types
    require(first.dtype == second.dtype, name, f"operand dtypes differ: {first} and {second}")
    require(DTYPE_CLASSES["real"](first.dtype), name, f"takes real operands, was given {first}")
    return first, second


def _pooled(type: TensorType, params: Params) -> TensorType:
    return type.with_shape(tuple(slide.out for slide in slides_of(type, params)))


def _bounds(place: Sequence[int], slides: Sequence[Slide]) -> list[tuple[int, int]]:
    """Per dim from where to where the windows' elements at this place are, in the padded operand."""
    starts = [p * s.window_dilation for p, s in zip(place, slides, strict=True)]
    return [(a, a + (s.out - 1) * s.stride + 1) for a, s in zip(starts, slides, strict=True)]


def _at(var: Var, place: Sequence[int], slides: Sequence[Slide]) -> Var:
    """The elements at this place of every window."""
    start, limit = zip(*_bounds(place, slides), strict=True) if slides else ((), ())
    return slice_(var, start=start, limit=limit, strides=tuple(s.stride for s in slides))


def _index(place: Sequence[int], slides: Sequence[Slide]) -> tuple[slice, ...]:
    return tuple(slice(low, high, s.stride) for (low, high), s in zip(_bounds(place, slides), slides, strict=True))


def _emit_body(e: Any, operands: Sequence[str], ins: Types, body: Callable[..., Var]) -> Sequence[str]:
    """StableHLO of `body(*Vars) -> Var`, equation by equation."""
    with Builder() as builder:
        inputs = [builder.input(type) for type in ins]
        result = body(*inputs)
    names = dict(zip(inputs, operands, strict=True))
    for eqn in builder.eqns:
        given = [names[v] for v in eqn.inputs]
        made = eqn.op.emit(e, given, eqn.input_types, eqn.output_types, eqn.params)
        names.update(zip(eqn.outputs, made, strict=True))
    return [names[result]]


def _with_padding(x: Var, params: Params, fill: Any) -> Var:
    low, high = zip(*params["padding"], strict=True) if x.rank else ((), ())
    return pad(x, scalar(fill, x.dtype), low=tuple(low), high=tuple(high), interior=(0,) * x.rank)


def _keeps(kind: str) -> str:
    """How the chosen element so far compares with the next one if it stays."""
    return "GE" if kind == "max" else "LE"


def _window_attributes(params: Params, sides: Sequence[Any]) -> str:
    pads = np.array(sides, np.int64).reshape(-1, 2)
    text = f"padding = {literal(pads)} : {tensor(TensorType(pads.shape, pads.dtype))}"
    return (
        f"{text}, window_dimensions = {integers(params['window'])}, window_strides = {integers(params['strides'])}"
    )


def _whole_rule(slides: Sequence[Slide], counts: Sequence[tuple[int, ...]], operands: str, result: str) -> FactorRule:
    """`a b, a b -> a b | permute b`: windows slide along b. Where one window sees a whole dim it is replicated."""
    names = factor_names(2 * len(slides))
    inner, outer, kinds, sizes = list(names[: len(slides)]), list(names[len(slides) :]), dict[str, str](), dict[str, int]()
    for dim, slide in enumerate(slides):
        alone = slide.out == 1 and not slide.is_trivial
        if not alone:
            outer[dim] = inner[dim]
        sizes |= {outer[dim]: slide.out, inner[dim]: slide.extent}
        if not slide.is_trivial:
            kinds |= dict.fromkeys((inner[dim], outer[dim]), "replicate" if alone else "permute")
    values = {"i": tuple((n,) for n in inner), "o": tuple((n,) for n in outer)}
    return FactorRule(tuple(values[v] for v in operands), (values[result],), kinds, sizes)


# -- select_and_gather


def _gather_type(in_types: Types, params: Params) -> Types:
    moved, operand = _check("select_and_gather", in_types, params)
    require(moved.shape == operand.shape, "select_and_gather", f"operand shapes differ: {moved} and {operand}")
    check_windows("select_and_gather", operand, params)
    return (_pooled(operand, params),)


def _gather(moved: Array, operand: Array, **params: Any) -> Array:
    slides, kind = slides_of(TensorType(operand.shape, operand.dtype), params), params["kind"]
    start = identity_element(kind, operand.dtype)
    for dim, slide in enumerate(slides):
        moved, operand = padded(moved, dim, slide, 0), padded(operand, dim, slide, start)
    best = np.full([s.out for s in slides], start, operand.dtype)
    result = np.zeros(best.shape, moved.dtype)
    for place in places_in(params["window"]) if best.size else ():
        here = operand[_index(place, slides)]
        keep = best >= here if kind == "max" else best <= here
        best, result = np.where(keep, best, here), np.where(keep, result, moved[_index(place, slides)])
    return result


def _gather_body(params: Params) -> Callable[[Var, Var], Var]:
    def body(moved: Var, operand: Var) -> Var:
        start = identity_element(params["kind"], operand.dtype)
        slides, type = slides_of(operand.type, params), _pooled(operand.type, params)
        operand, moved = _with_padding(operand, params, start), _with_padding(moved, params, 0)
        best, result = full(type, start), zeros(type)
        for place in places_in(params["window"]):
            here = _at(operand, place, slides)
            keep = compare(best, here, direction=_keeps(params["kind"]))
            best, result = select(keep, best, here), select(keep, result, _at(moved, place, slides))
        return result

    return body


def _gather_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """Large windows: a reduce_window of pairs (element, what it brings)."""
    if outs[0].size == 0:
        return [e.constant(np.zeros(outs[0].shape, outs[0].dtype))]
    if math.prod(params["window"]) <= _UNROLLED:
        return _emit_body(e, operands, ins, _gather_body(params))
    dtype = ins[0].dtype
    element, flag = TensorType((), dtype), TensorType((), np.dtype(np.bool_))

    def choose(inner: Any, names: Sequence[str]) -> list[str]:
        a, b, c, d = names
        word = f"comparison_direction = #stablehlo<comparison_direction {_keeps(params['kind'])}>"
        keep = inner.op("compare", [a, c], [flag], word)[0]
        return [inner.op("select", [keep, *pair], [element])[0] for pair in ((a, c), (b, d))]

    moved, operand = _emit_body(e, operands[:1], ins[:1], lambda x: _with_padding(x, params, 0)), None
    start = identity_element(params["kind"], dtype)
    operand = _emit_body(e, operands[1:], ins[1:], lambda x: _with_padding(x, params, start))
    ones = integers((1,) * ins[0].rank)
    attributes = _window_attributes(params, [(0, 0)] * ins[0].rank)
    attributes += f", base_dilations = {ones}, window_dilations = {integers(params['window_dilation'])}"
    starts = [e.constant(np.asarray(start, dtype)), e.constant(np.zeros((), dtype))]
    region = e.region([element] * 4, choose)
    return e.op("reduce_window", [*operand, *moved, *starts], [outs[0]] * 2, attributes, [region])[1:]


def _gather_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    return _whole_rule(slides_of(in_types[1], params), [], "ii", "o")


def _gather_partition(local: LocalEquation) -> list[Var]:
    """As reduce_window: both operands bring their borders."""
    (moved, operand), (type,), params = local.operands, local.result_types, dict(local.params)
    if 0 in (type.size, operand.type.size):
        return [zeros(type)]
    padding, fill = list(params["padding"]), identity_element(params["kind"], operand.dtype)
    names = _gather_rule(local.eqn.input_types, (), params).results[0]
    for dim, slide in enumerate(slides_of(local.eqn.inputs[1].type, params)):
        axes = shard_axes(local, names[dim][0])
        if axes and not slide.is_trivial:
            count, padding[dim] = type.shape[dim], (0, 0)
            moved = windows_seen(local, moved, dim, slide, axes, count, 0).var
            operand = windows_seen(local, operand, dim, slide, axes, count, fill).var
    return [select_and_gather(moved, operand, **params | {"padding": tuple(padding)})]


def _gather_jvp(primals, tangents, outs, params):
    """The choice does not move."""
    return [None if tangents[0] is None else select_and_gather(tangents[0], primals[1], **params)]


def _gather_transpose(cotangents, operands, in_types, params):
    return [select_and_scatter(operands[1], cotangents[0], **params), None]


def _batch(op: Callable[[], Op]) -> Any:
    def batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
        from meshjit.ops.batching import align_to_first

        aligned, dim = align_to_first(operands, dims)
        return [op()(*aligned, **batched_windows(params, dim))], [dim]

    return batch


_KINDS = [("max", "f32"), ("min", "f32"), ("max", "bf16"), ("min", "i32")]


def _gather_samples() -> list[Sample]:
    return window_samples(_PARAMS, _KINDS, lambda type, params: (type, type))


select_and_gather = Op(
    name="select_and_gather",
    type_rule=_gather_type,
    factor_rule=_gather_rule,
    whole="one window that covers all there is has no neighbours to exchange borders with",
    evaluate=_gather,
    emit=_gather_emit,
    samples=_gather_samples,
    batch=_batch(lambda: select_and_gather),
    linear=((0,),),
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    partition=_gather_partition,
)


# -- select_and_scatter


def _scatter_type(in_types: Types, params: Params) -> Types:
    operand, source = _check("select_and_scatter", in_types, params)
    check_windows("select_and_scatter", operand, params)
    wanted = _pooled(operand, params)
    require(source == wanted, "select_and_scatter", f"source {source} is not {wanted}, one element per window of {operand}")
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
        here = wide[_index(place, slides)]
        keep = best >= here if kind == "max" else best <= here
        best, chosen = np.where(keep, best, here), np.where(keep, chosen, number)
    total = np.zeros_like(wide)
    for number, place in enumerate(places_in(params["window"])):
        total[_index(place, slides)] += np.where(chosen == number, source, 0).astype(source.dtype)
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
        wide = _with_padding(operand, params, start)
        best, chosen = full(source.type, start), full(source.type.with_dtype(I32), -1)
        for number, place in enumerate(places_in(params["window"])):
            here = _at(wide, place, slides)
            keep = compare(best, here, direction=_keeps(params["kind"]))
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
    pairs = list(zip(_bounds(place, slides), slides, strict=True))
    low = tuple(start - s.low for (start, _), s in pairs)
    high = tuple(s.extent + s.low - end for (_, end), s in pairs)
    return pad(var, scalar(0, var.dtype), low=low, high=high, interior=tuple(s.stride - 1 for s in slides))


def _scatter_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """Large windows: XLA's select_and_scatter, with nothing to scatter where no element is chosen."""
    if 0 in (ins[0].size, ins[1].size):
        return [e.constant(np.zeros(outs[0].shape, outs[0].dtype))]
    if math.prod(params["window"]) <= _UNROLLED or set(params["window_dilation"]) != {1}:
        return _emit_body(e, operands, ins, _scatter_body(params))
    from meshjit.ops.reduce_window import reduce_window

    kind, dtype = params["kind"], ins[0].dtype
    start = identity_element(kind, dtype)

    def scattered(x: Var, source: Var) -> Var:
        found = reduce_window(x, **params, base_dilation=(1,) * x.rank)
        return select(compare(found, full_like(found, start), direction="EQ"), zeros_like(source), source)

    source = _emit_body(e, operands, ins, scattered)
    wide = _emit_body(e, operands[:1], ins[:1], lambda x: _with_padding(x, params, start))
    element, flag = TensorType((), dtype), TensorType((), np.dtype(np.bool_))
    word = f"comparison_direction = #stablehlo<comparison_direction {_keeps(kind)}>"
    keeps = e.region([element] * 2, lambda inner, names: inner.op("compare", names, [flag], word))
    zero = e.constant(np.zeros((), dtype))
    attributes = _window_attributes(params, [(0, 0)] * ins[0].rank)
    type = e.types[wide[0]]
    total = e.op("select_and_scatter", [*wide, *source, zero], [type], attributes, [keeps, e.reducer("sum", dtype)])
    opposite = {"padding": tuple((-low, -high) for low, high in params["padding"])}
    return _emit_body(e, total, (type,), lambda x: _with_padding(x, opposite, 0))


def _scatter_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    return _whole_rule(slides_of(in_types[0], params), [], "io", "i")


def _scatter_partition(local: LocalEquation) -> list[Var]:
    """A shard looks at all windows that see an element of it: these need their part of the source, and all that they
    see of the operand. What they add outside of the shard is its neighbours' business."""
    (operand, source), (type,), params = local.operands, local.result_types, dict(local.params)
    if 0 in (type.size, source.type.size):
        return [zeros(type)]
    padding, names = list(params["padding"]), _scatter_rule(local.eqn.input_types, (), params).operands[0]
    back: list[tuple[int, Any, list[int], int]] = []
    for dim, slide in enumerate(slides_of(local.eqn.inputs[0].type, params)):
        axes = shard_axes(local, names[dim][0])
        if axes and not slide.is_trivial:
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
    result = select_and_scatter(operand, source, **params | {"padding": tuple(padding)})
    for dim, axes, begins, shard in back:
        result = cut_at(local, [result], dim, axes, begins, shard)
    return [result]


def _part(
    local: LocalEquation, var: Var, dim: int, extent: int, axes: Any, starts: Sequence[int], width: int, fill: Any
) -> Var:
    """`width` elements from `starts[i]` on, on shard i; `fill` outside of the dim."""
    from meshjit.ops.constants import iota, spread

    var = window(local, var, dim, extent, axes, starts, width)
    if all(0 <= start and start + width <= extent for start in starts):
        return var
    places = add(iota(dtype=I32, shape=var.shape, dimension=dim), spread(table(local, axes, starts), var.shape))
    return select_or(between(places, 0, extent), var, fill)


def _scatter_jvp(primals, tangents, outs, params):
    return [None if tangents[1] is None else select_and_scatter(primals[0], tangents[1], **params)]


def _scatter_transpose(cotangents, operands, in_types, params):
    return [None, select_and_gather(cotangents[0], operands[0], **params)]


def _scatter_samples() -> list[Sample]:
    return window_samples(_PARAMS, _KINDS, lambda type, params: (type, _pooled(type, params)))


select_and_scatter = Op(
    name="select_and_scatter",
    type_rule=_scatter_type,
    factor_rule=_scatter_rule,
    whole="one window that covers all there is has no neighbours to exchange borders with",
    evaluate=_scatter,
    emit=_scatter_emit,
    samples=_scatter_samples,
    batch=_batch(lambda: select_and_scatter),
    linear=((1,),),
    jvp=_scatter_jvp,
    transpose=_scatter_transpose,
    partition=_scatter_partition,
)
