"""Convolution of any rank, with strides, dilations, uneven (also negative) padding and groups.

`dimension_numbers` are three tuples of dim positions, as in JAX:

    lhs (batch, feature, *spatial)    rhs (out feature, in feature, *spatial)    out (batch, feature, *spatial)

Groups split dims group-major: with feature groups g the lhs has features (g i), the kernel out features (g o) and in
features i; with batch groups g the lhs has batch (g n) and the kernel out features (g o). A kernel is not reversed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.types import DTYPES, TensorType, is_float
from meshjit.emit.emitter import integers
from meshjit.ops.convolution_rules import convolution_batch, convolution_transpose
from meshjit.ops.families import factor_names, require, require_param
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
Dims = tuple[int, ...]


@dataclass(frozen=True)
class _Window:
    """One spatial dim: extents of lhs and kernel, and how the kernel moves."""

    extent: int
    kernel: int
    stride: int
    low: int
    high: int
    lhs_dilation: int
    rhs_dilation: int

    @property
    def padded(self) -> int:
        """The lhs with holes and padding."""
        return dilated(self.extent, self.lhs_dilation) + self.low + self.high

    @property
    def out(self) -> int:
        room = self.padded - dilated(self.kernel, self.rhs_dilation)
        return room // self.stride + 1 if room >= 0 else 0

    @property
    def is_trivial(self) -> bool:
        """Every element of the result comes from the lhs's element at its place."""
        steps = (self.kernel, self.stride, self.lhs_dilation)
        return steps == (1, 1, 1) and self.low == self.high == 0


def dilated(extent: int, dilation: int) -> int:
    return (extent - 1) * dilation + 1 if extent else 0


def _windows(in_types: Types, params: Params) -> list[_Window]:
    lhs, rhs = in_types
    lhs_spec, rhs_spec, _ = params["dimension_numbers"]
    pairs = zip(
        lhs_spec[2:], rhs_spec[2:], params["window_strides"], params["padding"], params["lhs_dilation"],
        params["rhs_dilation"], strict=True,
    )  # fmt: skip
    return [_Window(lhs.shape[i], rhs.shape[j], stride, *pads, *dilations) for i, j, stride, pads, *dilations in pairs]


# -- types


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 2, "convolution", f"takes 2 operands, was given {len(in_types)}")
    lhs, rhs = in_types
    require(lhs.dtype == rhs.dtype, "convolution", f"operand dtypes differ: {lhs} and {rhs}")
    require(lhs.dtype != np.bool_, "convolution", f"takes number operands, was given {lhs}")
    require(lhs.rank == rhs.rank >= 2, "convolution", f"operands need one rank of at least 2, got {lhs} and {rhs}")
    _check_params(lhs.rank, params)
    batch, features = _check_features(in_types, params)
    out_spec = params["dimension_numbers"][2]
    extents = dict(zip(out_spec, (batch, features, *(w.out for w in _windows(in_types, params))), strict=True))
    dtype = params.get("preferred") or lhs.dtype
    return (TensorType(tuple(extents[d] for d in range(lhs.rank)), dtype),)


def _check_params(rank: int, params: Params) -> None:
    specs = params["dimension_numbers"]
    fits = len(specs) == 3 and all(sorted(spec) == list(range(rank)) for spec in specs)
    require_param(
        fits, "convolution", "dimension_numbers", specs, f"three orders of the dims 0 to {rank - 1} are needed"
    )
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
    require(
        groups == 1 or batches == 1, "convolution", f"has {groups} feature groups and {batches} batch groups; use one"
    )
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
    windows, (lhs_spec, rhs_spec, out_spec) = _windows(types, params), params["dimension_numbers"]
    wide = _accumulator(lhs.dtype, out_type.dtype)
    x, kernel = (np.transpose(a, spec).astype(wide) for a, spec in ((lhs, lhs_spec), (rhs, rhs_spec)))
    for d, window in enumerate(windows):
        x = _padded(x, d + 2, window)
    rows = _rows(x, windows, params)
    groups = max(params["feature_group_count"], params["batch_group_count"])
    o = kernel.shape[0] // groups
    columns = kernel.reshape(groups, o, math.prod(kernel.shape[1:]))
    with np.errstate(all="ignore"):
        product = np.matmul(rows, np.swapaxes(columns, 1, 2))  # group, batch and places, out feature
    out = product.reshape(groups, -1 if o else 0, *(w.out for w in windows), o) if product.size else None
    if out is None:
        return np.zeros(out_type.shape, out_type.dtype)
    out = np.moveaxis(np.moveaxis(out, -1, 1), 2, 0)  # batch, group, out feature, places
    out = out.reshape(out.shape[0], groups * o, *out.shape[3:])
    return np.ascontiguousarray(np.transpose(out, np.argsort(out_spec))).astype(out_type.dtype)


