"""Convolution of any rank, with strides, dilations, uneven (also negative) padding and groups.

`dimension_numbers` are three tuples of dim positions, as in JAX:

    lhs (batch, feature, *spatial)    rhs (out feature, in feature, *spatial)    out (batch, feature, *spatial)

Groups split dims group-major: with feature groups g the lhs has features (g i), the kernel out features (g o) and in
features i; with batch groups g the lhs has batch (g n) and the kernel out features (g o). A kernel is not reversed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from meshjit.core.access import WHOLE, Access, derived
from meshjit.core.local import LocalEquation
from meshjit.core.op import Image, Inside, Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType, is_float
from meshjit.emit.emitter import integers
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import zeros
from meshjit.ops.base.families import DTYPE_CLASSES, factor_names, require, require_param
from meshjit.ops.slicing.halos import shard_axes
from meshjit.ops.window.convolution_in_floats import in_floats
from meshjit.ops.window.convolution_rules import convolution_batch, convolution_transpose
from meshjit.ops.window.params import places_seen
from meshjit.ops.window.sliding import Slide, padded, seen, window_views, windows_seen
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
Dims = tuple[int, ...]


def kernel_slides(in_types: Types, params: Params) -> list[Slide]:
    """How the kernel slides along every spatial dim."""
    lhs, rhs = in_types
    lhs_spec, rhs_spec, _ = params["dimension_numbers"]
    pairs = zip(
        lhs_spec[2:], rhs_spec[2:], params["window_strides"], params["padding"], params["lhs_dilation"],
        params["rhs_dilation"], strict=True,
    )  # fmt: skip
    return [Slide(lhs.shape[i], rhs.shape[j], stride, *pads, *dilations) for i, j, stride, pads, *dilations in pairs]


# -- types


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 2, "convolution", f"takes 2 operands, was given {len(in_types)}")
    lhs, rhs = in_types
    require(lhs.dtype == rhs.dtype, "convolution", f"operand dtypes differ: {lhs} and {rhs}")
    require(DTYPE_CLASSES["number"](lhs.dtype), "convolution", f"takes number operands, was given {lhs}")
    require(lhs.rank == rhs.rank >= 2, "convolution", f"operands need one rank of at least 2, got {lhs} and {rhs}")
    _check_params(lhs.rank, params)
    batch, features = _check_features(in_types, params)
    out_spec = params["dimension_numbers"][2]
    extents = dict(zip(out_spec, (batch, features, *(w.out for w in kernel_slides(in_types, params))), strict=True))
    dtype = params.get("preferred") or lhs.dtype
    return (TensorType(tuple(extents[d] for d in range(lhs.rank)), dtype),)


def _check_params(rank: int, params: Params) -> None:
    specs = params["dimension_numbers"]
    fits = len(specs) == 3 and all(sorted(spec) == list(range(rank)) for spec in specs)
    require_param(fits, "convolution", "dimension_numbers", specs, f"three orders of the dims 0 to {rank - 1} are needed")
    for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation"):
        value = params[name]
        require_param(len(value) == rank - 2, "convolution", name, value, f"there are {rank - 2} spatial dims")
        positive = name == "padding" or all(n >= 1 for n in value)
        require_param(positive, "convolution", name, value, "steps of 1 or more are needed")


def _check_features(in_types: Types, params: Params) -> tuple[int, int]:
    """The result's batch and feature extents."""
    lhs, rhs = in_types
    (n, c, *_), (o, i, *kernel), _ = params["dimension_numbers"]
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    for name, count in (("feature_group_count", groups), ("batch_group_count", batches)):
        require_param(count >= 1, "convolution", name, count, "1 or more is needed")
        fits = rhs.shape[o] % count == 0
        require_param(fits, "convolution", name, count, f"it does not divide the {rhs.shape[o]} out features of {rhs}")
    require(groups == 1 or batches == 1, "convolution", f"has {groups} feature groups and {batches} batch groups; use one")
    fits = lhs.shape[c] == rhs.shape[i] * groups
    require(
        fits,
        "convolution",
        f"{lhs.shape[c]} features of {lhs} are not {groups} groups of {rhs.shape[i]} in features of {rhs}",
    )
    fits = lhs.shape[n] % batches == 0
    require_param(fits, "convolution", "batch_group_count", batches, f"it does not divide the batch of {lhs.shape[n]}")
    require(all(rhs.shape[d] > 0 for d in kernel), "convolution", f"the kernel {rhs} has an empty spatial dim")
    return lhs.shape[n] // batches, rhs.shape[o]


