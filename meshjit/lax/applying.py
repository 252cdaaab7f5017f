"""A function applied to elements that indices name, once for each time that they name it: `x.at[i].apply(f)`, `scatter_apply`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.lax.gathering import ScatterDimensionNumbers, scatter_add
from meshjit.lax.loops import fori_loop
from meshjit.numpy import creation, reductions, ufuncs
from meshjit.numpy.promote import broadcast_to, shape_of
from meshjit.numpy.updates import IndexUpdate
from meshjit.trace import Tracer, line_of, user_source

Elements = Callable[[Any], Any]
Update = Callable[[Any, Any], Any]


def applied(function: Elements, x: Any, elements: Elements, update: Update, counts: Any, most: Any) -> Any:
    """x, in which an element that is counted n times is function(... function(element)).

    elements(x): those that are named, as an array, on which `function` is called; update(x, new): x with others in their place;
    counts: how often each of x is named, where `most`, the greatest count, is not 1."""
    if isinstance(most, int) and most == 1:
        return update(x, _called(function, elements(x)))
    named = elements(counts)

    def once_more(done: Any, x: Any) -> Any:
        old = elements(x)
        return update(x, ufuncs.where(ufuncs.greater(named, done), _called(function, old), old))

    return fori_loop(0, most, once_more, x)


def _called(function: Elements, old: Any) -> Any:
    new = function(old)
    if shape_of(new) != shape_of(old):
        raise TypeError(
            f"apply needs a function of single elements, which keeps the shape: it was given {shape_of(old)} and returned"
            f" {shape_of(new)}\n  at {line_of(user_source())}\n  fix: x.at[index].set(...) of an array"
        )
    return new


@takes_out_sharding
def apply(self: IndexUpdate, func: Elements, *, mode: str | None = None, **hints: Any) -> Any:
    """`x.at[index].apply(f)`: x with f(element) where the index names one, and f(f(element)) where it does so twice.

    f is called on an array of elements. It has derivatives, except where the index is traced and may name an element twice:
    then a loop runs as often as it does; `unique_indices=True` says that it does not."""
    x, unique = self.x, bool(hints.get("unique_indices", False))
    most = 1 if unique else _most_repeats(shape_of(x), self.index)
    counts = None
    if most != 1:
        counts = creation.zeros(shape_of(x), np.int32).at[self.index].add(1, mode=mode, **hints)
        most = reductions.max(counts, initial=0) if most is None else most

    def elements(x: Any) -> Any:
        return IndexUpdate(x, self.index).get(mode="clip", **hints)

    def update(x: Any, new: Any) -> Any:
        return IndexUpdate(x, self.index).set(new, mode=mode, **hints)

    return applied(func, x, elements, update, counts, most)


setattr(IndexUpdate, "apply", apply)  # noqa: B010 - numpy's files know no loops


def _most_repeats(shape: Sequence[int], index: Any) -> int | None:
    """How often the index names an element at most; None where that is not known."""
    parts = index if isinstance(index, tuple) else (index,)
    widths = [_width(p) for p in parts]
    arrays: list[Any] = []
    dim = 0
    for part, width in zip(parts, widths, strict=True):
        if part is Ellipsis:
            dim += len(shape) - sum(widths)
        elif not (part is None or isinstance(part, slice)) and shape_of(part) and width:
            arrays.append((part, shape[dim]) if dim < len(shape) and not _is_mask(part) else (part, None))
        dim += width
    if not any(n is not None for _, n in arrays):
        return 1  # masks name an element once
    if any(n is None or isinstance(a, Tracer) or not getattr(a, "is_fully_addressable", True) for a, n in arrays):
        return None
    places = np.broadcast_arrays(*(_inside(np.asarray(a), n) for a, n in arrays))
    counts = np.unique(np.stack([p.ravel() for p in places]), axis=1, return_counts=True)[1]
    return int(counts.max(initial=1))


def _inside(places: np.ndarray[Any, Any], extent: int) -> np.ndarray[Any, Any]:
    return np.clip(np.where(places < 0, places + extent, places), 0, max(extent - 1, 0))


def _is_mask(part: Any) -> bool:
    return getattr(part, "dtype", np.asarray(part).dtype if isinstance(part, list | bool) else None) == np.bool_


def _width(part: Any) -> int:
    """How many dims an entry of an index takes."""
    if part is None or part is Ellipsis:
        return 0
    return len(shape_of(part)) if _is_mask(part) else 1


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Elements,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Any:
    """`jax.lax.scatter_apply`: `func` applied to the elements in the windows, once for each window that an element is in.

    update_shape: of the updates that another scatter of these windows would take. Without derivatives, except with
    unique_indices=True."""
    hints = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
    one = broadcast_to(np.ones((), np.int32), tuple(update_shape))
    counts = scatter_add(creation.zeros(shape_of(operand), np.int32), scatter_indices, one, dimension_numbers, **hints)
    most = 1 if unique_indices else reductions.max(counts, initial=0)
    named = ufuncs.greater(counts, 0)

    def update(x: Any, new: Any) -> Any:
        return ufuncs.where(named, new, x)

    return applied(func, operand, lambda x: x, update, counts, most)
