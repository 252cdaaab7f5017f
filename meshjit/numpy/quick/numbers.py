"""Python numbers as Arrays that are kept, so that C++ can be given them.

A number becomes an Array only beside Arrays of a dtype that has it without rounding it again, so that nothing is seen of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit.api.caches import on_forgetting
from meshjit.core.types import is_float
from meshjit.runtime import _jaxlib
from meshjit.runtime.array import Array
from meshjit.runtime.placing import asarray_host, place as place_array
from sharding.memory import DEVICE, memory_of
from sharding.named import NamedSharding, Sharding, SingleDeviceSharding
from sharding.spec import PartitionSpec

_EXACT = 256  # integers up to here are floating-point numbers of 16 bits and more
_MOST = 4096  # numbers that are kept, and places on each device
_MOST_PLACES = 2**31 - 1  # in a dim: i32
_numbers: dict[Any, Array | None] = {}  # None: seen once
_originals: dict[int, Any] = {}  # of the Arrays that are kept, by id
_context = _jaxlib.call_context


_places: dict[Any, dict[int, Array] | None] = {}  # per layout; None: of several devices, or not in the devices' own memory
_places_on: dict[Sharding, dict[int, Array]] = {}


def _forget() -> None:
    for kept in (_numbers, _originals, _places, _places_on):
        kept.clear()


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
        _keep(key, place_array(value, _replicated(like.sharding), committed=False, weak=weak), number)


def kept_place(x: Any, place: int, extent: int) -> Array | None:
    """A place in a dim of x as an i32, counted from the front; None where it is out of range, or x on several devices."""
    if not -extent <= place < extent or extent > _MOST_PLACES:
        return None
    place = place + extent if place < 0 else place
    layout = x._sharding
    if layout not in _places:
        _places[layout] = _places_beside(x)
    places = _places[layout]
    if places is None:
        return None
    kept = places.get(place)
    return _keep_place(places, x.sharding, place) if kept is None else kept


def _places_beside(x: Array) -> dict[int, Array] | None:
    sharding = x.sharding
    if not isinstance(sharding, SingleDeviceSharding) or memory_of(sharding) != DEVICE or not x.is_fully_addressable:
        return None
    return _places_on.setdefault(sharding, {})


def _keep_place(places: dict[int, Array], sharding: Sharding, place: int) -> Array:
    if len(places) >= _MOST:
        for array in places.values():
            del _originals[id(array)]
        places.clear()
    with _jaxlib.asked_for(is_put=True):  # no move of the user's
        array = places[place] = place_array(np.asarray(place, np.int32), sharding, committed=False)
    _originals[id(array)] = place
    return array


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