# -- NumPy meaning


def _evaluate(lhs: Array, rhs: Array, **params: Any) -> Array:
    """Windows of the padded lhs as rows, the kernel as columns, one matrix product per group."""
    types = tuple(TensorType(a.shape, a.dtype) for a in (lhs, rhs))
    (out_type,) = _type(types, params)
    slides, (lhs_spec, rhs_spec, out_spec) = kernel_slides(types, params), params["dimension_numbers"]
    wide = _accumulator(lhs.dtype, out_type.dtype)
    x, kernel = (np.transpose(a, spec).astype(wide) for a, spec in ((lhs, lhs_spec), (rhs, rhs_spec)))
    for d, slide in enumerate(slides):
        x = padded(x, d + 2, slide, 0)
    rows = _rows(x, slides, params)
    groups = max(params["feature_group_count"], params["batch_group_count"])
    o = kernel.shape[0] // groups
    columns = kernel.reshape(groups, o, math.prod(kernel.shape[1:]))
    with np.errstate(all="ignore"):
        product = np.matmul(rows, np.swapaxes(columns, 1, 2))  # group, batch and places, out feature
    out = product.reshape(groups, -1 if o else 0, *(s.out for s in slides), o) if product.size else None
    if out is None:
        return np.zeros(out_type.shape, out_type.dtype)
    out = np.moveaxis(np.moveaxis(out, -1, 1), 2, 0)  # batch, group, out feature, places
    out = out.reshape(out.shape[0], groups * o, *out.shape[3:])
    return np.ascontiguousarray(np.transpose(out, np.argsort(out_spec))).astype(out_type.dtype)


def _accumulator(dtype: np.dtype[Any], out: np.dtype[Any]) -> np.dtype[Any]:
    if is_float(dtype) and dtype.itemsize < 4:
        return np.dtype(np.float32)
    return np.promote_types(dtype, out) if dtype.kind in "iu" and out.kind in "iu" else dtype


def _rows(x: Array, slides: Sequence[Slide], params: Params) -> Array:
    """[group, batch and places, in features and kernel places]"""
    rank, view = len(slides), window_views(x, slides, 2)
    shape = view.shape
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    n, c = shape[0] // batches, shape[1] // groups
    view = view.reshape(batches, n, groups, c, *shape[2:])
    places = tuple(range(4, 4 + rank))
    view = np.transpose(view, (0, 2, 1, *places, 3, *range(4 + rank, 4 + 2 * rank)))
    outer, inner = n * math.prod(shape[2 : 2 + rank]), c * math.prod(shape[2 + rank :])
    return view.reshape(batches * groups, outer, inner)


# -- StableHLO


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if e.target.convolves_floats_only and ins[0].dtype.kind in "ciu":
        return e.program(in_floats(tuple(ins), outs[0], tuple(params.items()), convolution), operands)
    lhs, rhs, out = params["dimension_numbers"]
    numbers = f"#stablehlo.conv<{_spec(lhs, 'bf')}x{_spec(rhs, 'oi')}->{_spec(out, 'bf')}>"
    rank = len(params["padding"])
    pads = ", ".join(f"[{low}, {high}]" for low, high in params["padding"])
    padding = f"dense<[{pads}]>" if rank else "dense<>"
    word = (params.get("precision") or "default").upper()
    attributes = [
        f"batch_group_count = {params['batch_group_count']} : i64",
        f"dimension_numbers = {numbers}",
        f"feature_group_count = {params['feature_group_count']} : i64",
        f"padding = {padding} : tensor<{rank}x2xi64>",
        f"precision_config = [#stablehlo<precision {word}>, #stablehlo<precision {word}>]",
        *(f"{name} = {integers(params[name])}" for name in ("lhs_dilation", "rhs_dilation", "window_strides")),
    ]
    return e.op("convolution", operands, outs, ", ".join(attributes))


