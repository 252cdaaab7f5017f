"""`jax.tree_util`'s names for what `meshjit.tree` does."""

from meshjit.missing import explain as _explain
from meshjit.tree import (
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    Partial as Partial,
    PyTreeDef as PyTreeDef,
    SequenceKey as SequenceKey,
    all as tree_all,
    broadcast as tree_broadcast,
    flatten as tree_flatten,
    flatten_with_path as tree_flatten_with_path,
    keystr as keystr,
    leaves as tree_leaves,
    leaves_with_path as tree_leaves_with_path,
    map as tree_map,
    map_with_path as tree_map_with_path,
    reduce as tree_reduce,
    register_dataclass as register_dataclass,
    register_node as register_pytree_node,
    register_node_with_keys as register_pytree_with_keys,
    register_pytree_node_class as register_pytree_node_class,
    register_pytree_with_keys_class as register_pytree_with_keys_class,
    register_static as register_static,
    structure as tree_structure,
    transpose as tree_transpose,
    unflatten as tree_unflatten,
)

__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "Partial", "PyTreeDef", "SequenceKey", "keystr",
    "register_dataclass", "register_pytree_node", "register_pytree_node_class", "register_pytree_with_keys",
    "register_pytree_with_keys_class", "register_static", "tree_all", "tree_broadcast", "tree_flatten",
    "tree_flatten_with_path", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_with_path",
    "tree_reduce", "tree_structure", "tree_transpose", "tree_unflatten",
]  # fmt: skip

_explain(__name__)
