"""Initializers as `jax.nn.initializers`: functions (key, shape, dtype) -> array. A dtype of None is the default float dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp, random
from meshjit.api.out_sharding import takes_out_sharding as _takes_out_sharding
from meshjit.missing import explain as _explain
from meshjit.ops.base.families import part_dtype

Initializer = Callable[..., Any]
Axes = int | Sequence[int]


@_takes_out_sharding
def zeros(key: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    return mnp.zeros(shape, dtype)


@_takes_out_sharding
def ones(key: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    return mnp.ones(shape, dtype)


def constant(value: Any, dtype: Any = None) -> Initializer:
    return _takes_out_sharding(lambda key, shape, dtype=dtype: mnp.full(shape, value, _dtype(dtype)))


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Normal, real or complex."""
    return _scaled(stddev, random.normal, dtype)


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Uniform on [0, scale)."""
    return _scaled(scale, random.uniform, dtype)


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: float = -2.0, upper: float = 2.0) -> Initializer:
    """A standard normal cut at lower and upper, times stddev, which is not corrected for the cut."""
    return _scaled(stddev, lambda key, shape, dtype: random.truncated_normal(key, lower, upper, shape, dtype), dtype)


def _scaled(scale: Any, draw: Callable[..., Any], dtype: Any) -> Initializer:
    @_takes_out_sharding
    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        return draw(key, shape, _dtype(dtype)) * mnp.array(scale, _dtype(dtype))

    return init


def _dtype(dtype: Any) -> np.dtype[Any]:
    """That which arrays of it have: 64 bits become 32 where x64 is off."""
    return mnp.zeros((), dtype).dtype


def variance_scaling(
    scale: Any, mode: str, distribution: str, in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None
) -> Initializer:
    """Variance scale / fan (arXiv 1502.01852). mode: fan_in, fan_out, fan_avg or fan_geo_avg; distribution: truncated_normal,
    normal or uniform. Dims that are in none of the axes are the places of a convolution; batch_axis holds copies.

    ValueError for another mode or distribution, and for shapes of fewer than two dims where in_axis is the default."""

    @_takes_out_sharding
    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        kind = _dtype(dtype)
        variance = mnp.array(scale / _fan(mode, *_fans(shape, in_axis, out_axis, batch_axis)), kind)
        if distribution not in _DRAWS:
            raise ValueError(f"variance_scaling: distribution is {distribution!r}, not one of {', '.join(_DRAWS)}")
        return _DRAWS[distribution](key, tuple(shape), kind, variance)

    return init


def _fans(shape: Sequence[int], in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    if len(shape) < 2 and in_axis == -2:
        raise ValueError(
            f"variance_scaling: shape {tuple(shape)} has {len(shape)} dims, and in_axis is the second last\n"
            "  fix: name in_axis and out_axis"
        )
    ins, outs, copies = (
        math.prod(shape[a] for a in ([axes] if isinstance(axes, int) else axes)) for axes in (in_axis, out_axis, batch_axis)
    )
    places = math.prod(shape) / ins / outs / copies
    return ins * places, outs * places


def _fan(mode: str, fan_in: float, fan_out: float) -> float:
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2, "fan_geo_avg": (fan_in * fan_out) ** 0.5}
    if mode not in fans:
        raise ValueError(f"variance_scaling: mode is {mode!r}, not one of {', '.join(fans)}")
    return fans[mode]


def _truncated_normal(key: Any, shape: Any, dtype: np.dtype[Any], variance: Any) -> Any:
    """The constants are the deviations of a standard normal cut at 2, real and complex."""
    if dtype.kind != "c":
        return random.truncated_normal(key, -2, 2, shape, dtype) * (mnp.sqrt(variance) / mnp.array(0.87962566103423978, dtype))
    radius = lambda uniform: mnp.sqrt(-mnp.log1p(-(1 - math.exp(-4)) * uniform))  # noqa: E731
    return _complex(key, shape, dtype, radius) * (mnp.sqrt(variance) / mnp.array(0.95311164380491208, dtype))


def _uniform(key: Any, shape: Any, dtype: np.dtype[Any], variance: Any) -> Any:
    """Uniform on an interval about 0, or in a disc."""
    if dtype.kind != "c":
        return random.uniform(key, shape, dtype, -1) * mnp.sqrt(3 * variance)
    return _complex(key, shape, dtype, lambda uniform: mnp.sqrt(2 * uniform)) * mnp.sqrt(variance)


def _complex(key: Any, shape: Any, dtype: np.dtype[Any], radius: Callable[[Any], Any]) -> Any:
    """radius(uniform) in a uniform direction."""
    real, turn = part_dtype(dtype), random.split(key)
    theta = 2 * math.pi * random.uniform(turn[1], shape, real)
    return (radius(random.uniform(turn[0], shape, real)) * mnp.exp(1j * theta)).astype(dtype)


_DRAWS: dict[str, Callable[..., Any]] = {
    "truncated_normal": _truncated_normal,
    "normal": lambda key, shape, dtype, variance: random.normal(key, shape, dtype) * mnp.sqrt(variance),
    "uniform": _uniform,
}


def _variance_scaling(name: str, scale: float, mode: str, distribution: str) -> Callable[..., Initializer]:
    def named(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    named.__name__ = named.__qualname__ = name
    named.__doc__ = f"variance_scaling({scale}, {mode!r}, {distribution!r})."
    return named


glorot_normal = xavier_normal = _variance_scaling("glorot_normal", 1.0, "fan_avg", "truncated_normal")
glorot_uniform = xavier_uniform = _variance_scaling("glorot_uniform", 1.0, "fan_avg", "uniform")
lecun_normal = _variance_scaling("lecun_normal", 1.0, "fan_in", "truncated_normal")
lecun_uniform = _variance_scaling("lecun_uniform", 1.0, "fan_in", "uniform")
he_normal = kaiming_normal = _variance_scaling("he_normal", 2.0, "fan_in", "truncated_normal")
he_uniform = kaiming_uniform = _variance_scaling("he_uniform", 2.0, "fan_in", "uniform")


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """A uniformly random matrix with orthonormal columns (or rows, whichever are fewer), times scale: column_axis against all
    other dims. ValueError for fewer than two dims."""

    @_takes_out_sharding
    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        if len(shape) < 2:
            raise ValueError(f"orthogonal: shape {tuple(shape)} has {len(shape)} dims, an orthogonal matrix has at least 2")
        if 0 in shape:
            return mnp.zeros(shape, _dtype(dtype))
        columns = shape[column_axis]
        q = random.orthogonal(key, math.prod(shape) // columns, (), _dtype(dtype), columns)
        rest = list(shape)
        del rest[column_axis]
        return mnp.array(scale, _dtype(dtype)) * mnp.moveaxis(q.reshape(*rest, columns), -1, column_axis)

    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """A kernel of a convolution (places..., in, out) that is orthogonal at the middle place and 0 elsewhere (arXiv 1806.05393).

    ValueError for other ranks than 3 to 5, and for fewer features out than in."""

    @_takes_out_sharding
    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        if len(shape) not in (3, 4, 5):
            raise ValueError(f"delta_orthogonal: shape {tuple(shape)} has {len(shape)} dims, a kernel has 3, 4 or 5")
        if shape[-1] < shape[-2]:
            raise ValueError(f"delta_orthogonal: {shape[-2]} features in are more than {shape[-1]} features out")
        middle = tuple((n - 1) // 2 for n in shape[:-2])
        return mnp.zeros(shape, _dtype(dtype)).at[middle].set(orthogonal(scale, column_axis, dtype)(key, shape[-2:]))

    return init


_explain(__name__)
