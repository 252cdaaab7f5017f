"""`jax.tree_util`'s names for what `meshjit.tree` does."""

from meshjit.tree import DictKey as DictKey
from meshjit.tree import FlattenedIndexKey as FlattenedIndexKey
from meshjit.tree import GetAttrKey as GetAttrKey
from meshjit.tree import Partial as Partial
from meshjit.tree import PyTreeDef as PyTreeDef
from meshjit.tree import SequenceKey as SequenceKey
from meshjit.tree import all as tree_all
from meshjit.tree import broadcast as tree_broadcast
from meshjit.tree import flatten as tree_flatten
from meshjit.tree import flatten_with_path as tree_flatten_with_path
from meshjit.tree import keystr as keystr
from meshjit.tree import leaves as tree_leaves
from meshjit.tree import leaves_with_path as tree_leaves_with_path
from meshjit.tree import map as tree_map
from meshjit.tree import map_with_path as tree_map_with_path
from meshjit.tree import reduce as tree_reduce
from meshjit.tree import register_dataclass as register_dataclass
from meshjit.tree import register_node as register_pytree_node
from meshjit.tree import register_node_with_keys as register_pytree_with_keys
from meshjit.tree import register_pytree_node_class as register_pytree_node_class
from meshjit.tree import register_pytree_with_keys_class as register_pytree_with_keys_class
from meshjit.tree import register_static as register_static
from meshjit.tree import structure as tree_structure
from meshjit.tree import transpose as tree_transpose
from meshjit.tree import unflatten as tree_unflatten

__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "Partial", "PyTreeDef", "SequenceKey", "keystr",
    "register_dataclass", "register_pytree_node", "register_pytree_node_class", "register_pytree_with_keys",
    "register_pytree_with_keys_class", "register_static", "tree_all", "tree_broadcast", "tree_flatten",
    "tree_flatten_with_path", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_with_path",
    "tree_reduce", "tree_structure", "tree_transpose", "tree_unflatten",
]  # fmt: skip
