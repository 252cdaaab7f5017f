"""abstracted_axes: dims that are called by symbols, so that one can say `n` of an extent that changes between calls.

Every size is compiled for itself; the symbols stand in the printed Program (`f32[n=8, 4]`), in the explanation of a new
compilation, and must mean one size within a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshjit.core.types import TensorType
from meshjit.runtime.array import LeafKey
from meshjit.trees import WORDS as tree
from sharding.extent import NamedExtent

Symbols = Mapping[int, str]  # dim → its symbol


def check_axes(title: str, axes: Any) -> None:
    """TypeError, with its path, for what is no specification of axes."""
    for path, leaf in tree.leaves_with_path(axes, _is_axes):
        if not _is_axes(leaf):
            raise TypeError(
                f"{title}: abstracted_axes{tree.keystr(path)} is {leaf!r}\n"
                '  fix: use {0: "n"} or ("n", None): names of dims, for each argument or for all of them'
            )


def _is_axes(x: Any) -> bool:
    if x is None:
        return True
    if isinstance(x, dict):
        return all(isinstance(k, int) and isinstance(v, str) for k, v in x.items())
    return isinstance(x, tuple) and all(v is None or isinstance(v, str) for v in x)


def axes_key(axes: Any) -> Any:
    """The specification as part of a cache's key."""
    leaves, structure = tree.flatten(axes, _is_axes)
    return (tuple(tuple(sorted(_by_dim(leaf).items())) for leaf in leaves), structure)


def symbols_of(title: str, axes: Any, in_tree: Any, names: Sequence[str], keys: Sequence[LeafKey]) -> list[Symbols]:
    """The symbols of every leaf. ValueError for a dim that the argument lacks, or one symbol with two sizes."""
    args, kwargs = tree.unflatten(in_tree, [0] * in_tree.num_leaves)
    prefix = tuple(axes) if isinstance(axes, list) else axes
    entries = tree.flatten_prefix(prefix, tree.structure(args), "abstracted_axes", is_leaf=_is_axes)
    symbols_by_leaf = [_by_dim(x) for x in entries] + [{}] * len(tree.leaves(kwargs))
    sizes: dict[str, tuple[int, str]] = {}
    for symbols, name, key in zip(symbols_by_leaf, names, keys, strict=True):
        for dim, symbol in symbols.items():
            _check(title, sizes, symbol, dim, name, key.type)
    return symbols_by_leaf


def _by_dim(axes: Any) -> Symbols:
    if axes is None:
        return {}
    if isinstance(axes, dict):
        return axes
    return {dim: symbol for dim, symbol in enumerate(axes) if symbol is not None}


def _check(title: str, sizes: dict[str, tuple[int, str]], symbol: str, dim: int, name: str, type: TensorType) -> None:
    if not 0 <= dim < type.rank:
        fix = f"dims of {name} go from 0 to {type.rank - 1}" if type.rank else f"None for {name}, which has no dims"
        raise ValueError(
            f"{title}: abstracted_axes call dim {dim} of {name} {symbol!r}, but {name} is {type}\n  fix: {fix}"
        )
    here = f"dim {dim} of {name} {type}"
    size, where = sizes.setdefault(symbol, (type.shape[dim], here))
    if size != type.shape[dim]:
        raise ValueError(
            f"{title}: the abstracted axis {symbol!r} is {size} in {where}, but {type.shape[dim]} in {here}\n"
            "  fix: pass arrays that agree there, or give the dims different names"
        )


def with_symbols(type: TensorType, symbols: Symbols) -> TensorType:
    """The type with its dims called so, and by no other name."""
    shape = tuple(NamedExtent(n, symbols[d]) if d in symbols else int(n) for d, n in enumerate(type.shape))
    return TensorType(shape, type.dtype)


def sizes_of(symbols: Sequence[Symbols], keys: Sequence[LeafKey]) -> dict[str, int]:
    """symbol → its size in this call; `symbols` is empty where there are none."""
    return {s: key.type.shape[dim] for by_dim, key in zip(symbols, keys, strict=False) for dim, s in by_dim.items()}
