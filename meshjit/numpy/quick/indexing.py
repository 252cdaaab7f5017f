"""`x[index]` and `x.at[index]` of concrete Arrays: ints, bounds of slices and arrays of integers are operands, so that
all places are one program. What is out of range, masks and steps are left to the usual way.

An index is a template and operands. The template has a number per part of it:

    size of a slice    of which the operand is where it begins (in updates: _FIXED, begin, end)
    _INT, _ARRAY       the operand is the place, the places
    _ALL, _NEW         a whole dim, a new one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from meshjit.numpy.promote import ops, shape_of, weak_of
from meshjit.numpy.quick.calls import Kind
from meshjit.numpy.quick.numbers import keep_number, kept_number, kept_place
from meshjit.numpy.shaping import expand_dims, squeeze
from meshjit.runtime import _jaxlib
from meshjit.trace import bind
from meshjit.trace.thread import traces

Function = Callable[..., Any]
_INT, _ALL, _NEW, _ARRAY, _FIXED = -1, -2, -3, -4, -5
_array_class = _jaxlib.ArrayImpl


def quick_getitem(getitem: Function) -> Function:
    """`getitem(x, index)`, quicker for Arrays."""

    def usual(x: Any, *parts: Any) -> Any:
        return getitem(x, _index(parts[-1], parts[:-1]))

    def traced(x: Any, *parts: Any) -> Any:
        take = _sliced if _ARRAY not in parts[-1] else usual
        return take(x, *parts)

    kinds: dict[int, Kind] = {}

    def call(x: Any, index: Any) -> Any:
        if type(x) is _array_class and not traces.stack:
            pieces = _split(x, index, False)
            if pieces is not None:
                template, operands = pieces
                kind = _kind(kinds, usual, traced, 1 + len(operands))
                try:
                    return kind.fast(x, *operands, template)
                except Exception:  # the usual way raises it, from the user's line
                    pass
        return getitem(x, index)

    call.__doc__ = getitem.__doc__
    vars(call)["__wrapped__"] = getitem
    return call


def quick_update(update: Function) -> Function:
    """`update(x, index, values, kind, mode, hints)`, quicker for Arrays, without a mode and hints."""

    def usual(x: Any, values: Any, *parts: Any) -> Any:
        *operands, template, kind = parts
        return update(x, _index(template, operands), values, kind, None, {})

    kinds: dict[int, Kind] = {}

    def call(x: Any, index: Any, values: Any, kind: str, mode: Any, hints: dict[str, Any]) -> Any:
        if type(x) is _array_class and not traces.stack and mode is None and not hints:
            pieces, new = _split(x, index, True), _new(x, values)
            if pieces is not None and new is not None:
                template, operands = pieces
                way = _kind(kinds, usual, usual, 2 + len(operands))
                try:
                    return way.fast(x, new, *operands, template, kind)
                except Exception:  # as above
                    pass
        return update(x, index, values, kind, mode, hints)

    return call


def _kind(kinds: dict[int, Kind], usual: Function, traced: Function, stop: int) -> Kind:
    kind = kinds.get(stop)
    if kind is None:
        kind = kinds[stop] = Kind(usual, traced, 0, stop)
    return kind


def _new(x: Any, values: Any) -> Any:
    """New elements as an Array; None if they are none."""
    if type(values) is int or type(values) is float:
        kept = kept_number(x, values)
        if kept is None:
            keep_number(x, values)
        return kept
    return values if type(values) is _array_class else None


def _split(x: Any, index: Any, fixed: bool) -> tuple[tuple[int, ...], list[Any]] | None:
    """(template, operands); None where the index is of another form. `fixed`: bounds of slices stand in the template."""
    parts = index if type(index) is tuple else (index,)
    shape = x.shape
    used = sum([part is not None and part is not Ellipsis for part in parts])
    if used > len(shape):
        return None
    template: list[int] = []
    operands: list[Any] = []
    dim, is_spelt = 0, False
    for part in parts:
        kind = type(part)
        if kind is int:
            place = kept_place(x, part, shape[dim])
            if place is None:
                return None
            template.append(_INT)
            operands.append(place)
            dim += 1
        elif kind is slice:
            entry = _entry(x, part, shape[dim], fixed)
            if entry is None:
                return None
            template += entry[0]
            operands += entry[1]
            dim += 1
        elif part is None:
            template.append(_NEW)
        elif part is Ellipsis and not is_spelt:
            template += [_ALL] * (len(shape) - used)
            dim += len(shape) - used
            is_spelt = True
        elif kind is _array_class and part.dtype.kind in "iu":
            template.append(_ARRAY)
            operands.append(part)
            dim += 1
        else:
            return None
    if _ARRAY in template and any(size >= 0 for size in template) and not fixed:
        return None
    return tuple(template), operands


def _entry(x: Any, part: slice, extent: int, fixed: bool) -> tuple[list[int], list[Any]] | None:
    """What a slice is in the template, and its operands."""
    if part.step is not None and part.step != 1:
        return None
    if part.start is None and part.stop is None:
        return [_ALL], []
    if not all(bound is None or type(bound) is int for bound in (part.start, part.stop)):
        return None
    begin, end, _ = part.indices(extent)
    if begin >= end:
        return None
    if fixed:
        return [_FIXED, begin, end], []
    place = kept_place(x, begin, extent)
    return None if place is None else ([end - begin], [place])


def _index(template: tuple[int, ...], operands: Sequence[Any]) -> tuple[Any, ...]:
    """The index that was split."""
    return tuple(_parts(iter(template), iter(operands)))


def _parts(template: Iterator[int], operands: Iterator[Any]) -> Iterator[Any]:
    for entry in template:
        if entry in (_INT, _ARRAY):
            yield next(operands)
        elif entry == _FIXED:
            yield slice(next(template), next(template))
        elif entry >= 0:
            begin = next(operands)
            yield slice(begin, begin + entry)
        else:
            yield None if entry == _NEW else slice(None)


def _sliced(x: Any, *parts: Any) -> Any:
    """The block that the template says, from places that are traced."""
    *operands, template = parts
    places = iter(operands)
    shape = shape_of(x)
    entries = [entry for entry in template if entry != _NEW]
    entries += [_ALL] * (len(shape) - len(entries))
    zero = np.zeros((), np.int32)
    starts = [zero if entry == _ALL else next(places) for entry in entries]
    sizes = tuple(n if entry == _ALL else abs(entry) for entry, n in zip(entries, shape, strict=True))
    block = bind(ops("dynamic_slice"), x, *starts, slice_sizes=sizes, weak_type=weak_of(x)) if sizes != shape else x
    dropped = tuple(d for d, entry in enumerate(entries) if entry == _INT)
    block = squeeze(block, dropped) if dropped else block
    kept = [entry for entry in template if entry != _INT]
    for position, entry in enumerate(kept):
        block = expand_dims(block, position) if entry == _NEW else block
    return block
