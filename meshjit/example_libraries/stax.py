"""Layers as pairs of functions (`jax.example_libraries.stax`): `init(key, input_shape)` gives (output_shape, parameters),
`apply(parameters, inputs, rng=key)` the outputs; `rng` matters to layers that draw.

    init, apply = serial(Dense(128), Relu, Dense(10), LogSoftmax)

Shapes are those of a whole batch; -1 may stand for the batch.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import meshjit.numpy as np
from meshjit import ShapeDtypeStruct, eval_shape, lax, nn, random
from meshjit.nn.initializers import glorot_normal, normal, ones, zeros

Layer: TypeAlias = tuple[Callable[..., Any], Callable[..., Any]]
Initializer: TypeAlias = Callable[..., Any]
_IMAGES = ("NHWC", "HWIO", "NHWC")


def Dense(out_dim: int, W_init: Initializer = glorot_normal(), b_init: Initializer = normal()) -> Layer:  # noqa: B008
    """x @ W + b, over the last dim."""

    def init(key: Any, shape: Sequence[int]) -> Any:
        first, second = random.split(key)
        return (*shape[:-1], out_dim), (W_init(first, (shape[-1], out_dim)), b_init(second, (out_dim,)))

    return init, lambda parameters, x, **_: np.dot(x, parameters[0]) + parameters[1]


def GeneralConv(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str = "VALID",
    W_init: Initializer | None = None,
    b_init: Initializer = normal(1e-6),  # noqa: B008
) -> Layer:
    """A convolution of images in the layouts that `dimension_numbers` name, with a bias per channel."""
    return _convolution(False, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init)


def GeneralConvTranspose(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str = "VALID",
    W_init: Initializer | None = None,
    b_init: Initializer = normal(1e-6),  # noqa: B008
) -> Layer:
    """The transpose of a convolution, which makes images larger by `strides`."""
    return _convolution(True, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init)


def _convolution(
    is_transpose: bool, numbers: Any, channels: int, window: Sequence[int], strides: Any, padding: str, W_init: Any, b_init: Any
) -> Layer:
    image, kernel, result = numbers
    strides = tuple(strides or (1,) * len(window))
    draw = W_init or glorot_normal(kernel.index("I"), kernel.index("O"))

    def run(x: Any, weights: Any) -> Any:
        if is_transpose:
            return lax.conv_transpose(x, weights, strides, padding, dimension_numbers=numbers)
        return lax.conv_general_dilated(x, weights, strides, padding, dimension_numbers=numbers)

    def init(key: Any, shape: Sequence[int]) -> Any:
        extents = iter(window)
        weights = [channels if c == "O" else shape[image.index("C")] if c == "I" else next(extents) for c in kernel]
        first, second = random.split(key)
        W = draw(first, weights)
        b = b_init(second, [channels if c == "C" else 1 for c in result])
        batch = image.index("N")
        one = [1 if i == batch else n for i, n in enumerate(shape)]
        out = _shape_of(lambda x: run(x, np.zeros(W.shape, np.float32)), one)
        return tuple(shape[batch] if c == "N" else n for c, n in zip(result, out, strict=True)), (W, b)

    return init, lambda parameters, x, **_: run(x, parameters[0]) + parameters[1]


def _shape_of(function: Callable[[Any], Any], shape: Sequence[int]) -> tuple[int, ...]:
    return eval_shape(function, ShapeDtypeStruct(tuple(shape), np.float32)).shape


Conv = functools.partial(GeneralConv, _IMAGES)
ConvTranspose = functools.partial(GeneralConvTranspose, _IMAGES)
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))


def BatchNorm(
    axis: int | Sequence[int] = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Initializer = zeros,
    gamma_init: Initializer = ones,
) -> Layer:
    """Mean 0 and variance 1 over `axis` of the batch at hand (Ioffe and Szegedy, 2015), then a scale and a shift."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def init(key: Any, shape: Sequence[int]) -> Any:
        rest = tuple(n for i, n in enumerate(shape) if i not in axes)
        first, second = random.split(key)
        return tuple(shape), (beta_init(first, rest) if center else (), gamma_init(second, rest) if scale else ())

    def apply(parameters: Any, x: Any, **_: Any) -> Any:
        x = nn.standardize(x, axes, epsilon=epsilon)
        places = tuple(None if i in axes else slice(None) for i in range(x.ndim))
        beta, gamma = parameters
        x = x * gamma[places] if scale else x
        return x + beta[places] if center else x

    return init, apply


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """A layer without parameters that applies `fun`."""
    return lambda key, shape: (shape, ()), lambda parameters, x, **_: fun(x, **fun_kwargs)


Tanh, Relu, Exp, Sigmoid = map(elementwise, (np.tanh, nn.relu, np.exp, nn.sigmoid))
LogSoftmax, Softmax = elementwise(nn.log_softmax, axis=-1), elementwise(nn.softmax, axis=-1)
Softplus, Elu, LeakyRelu, Selu, Gelu = map(elementwise, (nn.softplus, nn.elu, nn.leaky_relu, nn.selu, nn.gelu))
Identity: Layer = elementwise(lambda x: x)
Flatten: Layer = (
    lambda key, shape: ((shape[0], math.prod(shape[1:])), ()),
    lambda parameters, x, **_: np.reshape(x, (x.shape[0], -1)),
)


