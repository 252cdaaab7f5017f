"""`fft`: discrete Fourier transforms along some dims. Params: kind, axes (one to three dims), lengths (one per axis).

    FFT, IFFT   complex → complex of the same shape; IFFT divides by the product of the lengths
    RFFT        real → complex; the last of `axes` keeps length // 2 + 1 elements, the others follow by symmetry
    IRFFT       complex → real: its inverse; the last of `axes` grows from length // 2 + 1 to length

A transformed dim is whole on every device; all others are free and cost no communication. Only where there is next to
nothing else to deal out does a line stay sharded while it is transformed (four_steps.py). What users call makes one
equation per dim, so that each dim can be whole in its own turn; `transform/fuse.py` makes one of those that ended up
side by side. Elements of the last of `axes` that symmetry leaves no freedom (place 0, and length / 2 where that is
whole) have their imaginary part ignored by IRFFT.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.arithmetic import multiply, scale
from meshjit.ops.base.batching import shifted
from meshjit.ops.base.bits import or_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import emit_splat, full, full_like, iota
from meshjit.ops.base.conversion import complex_, conjugate
from meshjit.ops.base.families import factor_names, require, require_param
from meshjit.ops.base.shape import broadcast_in_dim, require_one
from meshjit.ops.fft.four_steps import is_line, partition_fft
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]

KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")
_COMPLEX = {DTYPES["f32"]: DTYPES["c64"], DTYPES["f64"]: DTYPES["c128"]}
_REAL = {c: r for r, c in _COMPLEX.items()}


def _type(in_types: Types, params: Params) -> Types:
    type, kind, axes, lengths = require_one("fft", in_types), params["kind"], params["axes"], params["lengths"]
    require_param(kind in KINDS, "fft", "kind", repr(kind), f"write one of {', '.join(KINDS)}")
    distinct = 1 <= len(set(axes)) == len(axes) <= 3 and all(0 <= d < type.rank for d in axes)
    require_param(distinct, "fft", "axes", axes, f"name one to three different dims of operand {type}")
    fits = len(lengths) == len(axes) and all(n >= 1 for n in lengths)
    require_param(fits, "fft", "lengths", lengths, f"{len(axes)} positive extents are needed")
    takes = _COMPLEX if kind == "RFFT" else _REAL
    expected = "f32 or f64" if kind == "RFFT" else "c64 or c128"
    require(type.dtype in takes, "fft", f"{kind} takes {expected}, was given {type}")
    before, after = _extents(kind, lengths)
    for axis, extent in zip(axes, before, strict=True):
        why = f"dim {axis} of operand {type} has extent {type.shape[axis]}, {kind} needs {extent}"
        require_param(type.shape[axis] == extent, "fft", "lengths", lengths, why)
    shape = list(type.shape)
    for axis, extent in zip(axes, after, strict=True):
        shape[axis] = extent
    dtype = {"RFFT": _COMPLEX, "IRFFT": _REAL}.get(kind, {}).get(type.dtype, type.dtype)
    return (TensorType(tuple(shape), dtype),)


def _extents(kind: str, lengths: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The extents of the transformed dims before and after."""
    whole, half = tuple(lengths), (*lengths[:-1], lengths[-1] // 2 + 1)
    return (half if kind == "IRFFT" else whole), (half if kind == "RFFT" else whole)


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b -> a b | replicate b`; of a line by itself `a -> a | permute a`."""
    names = factor_names(in_types[0].rank)
    dims = tuple((name,) for name in names)
    kind = "permute" if is_line(in_types[0], params) else "replicate"
    kinds = {names[d]: kind for d in params["axes"]}
    return FactorRule((dims,), (dims,), kinds, dict(zip(names, in_types[0].shape, strict=True)))


def _passes(in_types: Types, params: Params) -> float:
    """Half a dozen operations per element and halving, and two transpositions."""
    return 4.0 + sum(length.bit_length() for length in params["lengths"])


def _evaluate(x: Array, kind: str, axes: tuple[int, ...], lengths: tuple[int, ...]) -> Array:
    if 0 in x.shape:
        (out,) = _type((TensorType(x.shape, x.dtype),), {"kind": kind, "axes": axes, "lengths": lengths})
        return np.zeros(out.shape, out.dtype)
    function = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}[kind]
    with np.errstate(all="ignore"):
        return function(x, lengths, axes).astype(_result_dtype(x.dtype, kind), copy=False)


def _result_dtype(dtype: np.dtype[Any], kind: str) -> np.dtype[Any]:
    return {"RFFT": _COMPLEX, "IRFFT": _REAL}.get(kind, {}).get(dtype, dtype)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """StableHLO transforms the last dims: others are brought there and back."""
    (x,), axes, rank = operands, params["axes"], ins[0].rank
    if 0 in ins[0].shape:  # no lines to transform; some backends refuse them
        return [emit_splat(e, outs[0], 0)]
    order = (*(d for d in range(rank) if d not in axes), *axes)
    moved = order != tuple(range(rank))
    if moved:
        x = e.op("transpose", [x], [_permuted(ins[0], order)], f"permutation = {integers(order)}")[0]
    attributes = f"fft_type = #stablehlo<fft_type {params['kind']}>, fft_length = {integers(params['lengths'])}"
    result = e.op("fft", [x], [_permuted(outs[0], order)], attributes)
    if moved:
        back = tuple(int(d) for d in np.argsort(order))
        return e.op("transpose", result, outs, f"permutation = {integers(back)}")
    return result


def _permuted(type: TensorType, order: Sequence[int]) -> TensorType:
    return type.with_shape(tuple(type.shape[d] for d in order))


# -- derivatives: the matrix of an FFT is its own transpose. That of an RFFT lacks the rows that follow by symmetry, so
# that Re(x_n) gets Re(sum_k w^kn c_k) = IRFFT of conj(c), where rows that stand for two count half.


def _transpose(cotangents, operands, in_types, params):
    (ct,), kind, count = cotangents, params["kind"], math.prod(params["lengths"])
    if kind in ("FFT", "IFFT"):
        return [fft(ct, **params)]
    if kind == "RFFT":
        weights = _weights(ct, params, 0.5)
        return [scale(fft(multiply(conjugate(ct), weights), **{**params, "kind": "IRFFT"}), count)]
    spectrum = fft(ct, **{**params, "kind": "RFFT"})
    return [multiply(conjugate(spectrum), scale(_weights(spectrum, params, 2.0), 1 / count))]


def _weights(like: Var, params: Params, doubled: float) -> Var:
    """1 where an element of a real line's spectrum stands for itself, `doubled` where it stands for its mirror, too."""
    axis, length = params["axes"][-1], params["lengths"][-1]
    real = TensorType((length // 2 + 1,), _REAL[like.dtype])
    places = iota(dtype=np.dtype(np.int32), shape=real.shape, dimension=0)
    alone = compare(places, full_like(places, 0), direction="EQ")
    if length % 2 == 0:
        alone = or_(alone, compare(places, full_like(places, length // 2), direction="EQ"))
    column = complex_(select(alone, full(real, 1), full(real, doubled)), full(real, 0))
    return broadcast_in_dim(column, shape=like.shape, dimensions=(axis,))


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    dim = dims[0] or 0
    return [fft(operands[0], **{**params, "axes": tuple(shifted(d, dim) for d in params["axes"])})], [dim]


def _samples() -> list[Sample]:
    calls = [
        ((4, 8), (1,)),
        ((8, 3), (0,)),
        ((5,), (0,)),
        ((1, 1), (1,)),
        ((3, 4, 5), (1,)),
        ((6, 4, 5), (1, 2)),
        ((4, 6, 3), (2, 0)),
        ((2, 3, 4, 5), (1, 2, 3)),
        ((2, 4, 3), (2, 1, 0)),
        ((0, 4), (1,)),
        ((16,), (0,)),
        ((36,), (0,)),
        ((2, 16), (1,)),
        ((18, 1), (0,)),
    ]
    samples: list[Sample] = []
    for kind in KINDS:
        for shape, axes in calls:
            lengths = tuple(shape[d] for d in axes)
            by_axis = dict(zip(axes, _extents(kind, lengths)[0], strict=True))
            extents = tuple(by_axis[d] if d in by_axis else n for d, n in enumerate(shape))
            for dtype in ("f32", "f64") if kind == "RFFT" else ("c64", "c128"):
                params = {"kind": kind, "axes": axes, "lengths": lengths}
                samples.append(Sample((TensorType(extents, DTYPES[dtype]),), params, _fill))
    return samples


def _fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    parts = generator.integers(-4, 5, (2, *type.shape))
    return parts[0] + 1j * parts[1] if type.dtype.kind == "c" else parts[0]


fft = Op(
    name="fft",
    joins=True,
    type_rule=_type,
    factor_rule=_rule,
    whole="every result needs every element of the transformed dims, and there are lines enough to deal out",
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    linear=((0,),),
    transpose=_transpose,
    partition=lambda local: partition_fft(local, fft),
    passes=_passes,
)
