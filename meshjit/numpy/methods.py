"""Operators and methods of arrays, one list for Tracers and Arrays."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from meshjit.api.putting import device_put
from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.numpy import (
    bits,
    contraction,
    division,
    indexing,
    of_numpy,
    powers,
    rearranging,
    reductions,
    selection,
    shaping,
    sorting,
    ufuncs,
    updates,
    views,
)
from meshjit.numpy.array_api import VERSION
from meshjit.numpy.promote import cast, shape_of, value
from meshjit.numpy.quick.names import quick_method
from meshjit.numpy.quick.operators import quick
from meshjit.runtime.array_values import iteration_over
from meshjit.trace import Tracer, line_of, type_and_weak, user_source
from meshjit.trace.shaped import shaped_array_of
from meshjit.trace.tracer import origin


def _binary(function: Any, reflected: bool = False) -> Any:
    """An operator; other kinds of values get their turn (NotImplemented)."""

    def usual(self: Any, other: Any) -> Any:
        if not _is_operand(other):
            if type(other) is type(self):  # which Python takes for a reason not to ask the other one
                raise TypeError("one operand is a meshjit Array, the other one jax's\n  fix: meshjit.numpy.asarray(y)")
            if type(other) in _NEVER_EQUAL and function in (ufuncs.equal, ufuncs.not_equal):  # Python would say False
                sides = f"'Array' and {type(other).__name__!r}"
                raise TypeError(f"unsupported operand type(s) for == or !=: {sides}\n  fix: x == meshjit.numpy.asarray(y)")
            return NotImplemented
        return function(other, self) if reflected else function(self, other)

    return quick(functools.update_wrapper(usual, function, ()), numbers=function is not powers.power)


_NEVER_EQUAL = (list, tuple, set, dict)
_NUMBERS_AND_ARRAYS = (bool, int, float, complex, np.ndarray, np.generic)


def _is_operand(x: Any) -> bool:
    if type(x) is Tracer or isinstance(x, _NUMBERS_AND_ARRAYS) or type_and_weak(x) is not None:
        return True
    return hasattr(type(x), "__jax_array__") and not isinstance(x, type)


_OPERATORS = {
    "add": ufuncs.add, "sub": ufuncs.subtract, "mul": ufuncs.multiply, "truediv": ufuncs.true_divide,
    "floordiv": division.floor_divide, "mod": division.remainder, "divmod": division.divmod, "pow": powers.power,
    "matmul": contraction.matmul, "and": ufuncs.bitwise_and, "or": ufuncs.bitwise_or, "xor": ufuncs.bitwise_xor,
    "lshift": ufuncs.left_shift, "rshift": ufuncs.right_shift,
}  # fmt: skip
_COMPARISONS = {
    "eq": ufuncs.equal, "ne": ufuncs.not_equal, "lt": ufuncs.less, "le": ufuncs.less_equal, "gt": ufuncs.greater,
    "ge": ufuncs.greater_equal,
}  # fmt: skip


def reshape(self: Any, *shape: Any, order: str = "C", out_sharding: Any = None) -> Any:
    return shaping.reshape(self, shape[0] if len(shape) == 1 else shape, order, out_sharding=out_sharding)


def transpose(self: Any, *axes: Any) -> Any:
    return shaping.transpose(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None)


def _iterate(self: Any) -> Any:
    shape = shape_of(self)
    if not shape:
        where = f" ({origin(self)})" if isinstance(self, Tracer) else ""
        raise TypeError(iteration_over(value(self)[1], where))
    return (indexing.getitem(self, i) for i in range(shape[0]))


def _round(self: Any, ndigits: int | None = None) -> Any:
    """Python's round: without digits an integer."""
    rounded = views.round(self, ndigits or 0)
    return cast(rounded, canonical(np.dtype(np.int64), config.enable_x64)) if ndigits is None else rounded


def _set_item(self: Any, index: Any, new: Any) -> None:
    raise TypeError(
        f"arrays cannot be changed in place\n  at {line_of(user_source())}\n  fix: x = x.at[index].set(value)"
    )


def _to_device(self: Any, device: Any, *, stream: Any = None) -> Any:
    """The array where device_put brings it (Array API standard); inside a traced function a constraint on where it lives."""
    if stream is not None:
        raise NotImplementedError("to_device: streams cannot be chosen\n  fix: leave stream out")
    return device_put(self, device)