def _accumulator(dtype: np.dtype[Any], out: np.dtype[Any]) -> np.dtype[Any]:
    if is_float(dtype) and dtype.itemsize < 4:
        return np.dtype(np.float32)
    return np.promote_types(dtype, out) if dtype.kind in "iu" and out.kind in "iu" else dtype


def _padded(x: Array, dim: int, window: _Window) -> Array:
    """Holes and padding of zeros put in, or elements cut off."""
    shape = list(x.shape)
    shape[dim] = dilated(window.extent, window.lhs_dilation)
    spread = np.zeros(shape, x.dtype)
    spread[(slice(None),) * dim + (slice(None, None, window.lhs_dilation),)] = x
    pads = [(max(window.low, 0), max(window.high, 0)) if d == dim else (0, 0) for d in range(x.ndim)]
    spread = np.pad(spread, pads)
    low, high = max(-window.low, 0), spread.shape[dim] - max(-window.high, 0)
    return spread[(slice(None),) * dim + (slice(low, max(high, low)),)]


def _rows(x: Array, windows: Sequence[_Window], params: Params) -> Array:
    """[group, batch and places, in features and kernel places]"""
    rank, strides = len(windows), x.strides
    shape = (*x.shape[:2], *(w.out for w in windows), *(w.kernel for w in windows))
    if 0 in shape:
        view = np.zeros(shape, x.dtype)
    else:
        steps = [s * w.stride for s, w in zip(strides[2:], windows, strict=True)]
        holes = [s * w.rhs_dilation for s, w in zip(strides[2:], windows, strict=True)]
        view = np.lib.stride_tricks.as_strided(x, shape, (*strides[:2], *steps, *holes), writeable=False)
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    n, c = shape[0] // batches, shape[1] // groups
    view = view.reshape(batches, n, groups, c, *shape[2:])
    places = tuple(range(4, 4 + rank))
    view = np.transpose(view, (0, 2, 1, *places, 3, *range(4 + rank, 4 + 2 * rank)))
    outer, inner = n * math.prod(shape[2 : 2 + rank]), c * math.prod(shape[2 + rank :])
    return view.reshape(batches * groups, outer, inner)


# -- StableHLO


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
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
    """`n i h w, o i k l -> n o p q | sum i, replicate h w k l p q`; with groups `n (g i) …, (g o) i … -> n (g o) …`.

    With groups the factor that is minor in one operand and alone in the other is whole: it could not be cut alike.
    """
    lhs, rhs, out = (dict[int, tuple[str, ...]]() for _ in range(3))
    (n, c, *places), (o, i, *kernel), (m, f, *results) = params["dimension_numbers"]
    names = iter(factor_names(5 + 3 * len(places)))
    batch, into, made, group = ((next(names),) for _ in range(4))
    kinds, sizes = {into[0]: "sum"}, dict[str, int]()
    lhs |= {n: batch, c: into}
    rhs |= {o: made, i: into}
    out |= {m: batch, f: made}
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    if max(groups, batches) > 1:
        rhs[o] = out[f] = group + made
        lhs[c if groups > 1 else n] = group + (into if groups > 1 else batch)
        kinds[(into if groups > 1 else batch)[0]] = "replicate"
        sizes = {group[0]: max(groups, batches)}
    for a, b, r, window in zip(places, kernel, results, _windows(in_types, params), strict=True):
        lhs[a] = (next(names),)
        rhs[b], out[r] = (), lhs[a]
        if not window.is_trivial:
            rhs[b], out[r] = (next(names),), (next(names),)
            kinds |= dict.fromkeys((*lhs[a], *rhs[b], *out[r]), "replicate")
    operands = tuple(tuple(side[d] for d in range(len(side))) for side in (lhs, rhs))
    rule = FactorRule(operands, (tuple(out[d] for d in range(len(out))),), kinds, sizes)
    return rule.with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


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
    ((0, 3, 4), (4, 3, 2), (1,), ((0, 0),), (1,), (1,), ((0, 1, 2),) * 3, 1, 1),
]


def _samples() -> list[Sample]:
    fields = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers")
    fields += ("feature_group_count", "batch_group_count")
    samples: list[Sample] = []
    for number, (lhs, rhs, *rest) in enumerate(_CALLS):
        for dtype, preferred in (("f32", None), ("i32", None), ("bf16", "f32"), ("c64", None))[
            : 4 if number < 4 else 1
        ]:
            types = (TensorType(lhs, DTYPES[dtype]), TensorType(rhs, DTYPES[dtype]))
            wanted = None if preferred is None else DTYPES[preferred]
            params = dict(zip(fields, rest, strict=True)) | {"precision": None, "preferred": wanted}
            samples.append(Sample(types, params))
    return samples


convolution = Op(
    name="convolution",
    type_rule=_type,
    factor_rule=_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=convolution_batch,
    linear=((0,), (1,)),
    transpose=convolution_transpose,
    localize=_localize,
)
