"""`jax._src.dtypes`."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.dtypes import TypePromotionError as TypePromotionError, extended as extended, finfo as finfo
from meshjit.missing import explain as _explain

DType = np.dtype


class ExtendedDType:
    """The base of dtypes of a library's own, of which meshjit can make no arrays."""


def to_complex_dtype(dtype: Any) -> DType:
    """complex128 for numbers of 64 bits, else complex64."""
    return np.dtype(np.complex128 if np.dtype(dtype) in (np.float64, np.complex128) else np.complex64)


def supports_inf(dtype: Any) -> bool:
    """Whether the floating dtype has infinities."""
    return bool(np.isinf(np.array(np.inf).astype(dtype)))


_explain(__name__)