def _array_namespace(self: Any, *, api_version: str | None = None) -> Any:
    """The module of functions for these arrays (Array API standard). ValueError for another version of it than 2024.12."""
    del self
    if api_version not in (None, VERSION):
        fix = f"fix: {VERSION!r}, or None"
        raise ValueError(f"__array_namespace__: there is no version {api_version!r} of the Array API here\n  {fix}")
    return sys.modules["meshjit.numpy"]


def _flat(self: Any) -> Any:
    """There is none: it would be written to."""
    del self
    raise NotImplementedError("Arrays do not implement the arr.flat property: consider arr.flatten() instead.")


_METHODS = {
    "__array_namespace__": _array_namespace,
    "view": bits.view,
    "byteswap": bits.byteswap,
    "to_device": _to_device,
    "argpartition": sorting.argpartition,
    "__neg__": ufuncs.negative,
    "__pos__": views.positive,
    "__abs__": views.absolute,
    "__invert__": ufuncs.bitwise_not,
    "__round__": _round,
    "__getitem__": indexing.getitem,
    "__setitem__": _set_item,
    "__iter__": _iterate,
    "reshape": reshape,
    "transpose": transpose,
    "astype": lambda self, dtype, copy=False, device=None: views.astype(self, dtype, copy=copy, device=device),
    "ravel": views.ravel,
    "flatten": views.ravel,
    "squeeze": views.squeeze,
    "sort": sorting.sort,
    "argsort": sorting.argsort,
    "searchsorted": sorting.searchsorted,
    "nonzero": sorting.nonzero,
    "compress": lambda self, condition, axis=None, *, out=None, size=None, fill_value=0: selection.compress(
        condition, self, axis, out=out, size=size, fill_value=fill_value
    ),
    "choose": selection.choose,
    "swapaxes": views.swapaxes,
    "repeat": rearranging.repeat,
    "diagonal": rearranging.diagonal,
    "sum": reductions.sum,
    "prod": reductions.prod,
    "mean": reductions.mean,
    "var": reductions.var,
    "std": reductions.std,
    "max": reductions.max,
    "min": reductions.min,
    "all": reductions.all,
    "any": reductions.any_,
    "ptp": reductions.ptp,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "cumsum": reductions.cumsum,
    "cumprod": reductions.cumprod,
    "clip": views.clip,
    "round": views.round,
    "conj": views.conj,
    "conjugate": views.conjugate,
    "dot": contraction.dot,
    "trace": contraction.trace,
    "take": indexing.take,
    "copy": lambda self: self,
}
_PROPERTIES = {
    "aval": shaped_array_of,
    "T": shaping.transpose,
    "mT": shaping.matrix_transpose,
    "real": views.real,
    "imag": ufuncs.imag,
    "at": updates.IndexUpdater,
    "flat": _flat,
}


def install_methods(kind: type) -> None:
    """Give a class of arrays NumPy's operators and methods; what we have defined for the class itself stays."""
    own = {name for base in kind.__mro__ if base.__module__.partition(".")[0] == "meshjit" for name in vars(base)}
    for name, function in _OPERATORS.items():
        setattr(kind, f"__{name}__", _binary(function))
        setattr(kind, f"__r{name}__", _binary(function, reflected=True))
    for name, function in _COMPARISONS.items():
        setattr(kind, f"__{name}__", _binary(function))
    quickly = (lambda name, function: function) if kind is Tracer else quick_method
    for name, function in _METHODS.items():
        if name not in own:
            setattr(kind, name, _as_method(quickly(name, function)))
    for name, function in _PROPERTIES.items():
        if name not in own:
            setattr(kind, name, property(_as_method(quickly(name, function))))
    for name, fix in _INSTEAD_OF_SETTING.items():
        setattr(kind, name, property(getattr(kind, name).fget, _refuse_setting(name, fix)))


_INSTEAD_OF_SETTING = {"shape": "x = x.reshape(...)", "dtype": "x = x.astype(...), or x.view(...) of the same bytes"}


def _refuse_setting(name: str, fix: str) -> Any:
    def refuse(self: Any, new: Any) -> None:
        raise AttributeError(f"the {name} of an array cannot be set, to {new!r}\n  at {line_of(user_source())}\n  fix: {fix}")

    return refuse


def _as_method(function: Any) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__doc__ = function.__doc__
    vars(method)["__wrapped__"] = function  # what it takes is the function's
    return method


install_methods(Tracer)
of_numpy.install(Tracer)
