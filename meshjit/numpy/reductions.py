"""Reductions and cumulative functions, with NumPy's arguments and JAX's dtypes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.promotion import canonical, is_python_number
from meshjit.core.types import DTYPES, is_inexact, is_integer, kind_of
from meshjit.numpy import elementwise, ufuncs
from meshjit.numpy.arguments import check_not_empty
from meshjit.numpy.named_axes import reduced_over, size_of, without_names
from meshjit.numpy.promote import (
    asarray,
    broadcast_to,
    cast,
    dtype_of,
    float_of,
    fresh,
    index_dtype,
    lifted,
    no_out,
    normal_axes,
    normal_axis,
    ops,
    promoted,
    shape_of,
)
from meshjit.numpy.shaping import concatenate, expand_dims, ravel, reshape, transpose
from meshjit.ops.base.families import part_dtype
from meshjit.ops.base.identity_elements import identity_element
from meshjit.runtime.composed import composed
from meshjit.trace import bind, line_of, user_source


def _reduced(op: str, x: Any, axis: Any, keepdims: bool, where: Any, identity: Any) -> Any:
    x = asarray(x)
    names, axis = without_names(axis)
    axes = normal_axes(axis, len(shape_of(x)))
    if where is not None:
        x = ufuncs.where(selection(where), x, cast(identity, dtype_of(x)))
    result = bind(ops(op), x, axes=axes, weak_type=False) if axes else fresh(cast(x, dtype_of(x)))
    result = reduced_over(op, result, names) if names else result
    return expand_dims(result, axes) if keepdims and axes else result


def selection(where: Any) -> Any:
    """The `where` of a reduction: booleans; ValueError for numbers."""
    if dtype_of(where) != np.bool_:
        raise ValueError(
            f"where must be an array of booleans, it is {dtype_of(where)}\n  at {line_of(user_source())}\n  fix: where != 0"
        )
    return where


def _sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Booleans and small integers are summed as default integers."""
    if dtype == np.bool_ or is_integer(dtype):
        kind = np.uint64 if kind_of(dtype) == "u" else np.int64
        return np.promote_types(dtype, canonical(np.dtype(kind), config.enable_x64))
    return dtype


def sum(  # noqa: A001
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None, promote_integers: bool = True,
) -> Any:  # fmt: skip
    """`numpy.sum`. float16 and bfloat16 are summed in float32 and rounded once."""
    no_out("sum", out)
    accumulator = _accumulated(a, dtype, promote_integers)
    a = ufuncs.truth(a) if accumulator == np.bool_ else a
    result = _in_float32(accumulator, lambda d: _reduced("reduce_sum", cast(a, d), axis, keepdims, where, 0))
    return result if initial is None else ufuncs.add(result, cast(initial, dtype_of(result)))


def _accumulated(x: Any, dtype: Any, promote_integers: bool) -> np.dtype[Any]:
    if dtype is not None:
        return np.dtype(dtype)
    return _sum_dtype(dtype_of(x)) if promote_integers or dtype_of(x) == np.bool_ else dtype_of(x)


def _in_float32(dtype: np.dtype[Any], run: Any) -> Any:
    dtype = canonical(dtype, config.enable_x64)
    if dtype == np.bool_:
        return ufuncs.truth(run(np.dtype(np.int32)))
    if dtype in (DTYPES["bf16"], DTYPES["f16"]):
        return cast(run(np.dtype(np.float32)), dtype)
    return run(dtype)


def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None, promote_integers: bool = True,
) -> Any:  # fmt: skip
    """`numpy.prod`."""
    no_out("prod", out)
    accumulator = _accumulated(a, dtype, promote_integers)
    a = ufuncs.truth(a) if accumulator == np.bool_ else a
    result = _in_float32(accumulator, lambda d: _reduced("reduce_prod", cast(a, d), axis, keepdims, where, 1))
    return result if initial is None else ufuncs.multiply(result, cast(initial, dtype_of(result)))


