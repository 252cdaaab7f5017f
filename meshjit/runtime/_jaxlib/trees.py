"""Pytrees: jaxlib's registry, which is the fast one."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]


def _new_registry(name: str) -> Any:
    made = _jax.pytree.PyTreeRegistry(  # None is a node without children, as in JAX
        enable_none=True, enable_tuple=True, enable_namedtuple=True, enable_list=True, enable_dict=True
    )
    made.__module__, made.__name__ = __name__, name  # where pickled treedefs look for it
    return made


# Two registries: what users' trees are, and what compiled calls take apart, where arrays of keys are nodes with their words.
registry, words_registry = _new_registry("registry"), _new_registry("words_registry")
DictKey, SequenceKey = _jax.pytree.DictKey, _jax.pytree.SequenceKey
GetAttrKey, FlattenedIndexKey = _jax.pytree.GetAttrKey, _jax.pytree.FlattenedIndexKey


flatten_quickly = words_registry.flatten  # without a frame of Python


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None, registry: Any = registry) -> tuple[list[Any], Any]:
    """(leaves, treedef). Dict keys in sorted order. Treedefs compare with == and are hashable."""
    return registry.flatten(tree, is_leaf)


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, takes_path: bool = False, registry: Any = registry
) -> tuple[list[tuple[tuple[Any, ...], Any]], Any]:
    """([(path, leaf)], treedef); a path is a tuple of DictKey, SequenceKey, GetAttrKey and FlattenedIndexKey.

    is_leaf is called on a node, after its path if it `takes_path`."""
    predicate = is_leaf if is_leaf is None or takes_path else lambda path, node: is_leaf(node)
    return registry.flatten_with_path(tree, predicate)


def path_text(path: Iterable[Any]) -> str:
    """A path as a person writes it: `['layers'][0].weight`."""
    return "".join(map(str, path))


def unflatten(treedef: Any, leaves: Iterable[Any]) -> Any:
    return treedef.unflatten(leaves)


def flatten_up_to(treedef: Any, tree: Any) -> list[Any]:
    """The subtrees of `tree` at the leaves of `treedef`, which must be a prefix of its structure (else ValueError)."""
    return treedef.flatten_up_to(tree)


def is_node(kind: type) -> bool:
    """Whether values of this type are taken apart (named tuples are, too, without being registered)."""
    return registry.is_node(kind)


def children(treedef: Any) -> list[Any]:
    return treedef.children()


def tuple_of(treedefs: Iterable[Any]) -> Any:
    """The treedef of a tuple of trees of these structures."""
    return _jax.pytree.treedef_tuple(registry, list(treedefs))


def one_level(node: Any) -> tuple[Iterable[Any], Any] | None:
    """(children, aux) of a node; None for a leaf."""
    return registry.flatten_one_level(node)


def one_level_with_keys(node: Any) -> tuple[Iterable[tuple[Any, Any]], Any] | None:
    """((key, child) pairs, aux) of a node; None for a leaf."""
    return registry.flatten_one_level_with_keys(node)


def register_node(
    kind: type,
    to_iterable: Callable[[Any], tuple[Iterable[Any], Any]],
    from_iterable: Callable[[Any, Iterable[Any]], Any],
    to_iterable_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Take values of `kind` apart: value -> (children, aux) and (aux, children) -> value. Registering twice raises
    ValueError."""
    for each in (registry, words_registry):
        each.register_node(kind, to_iterable, from_iterable, to_iterable_with_keys)


def register_words(kind: type, to_iterable: Any, from_iterable: Any, to_iterable_with_keys: Any) -> None:
    """`register_node` for compiled calls alone: values of `kind` are leaves of users' trees."""
    words_registry.register_node(kind, to_iterable, from_iterable, to_iterable_with_keys)


def register_dataclass(kind: type, data_fields: Sequence[str], meta_fields: Sequence[str]) -> None:
    """A dataclass as a node: `data_fields` are children, `meta_fields` (hashable) are part of the structure."""
    for each in (registry, words_registry):
        each.register_dataclass_node(kind, list(data_fields), list(meta_fields))


def _register_collections() -> None:
    ordered, default = collections.OrderedDict, collections.defaultdict
    register_node(
        ordered,
        lambda d: (tuple(d.values()), tuple(d)),
        lambda keys, values: ordered(zip(keys, values, strict=True)),
        lambda d: (tuple((DictKey(k), v) for k, v in d.items()), tuple(d)),
    )
    register_node(  # its keys are sorted, as those of a dict
        default,
        lambda d: (tuple(d[k] for k in sorted(d)), (d.default_factory, tuple(sorted(d)))),
        lambda aux, values: default(aux[0], zip(aux[1], values, strict=True)),
        lambda d: (tuple((DictKey(k), d[k]) for k in sorted(d)), (d.default_factory, tuple(sorted(d)))),
    )


_register_collections()


def node_data(treedef: Any) -> tuple[type, Any] | None:
    """(class, aux) of the outermost node; None for a leaf."""
    return treedef.node_data()


def treedef_of(data: tuple[type, Any], treedefs: Iterable[Any], registry: Any = registry) -> Any:
    """The treedef of a node of this `node_data` and these children."""
    return _jax.pytree.PyTreeDef.from_node_data_and_children(registry, data, list(treedefs))
