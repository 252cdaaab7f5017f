"""Identity elements of reductions: what padding is replaced by before a reduction sees it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from meshjit.core.types import is_float, is_integer


def identity_element(kind: str, dtype: np.dtype[Any]) -> Any:
    """x such that kind(x, y) == y for every y: 0, 1, lowest, highest, all ones, no ones."""
    if kind in ("sum", "prod"):
        return dtype.type(0 if kind == "sum" else 1)
    if kind in ("and", "or"):
        return dtype.type(False) if kind == "or" else _all_ones(dtype)
    return _lowest(dtype) if kind == "max" else _highest(dtype)


def _all_ones(dtype: np.dtype[Any]) -> Any:
    return np.bool_(True) if dtype == np.bool_ else np.invert(dtype.type(0))


def _lowest(dtype: np.dtype[Any]) -> Any:
    if dtype == np.bool_:
        return np.bool_(False)
    if is_integer(dtype):
        return dtype.type(ml_dtypes.iinfo(dtype).min)
    return dtype.type(-np.inf) if _has_infinity(dtype) else dtype.type(ml_dtypes.finfo(dtype).min)


def _highest(dtype: np.dtype[Any]) -> Any:
    if dtype == np.bool_:
        return np.bool_(True)
    if is_integer(dtype):
        return dtype.type(ml_dtypes.iinfo(dtype).max)
    return dtype.type(np.inf) if _has_infinity(dtype) else dtype.type(ml_dtypes.finfo(dtype).max)


def _has_infinity(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "c" or is_float(dtype) and bool(np.isinf(np.asarray(np.inf, np.float32).astype(dtype)))
