"""Products of quantized numbers with a scale for every block: `jax.nn.scaled_matmul` and `jax.nn.scaled_dot_general`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from meshjit import numpy as mnp
from meshjit.lax import bitcast_convert_type, dot_general
from meshjit.lax.custom_vjp import custom_vjp
from meshjit.lax.scaled import per_element
from meshjit.numpy.promote import asarray, cast, dtype_of, shape_of
from meshjit.trace import line_of, user_source

_RESULTS = (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))


def scaled_matmul(lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, preferred_element_type: Any = np.float32) -> Any:
    """[b, m, n] of lhs [b, m, k] and rhs [b, n, k], whose k is contracted (`jax.nn.scaled_matmul`).

    Scales [b, m, k / block] and [b, n, k / block]: every element is multiplied by its block's, and the product added up, both in
    float32. ValueError for shapes that do not fit. Computed so on all platforms; JAX has it on GPUs alone."""
    a, b, sa, sb = map(asarray, (lhs, rhs, lhs_scales, rhs_scales))
    shapes = [shape_of(v) for v in (a, b, sa, sb)]
    if any(len(s) != 3 for s in shapes):
        raise ValueError(f"scaled_matmul requires all inputs to be 3-dimensional arrays, got shapes {shapes}")
    for what, s, t in (("inputs a and b", shapes[0], shapes[1]), ("scales", shapes[2], shapes[3])):
        if (s[0], s[2]) != (t[0], t[2]):
            raise ValueError(
                f"scaled_matmul requires {what} to have matching batch (B) and contract (K) dimensions, but got shapes"
                f" {s} and {t}"
            )
    for name, s, t in (("lhs", shapes[0], shapes[2]), ("rhs", shapes[1], shapes[3])):
        if s[:2] != t[:2] or not t[2] or s[2] % t[2]:
            raise ValueError(f"scaled_matmul: {name} of shape {s} needs scales (B, rows, K / block), got shape {t}")
    a, b = (mnp.multiply(cast(v, np.float32), per_element(cast(s, np.float32), shape_of(v))) for v, s in ((a, sa), (b, sb)))
    return cast(dot_general(a, b, (((2,), (2,)), ((0,), (0,)))), preferred_element_type)


@dataclass(frozen=True, eq=False)
class BlockScaleConfig:
    """How an operand is quantized: numbers per scale, their dtype, the scales' dtype, and a scale of all of them."""

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any = None
    infer_only: bool = False


def get_scaled_dot_general_config(mode: Literal["nvfp4", "mxfp8"], global_scale: Any = None) -> BlockScaleConfig:
    """How `scaled_dot_general` quantizes (`jax.nn.get_scaled_dot_general_config`). ValueError for other modes.

    "mxfp8": float8_e4m3fn in blocks of 32 with powers of 2 as scales. "nvfp4": float4_e2m1fn in blocks of 16 with scales of
    float8_e4m3fn, and a global one."""
    if mode == "nvfp4":
        one = np.ones((1,), np.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, mnp.asarray(one))
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu)
    raise ValueError(f"Unsupported mode: {mode}\n  at {line_of(user_source())}\n  fix: 'mxfp8' or 'nvfp4'")


def scaled_dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    preferred_element_type: Any = np.float32,
    configs: Sequence[BlockScaleConfig] | None = None,
    implementation: Any = None,
) -> Any:
    """dot_general of operands that are quantized, each as its config says (`jax.nn.scaled_dot_general`).

    configs: of lhs, of rhs, and of the cotangent. With "mxfp8" derivatives are products of quantized numbers, too; with "nvfp4"
    they are those of the operands as they are. None: dot_general. dimension_numbers None: the last dim of lhs and the
    first of rhs are contracted, of matrices and vectors. TypeError for a result other than float32, bfloat16, float16,
    ValueError where blocks do not divide what is contracted. `implementation` is ignored, as in JAX."""
    del implementation
    result = np.dtype(preferred_element_type)
    if result not in _RESULTS:
        raise TypeError(
            f"Only support preferred_element_type in (f32, bf16, f16), but got {result}\n  at {line_of(user_source())}"
        )
    if dimension_numbers is None:
        dimension_numbers = _of_a_product(lhs, rhs)
    if configs is None:
        return dot_general(lhs, rhs, dimension_numbers, preferred_element_type=result)
    numbers = tuple(tuple(tuple(int(d) for d in side) for side in pair) for pair in dimension_numbers)
    (lc, rc), (lb, rb) = numbers
    x, lead, rows = _as_matrices(asarray(lhs), lc, lb)
    y, _, columns = _as_matrices(asarray(rhs), rc, rb)
    return mnp.reshape(_product(x, y, result, tuple(configs)), (*lead, *rows, *columns))


