"""The convolutions of jax.lax that are made of `conv_general_dilated`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from meshjit.numpy.contraction import dot_general
from meshjit.numpy.convolution import (
    check_convolution,
    conv as conv,
    conv_general_dilated as conv_general_dilated,
    dimension_specs,
    padding_of,
)
from meshjit.numpy.creation import eye
from meshjit.numpy.promote import asarray, dtype_of, shape_of
from meshjit.numpy.rearranging import flip, tile
from meshjit.numpy.shaping import moveaxis, reshape, swapaxes
from meshjit.trace import line_of, user_source


class ConvDimensionNumbers(NamedTuple):
    """(batch, feature, *spatial) dims of lhs, (out, in, *spatial) of rhs, (batch, feature, *spatial) of the result."""

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


def conv_dimension_numbers(lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any) -> ConvDimensionNumbers:
    """Dimension numbers of any spelling (None, three strings, three tuples) as tuples."""
    if len(lhs_shape) != len(rhs_shape):
        raise TypeError(f"convolution: lhs has {len(lhs_shape)} dims and rhs {len(rhs_shape)}; they must be equal")
    return ConvDimensionNumbers(*dimension_specs(dimension_numbers, len(lhs_shape)))


def conv_with_general_padding(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, lhs_dilation: Any, rhs_dilation: Any, precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """`jax.lax.conv_with_general_padding`: NCHW, OIHW."""
    options = {"precision": precision, "preferred_element_type": preferred_element_type}
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, **options)


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Any:
    """`jax.lax.conv_transpose`: a convolution of the input dilated by `strides`; "SAME" gives extent * stride.

    Numbers as padding are those of the dilated input; with use_consistent_padding those of the convolution whose transpose it
    is, as the words are.

    dimension_numbers defaults to channels last: ("NHWC", "HWIO", "NHWC"). With transpose_kernel it is the gradient of
    the convolution with this kernel."""
    check_convolution(shape_of(lhs), shape_of(rhs), strides, None, rhs_dilation)
    rank = len(shape_of(lhs))
    if dimension_numbers is None:
        spatial = "DHW"[-(rank - 2) :] if rank > 2 else ""
        dimension_numbers = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    numbers = conv_dimension_numbers(shape_of(lhs), shape_of(rhs), dimension_numbers)
    rhs = asarray(rhs)
    windows = [shape_of(rhs)[d] for d in numbers.rhs_spec[2:]]
    dilation = tuple(rhs_dilation or (1,) * (rank - 2))
    reach = [(n - 1) * d + 1 for n, d in zip(windows, dilation, strict=True)]
    if use_consistent_padding and not isinstance(padding, str):
        padding = [(k - 1 - low, k - 1 - high) for k, (low, high) in zip(reach, padding, strict=True)]
    if isinstance(padding, str):
        padding = [_transposed_padding(k, s, padding) for k, s in zip(reach, strides, strict=True)]
    if transpose_kernel:
        rhs = swapaxes(flip(rhs, numbers.rhs_spec[2:]), numbers.rhs_spec[0], numbers.rhs_spec[1])
    return conv_general_dilated(
        lhs, rhs, (1,) * (rank - 2), padding, strides, dilation, numbers,
        precision=precision, preferred_element_type=preferred_element_type,
    )  # fmt: skip


def _transposed_padding(window: int, stride: int, kind: str) -> tuple[int, int]:
    """Padding of the dilated input, so that the forward convolution with `kind` would give the input's extent."""
    if kind.upper() == "SAME":
        total = window + stride - 2
        low = window - 1 if stride > window - 1 else -(-total // 2)
    elif kind.upper() == "VALID":
        total = window + stride - 2 + max(window - stride, 0)
        low = window - 1
    else:
        raise ValueError(f"conv_transpose: padding {kind!r}: use 'SAME', 'VALID' or (low, high) per spatial dim")
    return low, total - low


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """`jax.lax.conv_general_dilated_patches`: what every window sees, as features (feature, *place in the window), the
    last place fastest. A convolution with one kernel for each place, feature by feature."""
    x, window = asarray(lhs), tuple(filter_shape)
    numbers = conv_dimension_numbers(shape_of(x), (1, 1, *window), dimension_numbers)
    places, features = math.prod(window), shape_of(x)[numbers.lhs_spec[1]]
    one = tile(reshape(eye(places, dtype=dtype_of(x)), (places, 1, *window)), (features, *(1,) * (len(window) + 1)))
    kernel = moveaxis(one, range(len(window) + 2), numbers.rhs_spec)
    return conv_general_dilated(
        x, kernel, window_strides, padding, lhs_dilation, rhs_dilation, numbers, feature_group_count=features,
        precision=precision, preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_local(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
) -> Any:
    """`jax.lax.conv_general_dilated_local`: a convolution whose kernel is another one at every place of the result. `rhs`
    has (out feature, in feature times places in the window, *spatial dims of the result), as its dimension numbers say."""
    numbers = conv_dimension_numbers(shape_of(lhs), shape_of(rhs), dimension_numbers)
    patches = conv_general_dilated_patches(
        lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, numbers, precision
    )
    (n, c, *places), (_, i, *kernels) = numbers.out_spec, numbers.rhs_spec
    batch = (tuple(places), tuple(kernels))
    product = dot_general(patches, rhs, (((c,), (i,)), batch), precision=precision)  # *places, batch, feature
    count = len(places)
    return moveaxis(product, (count, count + 1, *range(count)), (n, c, *places))


__all__ = [
    "ConvDimensionNumbers", "conv", "conv_dimension_numbers", "conv_general_dilated", "conv_general_dilated_local",
    "conv_general_dilated_patches", "conv_transpose", "conv_with_general_padding", "padding_of",
]  # fmt: skip


# -- shapes


def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """What brings lhs and the result to (batch, feature, *spatial), rhs to (out, in, *spatial); of three strings."""
    specs = dimension_specs(tuple(dimension_numbers), len(dimension_numbers[0]))
    lhs, rhs, out = (tuple(int(d) for d in spec) for spec in specs)
    return lhs, rhs, out


def conv_shape_tuple(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], strides: Sequence[int], pads: Any, batch_group_count: int = 1
) -> tuple[int, ...]:
    """The shape of a convolution of lhs (batch, feature, *spatial) and rhs (out, in, *spatial)."""
    window = rhs_shape[2:]
    pairs = padding_of(pads, lhs_shape[2:], window, strides) if isinstance(pads, str) else pads
    if not len(pairs) == len(strides) == len(window) == len(lhs_shape) - 2:
        counts = f"{len(lhs_shape) - 2} spatial dims, {len(strides)} strides, {len(pairs)} pads"
        raise TypeError(f"convolution: {counts}\n  at {line_of(user_source())}")
    places = [_places(n + low + high, w, s) for n, (low, high), w, s in zip(lhs_shape[2:], pairs, window, strides, strict=True)]
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *places)


