"""What distributions with parameters share: their arguments, and keys for their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.config import config
from meshjit.core.promotion import TypePromotionError, canonical
from meshjit.numpy.promote import broadcast_to, cast, dtype_of, shape_of
from meshjit.random.floats import common_shape, float_dtype, options, unit_floats
from meshjit.random.keys import single
from meshjit.random.threefry import Shape, split_data
from meshjit.trace import line_of, user_source


def drawn(law: Any, name: str, key: Any, parameters: Sequence[Any], shape: Any, dtype: Any, integer: bool = False) -> Any:
    """`law(data, *parameters, shape, dtype, partitionable)` of a public function's arguments; shape None: the parameters'."""
    data, dtype = single(key, name), int_dtype(dtype, name) if integer else float_dtype(dtype, name)
    for i, p in enumerate(parameters):
        if dtype_of(p).kind == "c":
            raise TypePromotionError(
                f"random.{name}: parameter {i} is {dtype_of(p)}, not real\n  at {line_of(user_source())}\n  fix: p.real"
            )
    return law(data, *parameters, **options(common_shape(shape, [shape_of(p) for p in parameters], name), dtype))


def int_dtype(dtype: Any, function: str) -> np.dtype[Any]:
    """The canonical dtype of a `dtype` argument; None is the default integer. ValueError for what is no integer."""
    kind = canonical(np.dtype(np.int64 if dtype is None else dtype), config.enable_x64)
    if kind.kind not in "iu":
        raise ValueError(f"random.{function}: dtype must be an integer dtype, got {kind}\n  at {line_of(user_source())}")
    return kind


def spread_over(shape: Shape, dtype: Any, *parameters: Any) -> list[Any]:
    """The parameters in one dtype (None: as they are) and shape."""
    return [mnp.asarray(broadcast_to(p if dtype is None else cast(p, dtype), shape)) for p in parameters]


def parts(data: Any, count: int, partitionable: bool) -> list[Any]:
    """The data of this many keys."""
    keys = split_data(data, (count,), partitionable)
    return [keys[i] for i in range(count)]


def unit(data: Any, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    """Floats in [0, 1), as an array with operators."""
    return mnp.asarray(unit_floats(data, shape, dtype, partitionable))


def exponential_floats(data: Any, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    return -mnp.log1p(-unit(data, shape, dtype, partitionable))


def signs(data: Any, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    """1 or -1, by a float of the default dtype."""
    coin = canonical(np.dtype(np.float64), config.enable_x64)
    heads = unit(data, shape, coin, partitionable) < np.asarray(0.5, coin)
    return 2 * cast(heads, dtype) - 1
