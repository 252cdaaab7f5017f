"""Convolutions with all of jax.lax's dimension numbers, and those of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.numpy import ufuncs
from meshjit.numpy.contraction import _precision as precision_word, preferred_dtype
from meshjit.numpy.promote import dtype_of, ops, promoted, shape_of
from meshjit.numpy.shaping import flip, reshape
from meshjit.trace import bind, line_of, user_source


@takes_out_sharding
def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """`jax.lax.conv_general_dilated`. dimension_numbers: None (NCHW, OIHW, NCHW), or three strings such as
    ("NHWC", "HWIO", "NHWC"). padding: "SAME", "VALID", "SAME_LOWER" or (low, high) per spatial dim."""
    _check_dtypes(dtype_of(lhs), dtype_of(rhs))
    (lhs, rhs), weak = promoted(lhs, rhs)
    rank = len(shape_of(lhs))
    check_convolution(shape_of(lhs), shape_of(rhs), window_strides, lhs_dilation, rhs_dilation)
    specs = dimension_specs(dimension_numbers, rank)
    spatial = rank - 2
    lhs_dilation = tuple(map(int, lhs_dilation or (1,) * spatial))
    rhs_dilation = tuple(map(int, rhs_dilation or (1,) * spatial))
    if isinstance(padding, str):
        extents = [shape_of(lhs)[d] for d in specs[0][2:]]
        windows = [(shape_of(rhs)[d] - 1) * dil + 1 for d, dil in zip(specs[1][2:], rhs_dilation, strict=True)]
        padding = padding_of(padding, extents, windows, window_strides)
    return bind(
        ops("convolution"), lhs, rhs,
        window_strides=tuple(map(int, window_strides)), padding=tuple((int(a), int(b)) for a, b in padding),
        lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation, dimension_numbers=specs,
        feature_group_count=feature_group_count, batch_group_count=batch_group_count, precision=precision_word(precision),
        preferred=preferred_dtype(preferred_element_type), weak_type=weak,
    )  # fmt: skip


def _check_dtypes(lhs: Any, rhs: Any) -> None:
    if lhs != rhs:
        raise TypeError(
            f"lax.conv_general_dilated: operands have dtypes {lhs} and {rhs}; lax functions convert nothing\n"
            f"  at {line_of(user_source())}\n  fix: x.astype(...)"
        )


def check_convolution(lhs: Sequence[int], rhs: Sequence[int], strides: Any, *dilations: Any) -> None:
    """TypeError where the operands differ in rank, ValueError where they have no batch and feature dims or the strides are
    not one per spatial dim."""
    line = line_of(user_source())
    if len(lhs) != len(rhs):
        fix = "a kernel has (out features, in features, *window), the input (batch, features, *extents)"
        raise TypeError(
            f"convolution: lhs {lhs} has {len(lhs)} dims and rhs {rhs} {len(rhs)}; they must be equal\n  at {line}\n  fix: {fix}"
        )
    if len(lhs) < 2:
        raise ValueError(f"convolution: {lhs} needs a batch and a feature dim\n  at {line}\n  fix: x[None, None]")
    spatial = len(lhs) - 2
    for name, entries in zip(("window_strides", "lhs_dilation", "rhs_dilation"), (strides, *dilations), strict=True):
        if entries is not None and len(entries) != spatial:
            fix = "x[None, None] adds a batch and a feature dim" if len(entries) > spatial else "one entry per spatial dim"
            raise ValueError(
                f"convolution: {name} {tuple(entries)} has {len(entries)} entries, but lhs {lhs} has {spatial} spatial dims"
                f" behind batch and feature\n  at {line}\n  fix: {fix}"
            )
    if any(n < 1 for n in strides):
        raise ValueError(f"convolution: window_strides {tuple(strides)} must be 1 or more\n  at {line}")


def conv(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """`jax.lax.conv`: NCHW, OIHW."""
    options = {"precision": precision, "preferred_element_type": preferred_element_type}
    return conv_general_dilated(lhs, rhs, window_strides, padding, **options)


def dimension_specs(numbers: Any, rank: int) -> tuple[tuple[int, ...], ...]:
    """(batch, feature, *spatial) dims of lhs; (out, in, *spatial) of rhs; (batch, feature, *spatial) of the result."""
    if numbers is None:
        return (tuple(range(rank)),) * 3
    parts = (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec) if hasattr(numbers, "lhs_spec") else tuple(numbers)
    if len(parts) != 3:
        line = line_of(user_source())
        raise TypeError(f"dimension_numbers {numbers}: three are needed, of lhs, rhs and the result\n  at {line}")
    if not isinstance(parts[0], str):
        return tuple(tuple(p) for p in parts)
    spatial = [c for c in parts[1] if c not in "OI"]
    specs = []
    for text, heads in zip(parts, ("NC", "OI", "NC"), strict=True):
        if len(text) != rank or set(text) != set(heads) | set(spatial):
            raise TypeError(f"dimension_numbers {numbers}: {text!r} must name {heads[0]}, {heads[1]} and {spatial} once each")
        specs.append(tuple(text.index(c) for c in (*heads, *spatial)))
    return tuple(specs)


def padding_of(kind: str, extents: Sequence[int], windows: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """"SAME" keeps ceil(extent / stride) places, with the odd element of padding behind ("SAME_LOWER": in front)."""
    if kind.upper() == "VALID":
        return [(0, 0)] * len(extents)
    if kind.upper() not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(f"padding {kind!r}: use 'SAME', 'SAME_LOWER', 'VALID' or (low, high) per spatial dim")
    pads = []
    for extent, window, stride in zip(extents, windows, strides, strict=True):
        need = max((-(-extent // stride) - 1) * stride + window - extent, 0)
        low = need // 2 if kind.upper() == "SAME" else need - need // 2
        pads.append((low, need - low))
    return pads


_MODES = ("full", "same", "valid")


def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.convolve` of vectors; integers give floats, as in JAX. "same" has the extent of the longer one."""
    a, v = _vectors("convolve", a, v, mode)
    if shape_of(a)[0] < shape_of(v)[0]:
        a, v = v, a
    n = shape_of(v)[0]
    pads = {"full": (n - 1, n - 1), "same": (n // 2, n - n // 2 - 1), "valid": (0, 0)}[mode]
    return _slide(a, flip(v), pads, precision, preferred_element_type)


def correlate(a: Any, v: Any, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.correlate` of vectors: y is conjugated and not turned round."""
    a, v = _vectors("correlate", a, v, mode)
    v = ufuncs.conjugate(v)
    swapped = shape_of(a)[0] < shape_of(v)[0]
    long, short = (v, a) if swapped else (a, v)
    n = shape_of(short)[0]
    pads = {"full": (n - 1, n - 1), "same": (n // 2, n - n // 2 - 1), "valid": (0, 0)}[mode]
    if not swapped:
        return _slide(long, short, pads, precision, preferred_element_type)
    # sum_i x[i + k] y[i] of a longer y, as a walk of x along y, is read from its end
    return flip(_slide(long, short, pads, precision, preferred_element_type))


def _vectors(name: str, x: Any, y: Any, mode: str) -> list[Any]:
    if len(shape_of(x)) != 1 or len(shape_of(y)) != 1:
        raise ValueError(f"{name} takes vectors, got shapes {shape_of(x)} and {shape_of(y)}\n  at {line_of(user_source())}")
    if 0 in (*shape_of(x), *shape_of(y)):
        raise ValueError(f"{name} needs at least one element of each, got shapes {shape_of(x)} and {shape_of(y)}")
    if mode not in _MODES:
        raise ValueError(f"{name}: mode is {mode!r}; use 'full', 'same' or 'valid'")
    return promoted(x, y, inexact=True)[0]


def _slide(x: Any, y: Any, pads: tuple[int, int], precision: Any, preferred: Any) -> Any:
    result = conv_general_dilated(
        reshape(x, (1, 1, -1)), reshape(y, (1, 1, -1)), (1,), [pads], precision=precision, preferred_element_type=preferred
    )
    return reshape(result, -1)