def _spec(dims: Dims, letters: str) -> str:
    """(0, 3, 1, 2) with batch and feature first → `[b, 0, 1, f]`."""
    words = dict(zip(dims, [*letters, *map(str, range(len(dims) - 2))], strict=True))
    return f"[{', '.join(words[d] for d in range(len(dims)))}]"


# -- placement


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`n i h, o i k -> n o h | sum i, permute h`; with groups `n (g i) h, (g o) i k -> n (g o) h`.

    Of kernel and result the longer one is cut along with the lhs: where it is the kernel, as in the kernel's gradient,
    every device has its part of the kernel and its places of the lhs, and the result is their sum:
    `n i h, o i h -> n o r | sum i h`. With groups the factor that is minor in one operand and alone in the other is
    whole: it could not be cut alike.
    """
    rhs_type, out_type = in_types[1], out_types[0]
    lhs, rhs, out = (dict[int, tuple[str, ...]]() for _ in range(3))
    (n, c, *places), (o, i, *kernel), (m, f, *results) = params["dimension_numbers"]
    names = iter(factor_names(4 + len(places)))
    batch, into, features, group = ((next(names),) for _ in range(4))
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    count = max(groups, batches)
    kinds = {into[0]: "sum"}
    sizes = {batch[0]: out_type.shape[m], into[0]: rhs_type.shape[i], features[0]: rhs_type.shape[o] // count}
    lhs |= {n: batch, c: into}
    rhs |= {o: features, i: into}
    out |= {m: batch, f: features}
    if count > 1:
        rhs[o] = out[f] = group + features
        lhs[c if groups > 1 else n] = group + (into if groups > 1 else batch)
        kinds[(into if groups > 1 else batch)[0]] = "replicate"
        sizes[group[0]] = count
    for a, b, r, slide in zip(places, kernel, results, kernel_slides(in_types, params), strict=True):
        lhs[a] = place = (next(names),)
        rhs[b], out[r] = (place, ()) if _is_contracted(slide) else ((), place)
        sizes[place[0]] = slide.extent
        if _is_contracted(slide):
            kinds[place[0]] = "sum"
        elif not slide.is_trivial:
            kinds[place[0]] = "permute"
    operands = tuple(tuple(side[d] for d in range(len(side))) for side in (lhs, rhs))
    return FactorRule(operands, (tuple(out[d] for d in range(len(out))),), kinds, sizes)


def _access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
    """What the factor rule says of batch and features; windows of the lhs, and all places of the kernel."""
    (access,) = derived(_rule(in_types, out_types, params))
    (_, _, *places), (_, _, *kernel), (_, _, *results) = params["dimension_numbers"]
    seen = zip(places, results, kernel_slides(in_types, params), strict=True)
    windows = {a: places_seen(r, slide) for a, r, slide in seen}
    lhs, rhs = (dict(enumerate(dims)) for dims in access.operands)
    sides = lhs | windows, rhs | dict.fromkeys(kernel, WHOLE)
    return (Access(tuple(tuple(side.values()) for side in sides), access.positions.difference(results)),)


def _aligned(operands: Sequence[Var], dims: Collection[int], inside: Inside, params: Params) -> Var:
    (lhs, rhs), mask = operands, inside(0, operands[0].shape)
    if mask is not None:
        lhs = select(mask, lhs, zeros(lhs.type))
    results = params["dimension_numbers"][2][2:]
    padding = tuple((0, 0) if r in dims else sides for r, sides in zip(results, params["padding"], strict=True))
    return convolution(lhs, rhs, **{**params, "padding": padding})


def _is_contracted(slide: Slide) -> bool:
    return slide.size > slide.out


def _partition(local: LocalEquation) -> list[Var]:
    """Sharded spatial dims one after another, so that corners travel with the borders; then a local convolution."""
    (lhs, rhs), (type,), params = local.operands, local.result_types, dict(local.params)
    types = local.eqn.input_types
    if 0 in (type.size, lhs.type.size, rhs.type.size):
        return [zeros(type)]
    (_, c, *places), (_, i, *kernel), (_, _, *results) = params["dimension_numbers"]
    factors = _rule(types, local.eqn.output_types, params).operands[0]
    axes = shard_axes(local, factors[c][-1])
    lhs = local.mask(lhs, c, types[0].shape[c], axes, 0)
    rhs = local.mask(rhs, i, types[1].shape[i], axes, 0)
    padding, dilations = list(params["padding"]), list(params["lhs_dilation"])
    for k, slide in enumerate(kernel_slides(types, params)):
        a, b, axes = places[k], kernel[k], shard_axes(local, factors[places[k]][0])
        if slide.is_trivial or not axes:
            continue
        if _is_contracted(slide):
            rhs, share = local.mask(rhs, b, slide.size, axes, 0), rhs.shape[b]
            width = (share - 1) * slide.window_dilation + (slide.out - 1) * slide.stride + 1
            view = seen(local, lhs, a, slide, axes, share * slide.window_dilation, width, 0)
        else:
            view = windows_seen(local, lhs, a, slide, axes, type.shape[results[k]], 0)
        lhs, padding[k], dilations[k] = view.var, view.padding, view.base_dilation
    params |= {"padding": tuple(padding), "lhs_dilation": tuple(dilations)}
    return [convolution(lhs, rhs, **_localize(params, (lhs.type, rhs.type), (type,)))]


def _window_reads(in_types: Types, params: Params) -> tuple[int, int]:
    """Each place of the kernel at each place of the result; in memory the features of one are behind one another."""
    (out,), (_, rhs) = _type(in_types, params), in_types
    o, i, *kernel = params["dimension_numbers"][1]
    groups = max(params["feature_group_count"], params["batch_group_count"])
    places = out.size // max(1, rhs.shape[o])
    return places * math.prod(rhs.shape[d] for d in kernel), max(rhs.shape[i], rhs.shape[o] // groups)


def _in_groups(in_types: Types, params: Params) -> tuple[int, int]:
    """Places of the kernel for each element of the result, and the features that are summed up for it; none without groups."""
    (out,), rhs = _type(in_types, params), in_types[1]
    _, i, *kernel = params["dimension_numbers"][1]
    if max(params["feature_group_count"], params["batch_group_count"]) == 1:
        return 0, 0
    return out.size * math.prod(rhs.shape[d] for d in kernel), rhs.shape[i]


def _best_orders(in_types: Types, params: Params) -> Sequence[Dims]:
    """Features behind one another: NHWC, HWIO -> NHWC. The gradient of a kernel has the batch as its features."""
    (n, c, *places), (o, i, *kernel), (m, f, *results) = params["dimension_numbers"]
    return (n, *places, c), (*kernel, i, o), (m, *results, f)


def _images(in_types: Types, params: Params) -> Sequence[Image]:
    """Of operands and result those over whose places the kernel slides. In a kernel's gradient, whose result is shorter than the
    kernel, the kernel is one, and features are batches."""
    (out,), (lhs, rhs) = _type(in_types, params), in_types
    (n, c, *places), (o, i, *kernel), (m, f, *results) = params["dimension_numbers"]
    slides = kernel_slides(in_types, params)
    is_gradient = bool(slides) and all(map(_is_contracted, slides))
    dims = [(lhs, c, n, places), (rhs, i, o, kernel)] if is_gradient else [(lhs, n, c, places), (out, m, f, results)]
    return [Image(t.dtype.itemsize, t.shape[a], t.shape[b], tuple([t.shape[d] for d in rest])) for t, a, b, rest in dims]


def _localize(params: Params, in_types: Types, out_types: Types) -> Params:
    """A device has its share of the groups."""
    lhs, rhs = in_types
    (n, c, *_), (_, i, *_), (m, *_) = params["dimension_numbers"]
    new = dict(params)
    if params["feature_group_count"] > 1 and rhs.shape[i]:
        new["feature_group_count"] = lhs.shape[c] // rhs.shape[i]
    if params["batch_group_count"] > 1 and out_types[0].shape[m]:
        new["batch_group_count"] = lhs.shape[n] // out_types[0].shape[m]
    return new


# -- samples

_NCHW = ((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))
_NHWC = ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
_CALLS: list[tuple[Any, ...]] = [  # lhs, rhs, strides, padding, lhs and rhs dilation, numbers, feature and batch groups
    ((2, 4, 6, 5), (8, 4, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), _NCHW, 1, 1),
    ((4, 7, 8, 2), (3, 2, 2, 6), (2, 3), ((0, 1), (2, 0)), (1, 1), (2, 1), _NHWC, 1, 1),
    ((2, 3, 5, 4), (4, 3, 2, 3), (2, 1), ((1, 2), (-1, 3)), (2, 3), (1, 2), _NCHW, 1, 1),
    ((2, 6, 5, 4), (4, 3, 2, 3), (1, 2), ((1, 0), (0, 1)), (1, 2), (2, 1), _NCHW, 2, 1),
    ((4, 5, 4, 4), (2, 3, 1, 8), (1, 1), ((0, 0), (1, 1)), (1, 1), (1, 1), _NHWC, 4, 1),
    ((6, 2, 5, 4), (4, 2, 2, 3), (2, 1), ((1, 0), (0, 2)), (2, 1), (1, 1), _NCHW, 1, 2),
    ((4, 6, 4), (8, 6, 1), (1,), ((0, 0),), (1,), (1,), ((0, 1, 2), (0, 1, 2), (2, 0, 1)), 1, 1),
    ((5, 2, 9), (5, 6, 3), (2,), ((2, 2),), (1,), (1,), ((1, 0, 2), (1, 0, 2), (2, 1, 0)), 1, 1),
    ((4, 6), (6, 8), (), (), (), (), ((0, 1), (1, 0), (0, 1)), 1, 1),
    (
        (2, 2, 3, 4, 3),
        (2, 2, 2, 2, 2),
        (1, 1, 2),
        ((0, 0), (1, 0), (0, 1)),
        (1,) * 3,
        (1,) * 3,
        ((0, 1, 2, 3, 4),) * 3,
        1,
        1,
    ),
    ((2, 3, 2), (4, 3, 5), (1,), ((0, 0),), (1,), (1,), ((0, 1, 2),) * 3, 1, 1),
    ((1, 1, 16), (2, 1, 3), (1,), ((1, 1),), (1,), (1,), ((0, 1, 2),) * 3, 1, 1),
    ((1, 2, 13), (1, 2, 3), (2,), ((3, 2),), (1,), (2,), ((0, 1, 2),) * 3, 1, 1),
    ((1, 1, 10), (1, 1, 4), (1,), ((2, 1),), (2,), (1,), ((0, 1, 2),) * 3, 1, 1),
    ((1, 1, 7), (1, 1, 2), (2,), ((-2, 4),), (3,), (3,), ((0, 1, 2),) * 3, 1, 1),
    ((1, 1, 14), (1, 1, 12), (1,), ((1, 0),), (1,), (1,), ((0, 1, 2),) * 3, 1, 1),
    ((2, 1, 11), (1, 1, 7), (2,), ((1, 2),), (2,), (2,), ((0, 1, 2),) * 3, 1, 1),
    ((1, 1, 9), (1, 1, 6), (2,), ((0, 0),), (1,), (1,), ((0, 1, 2),) * 3, 1, 1),
    ((0, 3, 4), (4, 3, 2), (1,), ((0, 0),), (1,), (1,), ((0, 1, 2),) * 3, 1, 1),
]


def _samples() -> list[Sample]:
    fields = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers")
    fields += ("feature_group_count", "batch_group_count")
    samples: list[Sample] = []
    for number, (lhs, rhs, *rest) in enumerate(_CALLS):
        for dtype, preferred in (("f32", None), ("i32", None), ("bf16", "f32"), ("c64", None))[: 4 if number < 4 else 1]:
            types = (TensorType(lhs, DTYPES[dtype]), TensorType(rhs, DTYPES[dtype]))
            dtype_of_result = None if preferred is None else DTYPES[preferred]
            params = dict(zip(fields, rest, strict=True)) | {"precision": None, "preferred": dtype_of_result}
            samples.append(Sample(types, params))
    return samples


convolution = Op(
    name="convolution",
    type_rule=_type,
    factor_rule=_rule,
    access=_access,
    aligned=_aligned,
    whole="a kernel slides over all places, so it is whole along them, or its result where that is shorter; "
    "of grouped channels only whole groups are dealt out",
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=convolution_batch,
    linear=((0,), (1,)),
    transpose=convolution_transpose,
    localize=_localize,
    partition=_partition,
    window_reads=_window_reads,
    in_groups=_in_groups,
    best_orders=_best_orders,
    images=_images,
)
