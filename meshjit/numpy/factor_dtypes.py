"""In which dtype the factors of a product are multiplied where they have two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from meshjit.core.types import bits_of, is_float, is_inexact, is_integer, kind_of
from meshjit.numpy.promote import dtype_of, exactly, promoted, weak_of

# Narrowest first. On CPUs XLA lacks some products of bfloat16 that are added in float32: those whose result is transposed.
_MULTIPLIED = tuple(np.dtype(d) for d in (np.float16, ml_dtypes.bfloat16, np.float32))


def in_one_dtype(lhs: Any, rhs: Any, preferred: np.dtype[Any] | None) -> tuple[list[Any], bool]:
    """The factors in one dtype, and whether the product is weak."""
    dtypes = dtype_of(lhs), dtype_of(rhs)
    if dtypes[0] == dtypes[1] or weak_of(lhs) or weak_of(rhs):
        return promoted(lhs, rhs)
    common = common_dtype(dtypes, preferred)
    return [exactly(lhs, common), exactly(rhs, common)], False


@cache
def common_dtype(dtypes: Sequence[np.dtype[Any]], preferred: np.dtype[Any] | None) -> np.dtype[Any]:
    """What factors of two dtypes become. Without a dtype of the result it is the greater one, which is the result's as well;
    with one no factor is rounded where a float of at most 32 bits holds the numbers of both, and else, or for integers, both
    become what is added up: XLA does so."""
    greater = max(dtypes, key=_size_of_numbers)
    if preferred is None or greater.kind == "c":
        return greater
    if is_integer(preferred):
        return preferred if any(map(is_inexact, dtypes)) or bits_of(preferred) > bits_of(greater) else greater
    exact = [d for d in _MULTIPLIED if all(_holds(d, own) for own in dtypes)]
    return exact[0] if exact else max(greater, _part(preferred), key=_size_of_numbers)


def _holds(wide: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether a float of 16 or 32 bits has every number of the dtype."""
    own = ml_dtypes.finfo(wide)
    if not is_float(dtype):
        return bits_of(dtype) - (kind_of(dtype) == "i") <= own.nmant + 1 or dtype == np.bool_
    info = ml_dtypes.finfo(dtype)
    least = float(info.smallest_subnormal) >= float(own.smallest_subnormal)
    return info.nmant <= own.nmant and float(info.max) <= float(own.max) and least


def _part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def _size_of_numbers(dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Complex before floating before integer, then the one of the larger range, of more bits, the signed one."""
    real = _part(dtype)
    floats = (ml_dtypes.finfo(real).maxexp, ml_dtypes.finfo(real).nmant) if is_float(real) else (-1, -1)
    return (dtype != real, *floats, 1 if dtype == np.bool_ else bits_of(real), kind_of(real) != "u")
