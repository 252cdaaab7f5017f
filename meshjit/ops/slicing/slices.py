"""Parts of a dim with static borders: slice and pad.

A cut dim may be sharded: its factor is `permute`, and neighbours exchange what the other needs (see halos.py). The
elements of a slice of one, or of few among many, have owners instead, and it becomes a partial sum.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from meshjit.core.access import Access, Window, moved
from meshjit.core.local import LocalEquation
from meshjit.core.op import Inside, Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.arithmetic import multiply
from meshjit.ops.base.batching import insert
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full, scalar, spread, zeros, zeros_like
from meshjit.ops.base.families import factor_names, require, require_param, require_zero
from meshjit.ops.base.reduction import reduce_sum
from meshjit.ops.base.shape import broadcast_in_dim, require_one
from meshjit.ops.slicing.halos import between, cut, cut_at, fetch_run, positions, shard_axes
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_SAMPLE_DTYPES = ("f32", "c64", "bool", "i2")
_FEW: Final = 4  # elements of a dim: as many as borders of stencils have
_AMONG: Final = 8  # times as many elements has a dim of which they are few


def reduction_of(dtype: np.dtype[Any]) -> str:
    """The reduction that puts an element together from its owner's value and zeros: sum, and for bools or."""
    return "or" if dtype == np.bool_ else "sum"


def _full_entries(op: str, type: TensorType, params: Params, names: Sequence[str]) -> None:
    for name in names:
        why = f"operand {type} needs {type.rank} entries"
        require_param(len(params[name]) == type.rank, op, name, params[name], why)


# -- slice: elements start, start + stride, … below limit of every dim


