"""`jax.dtypes`: what there is beyond NumPy's dtypes, and questions about all of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from meshjit.config import config
from meshjit.core import promotion
from meshjit.core.types import bits_of
from meshjit.errors import TypePromotionError as TypePromotionError
from meshjit.missing import explain as _explain
from meshjit.numpy.dtypes import (
    extended as extended,
    finfo as finfo,
    iinfo as iinfo,
    issubdtype as issubdtype,
    prng_key as prng_key,
    result_type_and_weak,
)
from meshjit.trace import type_and_weak
from meshjit.trace.float0 import FLOAT0 as float0  # noqa: N811

bfloat16 = ml_dtypes.bfloat16
__all__ = [
    "TypePromotionError", "bfloat16", "canonicalize_dtype", "extended", "finfo", "float0", "iinfo", "issubdtype", "itemsize_bits",
    "prng_key", "result_type", "scalar_type_of",
]  # fmt: skip


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype that arrays get where this one is asked for: of 32 bits without enable_x64.

    Raises ValueError for the dtype of keys unless allow_extended_dtype."""
    if issubdtype(dtype, extended):
        if not allow_extended_dtype:
            raise ValueError(f"canonicalize_dtype: {dtype} is no dtype of numbers; allow_extended_dtype=True lets it through")
        return dtype
    return promotion.canonical(np.dtype(dtype), config.enable_x64)


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype that operands promote to; with the flag (dtype, whether it is weak)."""
    dtype, weak = result_type_and_weak(*args)
    return (dtype, weak) if return_weak_type_flag else dtype


def itemsize_bits(dtype: Any) -> int:
    """Bits per element. ValueError for None, which NumPy takes for float64."""
    if dtype is None:
        raise ValueError("itemsize_bits: the dtype is None")
    return bits_of(np.dtype(dtype))


def scalar_type_of(x: Any) -> type:
    """bool, int, float or complex: the Python type of numbers like the elements of x, or of the dtype that a name stands for."""
    typing = type_and_weak(x)
    dtype = typing[0].dtype if typing is not None else np.dtype(x if isinstance(x, str) else getattr(x, "dtype", type(x)))
    for python, kind in ((bool, np.bool_), (int, np.integer), (float, np.floating), (complex, np.complexfloating)):
        if issubdtype(dtype, kind):
            return python
    raise TypeError(f"scalar_type_of: {x!r} is of {dtype}, which is no number")


_explain(__name__)
