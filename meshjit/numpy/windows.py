"""Windows of signals, as vectors of M numbers, and Bessel's function that one of them is made of.

Their dtype is the default float: float32, or float64 with enable_x64. A window of one element is 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.numpy import powers, ufuncs
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.creation import iota, ones
from meshjit.numpy.promote import apply, dtype_of, promoted
from meshjit.runtime.array import Array
from meshjit.trace import line_of, user_source


def _window(count: Any, *cosines: float) -> Any:
    """The sum of cosines[k] cos(2 pi k n / (count - 1))."""
    places, last = _places(count)
    if last < 1:
        return places
    total: Any = cosines[0]
    for k, factor in enumerate(cosines[1:], 1):
        turns = ufuncs.true_divide(ufuncs.multiply(places, float(2 * np.pi * k)), float(last))
        total = ufuncs.add(total, ufuncs.multiply(ufuncs.cos(turns), factor))
    return total


def _places(count: Any) -> tuple[Any, int]:
    """0, 1, … and the last of them; ones where there are less than two. Floats are cut off, as in NumPy and JAX."""
    is_known = isinstance(count, float | np.floating | Array) or isinstance(count, np.ndarray)
    count = shape_tuple((int(count) if is_known else count,))[0]
    dtype = canonical(np.dtype(np.float64), config.enable_x64)
    return (iota(dtype, (count,), 0) if count > 1 else ones((count,), dtype)), count - 1


def blackman(M: int) -> Any:  # noqa: N803
    """`numpy.blackman`: [M], 0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1)). TypeError for negative M."""
    return _window(M, 0.42, -0.5, 0.08)


def hamming(M: int) -> Any:  # noqa: N803
    """`numpy.hamming`: [M], 0.54 - 0.46 cos(2 pi n / (M - 1)). TypeError for negative M."""
    return _window(M, 0.54, -0.46)


def hanning(M: int) -> Any:  # noqa: N803
    """`numpy.hanning`: [M], 0.5 - 0.5 cos(2 pi n / (M - 1)). TypeError for negative M."""
    return _window(M, 0.5, -0.5)


def bartlett(M: int) -> Any:  # noqa: N803
    """`numpy.bartlett`: [M], a triangle from 0 over 1 to 0. TypeError for negative M."""
    places, last = _places(M)
    if last < 1:
        return places
    slope = ufuncs.absolute(ufuncs.subtract(ufuncs.multiply(places, 2.0), float(last)))
    return ufuncs.subtract(1, ufuncs.true_divide(slope, float(last)))


def kaiser(M: int, beta: Any) -> Any:  # noqa: N803
    """`numpy.kaiser`: [M], i0(beta sqrt(1 - (2 n / (M - 1) - 1)**2)) / i0(beta). TypeError for negative M,
    ValueError for complex beta.

    The exponentials are divided before they overflow, so that large beta gives numbers where JAX gives NaN."""
    places, last = _places(M)
    if last < 1:
        return places
    half = 0.5 * last
    across = ufuncs.true_divide(ufuncs.subtract(places, half), half)
    (beta, inner), _ = promoted(_real("kaiser", beta), across)
    inner = ufuncs.multiply(beta, ufuncs.sqrt(ufuncs.subtract(1, powers.square(inner))))
    growth = ufuncs.exp(ufuncs.subtract(ufuncs.absolute(inner), ufuncs.absolute(beta)))
    return ufuncs.multiply(growth, ufuncs.true_divide(apply("bessel_i0e", inner), apply("bessel_i0e", beta)))


def i0(x: Any) -> Any:
    """`numpy.i0`: the modified Bessel function of the first kind and order 0, of x's shape. ValueError for complex x."""
    x = _real("i0", x)
    return ufuncs.multiply(ufuncs.exp(ufuncs.absolute(x)), apply("bessel_i0e", x))


def _real(name: str, x: Any) -> Any:
    (x,), _ = promoted(x, inexact=True)
    if dtype_of(x).kind == "c":
        raise ValueError(f"{name} takes real numbers, got {dtype_of(x)}\n  at {line_of(user_source())}\n  fix: x.real")
    return x
