"""Trees of containers (pytrees), under the names of `jax.tree` and `jax.tree_util`. None is a node without leaves."""

from __future__ import annotations

import builtins
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from meshjit.missing import explain as _explain
from meshjit.runtime import _jaxlib
from meshjit.runtime._jaxlib import (
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    PyTreeDef as PyTreeDef,
    SequenceKey as SequenceKey,
)

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


def structures(treedef: Any) -> list[Any]:
    """The treedefs one level down: those of a tuple's elements."""
    return _jaxlib.children(treedef)


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:  # noqa: A001
    """f on every leaf, and on what the other trees have in its place (they may go deeper)."""
    flat, treedef = flatten(tree, is_leaf)
    others = [_up_to(treedef, tree, other, i + 1) for i, other in enumerate(rest)]
    return unflatten(treedef, [f(*xs) for xs in zip(flat, *others, strict=True)])


def _up_to(treedef: Any, tree: Any, other: Any, position: int) -> list[Any]:
    try:
        return _jaxlib.flatten_up_to(treedef, other)
    except (ValueError, TypeError):
        found = _difference(unflatten(treedef, range(treedef.num_leaves)), other, None, "")
        if found is None:  # the same keys, but for instance another static field of a dataclass
            found = ("", str(treedef), str(structure(other)))
        where = f" at {found[0]}" if found[0] else ""
        raise ValueError(
            f"tree.map: tree {position + 1} does not have the structure of the first{where}\n"
            f"  the first has {found[1]}, tree {position + 1} has {found[2]}"
        ) from None


_NOTHING = object()


def reduce(f: Callable[[Any, Any], Any], tree: Any, initializer: Any = _NOTHING, is_leaf: IsLeaf = None) -> Any:
    """functools.reduce over the leaves."""
    start = () if initializer is _NOTHING else (initializer,)
    return functools.reduce(f, leaves(tree, is_leaf), *start)


def reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = _NOTHING, is_leaf: IsLeaf = None
) -> Any:
    """Reduce the leaves in a tree of logarithmic depth, in their order; `identity` is the result where there are none.

    Raises TypeError for no leaves and no identity.  Source: jax.tree.reduce_associative."""
    values = leaves(tree, is_leaf)
    if not values and identity is _NOTHING:
        raise TypeError("tree.reduce_associative: a tree without leaves needs an identity")
    while len(values) > 1:
        start = len(values) % 2
        values = values[:start] + [operation(a, b) for a, b in zip(values[start::2], values[start + 1 :: 2], strict=True)]
    return values[0] if values else identity


def static(**keywords: Any) -> Any:
    """`dataclasses.field` of a field that is part of the structure: `register_dataclass` makes it no child."""
    return dataclasses.field(metadata={**(keywords.pop("metadata", None) or {}), "static": True}, **keywords)


def broadcast(prefix: Any, full: Any, is_leaf: IsLeaf = None) -> Any:
    """A tree of the structure of `full` whose leaves are those of `prefix` that stand over them."""
    treedef = structure(full, is_leaf)
    return unflatten(treedef, flatten_prefix(prefix, treedef, "prefix", is_leaf))


def all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:  # noqa: A001
    return builtins.all(leaves(tree, is_leaf))


def transpose(outer: Any, inner: Any, tree: Any) -> Any:
    """From a tree of structure `outer` with subtrees of structure `inner` to the other way round.

    inner None: the structure of the first subtree. ValueError if `tree` is not made like that."""
    subtrees = _up_to(outer, unflatten(outer, range(outer.num_leaves)), tree, 1)
    if inner is None:
        if not subtrees:
            raise ValueError("tree.transpose: the outer structure has no leaves, so the inner one must be given")
        inner = structure(subtrees[0])
    for subtree in subtrees:
        if structure(subtree) != inner:
            raise ValueError(f"tree.transpose: a subtree has structure {structure(subtree)}, not {inner}")
    rows = [leaves(subtree) for subtree in subtrees]
    return unflatten(inner, [unflatten(outer, [row[i] for row in rows]) for i in range(inner.num_leaves)])


def leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[Any, Any]]:
    return _jaxlib.flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[Any, Any]], Any]:
    """([(path, leaf)], treedef). is_leaf(node), or is_leaf(path, node) if is_leaf_takes_path."""
    return _jaxlib.flatten_with_path(tree, is_leaf, is_leaf_takes_path)


