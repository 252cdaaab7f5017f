"""Initializers as `jax.nn.initializers`: functions (key, shape, dtype) -> array."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp, random
from meshjit.missing import explain as _explain

Initializer = Callable[..., Any]


def zeros(key: Any, shape: Sequence[int], dtype: Any = np.float32) -> Any:
    return mnp.zeros(shape, dtype)


def ones(key: Any, shape: Sequence[int], dtype: Any = np.float32) -> Any:
    return mnp.ones(shape, dtype)


def constant(value: Any, dtype: Any = np.float32) -> Initializer:
    return lambda key, shape, dtype=dtype: mnp.full(shape, value, dtype)


def normal(stddev: Any = 1e-2, dtype: Any = np.float32) -> Initializer:
    return lambda key, shape, dtype=dtype: random.normal(key, shape, dtype) * np.asarray(stddev, dtype)


def uniform(scale: Any = 1e-2, dtype: Any = np.float32) -> Initializer:
    return lambda key, shape, dtype=dtype: random.uniform(key, shape, dtype) * np.asarray(scale, dtype)


def variance_scaling(
    scale: float, mode: str, distribution: str, in_axis: int = -2, out_axis: int = -1, dtype: Any = np.float32
) -> Initializer:
    """Variance scale / fan, fan being in, out or their average (arXiv 1502.01852); truncated_normal, normal or uniform."""

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        rest = math.prod(shape) / (shape[in_axis] * shape[out_axis])
        fans = {"fan_in": shape[in_axis] * rest, "fan_out": shape[out_axis] * rest}
        fans["fan_avg"] = (fans["fan_in"] + fans["fan_out"]) / 2
        variance = scale / fans[mode]
        if distribution == "truncated_normal":  # the deviation of a standard normal cut at 2
            deviation = math.sqrt(variance) / 0.87962566103423978
            return random.truncated_normal(key, -2, 2, shape, dtype) * np.asarray(deviation, dtype)
        if distribution == "normal":
            return random.normal(key, shape, dtype) * np.asarray(math.sqrt(variance), dtype)
        return random.uniform(key, shape, dtype, -1) * np.asarray(math.sqrt(3 * variance), dtype)

    return init


def lecun_normal(**kwargs: Any) -> Initializer:
    return variance_scaling(1.0, "fan_in", "truncated_normal", **kwargs)


def lecun_uniform(**kwargs: Any) -> Initializer:
    return variance_scaling(1.0, "fan_in", "uniform", **kwargs)


def glorot_normal(**kwargs: Any) -> Initializer:
    return variance_scaling(1.0, "fan_avg", "truncated_normal", **kwargs)


def glorot_uniform(**kwargs: Any) -> Initializer:
    return variance_scaling(1.0, "fan_avg", "uniform", **kwargs)


def he_normal(**kwargs: Any) -> Initializer:
    return variance_scaling(2.0, "fan_in", "truncated_normal", **kwargs)


def he_uniform(**kwargs: Any) -> Initializer:
    return variance_scaling(2.0, "fan_in", "uniform", **kwargs)


xavier_normal, xavier_uniform, kaiming_normal, kaiming_uniform = glorot_normal, glorot_uniform, he_normal, he_uniform

_explain(__name__)
