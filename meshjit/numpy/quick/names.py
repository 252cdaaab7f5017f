"""Which functions are quickened: by the number of leading operands, in the modules where users find them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from meshjit.numpy.quick.calls import quickened
from meshjit.numpy.quick.indexing import quick_getitem

_NUMPY = {
    0: "arange eye full identity linspace ones tri zeros",
    1: """abs absolute acos acosh all amax amin angle any arccos arccosh arcsin arcsinh arctan arctanh argmax argmin argsort
        around asin asinh astype atan atanh bitwise_count bitwise_invert bitwise_not broadcast_to cbrt ceil conj conjugate
        cos cosh count_nonzero cumprod cumsum cumulative_prod cumulative_sum deg2rad degrees diag diagonal diff exp exp2
        expand_dims expm1 fabs fix flip fliplr flipud floor imag invert isfinite isinf isnan isneginf isposinf log log10
        log1p log2 logical_not matrix_transpose max mean median min moveaxis nan_to_num nanmax nanmean nanmin nanstd nansum
        nanvar negative ones_like permute_dims positive prod ptp rad2deg radians ravel real reciprocal repeat reshape rint
        roll rot90 round sign signbit sin sinc sinh sort split sqrt square squeeze std sum swapaxes tan tanh tile trace
        transpose tril triu trunc unstack var zeros_like array_split""",
    2: """add allclose arctan2 array_equal atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
        copysign divide divmod dot equal floor_divide fmax fmin fmod greater greater_equal heaviside hypot inner isclose
        kron left_shift less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor matmul maximum minimum mod
        multiply not_equal nextafter outer remainder right_shift subtract tensordot true_divide vdot vecdot average""",
    3: "clip interp where",
}
_LISTS = "append column_stack concat concatenate dstack hstack stack vstack"  # of Arrays
_INDICES = "digitize power float_power ldexp take take_along_axis"  # numbers are settings
_LINALG = {1: "cholesky det inv matrix_norm norm slogdet trace vector_norm", 2: "cross matmul outer solve tensordot vecdot"}
_NN = {
    1: """celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu log_sigmoid log_softmax logsumexp mish
        one_hot relu relu6 selu sigmoid silu soft_sign softmax softplus squareplus standardize swish tanh""",
}
_LAX = {
    1: """abs acos acosh argmax argmin asin asinh atan atanh bitwise_not cbrt ceil convert_element_type cos cosh cumsum erf
        erfc erf_inv exp exp2 expand_dims expm1 floor integer_pow is_finite lgamma log log1p logistic neg reciprocal
        reduce_max reduce_min reduce_sum reshape rev rsqrt sign sin sinh sqrt square squeeze tan tanh transpose""",
    2: "add atan2 batch_matmul bitwise_and bitwise_or bitwise_xor div dot eq ge gt le lt max min mul ne pow rem sub",
    3: "clamp select",
}
_MODULES = {"meshjit.numpy": _NUMPY, "meshjit.numpy.linalg": _LINALG, "meshjit.nn": _NN, "meshjit.lax": _LAX}
_METHODS = {
    1: """T __abs__ __invert__ __neg__ __pos__ all any argmax argmin argsort astype conj conjugate cumprod cumsum diagonal
        flatten imag mT max mean min prod ptp ravel real repeat reshape round sort squeeze std sum swapaxes trace transpose
        var""",
    2: "dot",
    3: "clip",
}
_made: dict[Any, Callable[..., Any]] = {}  # one for all names of a function


def install(name: str) -> None:
    """Quicken the functions of a module that are named here."""
    module = vars(sys.modules[name])
    for operands, names in _MODULES[name].items():
        for function in names.split():
            _replace(module, function, operands)
    if name == "meshjit.numpy":
        for function in _LISTS.split():
            _replace(module, function, 2 if function == "append" else 1)
        for function in _INDICES.split():
            _replace(module, function, 2, numbers=False)
        _replace(module, "einsum", 8, start=1)


def _replace(module: Any, name: str, operands: int, **options: Any) -> None:
    function = module[name]
    if not hasattr(function, "is_quick"):
        module[name] = _made.get(function) or _new(module["__name__"], name, function, operands, options)


def _new(module: str, name: str, function: Any, operands: int, options: dict[str, Any]) -> Callable[..., Any]:
    call: Any = quickened(function, operands, **options)
    call.__module__, call.__qualname__, call.is_quick = module, name, True  # where pickle finds it
    _made[function] = call
    return call


def usual(function: Any) -> Any:
    """What a function was before it was quickened."""
    return function.__wrapped__ if hasattr(function, "is_quick") else function


def quick_method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of Arrays, quickened if it is named here."""
    if name == "__getitem__":
        return quick_getitem(function)
    for operands, names in _METHODS.items():
        if name in names.split():
            return _made.get(function) or quickened(function, operands)
    return function
