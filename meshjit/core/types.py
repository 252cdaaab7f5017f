"""Types of values: a shape and a dtype, nothing else. Placement is never part of a type (it is a side map, the Plan)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from meshjit.core.keys import IMPLEMENTATIONS

# Floats of 8 bits and fewer, as in StableHLO but for its capitals: the name says how many bits exponent and mantissa have.
_SMALL: dict[str, Any] = {
    f"f{bits}{rest}": getattr(ml_dtypes, f"float{bits}_{rest}")
    for bits, rest in (
        (4, "e2m1fn"), (8, "e3m4"), (8, "e4m3"), (8, "e4m3b11fnuz"), (8, "e4m3fn"), (8, "e4m3fnuz"), (8, "e5m2"),
        (8, "e5m2fnuz"),
    )
}  # fmt: skip
# Integers of 2 and 4 bits, and float8_e8m0fnu, which has no zero, are stored and moved; what computes with them does so in
# wider dtypes (`core/stored.py`).
_SCALE = "f8e8m0fnu"
_FEW_BITS: dict[str, Any] = {"i2": ml_dtypes.int2, "i4": ml_dtypes.int4, "u2": ml_dtypes.uint2, "u4": ml_dtypes.uint4}
# The short names that programs are printed with, as in StableHLO and jaxprs.
_SHORT: dict[str, Any] = {
    "bool": np.bool_,
    **{f"i{8 * n}": f"int{8 * n}" for n in (1, 2, 4, 8)},
    **{f"u{8 * n}": f"uint{8 * n}" for n in (1, 2, 4, 8)},
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "c128": np.complex128,
    **_SMALL,
    **_FEW_BITS,
    _SCALE: ml_dtypes.float8_e8m0fnu,
}
DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(kind) for name, kind in _SHORT.items()}
SMALL_FLOATS = tuple(DTYPES[name] for name in _SMALL)
SMALL_INTEGERS = tuple(DTYPES[name] for name in _FEW_BITS)
STORED = (*SMALL_INTEGERS, DTYPES[_SCALE])
_FLOATS_OF_ML_DTYPES = frozenset((DTYPES["bf16"], *SMALL_FLOATS, DTYPES[_SCALE]))
_KEYS = {kind: kind.name for kind in IMPLEMENTATIONS.values()}  # for what users see; Programs have words
_NAMES: dict[Any, str] = {**{dtype: name for name, dtype in DTYPES.items()}, **_KEYS}


def short_name(dtype: np.dtype[Any]) -> str:
    """`float32` → `f32`; raises TypeError for a dtype that no device has (strings, objects, dates)."""
    try:
        return _NAMES[dtype]
    except KeyError:
        if dtype.names == ("float0",):
            raise TypeError(
                "float0 arrays, derivatives with respect to integers, have no elements to compute with\n"
                "  fix: leave them out: x if g.dtype == meshjit.dtypes.float0 else x - g"
            ) from None
        raise TypeError(f"dtype {dtype} has no meaning on a device; supported are {', '.join(DTYPES)}") from None


def kind_of(dtype: np.dtype[Any]) -> str:
    """NumPy's `kind`, which is "V" of dtypes that NumPy does not know: those are "f", "i" or "u", too."""
    if dtype.kind != "V":
        return dtype.kind
    return "f" if dtype in _FLOATS_OF_ML_DTYPES else _NAMES[dtype][0] if dtype in SMALL_INTEGERS else "V"


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether the dtype is an integer, of however few bits. A bool is none."""
    return kind_of(dtype) in "iu"


def bits_of(dtype: np.dtype[Any]) -> int:
    """Bits per element: 8 per byte, but for dtypes of 2 and 4 bits, whose elements take a byte each on the host alone."""
    if dtype.kind != "V":
        return 8 * dtype.itemsize
    return int(_NAMES[dtype][1:2]) if _NAMES[dtype][1:2] in "24" else 8 * dtype.itemsize


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether the dtype is a real floating one, bfloat16 and float8 included (NumPy's `kind` does not know those)."""
    return dtype.kind == "f" or dtype in _FLOATS_OF_ML_DTYPES


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Whether derivatives exist for values of this dtype: real or complex floating."""
    return dtype.kind == "c" or is_float(dtype)


@dataclass(frozen=True, slots=True, eq=False, init=False)
class TensorType:
    """Shape and dtype of one value. `str` gives `f32[8,512]`; `TensorType.parse` reads it back."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    _hash: int = field(init=False, repr=False)  # every pass looks types up

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if dtype not in _NAMES:
            short_name(dtype)
        _set_shape(self, shape)  # a third of the time of what a frozen dataclass does
        _set_dtype(self, dtype)
        _set_hash(self, hash((shape, dtype)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, TensorType) and self.shape == other.shape and (
            self.dtype is other.dtype or self.dtype == other.dtype
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[TensorType], tuple[tuple[int, ...], np.dtype[Any]]]:
        return TensorType, (self.shape, self.dtype)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def weak_type(self) -> bool:
        """False: promotion has happened in a Program. What is weak at its border, `in_avals` and `out_avals` say."""
        return False

    @property
    def vma(self) -> frozenset[str]:
        """The mesh axes over which a value varies, in code for single devices (`core/varying.py`)."""
        return frozenset()

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, dtype: Any) -> TensorType:
        return TensorType(self.shape, np.dtype(dtype))

    def __str__(self) -> str:
        return f"{short_name(self.dtype)}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__

    @staticmethod
    def parse(text: str) -> TensorType:
        match = re.fullmatch(r"(\w+)\[([\d,\s]*)\]", text.strip())
        if match is None or match[1] not in DTYPES:
            raise ValueError(f"not a type: {text!r} (expected something like f32[8,512])")
        return TensorType(tuple(int(n) for n in match[2].split(",") if n.strip()), DTYPES[match[1]])


_set_shape, _set_dtype, _set_hash = [TensorType.__dict__[name].__set__ for name in TensorType.__slots__]


def tensor_type(shape: Any, dtype: Any) -> TensorType:
    """A TensorType from anything shape-like and dtype-like."""
    return TensorType(tuple(int(n) for n in shape), np.dtype(dtype))


def type_of(array: np.ndarray[Any, Any]) -> TensorType:
    """The type of a NumPy array or scalar."""
    return TensorType(tuple(np.shape(array)), array.dtype)
