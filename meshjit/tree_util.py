"""`jax.tree_util`'s names for what `meshjit.tree` does, and what libraries ask about single nodes."""

from collections.abc import Hashable, Iterable
from typing import Any, TypeAlias

from meshjit.missing import explain as _explain
from meshjit.runtime import _jaxlib
from meshjit.runtime._jaxlib import registry as default_registry
from meshjit.tree import (
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    Partial as Partial,
    PyTreeDef as PyTreeDef,
    SequenceKey as SequenceKey,
    all as tree_all,
    all_leaves as all_leaves,
    broadcast as tree_broadcast,
    flatten as tree_flatten,
    flatten_with_path as tree_flatten_with_path,
    keystr as keystr,
    leaves as tree_leaves,
    leaves_with_path as tree_leaves_with_path,
    map as tree_map,
    map_with_path as tree_map_with_path,
    reduce as tree_reduce,
    reduce_associative as tree_reduce_associative,
    register_dataclass as register_dataclass,
    register_node as register_pytree_node,
    register_node_with_keys as register_pytree_with_keys,
    register_pytree_node_class as register_pytree_node_class,
    register_pytree_with_keys_class as register_pytree_with_keys_class,
    register_static as register_static,
    structure as tree_structure,
    structures as treedef_children,
    transpose as tree_transpose,
    unflatten as tree_unflatten,
)

__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "KeyEntry", "KeyPath", "Partial", "PyTreeDef", "SequenceKey", "all_leaves",
    "default_registry", "flatten_one_level", "flatten_one_level_with_keys", "is_tree_node", "keystr", "register_dataclass",
    "register_pytree_node", "register_pytree_node_class", "register_pytree_with_keys", "register_pytree_with_keys_class",
    "register_static", "tree_all", "tree_broadcast", "tree_flatten", "tree_flatten_with_path", "tree_leaves",
    "tree_leaves_with_path", "tree_map", "tree_map_with_path", "tree_reduce", "tree_reduce_associative", "tree_structure",
    "tree_transpose", "tree_unflatten", "treedef_children", "treedef_is_leaf", "treedef_tuple",
]  # fmt: skip

KeyEntry: TypeAlias = Any  # a DictKey, SequenceKey, GetAttrKey or FlattenedIndexKey, or what a class registers as its key
KeyPath: TypeAlias = tuple[KeyEntry, ...]


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Hashable]:
    """(children, aux) of a node; ValueError for a leaf.  Source: jax.tree_util.flatten_one_level."""
    return _of_node(_jaxlib.one_level(tree), tree)


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[KeyEntry, Any]], Hashable]:
    """((key, child) pairs, aux) of a node; ValueError for a leaf."""
    return _of_node(_jaxlib.one_level_with_keys(tree), tree)


def _of_node(parts: Any, tree: Any) -> Any:
    if parts is None:
        raise ValueError(f"a {type(tree).__name__} is a leaf, no node that could be flattened")
    return parts


def is_tree_node(typ: type) -> bool:
    """Whether values of this class are nodes: containers, named tuples and registered classes."""
    return _jaxlib.is_node(typ)


def treedef_is_leaf(treedef: Any) -> bool:
    """Whether it is the structure of a leaf, or of a node without children."""
    return treedef.num_nodes == 1


def treedef_tuple(treedefs: Iterable[Any]) -> Any:
    """The structure of a tuple of trees of these structures."""
    return _jaxlib.tuple_of(treedefs)


_explain(__name__)
