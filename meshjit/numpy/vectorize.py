"""`numpy.vectorize`: a function of arrays of known rank, over all leading dims."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from meshjit.numpy import creation, shaping
from meshjit.numpy.key_arrays import takes_keys
from meshjit.numpy.promote import broadcast_shapes, shape_of

array, expand_dims, reshape = map(takes_keys, (creation.array, shaping.expand_dims, shaping.reshape))
Dims = tuple[str, ...]
_NAMES = r"\(\s*(?:\w+(?:\s*,\s*\w+)*)?\s*\)"
_SIGNATURE = re.compile(rf"\s*({_NAMES}(?:\s*,\s*{_NAMES})*)?\s*->\s*({_NAMES}(?:\s*,\s*{_NAMES})*)\s*")


def vectorize(pyfunc: Callable[..., Any], *, excluded: Collection[int | str] = frozenset(), signature: str | None = None) -> Any:
    """pyfunc for every position of the leading dims of its arguments, which broadcast as in NumPy; it is traced once, by vmap.

    signature: the trailing dims that pyfunc sees, "(m,n),(n)->(m)"; None: scalars, and results of any shape.
    excluded: positions of arguments that pyfunc gets as they are; keyword arguments always do, and None.
    Raises ValueError for a signature that cannot be read, and for arguments and results that it does not fit.
    Source: jax.numpy.vectorize."""
    if any(not isinstance(e, int | str) for e in excluded):
        raise TypeError(f"vectorize: excluded must be positions and names, got {set(excluded)}")
    if any(isinstance(e, int) and e < 0 for e in excluded):
        raise ValueError(f"vectorize: excluded has a negative position: {set(excluded)}")
    parsed = None if signature is None else _parsed(signature)

    @functools.wraps(pyfunc)
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        kept = [i for i, arg in enumerate(args) if i in excluded or arg is None]
        moving = [i for i in range(len(args)) if i not in kept]
        takes, gives = _dims_of(parsed, args, moving, excluded)

        def fun(*xs: Any) -> Any:
            whole = list(args)
            for i, x in zip(moving, xs, strict=True):
                whole[i] = x
            result = pyfunc(*whole, **kwargs)
            return result if gives is None else _checked(result, gives, sizes)

        arrays = [array(args[i], copy=False) for i in moving]
        sizes = _sizes(arrays, takes)
        return _over_leading(fun, arrays, [len(dims) for dims in takes])

    return vectorized


def _parsed(signature: str) -> tuple[list[Dims], list[Dims]]:
    match = _SIGNATURE.fullmatch(signature)
    if match is None:
        raise ValueError(f"vectorize: not a gufunc signature: {signature!r} (expected something like '(m,n),(n)->(m)')")
    takes, gives = ([tuple(re.findall(r"\w+", dims)) for dims in re.findall(_NAMES, side or "")] for side in match.groups())
    return takes, gives


def _dims_of(
    parsed: tuple[list[Dims], list[Dims]] | None, args: Sequence[Any], moving: Sequence[int], excluded: Collection[int | str]
) -> tuple[list[Dims], list[Dims] | None]:
    """The named dims of the arguments that move, and of the results."""
    if parsed is None:
        return [()] * len(moving), None
    takes, gives = parsed
    named = [i for i, arg in enumerate(args) if i in moving or arg is None and i not in excluded]
    if len(takes) != len(named):
        raise TypeError(f"vectorize: the signature has {len(takes)} arguments, got {len(named)}")
    dims = dict(zip(named, takes, strict=True))
    wrong = next((i for i in named if i not in moving and dims[i]), None)
    if wrong is not None:
        raise ValueError(f"vectorize: argument {wrong} is None, but the signature names its dims")
    return [dims[i] for i in moving], gives


def _sizes(arrays: Sequence[Any], takes: Sequence[Dims]) -> dict[str, int]:
    """The extents of the named dims; ValueError where two differ, or an array has too few dims."""
    sizes: dict[str, int] = {}
    for x, dims in zip(arrays, takes, strict=True):
        shape = shape_of(x)
        if len(shape) < len(dims):
            raise ValueError(f"vectorize: an argument of shape {shape} has not the dims ({', '.join(dims)}) of the signature")
        _note(sizes, dims, shape[len(shape) - len(dims) :])
    return sizes


def _note(sizes: dict[str, int], dims: Dims, shape: Sequence[int]) -> None:
    for name, extent in zip(dims, shape, strict=True):
        if sizes.setdefault(name, extent) != extent:
            raise ValueError(f"vectorize: dim {name} has extents {sizes[name]} and {extent}")


def _checked(result: Any, gives: Sequence[Dims], sizes: dict[str, int]) -> Any:
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(gives):
        raise TypeError(f"vectorize: the signature has {len(gives)} results, the function gave {len(results)}")
    for x, dims in zip(results, gives, strict=True):
        if len(shape_of(x)) != len(dims):
            raise ValueError(f"vectorize: a result of shape {shape_of(x)} has not the dims ({', '.join(dims)}) of the signature")
        _note(dict(sizes), dims, shape_of(x))
    return result


def _over_leading(fun: Callable[..., Any], arrays: Sequence[Any], ranks: Sequence[int]) -> Any:
    """fun for every position of the leading dims. Dims of extent 1 are left out of vmap, so that they are not multiplied."""
    from meshjit.autodiff import vmap

    leads = [shape_of(x)[: len(shape_of(x)) - rank] for x, rank in zip(arrays, ranks, strict=True)]
    lead = broadcast_shapes(*leads)
    padded = [(1,) * (len(lead) - len(mine)) + tuple(mine) for mine in leads]
    operands = [
        reshape(x, (*(n for n in mine if n != 1), *shape_of(x)[len(shape_of(x)) - rank :]))
        for x, mine, rank in zip(arrays, padded, ranks, strict=True)
    ]
    for dim in reversed(range(len(lead))):
        axes = tuple(None if mine[dim] == 1 else 0 for mine in padded)
        if any(axis is not None for axis in axes):
            fun = vmap(fun, in_axes=axes)
    ones = tuple(d for d in range(len(lead)) if lead[d] == 1)
    result = fun(*operands)
    if isinstance(result, tuple):
        return tuple(expand_dims(x, ones) for x in result)
    return expand_dims(result, ones)