def _extreme(name: str, op: str, pick: Any, highest: bool) -> Any:
    def function(
        a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
    ) -> Any:
        no_out(name, out)
        axes = normal_axes(without_names(axis)[1], len(shape_of(a)))
        if where is not None and initial is None:
            raise ValueError(
                f"{name} with where= needs initial=, its value where nothing is selected\n  at {line_of(user_source())}"
            )
        if initial is None and any(shape_of(a)[d] == 0 for d in axes):
            raise ValueError(
                f"{name} of an empty array of shape {shape_of(a)} has no value; give initial=\n  at {line_of(user_source())}"
            )
        if dtype_of(a).kind == "c":
            a = a if where is None else ufuncs.where(where, a, cast(initial, dtype_of(a)))
            if any(shape_of(a)[d] == 0 for d in axes):
                return lifted(broadcast_to(cast(initial, dtype_of(a)), _left(shape_of(a), axes, keepdims)))
            result = _complex_extreme(function, a, axis, keepdims, highest)
        else:
            identity = identity_element("max" if highest else "min", dtype_of(a))
            result = _reduced(op, a, axis, keepdims, where, identity)
        return result if initial is None else pick(result, cast(initial, dtype_of(result)))

    function.__name__ = name
    function.__doc__ = f"`numpy.{name}`."
    return function


def _complex_extreme(extreme: Any, x: Any, axis: Any, keepdims: bool, highest: bool) -> Any:
    """By the real part, of equal ones by the imaginary part, as NumPy orders complex numbers; nan where a part is nan."""
    parts = [ufuncs.real(x), ufuncs.imag(x)]
    least = -np.inf if highest else np.inf
    real = extreme(parts[0], axis, keepdims=True)
    imag = extreme(ufuncs.where(ufuncs.equal(parts[0], real), parts[1], least), axis, keepdims=True)
    imag = ufuncs.where(ufuncs.isnan(real), np.nan, imag)
    chosen = ufuncs.logical_and(ufuncs.equal(parts[0], real), ufuncs.equal(parts[1], imag))  # which alone have a derivative
    real = ufuncs.where(ufuncs.isnan(imag), real, extreme(ufuncs.where(chosen, parts[0], least), axis, keepdims=True))
    result = bind(ops("complex"), *(cast(part, parts[0].dtype) for part in (real, imag)))
    axes = normal_axes(without_names(axis)[1], len(shape_of(x)))
    return result if keepdims else reshape(result, _left(shape_of(x), axes))


def _left(shape: tuple[int, ...], axes: Sequence[int], keepdims: bool = False) -> tuple[int, ...]:
    """What is left of a shape when dims have been reduced."""
    return tuple(1 if d in axes else n for d, n in enumerate(shape) if keepdims or d not in axes)


max = amax = _extreme("max", "reduce_max", ufuncs.maximum, True)  # noqa: A001
min = amin = _extreme("min", "reduce_min", ufuncs.minimum, False)  # noqa: A001


