"""The same bits as another dtype: `jax.lax.bitcast_convert_type`, and `x.view(dtype)` as NumPy means it; booleans as bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.core.types import bits_of
from meshjit.numpy import ufuncs
from meshjit.numpy.arguments import as_dtype
from meshjit.numpy.creation import zeros
from meshjit.numpy.promote import apply, asarray, cast, dtype_of, exactly, lifted, ops, shape_of
from meshjit.numpy.reductions import sum as total
from meshjit.numpy.shaping import concatenate, expand_dims, flip, moveaxis, ravel, reshape, slice_in_dim, stack
from meshjit.trace import bind, line_of, user_source


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """The same bits as another dtype; a narrower one adds a last dim, a wider one takes it away."""
    operand, dtype = asarray(operand), canonical(as_dtype(new_dtype), config.enable_x64)
    if dtype == dtype_of(operand):  # booleans and complex numbers, too
        return lifted(exactly(operand, dtype))
    wide, narrow = bits_of(dtype_of(operand)), bits_of(dtype)
    if wide == narrow:
        return bind(ops("bitcast_convert"), operand, dtype=dtype, weak_type=False)
    return _split_bits(operand, dtype) if wide > narrow else _join_bits(operand, dtype)


def _unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"uint{bits_of(dtype)}")


def _split_bits(x: Any, dtype: np.dtype[Any]) -> Any:
    bits = bind(ops("bitcast_convert"), x, dtype=_unsigned(dtype_of(x)))
    count = bits_of(dtype_of(x)) // bits_of(dtype)
    shifts = (np.arange(count) * bits_of(dtype)).astype(dtype_of(bits))
    parts = apply("shift_right_logical", expand_dims(bits, -1), shifts)
    return bind(ops("bitcast_convert"), cast(parts, _unsigned(dtype)), dtype=dtype)


def _join_bits(x: Any, dtype: np.dtype[Any]) -> Any:
    size, count = bits_of(dtype_of(x)), bits_of(dtype) // bits_of(dtype_of(x))
    if not shape_of(x) or shape_of(x)[-1] != count:
        raise ValueError(f"bitcast_convert_type: {dtype} takes {count} elements of {dtype_of(x)}, the shape is {shape_of(x)}")
    parts = cast(bind(ops("bitcast_convert"), x, dtype=_unsigned(dtype_of(x))), _unsigned(dtype))
    shifted = ufuncs.left_shift(parts, (np.arange(count) * size).astype(_unsigned(dtype)))
    joined = total(shifted, axis=-1, dtype=_unsigned(dtype))
    return bind(ops("bitcast_convert"), joined, dtype=dtype)


def view(x: Any, dtype: Any = None, type: Any = None) -> Any:  # noqa: A002
    """`numpy.ndarray.view`: the last dim grows or shrinks with the width of the elements. bool is 0 or 1 in a byte.

    ValueError where its bytes are no whole number of elements, or there is no last dim to change."""
    if type is not None:
        raise NotImplementedError("view: type= is not there; arrays are of one class\n  fix: x.view(dtype)")
    x = asarray(x)
    dtype = dtype_of(x) if dtype is None else canonical(np.dtype(dtype), config.enable_x64)
    if dtype == dtype_of(x):
        return x
    if dtype_of(x) == np.bool_:
        return view(cast(x, np.uint8), dtype)
    if dtype == np.bool_:
        return ufuncs.not_equal(view(x, np.uint8), 0)
    _check_bytes(x, dtype)
    if dtype_of(x).kind == "c":
        return view(_merged(stack([ufuncs.real(x), ufuncs.imag(x)], axis=-1)), dtype)
    if dtype.kind == "c":
        parts = _cut(view(x, np.dtype(f"f{dtype.itemsize // 2}")), 2)
        return apply("complex", parts[..., 0], parts[..., 1])
    wide, narrow = bits_of(dtype_of(x)), bits_of(dtype)
    if wide >= narrow:
        bits = bitcast_convert_type(x, dtype)
        return _merged(bits) if wide > narrow else bits
    return bitcast_convert_type(_cut(x, narrow // wide), dtype)


def byteswap(x: Any) -> Any:
    """`numpy.ndarray.byteswap`, of a copy: the bytes of every element in the other order, of complex ones those of each part."""
    x = asarray(x)
    dtype, shape = dtype_of(x), shape_of(x)
    size = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    if size == 1:
        return lifted(x)
    swapped = flip(_cut(view(reshape(x, (*shape, 1)), np.uint8), size), -1)
    return reshape(view(_merged(swapped), dtype), shape)


def _check_bytes(x: Any, dtype: np.dtype[Any]) -> None:
    shape, size, other = shape_of(x), bits_of(dtype_of(x)) / 8, bits_of(dtype) / 8
    if size == other:
        return
    if not shape:
        raise ValueError(
            f"view: {dtype_of(x)} has {size:g} bytes and {dtype} has {other:g}, but an array of 0 dims has no last dim that"
            f" could change\n  at {line_of(user_source())}\n  fix: x.reshape(1).view({dtype})"
        )
    if shape[-1] * size % other:
        raise ValueError(
            f"view: the last dim of {shape} has {shape[-1]} x {size:g} bytes, no multiple of the {other:g} of {dtype}\n"
            f"  at {line_of(user_source())}"
        )


def _merged(x: Any) -> Any:
    """The last two dims as one."""
    shape = shape_of(x)
    return reshape(x, (*shape[:-2], shape[-2] * shape[-1]))


def _cut(x: Any, count: int) -> Any:
    """The last dim as two, the second of `count`."""
    shape = shape_of(x)
    return reshape(x, (*shape[:-1], shape[-1] // count, count))


def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    """`numpy.packbits`: eight elements of a dim (of all, flat, if axis is None) as the bits of one u8, 1 where one is not 0.

    Missing ones of the last eight are 0. The first is the highest bit, with bitorder "little" the lowest. TypeError for
    numbers that are no integers, ValueError for another bitorder. Source: jax.numpy.packbits."""
    x = asarray(a)
    if dtype_of(x).kind not in "iub":
        raise TypeError(f"packbits takes integers or booleans, got {dtype_of(x)}\n  at {line_of(user_source())}\n  fix: x > 0")
    x = cast(ufuncs.not_equal(x, 0), np.uint8)
    x = ravel(x) if axis is None else moveaxis(x, axis, -1)
    missing = -shape_of(x)[-1] % 8
    if missing:
        x = concatenate([x, zeros((*shape_of(x)[:-1], missing), np.uint8)], -1)
    packed = total(ufuncs.left_shift(_cut(x, 8), _shifts("packbits", bitorder)), axis=-1, dtype=np.uint8)
    return moveaxis(packed, -1, 0 if axis is None else axis)


def unpackbits(a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """`numpy.unpackbits`: the bits of u8 along a dim (of all, flat, if axis is None) as u8 that are 0 or 1.

    `count` of them: more are cut, missing ones are 0, and a negative one leaves out so many at the end. TypeError for another
    dtype, ValueError for another bitorder. Source: jax.numpy.unpackbits."""
    x = asarray(a)
    if dtype_of(x) != np.uint8:
        raise TypeError(f"unpackbits takes uint8, got {dtype_of(x)}\n  at {line_of(user_source())}\n  fix: x.astype(jnp.uint8)")
    x = ravel(x) if axis is None else moveaxis(x, axis, -1)
    shifted = apply("shift_right_logical", expand_dims(x, -1), _shifts("unpackbits", bitorder))
    bits = _merged(ufuncs.bitwise_and(shifted, np.uint8(1)))
    extent, count = shape_of(bits)[-1], None if count is None else int(count)
    if count is not None and count > extent:
        bits = concatenate([bits, zeros((*shape_of(bits)[:-1], count - extent), np.uint8)], -1)
    elif count is not None:
        bits = slice_in_dim(bits, 0, max(count + extent, 0) if count < 0 else count, axis=len(shape_of(bits)) - 1)
    return moveaxis(bits, -1, 0 if axis is None else axis)


def _shifts(name: str, bitorder: str) -> np.ndarray[Any, Any]:
    if bitorder not in ("big", "little"):
        raise ValueError(f"{name}: bitorder is {bitorder!r}\n  at {line_of(user_source())}\n  fix: 'big' or 'little'")
    return np.arange(8, dtype=np.uint8)[:: 1 if bitorder == "little" else -1].copy()
