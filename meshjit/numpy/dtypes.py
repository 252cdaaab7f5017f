"""Dtypes under numpy's names, and what jax.numpy asks of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from meshjit.config import config
from meshjit.core import promotion
from meshjit.core.keys import KeyType, PRNGKeyArray, extended as extended, prng_key as prng_key
from meshjit.core.types import kind_of
from meshjit.numpy.creation import array
from meshjit.numpy.promote import described, value
from meshjit.trace import line_of, user_source


class _ScalarType(type):
    """A dtype by name, usable wherever one is: `x.astype(mnp.float32)`. Called it makes an array: `mnp.float32(2.5)`."""

    dtype: np.dtype[Any]

    def __call__(cls, x: Any = 0) -> Any:
        return array(x, dtype=cls.dtype)

    def __eq__(cls, other: object) -> bool:
        return cls is other or (other is not None and cls.dtype.type == other)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<class 'meshjit.numpy.{cls.__name__}'>"


def _scalar(dtype: Any) -> Any:
    kind = np.dtype(dtype)
    return _ScalarType(kind.name, (), {"dtype": kind, "__module__": "meshjit.numpy", "__doc__": f"The dtype {kind}."})


bool_ = _scalar(np.bool_)
int8, int16, int32, int64 = map(_scalar, (np.int8, np.int16, np.int32, np.int64))
uint8, uint16, uint32, uint64 = map(_scalar, (np.uint8, np.uint16, np.uint32, np.uint64))
int2, int4, uint2, uint4 = map(_scalar, (ml_dtypes.int2, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.uint4))
float16, float32, float64 = map(_scalar, (np.float16, np.float32, np.float64))
bfloat16, float4_e2m1fn = map(_scalar, (ml_dtypes.bfloat16, ml_dtypes.float4_e2m1fn))
float8_e8m0fnu = _scalar(ml_dtypes.float8_e8m0fnu)
float8_e3m4, float8_e4m3, float8_e4m3b11fnuz, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz = (
    _scalar(getattr(ml_dtypes, f"float8_{bits}"))
    for bits in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")
)
complex64, complex128 = map(_scalar, (np.complex64, np.complex128))
single, double, csingle, cdouble = float32, float64, complex64, complex128
int_, uint, float_, complex_ = int64, uint64, float64, complex128  # as in JAX, also where arrays are of 32 bits
generic, number, inexact, integer = np.generic, np.number, np.inexact, np.integer
floating, complexfloating = np.floating, np.complexfloating
character, flexible, object_ = np.character, np.flexible, np.object_  # of which there are no arrays
ComplexWarning = np.exceptions.ComplexWarning
signedinteger, unsignedinteger = np.signedinteger, np.unsignedinteger
dtype, iinfo, finfo = np.dtype, ml_dtypes.iinfo, ml_dtypes.finfo


def result_type(*xs: Any) -> np.dtype[Any]:
    """The dtype that operands promote to: arrays, dtypes and Python numbers (which are weak), as in JAX."""
    return result_type_and_weak(*xs)[0]


def result_type_and_weak(*xs: Any) -> tuple[np.dtype[Any], bool]:
    """The dtype that operands promote to, and whether it is weak: of Python numbers alone."""
    kinds = {x if isinstance(x, KeyType) else x.dtype if isinstance(x, PRNGKeyArray) else None for x in xs}
    if kinds - {None}:
        return _key_type(kinds), False
    if not xs:
        raise ValueError(f"result_type of nothing\n  at {line_of(user_source())}\n  fix: at least one array, dtype or number")
    infos = [_dtype_and_weak(x) for x in xs]
    dtype, weak = promotion.promote(infos)
    if config.numpy_dtype_promotion == "strict":
        promotion.refuse_conversion(infos, dtype)
    return promotion.canonical(dtype, config.enable_x64), weak


def _key_type(kinds: set[KeyType | None]) -> Any:
    """The dtype of keys of one dtype; ValueError, as in JAX, where there are others, or numbers."""
    if len(kinds) > 1:
        shown = ", ".join(sorted("a number's" if kind is None else str(kind) for kind in kinds))
        raise ValueError(f"result_type: keys promote to no dtype but their own, got {shown}")
    return kinds.pop()


def _dtype_and_weak(x: Any) -> tuple[np.dtype[Any], bool]:
    if x in (int, float, complex) if isinstance(x, type) else False:
        return promotion.dtype_of_python_scalar(x(0)), True
    if isinstance(x, type | np.dtype | str):
        return np.dtype(x), False
    if promotion.is_python_number(x):  # whether it fits or not
        return promotion.dtype_of_python_scalar(x), not isinstance(x, bool)
    only_a_type = described(x)
    if only_a_type is not None:
        return only_a_type[0].dtype, False  # weak or not, as in JAX
    _, type_, weak = value(x)
    return type_.dtype, weak


def promote_types(a: Any, b: Any) -> np.dtype[Any]:
    """The dtype of a binary op on arrays of these dtypes (JAX's lattice; int, float and complex are weak)."""
    for x in (a, b):
        if isinstance(x, bool | int | float | complex | np.ndarray):
            raise TypeError(
                f"promote_types takes dtypes, got {type(x).__name__}\n  at {line_of(user_source())}\n  fix: result_type"
            )
    infos = [_dtype_and_weak(a), _dtype_and_weak(b)]
    dtype = promotion.promote(infos)[0]
    if config.numpy_dtype_promotion == "strict":
        promotion.refuse_conversion(infos, dtype)
    narrow = all(kind == promotion.canonical(kind, config.enable_x64) for kind, _ in infos)
    return promotion.canonical(dtype, config.enable_x64) if narrow else dtype


_KINDS: dict[str, Any] = {"f": np.floating, "i": np.signedinteger, "u": np.unsignedinteger}  # of dtypes unknown to NumPy


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """`numpy.issubdtype`, with bfloat16 and float8 among the floating ones and int4 among the integers.

    The dtypes of keys are of the kind `prng_key`."""
    arg1, arg2 = _kind_of_extended(arg1), _kind_of_extended(arg2)
    if _is_extended(arg1) or _is_extended(arg2):
        return arg1 == arg2 or (isinstance(arg1, type) and isinstance(arg2, type) and issubclass(arg1, arg2))
    kind = None if _is_abstract(arg1) else np.dtype(arg1)
    if kind is not None and not issubclass(kind.type, np.number) and kind_of(kind) in _KINDS:
        if isinstance(arg2, type) and issubclass(arg2, np.generic) and issubclass(_KINDS[kind_of(kind)], arg2):
            return True
        try:
            return np.dtype(arg2) == kind
        except TypeError:
            return False
    return bool(np.issubdtype(arg1, arg2))


def _is_abstract(kind: Any) -> bool:
    """Whether it is one of NumPy's classes of several dtypes, as np.floating."""
    if not (isinstance(kind, type) and issubclass(kind, np.generic)):
        return False
    try:
        return np.dtype(kind).type is not kind
    except TypeError:
        return True


def _is_extended(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, extended)


def _kind_of_extended(dtype: Any) -> Any:
    """The kind of an extended dtype; others are themselves."""
    kind = getattr(dtype, "type", None)
    return kind if _is_extended(kind) else dtype


def isdtype(dtype: Any, kind: Any) -> bool:
    """Array API: whether a dtype is of a kind (a dtype, a word such as "real floating", or a tuple of them)."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    words = {
        "bool": np.bool_, "signed integer": np.signedinteger, "unsigned integer": np.unsignedinteger,
        "integral": np.integer, "real floating": np.floating, "complex floating": np.complexfloating, "numeric": np.number,
    }  # fmt: skip
    if isinstance(kind, str) and kind in words:
        return issubdtype(np.dtype(dtype), words[kind])
    return np.dtype(dtype) == np.dtype(kind)


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """`numpy.can_cast` of a dtype, or an array's. TypeError for Python numbers, which adapt."""
    if promotion.is_python_number(from_):
        raise TypeError(
            f"can_cast takes dtypes and arrays, got {type(from_).__name__} {from_!r:.60}\n  at {line_of(user_source())}\n"
            "  fix: the dtype that the number is of"
        )
    return bool(np.can_cast(from_ if isinstance(from_, type | np.dtype | str) else value(from_)[1].dtype, to, casting))  # pyright: ignore[reportArgumentType, reportCallIssue]


def isscalar(element: Any) -> bool:
    """Whether x is a Python number, or an array of 0 dims."""
    if isinstance(element, bool | int | float | complex | np.generic):
        return True
    return getattr(element, "shape", None) == ()