def _places(extent: int, window: int, stride: int) -> int:
    return max(0, (extent - window) // stride + 1)


def _placed_as(shape: Sequence[int], spec: Sequence[int]) -> tuple[int, ...]:
    """A shape (batch, feature, *spatial) with its dims where the spec says."""
    return tuple(shape[list(spec).index(d)] for d in range(len(spec)))


def conv_general_shape_tuple(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int], padding: Any, dimension_numbers: Any
) -> tuple[int, ...]:
    """The shape of conv_general_dilated without dilations."""
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    own, kernel = [lhs_shape[d] for d in lhs], [rhs_shape[d] for d in rhs]
    return _placed_as(conv_shape_tuple(own, kernel, window_strides, padding), out)


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int], padding: Any, dimension_numbers: Any
) -> tuple[int, ...]:
    """The shape of conv_transpose: "SAME" gives extent * stride, "VALID" at least the kernel."""
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    own, kernel = [lhs_shape[d] for d in lhs], [rhs_shape[d] for d in rhs]
    pads = [padding] * len(window_strides) if isinstance(padding, str) else padding
    spatial = [_transposed(n, k, s, p) for n, k, s, p in zip(own[2:], kernel[2:], window_strides, pads, strict=True)]
    return _placed_as((own[0], kernel[0], *spatial), out)


def _transposed(n: int, k: int, stride: int, padding: str | tuple[int, int]) -> int:
    if padding == "SAME":
        return n * stride
    if padding == "VALID":
        return n * stride + max(0, k - stride)
    return n * stride - (stride - 1) + sum(int(x) for x in padding) - k + 1