def map_with_path(
    f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> Any:
    """f(path, leaf, …) on every leaf."""
    flat, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    others = [_up_to(treedef, tree, other, i + 1) for i, other in enumerate(rest)]
    return unflatten(treedef, [f(path, x, *more) for (path, x), *more in zip(flat, *others, strict=True)])


def keystr(path: Iterable[Any], *, simple: bool = False, separator: str = "") -> str:
    """A path as a person writes it: `['layers'][0].weight`; simple with separator "/": `layers/0/weight`."""
    if not simple:
        return separator.join([str(key) for key in path])
    return separator.join(str(next((getattr(k, a) for a in ("key", "idx", "name") if hasattr(k, a)), k)) for k in path)


def path_names(tree: Any, root: str, is_leaf: IsLeaf = None) -> list[str]:
    """One name per leaf: `params['w1'][0].x` for root "params"."""
    return [root + _jaxlib.path_text(path) for path, _ in _jaxlib.flatten_with_path(tree, is_leaf)[0]]


def register_node(nodetype: type, flatten_func: Any, unflatten_func: Any, flatten_with_keys_func: Any = None) -> None:
    """Make instances of a class nodes: flatten_func(x) -> (children, hashable aux), unflatten_func(aux, children) -> x.

    flatten_with_keys_func(x) -> ((key, child) pairs, aux) names the children in paths."""
    _jaxlib.register_node(nodetype, flatten_func, unflatten_func, flatten_with_keys_func)


def register_node_with_keys(nodetype: type, flatten_with_keys: Any, unflatten_func: Any, flatten_func: Any = None) -> None:
    """`register_node` for classes that name their children."""

    def without_keys(x: Any) -> tuple[list[Any], Any]:
        pairs, aux = flatten_with_keys(x)
        return [child for _, child in pairs], aux

    register_node(nodetype, without_keys if flatten_func is None else flatten_func, unflatten_func, flatten_with_keys)


def register_pytree_node_class(kind: Any) -> Any:
    """A class decorator: the class has tree_flatten() and, a classmethod, tree_unflatten(aux, children)."""
    register_node(kind, lambda x: x.tree_flatten(), kind.tree_unflatten)
    return kind


def register_pytree_with_keys_class(kind: Any) -> Any:
    """A class decorator: the class has tree_flatten_with_keys() and, a classmethod, tree_unflatten(aux, children)."""
    plain = (lambda x: x.tree_flatten()) if hasattr(kind, "tree_flatten") else None
    register_node_with_keys(kind, lambda x: x.tree_flatten_with_keys(), kind.tree_unflatten, plain)
    return kind


def register_dataclass(
    kind: Any,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Any:
    """Make a dataclass a node: data_fields are children, meta_fields (hashable) part of the structure. A decorator.

    What is left out is taken from the class: fields with metadata static=True are meta, the others data. drop_fields are
    neither: a tree that is put together again has their defaults. Of another class, whose fields are its attributes and
    keywords of its __init__, both must be given.  Source: jax.tree_util.register_dataclass."""
    if dataclasses.is_dataclass(kind):
        data_fields, meta_fields = _fields(kind, data_fields, meta_fields, drop_fields)
    elif data_fields is None or meta_fields is None:
        raise TypeError(f"register_dataclass: {kind.__name__} is no dataclass, so data_fields and meta_fields must be given")
    _jaxlib.register_dataclass(cast(type, kind), tuple(data_fields), tuple(meta_fields))
    return kind


def _fields(
    kind: Any, data: Sequence[str] | None, meta: Sequence[str] | None, dropped: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The data and the meta fields of a dataclass; ValueError if they are not all that its __init__ takes."""
    fields = [f for f in dataclasses.fields(kind) if f.init and f.name not in dropped]
    if data is None:
        statics = [f.name for f in fields if f.metadata.get("static", False)] if meta is None else meta
        data = [f.name for f in fields if f.name not in statics]
    if meta is None:
        meta = [f.name for f in fields if f.name not in data]
    missing = {f.name for f in fields} ^ {*data, *meta}
    if missing:
        raise ValueError(
            f"register_dataclass: data_fields {tuple(data)} and meta_fields {tuple(meta)} must be all fields"
            f" of {kind.__name__} that its __init__ takes; {sorted(missing)} differ"
        )
    return data, meta


def register_static(kind: Any) -> Any:
    """A class decorator: instances, which must be hashable, are part of the structure and have no leaves."""
    register_node(kind, lambda x: ((), x), lambda x, children: x)
    return kind


class Partial(functools.partial):  # pyright: ignore[reportMissingTypeArgument]
    """functools.partial as a node: its arguments are children, the function is part of the structure, whole if it is itself a
    partial one."""

    def __new__(cls, func: Callable[..., Any], /, *args: Any, **keywords: Any) -> Partial:
        whole = _Whole(func) if isinstance(func, functools.partial) else func  # functools would merge the two
        return super().__new__(cls, whole, *args, **keywords)


@dataclasses.dataclass(frozen=True)
class _Whole:
    """A partial function that functools does not look into."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)


register_node(
    Partial, lambda p: ((p.args, p.keywords), p.func), lambda func, children: Partial(func, *children[0], **children[1])
)


def flatten_prefix(prefix: Any, full: Any, what: str, is_leaf: IsLeaf = None) -> list[Any]:
    """One entry of `prefix` per leaf of the treedef `full`; an entry of prefix stands for the whole subtree in its place.

    ValueError with the path where the prefix does not fit, what it has and what is there, and a fix.
    """
    dummy = unflatten(full, range(full.num_leaves))
    found = _difference(prefix, dummy, is_leaf, what)
    if found is not None:
        path, mine, theirs = found
        raise ValueError(
            f"{path} does not fit: it is {mine}, the value in its place is {theirs}\n"
            "  a prefix has the same containers as the value, down to some level, and one entry for each subtree below\n"
            f"  fix: give one entry for all of {path}, or the same keys as the value"
        )
    result: list[Any] = []
    _spread(prefix, dummy, is_leaf, result)
    return result


def _difference(prefix: Any, full: Any, is_leaf: IsLeaf, path: str) -> tuple[str, str, str] | None:
    """(path, what prefix has, what full has) of the first place where prefix is not a prefix of full."""
    mine = _children(prefix, is_leaf)
    if mine is None:
        return None
    theirs = _children(full, None)
    if theirs is None or type(prefix) is not type(full) or [k for k, _ in theirs] != [k for k, _ in mine]:
        return path, _shape_text(prefix, mine), "a leaf" if theirs is None else _shape_text(full, theirs)
    pairs = zip(mine, theirs, strict=True)
    found = (_difference(below, other, is_leaf, path + key) for (key, below), (_, other) in pairs)
    return next((f for f in found if f is not None), None)


def _spread(prefix: Any, full: Any, is_leaf: IsLeaf, result: list[Any]) -> None:
    one_level = _children(prefix, is_leaf)
    if one_level is None:
        result.extend([prefix] * len(leaves(full)))
        return
    for (_, mine), (_, theirs) in zip(one_level, _children(full, None) or (), strict=True):
        _spread(mine, theirs, is_leaf, result)


def _children(node: Any, is_leaf: IsLeaf) -> list[tuple[str, Any]] | None:
    """(path, child) one level down; None for a leaf."""
    if is_leaf is not None and is_leaf(node):
        return None
    first = True

    def stop(x: Any) -> bool:
        nonlocal first
        was, first = first, False
        return not was

    pairs = leaves_with_path(node, stop)
    if len(pairs) == 1 and not pairs[0][0] and pairs[0][1] is node:
        return None
    return [(keystr(path), child) for path, child in pairs]


def _shape_text(node: Any, children: Sequence[tuple[str, Any]]) -> str:
    if node is None:
        return "None"
    if isinstance(node, dict):
        return f"a dict with keys {sorted(map(str, node))}"
    return f"a {type(node).__name__} of {len(children)}"


def children(node: Any, is_leaf: IsLeaf = None) -> list[tuple[str, Any]] | None:
    """(path, child) one level down; None for a leaf."""
    return _children(node, is_leaf)


def kind_text(node: Any) -> str:
    """`a dict with keys ['w1']`, `a tuple of 2`, `None` or `a leaf`, for messages."""
    below = _children(node, None)
    return "a leaf" if below is None else _shape_text(node, below)


def is_container(x: Any) -> bool:
    """Whether x is a node of a tree: a dict, list, tuple, None or a registered class."""
    return _children(x, None) is not None

_explain(__name__)
