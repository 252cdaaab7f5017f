"""`jax.numpy.ufunc`: elementwise functions of one or two operands with `reduce`, `accumulate`, `reduceat`, `outer` and `at`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.lax.loops import scan
from meshjit.lax.reducing import cummax, cummin
from meshjit.numpy.promote import asarray, no_out, normal_axes, normal_axis, shape_of
from meshjit.numpy.views import copy
from meshjit.trace import Tracer, line_of, user_source

Function = Callable[..., Any]

_WRITTEN_OUT = 16  # ranges of reduceat that a program holds one by one; beyond them its length would be that of an array

# name → (identity, what reduces by it, what accumulates, x.at's update)
_KNOWN: dict[str, tuple[Any, Any, Any, str]] = {
    "add": (0, mnp.sum, mnp.cumsum, "add"), "multiply": (1, mnp.prod, mnp.cumprod, "multiply"),
    "subtract": (None, None, None, "subtract"), "negative": (None, None, None, ""),
    "maximum": (None, mnp.max, cummax, "max"), "minimum": (None, mnp.min, cummin, "min"),
    "logical_and": (True, mnp.all, None, ""), "logical_or": (False, mnp.any, None, ""), "logical_xor": (False, None, None, ""),
    "bitwise_and": (-1, None, None, ""), "bitwise_or": (0, None, None, ""), "bitwise_xor": (0, None, None, ""),
    "logaddexp": (-np.inf, None, None, ""), "logaddexp2": (-np.inf, None, None, ""),
}  # fmt: skip


class ufunc:  # noqa: N801 - JAX's name
    """A function of `nin` scalars to `nout`, elementwise with broadcasting; `identity` is the element that changes none."""

    def __init__(
        self, func: Function, nin: int, nout: int, *, name: str | None = None, nargs: int | None = None, identity: Any = None,
        elementwise: bool = False,
    ) -> None:  # fmt: skip
        self.__name__ = name or getattr(func, "__name__", "function")
        self.__doc__ = getattr(func, "__doc__", None)
        self.nin, self.nout, self.nargs, self.identity = nin, nout, nargs or nin, identity
        self._function = func if elementwise else mnp.vectorize(func)
        self.function, self.known = func, elementwise

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __hash__(self) -> int:
        return hash((self.function, self.__name__, self.nin, self.nout))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ufunc) and self.function is other.function and self.__name__ == other.__name__

    def __call__(self, *args: Any, out: None = None, where: None = None) -> Any:
        if out is not None or where is not None:
            raise self._error(NotImplementedError, "takes no out= and no where=", "jnp.where(mask, f(x), x)")
        return self._function(*args)

    def _error(self, kind: type[Exception], what: str, fix: str) -> Exception:
        return kind(f"{self!r} {what}\n  at {line_of(user_source())}\n  fix: {fix}")

    @property
    def _is_logical(self) -> bool:
        """Whether results are booleans, so that what accumulates begins as one."""
        return self.known and self.__name__.startswith("logical_")

    def _of_two(self, method: str) -> None:
        if self.nin != 2 or self.nout != 1:
            raise self._error(ValueError, f"takes {self.nin} operands: {method} is of functions of 2 with 1 result", "a loop")

    def reduce(
        self, a: Any, axis: Any = 0, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
        where: Any = None,
    ) -> Any:  # fmt: skip
        """f(... f(f(a₀, a₁), a₂) ..., aₙ) along `axis` (None: all elements), of those where `where` holds. ValueError for no
        elements without an identity or `initial`, or `where` without one."""
        self._of_two("reduce")
        no_out("reduce", out)
        a = asarray(a) if dtype is None else asarray(a).astype(dtype)
        if where is not None and initial is None and self.identity is None:
            raise self._error(ValueError, "has no identity, which where= needs", "initial=")
        quick = _KNOWN.get(self.__name__, (None, None))[1] if self.known else None
        rest = {"initial": initial, "where": where} if where is not None or initial is not None else {}
        if quick is not None and (initial is None or self.__name__ not in ("logical_and", "logical_or")):
            rest.pop("initial", None) if initial is None and self.identity is not None else None
            return quick(a, axis=axis, keepdims=keepdims, **rest)
        lines, kept = self._lines(a, axis)
        holds = None if where is None else self._lines(mnp.broadcast_to(where, shape_of(a)), axis)[0]
        result = self._folded(lines, holds, initial)
        return mnp.reshape(result, kept) if keepdims else result

    def _lines(self, a: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
        """The dims of `axis` as one in front; the shape with 1 in their place."""
        rank = len(shape_of(a))
        axes = normal_axes(axis, rank)
        moved = mnp.moveaxis(a, axes, range(len(axes)))
        return mnp.reshape(moved, (-1, *shape_of(moved)[len(axes) :])), tuple(
            1 if d in axes else n for d, n in enumerate(shape_of(a))
        )

    def _folded(self, lines: Any, holds: Any, initial: Any) -> Any:
        first = self.identity if initial is None else initial
        begins = initial is not None or holds is not None or not shape_of(lines)[0]
        if begins and first is None:
            raise self._error(ValueError, "of no elements has no identity", "initial=")
        start = mnp.full(shape_of(lines)[1:], first, lines.dtype) if begins else lines[0]
        steps = lines if begins else lines[1:]
        holds = mnp.ones(shape_of(steps), bool) if holds is None else holds
        kind = mnp.asarray(self._function(start, lines[0] if shape_of(lines)[0] else start)).dtype

        def step(total: Any, pair: Any) -> tuple[Any, None]:
            element, counts = pair
            return mnp.where(counts, self._function(total, element), total).astype(kind), None

        return scan(step, start.astype(kind), (steps, holds))[0]

    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        """The result of reduce up to and with each element."""
        self._of_two("accumulate")
        no_out("accumulate", out)
        a = asarray(a) if dtype is None else asarray(a).astype(dtype)
        axis = normal_axis(axis, len(shape_of(a)))
        a = a.astype(bool) if self._is_logical else a
        quick = _KNOWN.get(self.__name__, (None, None, None))[2] if self.known else None
        if quick is not None:
            return quick(a, axis=axis)
        lines = mnp.moveaxis(a, axis, 0)
        if not shape_of(lines)[0]:
            return a

        def step(total: Any, element: Any) -> tuple[Any, Any]:
            total = self._function(total, element).astype(lines.dtype)
            return total, total

        return mnp.moveaxis(mnp.concatenate([lines[:1], scan(step, lines[0], lines[1:])[1]]), 0, axis)

    def reduceat(self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        """For each i the elements from indices[i] to before indices[i + 1] reduced; a[indices[i]] where these are none."""
        self._of_two("reduceat")
        no_out("reduceat", out)
        a = asarray(a) if dtype is None else asarray(a).astype(dtype)
        axis = normal_axis(axis, len(shape_of(a)))
        lines, places = mnp.moveaxis(a, axis, 0), asarray(indices)
        if isinstance(places, Tracer) or not 0 < places.size <= _WRITTEN_OUT:
            return mnp.moveaxis(self._between(lines, places), 0, axis)
        starts = np.asarray(places).tolist()
        ends = [*starts[1:], shape_of(lines)[0]]
        parts = [self.reduce(lines[i : max(j, i + 1)]) for i, j in zip(starts, ends, strict=True)]
        return mnp.moveaxis(mnp.stack(parts), 0, axis)

    def _between(self, lines: Any, places: Any) -> Any:
        """reduceat of places that are not known, or many: each line joins the results whose range holds it."""
        extent, rank = shape_of(lines)[0], len(shape_of(lines))
        kind = self.reduce(lines[:1]).dtype
        starts = mnp.where(places < 0, places + extent, places)
        ends = mnp.concatenate([starts[1:], mnp.full_like(starts[:1], extent)])

        def step(results: Any, numbered: Any) -> tuple[Any, None]:
            number, line = numbered
            inside = mnp.expand_dims((number > starts) & (number < ends), range(1, rank))
            return mnp.where(inside, self._function(results, line), results).astype(kind), None

        first = mnp.take(lines, starts, axis=0).astype(kind)
        return scan(step, first, (mnp.arange(extent, dtype=starts.dtype), lines))[0]

    def outer(self, A: Any, B: Any, /) -> Any:  # noqa: N803 - NumPy's names
        """f(a, b) of every element of A with every one of B."""
        self._of_two("outer")
        return self._function(mnp.reshape(A, shape_of(A) + (1,) * len(shape_of(B))), B)

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Any:
        """a with f applied to the elements at `indices` (and b); one after another where an element is named more than once.
        NotImplementedError unless inplace=False is said, as in JAX."""
        if inplace:
            raise self._error(NotImplementedError, "at: arrays cannot be changed in place", "a = f.at(a, i, b, inplace=False)")
        a = copy(a).astype(bool) if self._is_logical else copy(a)
        if self.nin == 1:
            return a.at[indices].set(self._function(a[indices]))
        update = _KNOWN.get(self.__name__, (None, None, None, ""))[3]
        if update and self.known:
            return getattr(a.at[indices], update)(b)
        places = mnp.arange(a.size).reshape(shape_of(a))[indices]
        values = mnp.broadcast_to(b, shape_of(places))

        def step(flat: Any, pair: Any) -> tuple[Any, None]:
            place, value = pair
            return flat.at[place].set(self._function(flat[place], value).astype(flat.dtype)), None

        return scan(step, mnp.ravel(a), (mnp.ravel(places), mnp.ravel(values)))[0].reshape(shape_of(a))


def frompyfunc(func: Function, /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """`numpy.frompyfunc`: the ufunc of a function of `nin` scalars to `nout`."""
    return ufunc(func, nin, nout, identity=identity)


def of_numpy() -> dict[str, ufunc]:
    """jax.numpy's ufuncs by name."""
    return {
        name: ufunc(vars(mnp)[name], 1 if name == "negative" else 2, 1, name=name, identity=identity, elementwise=True)
        for name, (identity, *_) in _KNOWN.items()
    }
