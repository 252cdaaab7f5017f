"""Trees of containers (pytrees), under the names of `jax.tree` and `jax.tree_util`. None is a node without leaves."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from meshjit.runtime import _jaxlib
from meshjit.runtime._jaxlib import PyTreeDef as PyTreeDef

IsLeaf = Callable[[Any], bool] | None


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], Any]:
    """(leaves, treedef); dict keys in sorted order."""
    return _jaxlib.flatten(tree, is_leaf)


def unflatten(treedef: Any, leaves: Iterable[Any]) -> Any:
    """The tree of this structure with these leaves."""
    return _jaxlib.unflatten(treedef, leaves)


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    return _jaxlib.flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf = None) -> Any:
    return _jaxlib.flatten(tree, is_leaf)[1]


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:  # noqa: A001
    """f on every leaf, and on what the other trees have in its place (they may go deeper)."""
    flat, treedef = flatten(tree, is_leaf)
    others = [_up_to(treedef, tree, other, i + 1) for i, other in enumerate(rest)]
    return unflatten(treedef, [f(*xs) for xs in zip(flat, *others, strict=True)])


def _up_to(treedef: Any, tree: Any, other: Any, position: int) -> list[Any]:
    try:
        return _jaxlib.flatten_up_to(treedef, other)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"tree.map: tree {position} does not have the structure of the first\n"
            f"  first: {structure(tree)}\n  tree {position}: {structure(other)}\n  {error}"
        ) from None


def reduce(f: Callable[[Any, Any], Any], tree: Any, *initial: Any, is_leaf: IsLeaf = None) -> Any:
    return functools.reduce(f, leaves(tree, is_leaf), *initial)


def all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:  # noqa: A001
    return builtins.all(leaves(tree, is_leaf))


def transpose(outer: Any, inner: Any, tree: Any) -> Any:
    """From a tree of structure `outer` with leaves of structure `inner` to the other way round."""
    flat = leaves(tree)
    size = inner.num_leaves
    rows = [flat[i : i + size] for i in range(0, len(flat), size)]
    return unflatten(inner, [unflatten(outer, column) for column in zip(*rows, strict=True)])


def leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[Any, Any]]:
    return _jaxlib.flatten_with_path(tree, is_leaf)[0]


def flatten_with_path(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[tuple[Any, Any]], Any]:
    return _jaxlib.flatten_with_path(tree, is_leaf)


def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """f(path, leaf, …) on every leaf."""
    flat, treedef = flatten_with_path(tree, is_leaf)
    others = [_up_to(treedef, tree, other, i + 1) for i, other in enumerate(rest)]
    return unflatten(treedef, [f(path, x, *more) for (path, x), *more in zip(flat, *others, strict=True)])


def keystr(path: Iterable[Any]) -> str:
    """A path as a person writes it: `['layers'][0].weight`."""
    return _jaxlib.path_text(path)


def path_names(tree: Any, root: str, is_leaf: IsLeaf = None) -> list[str]:
    """One name per leaf: `params['w1'][0].x` for root "params"."""
    return [root + _jaxlib.path_text(path) for path, _ in _jaxlib.flatten_with_path(tree, is_leaf)[0]]


def register_node(kind: type, flatten_node: Any, unflatten_node: Any) -> None:
    """Make instances of `kind` nodes: flatten_node(x) -> (children, hashable aux), unflatten_node(aux, children) -> x."""
    _jaxlib.register_node(kind, flatten_node, unflatten_node)


def register_pytree_node_class(kind: Any) -> Any:
    """A class decorator: the class has tree_flatten() and, a classmethod, tree_unflatten(aux, children)."""
    register_node(kind, lambda x: x.tree_flatten(), kind.tree_unflatten)
    return kind


def register_dataclass(kind: Any, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] = ()) -> Any:
    """Make a dataclass a node: data_fields are children (all but meta_fields if left out), meta_fields part of the structure."""
    import dataclasses

    if data_fields is None:
        data_fields = [f.name for f in dataclasses.fields(kind) if f.name not in meta_fields]
    _jaxlib.register_dataclass(kind, tuple(data_fields), tuple(meta_fields))
    return kind


class Partial(functools.partial):  # pyright: ignore[reportMissingTypeArgument]
    """functools.partial as a node: its arguments are children, the function is part of the structure."""


register_node(
    Partial, lambda p: ((p.args, p.keywords), p.func), lambda func, children: Partial(func, *children[0], **children[1])
)


def flatten_prefix(prefix: Any, full: Any, what: str, is_leaf: IsLeaf = None) -> list[Any]:
    """One entry of `prefix` per leaf of the treedef `full`; an entry of prefix stands for the whole subtree in its place.

    ValueError with the path where the prefix does not fit, what it has and what is there, and a fix.
    """
    dummy = unflatten(full, range(full.num_leaves))
    result: list[Any] = []
    _spread(prefix, dummy, what, is_leaf, result)
    return result


def _spread(prefix: Any, full: Any, path: str, is_leaf: IsLeaf, result: list[Any]) -> None:
    one_level = _children(prefix, is_leaf)
    if one_level is None:
        result.extend([prefix] * len(leaves(full)))
        return
    below = _children(full, None)
    if below is None or type(prefix) is not type(full) or [k for k, _ in below] != [k for k, _ in one_level]:
        raise ValueError(
            f"{path} does not fit: it is {_shape_text(prefix, one_level)}, the value in its place is "
            f"{'a leaf' if below is None else _shape_text(full, below)}\n"
            "  a prefix has the same containers as the value, down to some level, and one entry for each subtree below\n"
            f"  fix: give one entry for all of {path}, or the same keys as the value"
        )
    for (key, mine), (_, theirs) in zip(one_level, below, strict=True):
        _spread(mine, theirs, path + key, is_leaf, result)


def _children(node: Any, is_leaf: IsLeaf) -> list[tuple[str, Any]] | None:
    """(path, child) one level down; None for a leaf."""
    if is_leaf is not None and is_leaf(node):
        return None
    first = True

    def stop(x: Any) -> bool:
        nonlocal first
        was, first = first, False
        return not was

    pairs, treedef = flatten_with_path(node, stop)
    if len(pairs) == 1 and not pairs[0][0] and pairs[0][1] is node:
        return None
    del treedef
    return [(keystr(path), child) for path, child in pairs]


def _shape_text(node: Any, children: Sequence[tuple[str, Any]]) -> str:
    if isinstance(node, dict):
        return f"a dict with keys {sorted(map(str, node))}"
    return f"a {type(node).__name__} of {len(children)}"


def is_container(x: Any) -> bool:
    """Whether x is a node of a tree: a dict, list, tuple, None or a registered class."""
    return _children(x, None) is not None
