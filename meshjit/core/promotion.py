"""JAX's type promotion: a lattice of dtypes in which Python scalars are weak (JAX documentation, "Type promotion semantics").

    bool -> i* -> u8 -> u16 -> u32 -> u64 -\\
              \\-> i8 -> i16 -> i32 -> i64 ---> f* -> bf16, f16 -> f32 -> f64 ; f* -> c* -> c64 -> c128 ; f32 -> c64, f64 -> c128

i*, f* and c* are what Python ints, floats and complex numbers are: weaker than any array of their kind. The result of
several dtypes is their least upper bound; it is weak only if all of them are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, TypeGuard

import numpy as np

from meshjit.core.types import DTYPES, SMALL_FLOATS, SMALL_INTEGERS, kind_of

_EDGES = {
    "bool": ["i*"],
    "i*": ["u8", "i8", *(name for name in DTYPES if DTYPES[name] in SMALL_INTEGERS)],
    "u8": ["i16", "u16"],
    "u16": ["i32", "u32"],
    "u32": ["i64", "u64"],
    "u64": ["f*"],
    "i8": ["i16"],
    "i16": ["i32"],
    "i32": ["i64"],
    "i64": ["f*"],
    "f*": ["c*", *(name for name in DTYPES if DTYPES[name] in SMALL_FLOATS), "f8e8m0fnu", "f16", "bf16"],
    "c*": ["c64"],
    "f16": ["f32"],
    "bf16": ["f32"],
    "f32": ["f64", "c64"],
    "f64": ["c128"],
    "c64": ["c128"],
}
_WEAK = ("i*", "f*", "c*")
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_KINDS = {"b": "bool", "i": "i*", "u": "i*", "c": "c*"}

Info = tuple[np.dtype[Any], bool]


@functools.cache
def _above() -> dict[str, frozenset[str]]:
    """For every node of the lattice all nodes that it promotes to, itself included."""
    closure: dict[str, frozenset[str]] = {}

    def above(node: str) -> frozenset[str]:
        if node not in closure:
            closure[node] = frozenset({node}).union(*map(above, _EDGES.get(node, ())))
        return closure[node]

    for node in _EDGES:
        above(node)
    return closure


def _node(dtype: np.dtype[Any], weak: bool) -> str:
    if not weak:
        return _NAMES[dtype]
    return _KINDS.get(kind_of(dtype), "f*")


@functools.lru_cache(maxsize=4096)
def _join(nodes: frozenset[str]) -> str:
    above = _above()
    common = frozenset(n for n in above if all(n in above[node] for node in nodes))
    least = [n for n in common if common <= above[n]]
    if len(least) != 1:
        names = " and ".join(sorted(nodes))
        raise TypePromotionError(f"{names} have no common dtype: convert one of them with .astype first")
    return least[0]


class TypePromotionError(ValueError, TypeError):
    """Operands have no common dtype, or may not be converted to it (`numpy_dtype_promotion`)."""


def refuse_conversion(infos: Iterable[Info], dtype: np.dtype[Any]) -> None:
    """TypePromotionError if one of these becomes `dtype` that is not of it, nor a Python number of no higher kind."""
    for mine, weak in infos:
        if mine != dtype and not (weak and _join(frozenset([_node(mine, True), _node(dtype, False)])) == _node(dtype, False)):
            raise TypePromotionError(
                f"{_NAMES[mine]} would be converted to {_NAMES[dtype]}, which numpy_dtype_promotion='strict' forbids\n"
                "  fix: convert with .astype, or: with numpy_dtype_promotion('standard')"
            )


def promote(infos: Iterable[Info]) -> Info:
    """The common dtype of (dtype, weak) pairs, and whether the result is weak.

    [(f32, False), (i32, False)] gives f32; [(bf16, False), (f32, True)] gives bf16: a Python float is weak.
    A weak result keeps the widest dtype that its weak operands have: under x64 a Python int is i64.
    """
    infos = list(infos)
    dtypes = {dtype for dtype, _ in infos}
    weak = all(w for _, w in infos)
    if len(dtypes) == 1:
        return infos[0][0], weak
    node = _join(frozenset(_node(dtype, w) for dtype, w in infos))
    if node not in _WEAK:
        return DTYPES[node], weak and node != "bool"
    same_kind = [dtype for dtype, w in infos if w and _node(dtype, True) == node]
    # Without any: u64 with a signed integer. Both exist under x64 only, where a float has 64 bits.
    return max(same_kind, key=lambda d: d.itemsize, default=DTYPES["f64"]), True


def is_python_number(x: object) -> TypeGuard[bool | int | float | complex]:
    """Whether x is one of Python's own numbers, whose dtype is weak. (NumPy's float64 and complex128 inherit from them.)"""
    return isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic)


def dtype_of_python_scalar(x: bool | int | float | complex) -> np.dtype[Any]:
    """bool, i64, f64 or c128; `canonical` narrows it where 64 bits are off."""
    if isinstance(x, bool):
        return np.dtype(np.bool_)
    if isinstance(x, int):
        return np.dtype(np.int64)
    return np.dtype(np.float64) if isinstance(x, float) else np.dtype(np.complex128)


_NARROW = {"i64": "i32", "u64": "u32", "f64": "f32", "c128": "c64"}


def canonical(dtype: np.dtype[Any] | Any, x64: bool) -> np.dtype[Any]:
    """The dtype that arrays really get: in the machine's byte order, and without x64 those of 64 bits become those of 32."""
    dtype = np.dtype(dtype)
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
    if x64:
        return dtype
    name = _NAMES.get(dtype)
    return DTYPES[_NARROW[name]] if name in _NARROW else dtype
