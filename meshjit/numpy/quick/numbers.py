"""Python numbers as Arrays that are kept, so that C++ can be given them.

A number becomes an Array only beside Arrays of a dtype that has it without rounding it again, so that nothing is seen of it.
"""

from __future__ import annotations

import math
from typing import Any

from meshjit.api.caches import on_forgetting
from meshjit.core.types import is_float
from meshjit.runtime import _jaxlib
from meshjit.runtime.array import Array
from meshjit.runtime.placing import asarray_host, place
from sharding.named import NamedSharding, Sharding
from sharding.spec import PartitionSpec

_EXACT = 256  # integers up to here are floating-point numbers of 16 bits and more
_MOST = 4096  # numbers that are kept
_numbers: dict[Any, Array | None] = {}  # None: seen once
_originals: dict[int, Any] = {}  # of the Arrays that are kept, by id
_context = _jaxlib.call_context


def _forget() -> None:
    _numbers.clear()
    _originals.clear()


on_forgetting.append(_forget)


def kept_number(like: Any, number: int | float) -> Array | None:
    """The Array that is this number beside `like`; None if there is none (yet)."""
    kept = _numbers.get((like._sharding, type(number), number, _context.value))
    if kept is None or (not number and math.copysign(1, number) < 0):  # the look-up takes -0.0 for 0.0
        return None
    return kept


def keep_number(like: Array, number: int | float) -> None:
    """The second time, keep it as an Array if it is nothing else beside `like`."""
    key = (like._sharding, type(number), number, _context.value)
    if number != number or not like.is_fully_addressable:
        return
    if key not in _numbers:
        _keep(key, None, None)
        return
    value, weak = asarray_host(number)
    if isinstance(number, int) and abs(number) <= _EXACT and is_float(like.dtype) and like.dtype.itemsize > 1:
        value = value.astype(like.dtype)
    if value.dtype == like.dtype and (number or math.copysign(1, number) > 0):
        _keep(key, place(value, _replicated(like.sharding), committed=False, weak=weak), number)


def original(x: Any) -> Any:
    """The number that an Array is kept for; what is none itself."""
    return _originals.get(id(x), x) if _originals else x


def _keep(key: Any, array: Array | None, number: Any) -> None:
    if len(_numbers) >= _MOST:
        _forget()
    _numbers[key] = array
    if array is not None:
        _originals[id(array)] = number


def _replicated(sharding: Sharding) -> Sharding:
    return NamedSharding(sharding.mesh, PartitionSpec()) if isinstance(sharding, NamedSharding) else sharding