def all(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Any:  # noqa: A001
    """`numpy.all`."""
    no_out("all", out)
    return _reduced("reduce_and", ufuncs.truth(a), axis, keepdims, where, True)


def any_(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Any:
    """`numpy.any`."""
    no_out("any", out)
    return _reduced("reduce_or", ufuncs.truth(a), axis, keepdims, where, False)


def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return sum(ufuncs.truth(a), axis=axis, keepdims=keepdims)


def _count(x: Any, axis: Any) -> float:
    """How many elements are reduced; a float, since i32 does not hold the number of all large arrays."""
    names, axis = without_names(axis)
    return float(math.prod(shape_of(x)[d] for d in normal_axes(axis, len(shape_of(x)))) * size_of(names))


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Any:
    """`numpy.mean`; integers give float32, with an integer dtype the mean is cut off. TypeError for dtype bool."""
    no_out("mean", out)
    if dtype is not None and np.dtype(dtype) == np.bool_:
        raise TypeError(f"mean: a mean is no boolean\n  at {line_of(user_source())}\n  fix: mean(x) != 0")
    kind = np.dtype(dtype) if dtype is not None else dtype_of(a)
    count = _count(a, axis) if where is None else _selected(a, where, axis, keepdims)
    result = _in_float32(
        float_of(kind), lambda d: ufuncs.true_divide(_reduced("reduce_sum", cast(a, d), axis, keepdims, where, 0), count)
    )
    return result if dtype is None else cast(result, kind)


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """`numpy.average`; weights have the shape of x or, with one axis, are a vector along it."""
    if weights is None:
        result = mean(a, axis=axis, keepdims=keepdims)
        total = lifted(np.asarray(_count(a, axis), dtype_of(result)))
    else:
        (a, weights), _ = promoted(a, weights, inexact=True)
        weights = _weights_like(a, axis, weights)
        total = sum(weights, axis=axis, keepdims=keepdims)
        result = ufuncs.true_divide(sum(ufuncs.multiply(a, weights), axis=axis, keepdims=keepdims), total)
    return (result, broadcast_to(total, shape_of(result))) if returned else result


def _weights_like(x: Any, axis: Any, weights: Any) -> Any:
    if shape_of(weights) == shape_of(x):
        return weights
    dims = normal_axes(axis, len(shape_of(x)))
    if axis is None or shape_of(weights) != tuple(shape_of(x)[d] for d in dims):  # their dims follow `axis`
        raise ValueError(
            f"average: weights of shape {shape_of(weights)} fit neither {shape_of(x)} nor axis {axis} of it\n"
            f"  at {line_of(user_source())}"
        )
    weights = transpose(weights, np.argsort(dims).tolist())
    return reshape(weights, tuple(n if d in dims else 1 for d, n in enumerate(shape_of(x))))


_mean = mean  # var and std have a parameter of that name


def var(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: bool = False, *,
    where: Any = None, mean: Any = None, correction: int | float | None = None,
) -> Any:  # fmt: skip
    """`numpy.var`; of complex numbers the real mean of |x - mean|**2, in a complex dtype if that is given. float16 and
    bfloat16 are computed in float32. `mean`, as keepdims gives it, is taken where it is given. ValueError for both ddof and
    correction, or complex numbers in a real dtype."""
    no_out("var", out)
    if dtype is not None and np.dtype(dtype) == np.bool_:
        raise TypeError(f"var: a variance is no boolean\n  at {line_of(user_source())}\n  fix: var(x) != 0")
    if correction is not None and not (isinstance(ddof, int) and ddof == 0):
        raise ValueError(
            f"var: ddof={ddof} and correction={correction} mean the same, give one of them\n  at {line_of(user_source())}"
        )
    ddof = ddof if correction is None else correction
    if dtype is not None and dtype_of(a).kind == "c" and np.dtype(dtype).kind != "c":
        raise ValueError(
            f"var: {dtype_of(a)} has no deviations in {np.dtype(dtype)}\n  at {line_of(user_source())}\n"
            f"  fix: var(x).astype({np.dtype(dtype)})"
        )
    a = asarray(a) if dtype is None else cast(a, dtype)
    a = cast(a, float_of(dtype_of(a)))
    kind = dtype_of(a)
    wide = cast(a, np.float32) if kind.itemsize < 4 else a
    centred = ufuncs.subtract(wide, _mean(wide, axis=axis, keepdims=True, where=where) if mean is None else mean)
    if where is not None:  # what is left out may be NaN, whose square would have derivative NaN, too
        centred = ufuncs.where(where, centred, 0)
    squares = ufuncs.real(ufuncs.multiply(centred, ufuncs.conjugate(centred)))
    count = _count(a, axis) if where is None else _selected(a, where, axis, keepdims)
    free = count - ddof if isinstance(count, float) and is_python_number(ddof) else ufuncs.subtract(count, ddof)
    result = ufuncs.true_divide(sum(squares, axis=axis, keepdims=keepdims, where=where), free)
    result = ufuncs.where(ufuncs.greater(free, 0), result, np.nan)
    return cast(result, part_dtype(kind) if dtype is None else kind)


def _selected(x: Any, where: Any, axis: Any, keepdims: bool) -> Any:
    """How many elements `where` selects: exactly, unless i32 might not hold it."""
    kind = np.dtype(np.int32 if _count(x, axis) < 2**31 else np.float32)
    return sum(broadcast_to(cast(where, kind), shape_of(x)), axis=axis, keepdims=keepdims)


def std(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: bool = False, *,
    where: Any = None, mean: Any = None, correction: int | float | None = None,
) -> Any:  # fmt: skip
    """`numpy.std`; arguments as in var."""
    no_out("std", out)
    if dtype is not None and not is_inexact(np.dtype(dtype)):
        raise ValueError(
            f"std: dtype must be floating or complex, it is {np.dtype(dtype)}\n  at {line_of(user_source())}\n"
            f"  fix: std(x).astype({np.dtype(dtype)})"
        )
    return ufuncs.sqrt(var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction))


def ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
    """`numpy.ptp`."""
    no_out("ptp", out)
    return ufuncs.subtract(max(a, axis=axis, keepdims=keepdims), min(a, axis=axis, keepdims=keepdims))


def _arg(op: str) -> Any:
    def function(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Any:
        no_out(op, out)
        a = asarray(a)
        rank = len(shape_of(a))
        if axis is None:
            check_not_empty(op, (a.size,), 0)
            flat = bind(ops(op), ravel(a), axis=0, index_dtype=index_dtype(), weak_type=False)
            return reshape(flat, (1,) * rank) if keepdims else flat
        axis = normal_axis(axis, rank)
        check_not_empty(op, shape_of(a), axis)
        result = bind(ops(op), a, axis=axis, index_dtype=index_dtype(), weak_type=False)
        return expand_dims(result, axis) if keepdims else result

    function.__name__ = op
    function.__doc__ = f"`numpy.{op}`: the first place of the extreme; NaN counts as extreme."
    return function


argmax, argmin = _arg("argmax"), _arg("argmin")


def _cumulative(op: str) -> Any:
    def function(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        no_out(op, out)
        a = asarray(a) if shape_of(a) and axis is not None else ravel(a)  # of a number too there is one sum
        kind = index_dtype() if dtype_of(a) == np.bool_ else dtype_of(a)
        kind = canonical(np.dtype(dtype), config.enable_x64) if dtype is not None else kind
        counted = cast(ufuncs.truth(a), np.int32) if kind == np.bool_ else cast(a, kind)
        result = bind(ops(op), counted, axis=normal_axis(0 if axis is None else axis, len(shape_of(a))), reverse=False)
        return ufuncs.truth(result) if kind == np.bool_ else result

    function.__name__ = op
    function.__doc__ = f"`numpy.{op}`."
    return function


cumsum, cumprod = _cumulative("cumsum"), _cumulative("cumprod")


def _cumulative_standard(name: str, run: Any, start: int) -> Any:
    def function(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
        x = asarray(x)
        if axis is None:
            if len(shape_of(x)) != 1:
                raise ValueError(f"{name}: axis must be given for an array of {len(shape_of(x))} dims")
            axis = 0
        dim = normal_axis(axis, len(shape_of(x)))
        result = run(x, dim, _sum_dtype(dtype_of(x)) if dtype is None else dtype)
        if not include_initial:
            return result
        edge = tuple(1 if d == dim else n for d, n in enumerate(shape_of(x)))
        first = broadcast_to(np.asarray(start, dtype_of(result)), edge)
        return concatenate([first, result], dim)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`numpy.{name}` (Array API): include_initial puts a {start} in front."
    return function


cumulative_sum = _cumulative_standard("cumulative_sum", cumsum, 0)
cumulative_prod = _cumulative_standard("cumulative_prod", cumprod, 1)


def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False, where: Any = None
) -> Any:
    """log(sum(b * exp(x))) without overflow; -inf of nothing. The shift has no derivative, the result's is softmax.

    With return_sign: (log(abs(sum)), sign of the sum)."""
    (a, b), _ = promoted(a, 1 if b is None else b, inexact=True) if b is not None else ((*promoted(a, inexact=True)[0], None), 0)
    if where is not None:
        a = ufuncs.where(selection(where), a, -np.inf)
    a = a if b is None else ufuncs.where(ufuncs.not_equal(b, 0), a, -np.inf)
    high = bind(ops("stop_gradient"), max(ufuncs.real(a), axis=axis, keepdims=True, initial=-np.inf))
    shift = ufuncs.where(ufuncs.isfinite(high), high, 0)
    terms = ufuncs.exp(ufuncs.subtract(a, shift))
    terms = terms if b is None else ufuncs.multiply(b, terms)
    terms = terms if where is None else ufuncs.where(where, terms, 0)
    total = sum(terms, axis=axis, keepdims=True)
    result = ufuncs.add(ufuncs.log(ufuncs.absolute(total) if return_sign else total), shift)
    axes = normal_axes(without_names(axis)[1], len(shape_of(a)))
    kept = tuple((1 if keepdims else None) if d in axes else n for d, n in enumerate(shape_of(terms)))
    shape = tuple(n for n in kept if n is not None)
    return (reshape(result, shape), reshape(ufuncs.sign(total), shape)) if return_sign else reshape(result, shape)


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    return all(elementwise.isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether both have the same shape and elements. equal_nan: NaN is equal to NaN."""
    if shape_of(a1) != shape_of(a2):
        return lifted(False)
    same = ufuncs.equal(a1, a2)
    return all(ufuncs.logical_or(same, ufuncs.logical_and(ufuncs.isnan(a1), ufuncs.isnan(a2))) if equal_nan else same)


def array_equiv(a1: Any, a2: Any) -> Any:
    """Whether both are equal after broadcasting; False where they cannot be."""
    try:
        np.broadcast_shapes(shape_of(a1), shape_of(a2))
    except ValueError:
        return lifted(False)
    return all(ufuncs.equal(a1, a2))


composed(globals(), "max amax min amin mean average var std logsumexp")