def _slice_type(in_types: Types, params: Params) -> Types:
    type = require_one("slice", in_types)
    require_zero("slice", type)
    _full_entries("slice", type, params, ("start", "limit", "strides"))
    for dim, (low, high, stride) in enumerate(_slices(params)):
        fits = 0 <= low <= high <= type.shape[dim] and stride > 0
        require(fits, "slice", f"dim {dim} of operand {type} cannot be cut to [{low}:{high}:{stride}]")
    return (type.with_shape(tuple(-(-(high - low) // stride) for low, high, stride in _slices(params))),)


def _slices(params: Params) -> list[tuple[int, int, int]]:
    return list(zip(params["start"], params["limit"], params["strides"], strict=True))


def _slice_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b c -> a b 1 | permute b, sum c`: a is kept whole, b is cut, of c one element is taken, or few among many."""
    (type,), (out,) = in_types, out_types
    names = factor_names(type.rank)
    kinds = dict[str, str]()
    for name, n, m in zip(names, type.shape, out.shape, strict=True):
        if n != m:
            kinds[name] = reduction_of(type.dtype) if _has_owners(n, m) else "permute"
    results = tuple(() if kinds.get(n) in ("sum", "or") else (n,) for n in names)
    return FactorRule((tuple((n,) for n in names),), (results,), kinds, dict(zip(names, type.shape, strict=True)))


def _has_owners(extent: int, taken: int) -> bool:
    """Whether so many elements stay with the devices that have them. Spread over all devices, few would leave most without
    any, after a permute for each; what reads them (borders, a sort) mostly wants them whole."""
    return taken == 1 or 1 < taken <= _FEW and _AMONG * taken <= extent


def _slice_access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
    columns = enumerate(zip(in_types[0].shape, out_types[0].shape, _slices(params), strict=True))
    places = (
        Window(d, -low, 1, stride) if stride > 1 and m > 1 else moved(d, low, n, m) for d, (n, m, (low, _, stride)) in columns
    )
    return (Access((tuple(places),)),)


def _slice_aligned(operands: Sequence[Var], dims: Collection[int], inside: Inside, params: Params) -> Var:
    (x,) = operands
    cuts = [(0, n, 1) if d in dims else c for d, (n, c) in enumerate(zip(x.shape, _slices(params), strict=True))]
    if all(c == (0, n, 1) for n, c in zip(x.shape, cuts, strict=True)):
        return x
    start, limit, strides = zip(*cuts, strict=True)
    return slice_(x, start=start, limit=limit, strides=strides)


def _slice_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    start, limit, strides = (integers(params[name]) for name in ("start", "limit", "strides"))
    return e.op("slice", operands, outs, f"start_indices = {start}, limit_indices = {limit}, strides = {strides}")


def _slice_transpose(cotangents, operands, in_types, params) -> list[Var | None]:
    """Zeros everywhere else: the cotangent padded before, between and behind."""
    shape, (ct,) = in_types[0].shape, cotangents
    if 0 in ct.shape:
        return [zeros(in_types[0])]
    covered = [low + (m - 1) * stride + 1 for (low, _, stride), m in zip(_slices(params), ct.shape, strict=True)]
    high = tuple(n - end for n, end in zip(shape, covered, strict=True))
    interior = tuple(stride - 1 for stride in params["strides"])
    return [pad(ct, scalar(0, ct.dtype), low=params["start"], high=high, interior=interior)]


def _with_batch(values: Sequence[int], dim: int, value: int) -> tuple[int, ...]:
    return (*values[:dim], value, *values[dim:])


def _slice_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    (x,), dim = operands, dims[0] or 0
    entries = {"start": 0, "limit": x.shape[dim], "strides": 1}
    return [slice_(x, **{name: _with_batch(params[name], dim, n) for name, n in entries.items()})], [dim]


def _slice_partition(local: LocalEquation) -> list[Var]:
    """Sharded cut dims get their windows one after another; then everything else is cut at once."""
    (var,), (type,) = local.operands, local.result_types
    extents, outs = local.eqn.inputs[0].shape, local.eqn.outputs[0].shape
    if type.size == 0:
        return [zeros(type)]
    cuts = list(_slices(local.params))
    for dim, name in enumerate(factor_names(var.rank)):
        axes, (low, _, stride) = shard_axes(local, name), cuts[dim]
        if extents[dim] == outs[dim]:
            cuts[dim] = (0, var.shape[dim], 1)
        elif axes and _has_owners(extents[dim], outs[dim]):
            var = _owned(local, var, dim, axes, [low + i * stride for i in range(outs[dim])])
            cuts[dim] = (0, outs[dim], 1)
        elif axes:
            step = type.shape[dim] * stride
            starts = [low + i * step for i in range(local.mesh.axes_size(axes))]
            last = low + (outs[dim] - 1) * stride  # of the result; what follows is fetched for nobody's padding
            var = fetch_run(local, var, dim, last + 1, axes, starts, step - stride + 1)
            cuts[dim] = (0, var.shape[dim], stride)
    start, limit, strides = zip(*cuts, strict=True)
    return [slice_(var, start=start, limit=limit, strides=strides)]


def _owned(local: LocalEquation, var: Var, dim: int, axes: Any, places: Sequence[int]) -> Var:
    """A few elements of a sharded dim, one behind the other, each on its owner, with zeros on the others.

    Those of one shard are a run that its owner has; those of the next shard come behind it.
    """
    shard, index, parts = var.shape[dim], local.index(axes), list[Var]()
    for owner, run in itertools.groupby(places, lambda place: place // shard):
        inside = [place % shard for place in run]
        stride = inside[1] - inside[0] if len(inside) > 1 else 1
        mine = cut(var, dim, inside[0], inside[-1] + 1, stride)
        is_owner = spread(compare(index, scalar(owner, np.int32), direction="EQ"), mine.shape)
        parts.append(select(is_owner, mine, zeros_like(mine)))
    return cut_at(local, parts, dim, axes, [0], len(places))


def _slice_samples() -> list[Sample]:
    calls = [
        ((8, 6), (0, 0), (8, 6), (1, 1)),
        ((8, 6), (1, 0), (7, 6), (1, 1)),
        ((10, 3), (0, 2), (10, 3), (1, 1)),
        ((9,), (2,), (9,), (1,)),
        ((16,), (0,), (16,), (2,)),
        ((11, 5), (1, 0), (10, 5), (3, 2)),
        ((8,), (3,), (4,), (1,)),
        ((26,), (5,), (8,), (1,)),
        ((33, 2), (1, 0), (8, 2), (2, 1)),
        ((4, 4), (2, 1), (2, 3), (1, 1)),
        ((), (), (), ()),
        ((3, 0), (1, 0), (3, 0), (1, 1)),
    ]
    types = [(TensorType(s, DTYPES[d]), *cuts) for s, *cuts in calls for d in _SAMPLE_DTYPES]
    return [Sample((t,), {"start": a, "limit": b, "strides": c}) for t, a, b, c in types]


slice_ = Op(
    name="slice",
    type_rule=_slice_type,
    factor_rule=_slice_rule,
    access=_slice_access,
    aligned=_slice_aligned,
    whole="few elements of a dim stay with the devices that have them, and become a sum, of which each has an addend",
    evaluate=lambda x, start, limit, strides: x[tuple(map(slice, start, limit, strides))],
    emit=_slice_emit,
    samples=_slice_samples,
    linear=((0,),),
    transpose=_slice_transpose,
    batch=_slice_batch,
    partition=_slice_partition,
    touches="part",
    copies=True,
)


# -- pad: low elements before, high behind and interior between elements; negative ones are cut off


def _pad_type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 2, "pad", f"takes an operand and a padding value, was given {len(in_types)} operands")
    type, value = in_types
    require_zero("pad", type)
    require(value.shape == () and value.dtype == type.dtype, "pad", f"the padding value {value} is no scalar of {type}")
    _full_entries("pad", type, params, ("low", "high", "interior"))
    shape = tuple(
        low + n + max(n - 1, 0) * gap + high for n, (low, high, gap) in zip(type.shape, _pads(params), strict=True)
    )
    fits = all(n >= 0 for n in shape) and all(gap >= 0 for gap in params["interior"])
    require(
        fits, "pad", f"{type} with low {params['low']}, high {params['high']}, interior {params['interior']} is {shape}"
    )
    return (type.with_shape(shape),)


def _pads(params: Params) -> list[tuple[int, int, int]]:
    return list(zip(params["low"], params["high"], params["interior"], strict=True))


def _pad_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b, [] -> a b | permute b`: a is not padded, b is."""
    type, names = in_types[0], factor_names(in_types[0].rank)
    padded = [bool(low or high or gap and n > 1) for n, (low, high, gap) in zip(type.shape, _pads(params), strict=True)]
    kinds = {name: "permute" for name, is_padded in zip(names, padded, strict=True) if is_padded}
    dims = tuple((name,) for name in names)
    return FactorRule((dims, ()), (dims,), kinds, dict(zip(names, type.shape, strict=True)))


def _pad_access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
    columns = enumerate(zip(in_types[0].shape, out_types[0].shape, _pads(params), strict=True))
    places = (
        Window(d, low, 1, base_dilation=gap + 1) if gap and n > 1 else moved(d, -low, n, m)
        for d, (n, m, (low, _, gap)) in columns
    )
    return (Access((tuple(places), ())),)


def _pad_aligned(operands: Sequence[Var], dims: Collection[int], inside: Inside, params: Params) -> Var:
    x, value = operands
    sides = {name: tuple(0 if d in dims else n for d, n in enumerate(params[name])) for name in ("low", "high", "interior")}
    padded = pad(x, value, **sides) if any(map(any, sides.values())) else x
    mask = inside(0, padded.shape)
    return padded if mask is None else select(mask, padded, spread(value, padded.shape))


def _pad(x: Array, value: Array, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Array:
    spread_shape = tuple(n + max(n - 1, 0) * gap for n, gap in zip(x.shape, interior, strict=True))
    spaced = np.full(
        tuple(n + max(a, 0) + max(b, 0) for n, a, b in zip(spread_shape, low, high, strict=True)), value, x.dtype
    )
    inner = tuple(
        slice(max(a, 0), max(a, 0) + n, gap + 1) for n, a, gap in zip(spread_shape, low, interior, strict=True)
    )
    spaced[inner] = x
    return spaced[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(spaced.shape, low, high, strict=True))]


def _pad_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    low, high, interior = (integers(params[name]) for name in ("low", "high", "interior"))
    attributes = f"edge_padding_low = {low}, edge_padding_high = {high}, interior_padding = {interior}"
    return e.op("pad", operands, outs, attributes)


def _pad_transpose(cotangents, operands, in_types, params):
    """The operand's places of the cotangent; the padding value's cotangent is the sum of all other places."""
    (ct,), (x, value) = cotangents, operands
    inside = _unpad(ct, in_types[0].shape, params)
    if value is not None:
        return [inside, None]
    mask = pad(zeros(inside.type), scalar(1, ct.dtype), **params)

    outside = reduce_sum(multiply(ct, mask), axes=tuple(range(ct.rank)))
    return [inside if x is None else None, outside]


def _unpad(ct: Var, shape: Sequence[int], params: Params) -> Var:
    """The elements of `ct` where the operand's went; zeros for those that were cut off."""
    if 0 in shape:
        return zeros(ct.type.with_shape(tuple(shape)))
    opposite = {name: tuple(-n for n in params[name]) for name in ("low", "high")}
    trimmed = pad(ct, scalar(0, ct.dtype), **opposite, interior=(0,) * ct.rank)
    strides = tuple(gap + 1 for gap in params["interior"])
    return slice_(trimmed, start=(0,) * ct.rank, limit=trimmed.shape, strides=strides)


def _pad_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    """A padding value of its own for each member is put in by a mask."""
    x, value = operands
    dim, size = (0, value.shape[0]) if dims[0] is None else (dims[0], x.shape[dims[0]])
    batched = {name: _with_batch(params[name], dim, 0) for name in ("low", "high", "interior")}
    if dims[1] is None:
        return [pad(x, value, **batched)], [dim]
    x = insert(x, 0, size) if dims[0] is None else x
    padded = pad(x, scalar(0, x.dtype), **batched)
    inside = pad(full(x.type.with_dtype(np.bool_), True), scalar(False, np.bool_), **batched)
    return [select(inside, padded, broadcast_in_dim(value, shape=padded.shape, dimensions=(dim,)))], [dim]


def _pad_partition(local: LocalEquation) -> list[Var]:
    """Sharded padded dims one after another; then the others at once."""
    (var, value), (type,) = local.operands, local.result_types
    if type.size == 0:
        return [zeros(type)]
    if 0 in var.shape:
        return [spread(value, type.shape)]
    pads = list(_pads(local.params))
    for dim, name in enumerate(factor_names(var.rank)):
        axes = shard_axes(local, name)
        if pads[dim] != (0, 0, 0) and axes:
            var = _padded_shard(local, var, dim, axes)
            pads[dim] = (0, 0, 0)
    low, high, interior = zip(*pads, strict=True)
    return [pad(var, value, low=low, high=high, interior=interior)]


def _padded_shard(local: LocalEquation, var: Var, dim: int, axes: Sequence[Any]) -> Var:
    """One sharded dim padded: the elements that fall into this shard of the result, spaced, cut to it, and a mask.

    Element i goes to low + i * step. Shard d of the result, [d*r, (d+1)*r), thus begins (d*r - low) mod step behind the
    place of element (d*r - low) div step.
    """
    value, extent, r = local.operands[1], local.eqn.inputs[0].shape[dim], local.result_types[0].shape[dim]
    low, _, gap = _pads(local.params)[dim]
    step = gap + 1
    begins = [divmod(d * r - low, step) for d in range(local.mesh.axes_size(axes))]
    width = max(rest + r - 1 for _, rest in begins) // step + 1
    var = fetch_run(local, var, dim, extent, axes, [first for first, _ in begins], width)
    if gap:
        none = (0,) * var.rank
        var = pad(var, value, low=none, high=_with_entry(none, dim, gap), interior=_with_entry(none, dim, gap))
        var = cut_at(local, [var], dim, axes, [rest for _, rest in begins], r)
    inside = between(positions(local, var.shape, dim, axes), low, low + (extent - 1) * step + 1)
    return select(inside, var, spread(value, var.shape))


def _with_entry(values: Sequence[int], dim: int, value: int) -> tuple[int, ...]:
    return tuple(value if d == dim else n for d, n in enumerate(values))


def _pad_samples() -> list[Sample]:
    calls = [
        ((4, 3), (1, 0), (2, 0), (0, 0)),
        ((8, 2), (3, 0), (0, 1), (0, 0)),
        ((6,), (-1,), (-2,), (0,)),
        ((7,), (-2,), (5,), (0,)),
        ((4, 2), (1, -1), (0, 2), (2, 1)),
        ((3,), (-2,), (-1,), (2,)),
        ((0, 2), (1, 0), (2, 1), (3, 0)),
        ((), (), (), ()),
        ((5,), (0,), (0,), (0,)),
        ((2,), (-2,), (0,), (0,)),
    ]
    types = [(TensorType(s, DTYPES[d]), *pads) for s, *pads in calls for d in _SAMPLE_DTYPES]
    return [Sample((t, t.with_shape(())), {"low": a, "high": b, "interior": c}) for t, a, b, c in types]


pad = Op(
    name="pad",
    type_rule=_pad_type,
    factor_rule=_pad_rule,
    access=_pad_access,
    aligned=_pad_aligned,
    evaluate=_pad,
    emit=_pad_emit,
    samples=_pad_samples,
    linear=((0, 1),),
    transpose=_pad_transpose,
    batch=_pad_batch,
    partition=_pad_partition,
)
