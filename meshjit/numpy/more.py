"""Functions of jax.numpy's that programs seldom ask for; `meshjit.numpy` imports this file when one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from meshjit import numpy as mnp
from meshjit.numpy.promote import concrete, promoted, shape_of
from meshjit.trace import line_of, user_source


def _checked(name: str, x: Any, least: int) -> Any:
    if len(shape_of(x)) < least:
        raise ValueError(f"{name}: an operand of shape {shape_of(x)} has no {least} dims\n  at {line_of(user_source())}")
    return x


def _check_fit(name: str, x: Any, i: int, y: Any, j: int) -> None:
    if shape_of(x)[i] != shape_of(y)[j]:
        raise ValueError(
            f"{name}: dim {i} of {shape_of(x)} and dim {j} of {shape_of(y)} are contracted, but have extents {shape_of(x)[i]} and"
            f" {shape_of(y)[j]}\n  at {line_of(user_source())}"
        )


def matvec(x1: Any, x2: Any, /) -> Any:
    """`numpy.matvec`: matrices [..., m, n] times vectors [..., n]; the dims in front are broadcast."""
    _check_fit("matvec", _checked("matvec", x1, 2), -1, _checked("matvec", x2, 1), -1)
    return mnp.matmul(x1, mnp.expand_dims(x2, -1))[..., 0]


def vecmat(x1: Any, x2: Any, /) -> Any:
    """`numpy.vecmat`: vectors [..., n], conjugated, times matrices [..., n, m]; the dims in front are broadcast."""
    _check_fit("vecmat", _checked("vecmat", x1, 1), -1, _checked("vecmat", x2, 2), -2)
    return mnp.matmul(mnp.expand_dims(mnp.conj(x1), -2), x2)[..., 0, :]


class UniqueAll(NamedTuple):
    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    values: Any
    inverse_indices: Any


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """`numpy.unique_all`: distinct elements, where each is first, which one each element is, how often each is. NaN is none
    like another."""
    return UniqueAll(*mnp.unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """`numpy.unique_counts`: distinct elements, and how often each is."""
    return UniqueCounts(*mnp.unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """`numpy.unique_inverse`: distinct elements, and which one each element is."""
    return UniqueInverse(*mnp.unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """`numpy.unique_values`: distinct elements."""
    return mnp.unique(x, equal_nan=False, size=size, fill_value=fill_value)


def sort_complex(a: Any) -> Any:
    """`numpy.sort_complex`: sorted by real, then by imaginary parts, as complex numbers."""
    a = mnp.sort(mnp.asarray(a))
    return a.astype(np.result_type(a.dtype, np.complex64)) if a.dtype.kind != "c" else a


def spacing(x: Any, /) -> Any:
    """`numpy.spacing`: the distance to the next floating-point number away from 0, with the sign of x; NaN at infinity."""
    (x,), _ = promoted(x, inexact=True)
    x = mnp.asarray(x)
    if x.dtype.kind == "c":
        raise ValueError(f"spacing takes real numbers, got {x.dtype}\n  at {line_of(user_source())}")
    size = mnp.abs(x)
    gap = mnp.where(mnp.isfinite(size), mnp.nextafter(size, np.inf) - size, np.nan)
    largest = mnp.finfo(x.dtype).max
    below = size - mnp.nextafter(size, mnp.zeros_like(size))
    return mnp.copysign(mnp.where(size == largest, below, gap), x).astype(x.dtype)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Any:
    """`numpy.place`: arr with the elements where mask holds replaced by vals, one after another and again; inplace=False must
    be said, as in JAX. ValueError for a mask of another size."""
    if inplace:
        raise ValueError("place: arrays cannot be changed in place; pass inplace=False and use the result")
    arr, mask, values = mnp.asarray(arr), mnp.ravel(mnp.asarray(mask)), mnp.ravel(mnp.asarray(vals))
    if shape_of(mask)[0] != arr.size:
        raise ValueError(f"place: mask has {shape_of(mask)[0]} elements, arr {arr.size}\n  at {line_of(user_source())}")
    if not shape_of(values)[0]:
        if arr.size:
            raise ValueError(f"place: there are no values to place\n  at {line_of(user_source())}")
        return arr
    holds = mask != 0
    turn = mnp.where(holds, mnp.cumsum(holds) - 1, 0) % shape_of(values)[0]
    return mnp.where(holds, values[turn], mnp.ravel(arr)).reshape(shape_of(arr)).astype(arr.dtype)


def mask_indices(n: int, mask_func: Callable[..., Any], k: Any = 0, *, size: int | None = None) -> tuple[Any, ...]:
    """`numpy.mask_indices`: where mask_func(ones((n, n)), k) is not 0; `size` as in nonzero."""
    return mnp.nonzero(mask_func(mnp.ones((n, n), np.int32), k), size=size)


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """`numpy.diag_indices_from`: the places of the main diagonal of an array of equal extents, 2 or more."""
    shape = shape_of(arr)
    if len(shape) < 2 or len({*shape}) != 1:
        raise ValueError(f"diag_indices_from: all of 2 extents or more must be equal, got {shape}\n  at {line_of(user_source())}")
    return mnp.diag_indices(shape[0], len(shape))


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "auto") -> Any:
    """`numpy.einsum_path`: (the order of contraction, as a list of tuples, and a report). Of shapes alone; einsum here chooses
    its own order."""
    blanks = [np.broadcast_to(np.zeros((), np.float32), shape_of(x)) for x in operands]
    how = {"auto": "optimal", False: False}.get(optimize, optimize)
    (_, *path), report = np.einsum_path(subscripts, *blanks, optimize=how)
    return path, report


def _of_bytes(name: str) -> Callable[..., Any]:
    """NumPy's reader, whose array is put on the device."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return mnp.asarray(getattr(np, name)(*args, **kwargs))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`numpy.{name}`, as an Array."
    return function


fromfile, fromiter = _of_bytes("fromfile"), _of_bytes("fromiter")


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """`numpy.frombuffer`: `count` elements (-1: all) of a dtype from a buffer of bytes, from byte `offset` on."""
    return mnp.asarray(np.frombuffer(buffer, dtype, count, offset))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    """`numpy.fromstring`: the numbers that a text lists between separators."""
    return mnp.asarray(np.fromstring(string, dtype, count, sep=sep))


def array_repr(
    arr: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """`numpy.array_repr`."""
    known = concrete(arr, "array_repr shows the elements", "jax.debug.print")
    return np.array_repr(known, max_line_width, precision, suppress_small)


def array_str(
    a: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """`numpy.array_str`."""
    return np.array_str(concrete(a, "array_str shows the elements", "jax.debug.print"), max_line_width, precision, suppress_small)


# How arrays print is NumPy's, and so is what decides it.
get_printoptions, set_printoptions, printoptions = np.get_printoptions, np.set_printoptions, np.printoptions