def _pooling(reducer: Any, begin: float, rescaled: Callable[..., Any] | None = None) -> Callable[..., Layer]:
    def pool(
        window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: str = "VALID", spec: str | None = None
    ) -> Layer:
        """Over windows of images; strides of 1 unless told."""
        layout = spec or "NH" + "WDEF"[: len(window_shape) - 1] + "C"
        steps = iter(strides or (1,) * len(window_shape))
        extents = iter(window_shape)
        window = tuple(1 if c in "NC" else next(extents) for c in layout)
        moves = tuple(1 if c in "NC" else next(steps) for c in layout)

        def run(x: Any) -> Any:
            out = lax.reduce_window(x, begin, reducer, window, moves, padding)
            return rescaled(out, x, window, moves, padding) if rescaled else out

        def init(key: Any, shape: Sequence[int]) -> Any:
            batch = layout.index("N")
            out = _shape_of(run, [1 if i == batch else n for i, n in enumerate(shape)])
            return tuple(shape[i] if i == batch else n for i, n in enumerate(out)), ()

        return init, lambda parameters, x, **_: run(x)

    return pool


def _mean_of_window(sums: Any, x: Any, window: Any, strides: Any, padding: str) -> Any:
    return sums / lax.reduce_window(np.ones_like(x), 0.0, lax.add, window, strides, padding)


MaxPool, SumPool = _pooling(lax.max, -math.inf), _pooling(lax.add, 0.0)
AvgPool = _pooling(lax.add, 0.0, _mean_of_window)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Each element is kept with probability `rate` in mode "train", and then divided by it. ValueError without a key."""

    def apply(parameters: Any, x: Any, **kwargs: Any) -> Any:
        if kwargs.get("rng") is None:
            raise ValueError("Dropout: it draws, and has no key\n  fix: apply(parameters, inputs, rng=key)")
        if mode != "train":
            return x
        return np.where(random.bernoulli(kwargs["rng"], rate, x.shape), x / rate, 0)

    return lambda key, shape: (shape, ()), apply


# --- layers of layers


def FanOut(num: int) -> Layer:
    """`num` times what comes in."""
    return lambda key, shape: ([shape] * num, [()] * num), lambda parameters, x, **_: [x] * num


FanInSum: Layer = (
    lambda key, shapes: (shapes[0], ()),
    lambda parameters, xs, **_: functools.reduce(lambda a, b: a + b, xs),
)


def FanInConcat(axis: int = -1) -> Layer:
    """All that comes in, side by side."""

    def init(key: Any, shapes: Sequence[Sequence[int]]) -> Any:
        at = axis % len(shapes[0])
        whole = sum(shape[at] for shape in shapes)
        return (*shapes[0][:at], whole, *shapes[0][at + 1 :]), ()

    return init, lambda parameters, xs, **_: np.concatenate(xs, axis)


def serial(*layers: Layer) -> Layer:
    """One after the other; parameters are a list."""
    inits, applies = [init for init, _ in layers], [apply for _, apply in layers]

    def init(key: Any, shape: Any) -> Any:
        parameters = []
        for one in inits:
            key, own = random.split(key)
            shape, drawn = one(own, shape)
            parameters.append(drawn)
        return shape, parameters

    def apply(parameters: Any, x: Any, **kwargs: Any) -> Any:
        for one, own, key in zip(applies, parameters, _keys(kwargs.pop("rng", None), len(applies)), strict=True):
            x = one(own, x, rng=key, **kwargs)
        return x

    return init, apply


def parallel(*layers: Layer) -> Layer:
    """Each on its own input; inputs, outputs and parameters are lists."""
    inits, applies = [init for init, _ in layers], [apply for _, apply in layers]

    def init(key: Any, shapes: Sequence[Any]) -> Any:
        keys = random.split(key, len(inits))
        made = [one(own, shape) for one, own, shape in zip(inits, keys, shapes, strict=True)]
        return [shape for shape, _ in made], [drawn for _, drawn in made]

    def apply(parameters: Any, xs: Any, **kwargs: Any) -> Any:
        keys = _keys(kwargs.pop("rng", None), len(applies))
        return [one(own, x, rng=key, **kwargs) for one, own, x, key in zip(applies, parameters, xs, keys, strict=True)]

    return init, apply


def _keys(key: Any, count: int) -> Any:
    return itertools.repeat(None, count) if key is None else random.split(key, count)


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """A layer that is made of its input's shape."""

    def apply(parameters: Any, x: Any, **kwargs: Any) -> Any:
        return make_layer(x.shape)[1](parameters, x, **kwargs)

    return lambda key, shape: make_layer(shape)[0](key, shape), apply