def _of_a_product(lhs: Any, rhs: Any) -> Any:
    """The dimension numbers of a product of matrices and vectors; ValueError for others, and where extents differ."""
    shape, other = shape_of(lhs), shape_of(rhs)
    if not (1 <= len(shape) <= 2 and 1 <= len(other) <= 2 and shape[-1] == other[0]):
        raise ValueError(
            f"scaled_dot_general: without dimension_numbers matrices and vectors are multiplied, got {shape} and {other}"
            f"\n  at {line_of(user_source())}\n  fix: dimension_numbers=(((contracted), (contracted)), ((batch), (batch)))"
        )
    return ((len(shape) - 1,), (0,)), ((), ())


def _as_matrices(x: Any, contract: tuple[int, ...], batch: tuple[int, ...]) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """As [batch, free, contracted], and the extents that batch and free were made of."""
    shape = shape_of(x)
    free = tuple(d for d in range(len(shape)) if d not in (*contract, *batch))
    extents = [tuple(shape[d] for d in dims) for dims in (batch, free, contract)]
    matrices = mnp.reshape(mnp.transpose(x, (*batch, *free, *contract)), tuple(int(np.prod(e)) for e in extents))
    return matrices, extents[0], extents[1]


def quantized(x: Any, config: BlockScaleConfig) -> tuple[Any, Any]:
    """The numbers in blocks of the last dim, and the blocks' scales: the largest of a block becomes the largest of the dtype."""
    shape, size = shape_of(x), config.block_size
    if shape[-1] % size:
        raise ValueError(
            f"scaled_dot_general: {shape[-1]} elements are contracted, no multiple of {config.mode}'s blocks of {size}"
            f"\n  at {line_of(user_source())}\n  fix: pad what is contracted with zeros"
        )
    blocks = mnp.reshape(cast(x, np.float32), (*shape[:-1], shape[-1] // size, size))
    most = float(ml_dtypes.finfo(config.data_type).max)
    needed = mnp.divide(mnp.max(mnp.abs(blocks), axis=-1, keepdims=True, initial=0.0), most)
    scales, factor = _of_mode(needed, config)
    numbers = mnp.divide(blocks, mnp.where(mnp.equal(factor, 0), np.float32(1), factor))
    numbers = cast(mnp.clip(numbers, -most, most), config.data_type)
    return mnp.reshape(numbers, shape), mnp.reshape(scales, shape_of(scales)[:-1])


def _of_mode(needed: Any, config: BlockScaleConfig) -> tuple[Any, Any]:
    """The scales as they are kept, and what the numbers are divided by."""
    if config.mode == "mxfp8":  # the next power of 2, so that nothing is clipped; its bits are the exponent's of float32
        bits = bitcast_convert_type(needed, np.uint32)
        up = cast(mnp.not_equal(mnp.bitwise_and(bits, np.uint32(2**23 - 1)), 0), np.uint32)
        exponent = mnp.minimum(mnp.add(mnp.right_shift(bits, np.uint32(23)), up), np.uint32(254))
        scales = bitcast_convert_type(cast(exponent, np.uint8), config.scale_type)
        return scales, cast(scales, np.float32)
    most = float(ml_dtypes.finfo(config.scale_type).max)
    scales = cast(mnp.clip(mnp.divide(needed, config.global_scale), 0, most), config.scale_type)
    return scales, mnp.multiply(cast(scales, np.float32), config.global_scale)


def _multiplied(x: Any, y: Any, result: np.dtype[Any], configs: Sequence[BlockScaleConfig]) -> Any:
    (a, sa), (b, sb) = quantized(x, configs[0]), quantized(y, configs[1])
    product = scaled_matmul(a, b, sa, sb, np.float32)
    for config in configs[:2]:
        if config.global_scale is not None:
            product = mnp.multiply(product, config.global_scale)
    return cast(product, result)


@functools.partial(custom_vjp, nondiff_argnums=(2, 3))
def _product(x: Any, y: Any, result: np.dtype[Any], configs: tuple[BlockScaleConfig, ...]) -> Any:
    """[b, m, n] of [b, m, k] and [b, n, k]."""
    return _multiplied(x, y, result, configs)


def _forward(x: Any, y: Any, result: np.dtype[Any], configs: tuple[BlockScaleConfig, ...]) -> Any:
    return _multiplied(x, y, result, configs), (x, y)


def _backward(result: np.dtype[Any], configs: tuple[BlockScaleConfig, ...], kept: Any, ct: Any) -> Any:
    x, y = kept
    if configs[0].mode == "nvfp4":
        ct = cast(ct, np.float32)
        dx = dot_general(ct, cast(y, np.float32), (((2,), (1,)), ((0,), (0,))))
        dy = dot_general(ct, cast(x, np.float32), (((1,), (1,)), ((0,), (0,))))
    else:
        dx = _multiplied(ct, mnp.swapaxes(y, 1, 2), result, (configs[2], configs[1]))
        dy = _multiplied(mnp.swapaxes(ct, 1, 2), mnp.swapaxes(x, 1, 2), result, (configs[2], configs[0]))
    return cast(dx, dtype_of(x)), cast(dy, dtype_of(y))


_product.defvjp(_forward, _backward)
