"""Transposes and batch rule of `convolution`: all of them are convolutions again, with dims regrouped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from meshjit import ops
from meshjit.core.op import Params, Types
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.ops.base.batching import batch_size, move
from meshjit.ops.base.constants import zeros
from meshjit.ops.base.conversion import convert, in_one_dtype
from meshjit.ops.base.shape import reshape
from meshjit.ops.slicing.concatenation import reverse
from meshjit.ops.window.sliding import dilated


def _split(var: Var, dim: int, major: int) -> Var:
    """Dim (a b) as two dims, a of extent `major` first."""
    minor = var.shape[dim] // major
    return reshape(var, shape=(*var.shape[:dim], major, minor, *var.shape[dim + 1 :]))


def _merge(var: Var, dim: int) -> Var:
    """Dims `dim` and `dim + 1` as one."""
    both = math.prod(var.shape[dim : dim + 2])
    return reshape(var, shape=(*var.shape[:dim], both, *var.shape[dim + 2 :]))


def regroup(var: Var, groups: int, source: int, target: int) -> Var:
    """Dim `source` (g a) gives its groups to dim `target`: a, (g b)."""
    if groups == 1:
        return var
    split = _split(var, source, groups)
    place = target if target < source else target + 1  # of `target` among the split dims
    order_target = place if place < source else place - 1
    return _merge(move(split, source, order_target), order_target)


# -- transposes


def convolution_transpose(cotangents, operands, in_types, params):
    ct, (lhs, rhs) = cotangents[0], operands
    other = rhs if lhs is None else lhs
    if ct.type.size == 0 or other.type.size == 0:
        return [zeros(t) if x is None else None for t, x in zip(in_types, operands, strict=True)]
    ct, other = in_one_dtype(ct, other)
    params = {**params, "preferred": None}
    out = _lhs_cotangent(ct, other, in_types, params) if lhs is None else _rhs_cotangent(ct, other, in_types, params)
    if out.dtype != in_types[0].dtype:
        out = convert(out, dtype=in_types[0].dtype)
    return [out, None] if lhs is None else [None, out]


def _lhs_cotangent(ct: Var, rhs: Var, in_types: Types, params: Params) -> Var:
    """The cotangent, with holes where strides stepped over, convolved with the reversed kernel, features swapped."""
    lhs_spec, (o, i, *places), out_spec = params["dimension_numbers"]
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    kernel = reverse(rhs, dimensions=tuple(places)) if places else rhs
    kernel = regroup(kernel, max(groups, batches), o, i)
    padding = tuple(
        (reach - 1 - low, full + low - out)
        for (low, _), full, reach, out in zip(params["padding"], *_reaches(ct, in_types, params), strict=True)
    )
    back = {
        "window_strides": params["lhs_dilation"],
        "padding": padding,
        "lhs_dilation": params["window_strides"],
        "dimension_numbers": (out_spec, (i, o, *places), lhs_spec),
        "feature_group_count": max(groups, batches),
        "batch_group_count": 1,
    }
    out = ops.convolution(ct, kernel, **{**params, **back})
    return regroup(out, batches, lhs_spec[1], lhs_spec[0])


def _rhs_cotangent(ct: Var, lhs: Var, in_types: Types, params: Params) -> Var:
    """The lhs convolved with the cotangent as kernel: what was batch is contracted, what was contracted is batch."""
    (n, c, *lhs_places), (o, i, *rhs_places), (m, f, *out_places) = params["dimension_numbers"]
    padding = tuple(
        (low, out + reach - 1 - full - low)
        for (low, _), full, reach, out in zip(params["padding"], *_reaches(ct, in_types, params), strict=True)
    )
    back = {
        "window_strides": params["rhs_dilation"],
        "padding": padding,
        "rhs_dilation": params["window_strides"],
        "dimension_numbers": ((c, n, *lhs_places), (f, m, *out_places), (i, o, *rhs_places)),
        "feature_group_count": params["batch_group_count"],
        "batch_group_count": params["feature_group_count"],
    }
    return ops.convolution(lhs, ct, **{**params, **back})


def _reaches(ct: Var, in_types: Types, params: Params) -> tuple[list[int], list[int], list[int]]:
    """Per spatial dim the extents, holes included, of lhs, kernel and result."""
    shapes = (in_types[0].shape, in_types[1].shape, ct.shape)
    steps = (params["lhs_dilation"], params["rhs_dilation"], params["window_strides"])
    sides = zip(shapes, params["dimension_numbers"], steps, strict=True)
    lhs, rhs, out = ([dilated(s[d], n) for d, n in zip(spec[2:], by, strict=True)] for s, spec, by in sides)
    return lhs, rhs, out


# -- batching


def convolution_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    """The batch joins the lhs's batch, the kernel's out features, or, where both have it, the groups."""
    size = batch_size(operands, dims)
    (i, j), groups = dims, max(params["feature_group_count"], params["batch_group_count"])
    if size == 0:
        return [zeros(_empty_result(operands, dims, params))], [0]
    lhs, rhs = (x if d is None else move(x, d, 0) for x, d in zip(operands, dims, strict=True))
    lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
    if j is None:
        out = ops.convolution(_fold(lhs, lhs_spec[0], params["batch_group_count"]), rhs, **params)
        return [_unfold(out, out_spec[0], 1, size)], [0]
    if i is None:
        out = ops.convolution(lhs, _fold(rhs, rhs_spec[0], groups), **params)
        return [_unfold(out, out_spec[1], groups, size)], [0]
    by_batch = params["batch_group_count"] > 1
    name = "batch_group_count" if by_batch else "feature_group_count"
    lhs = _fold(lhs, lhs_spec[0 if by_batch else 1], 1)
    out = ops.convolution(lhs, _fold(rhs, rhs_spec[0], 1), **{**params, name: size * groups})
    return [_unfold(out, out_spec[1], 1, size)], [0]


def _fold(var: Var, dim: int, groups: int) -> Var:
    """Dim 0, the batch, into dim `dim` (g a) of the rest: (g batch a)."""
    split = move(_split(var, dim + 1, groups), 0, dim + 1)
    return _merge(_merge(split, dim), dim)


def _unfold(var: Var, dim: int, groups: int, size: int) -> Var:
    """The inverse of `_fold`: dim (g batch a) gives the batch, as dim 0, and (g a)."""
    split = _split(_split(var, dim, groups), dim + 1, size)
    return _merge(move(split, dim + 1, 0), dim + 1)


def _empty_result(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> TensorType:
    shapes = [x.shape if d is None else (*x.shape[:d], *x.shape[d + 1 :]) for x, d in zip(operands, dims, strict=True)]
    types = tuple(TensorType(s, x.dtype) for s, x in zip(shapes, operands, strict=True))
    (out,) = ops.convolution.type_rule(types, params)
    return out.with_shape((0, *out.shape))
