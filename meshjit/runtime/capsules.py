"""What a DLPack capsule says of the memory that it hands over, read before somebody takes it
(https://dmlc.github.io/dlpack/latest/c_api.html, `DLTensor`)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np

from meshjit.core.types import DTYPES

_Extents: Final = ctypes.POINTER(ctypes.c_int64)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", _Extents),
        ("strides", _Extents),
        ("byte_offset", ctypes.c_uint64),
    )


_KINDS: Final = {0: "int{}", 1: "uint{}", 2: "float{}", 4: "bfloat{}", 5: "complex{}", 6: "bool"}  # DLDataTypeCode


class Held(NamedTuple):
    """What a capsule holds. `strides` count elements; `dtype` is None where there is none of that name."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any] | None

    def order(self) -> tuple[int, ...] | None:
        """The dims as they lie in memory; the elements of the last are neighbours. Of what is in C order: 0, 1, 2, …
        None where there are gaps between elements, where they lie backwards, and where one stands for several."""
        dims = range(len(self.shape))
        wide = [d for d in dims if self.shape[d] > 1]
        if 0 in self.shape or self._fills(wide):
            return tuple(dims)
        wide.sort(key=lambda d: -self.strides[d])
        return (*(d for d in dims if d not in wide), *wide) if self._fills(wide) else None

    def _fills(self, dims: Sequence[int]) -> bool:
        """Whether the elements of these dims follow each other without a gap, those of the last dim as neighbours."""
        step = 1
        for d in reversed(dims):
            if self.strides[d] != step:
                return False
            step *= self.shape[d]
        return True


def read(capsule: Any) -> Held:
    """What an unused capsule holds."""
    tensor = _tensor(capsule)
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _strides_in_c_order(shape)
    name = _KINDS.get(tensor.code, "").format(tensor.bits)
    dtype = next((dtype for dtype in DTYPES.values() if dtype.name == name and tensor.lanes == 1 and tensor.bits >= 8), None)
    return Held((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype)


@contextmanager
def in_order(capsule: Any, held: Held, order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """While this holds, the capsule says that its dims are in this order, in C order; gives their extents. Afterwards it says
    what it said before, because its maker may free that memory."""
    tensor, shape = _tensor(capsule), tuple(held.shape[d] for d in order)
    own, numbers = (tensor.shape, tensor.strides), ctypes.c_int64 * max(1, len(shape))
    extents, strides = numbers(*shape), numbers(*_strides_in_c_order(shape))
    tensor.shape, tensor.strides = ctypes.cast(extents, _Extents), ctypes.cast(strides, _Extents)
    try:
        yield shape
    finally:
        tensor.shape, tensor.strides = own


def _tensor(capsule: Any) -> _Tensor:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return _Tensor.from_address(pointer(capsule, b"dltensor"))


def _strides_in_c_order(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[d + 1 :], dtype=np.int64)) for d in range(len(shape)))
