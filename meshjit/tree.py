"""Trees of containers (pytrees), under the names of `jax.tree`. None is a node without leaves."""

from meshjit.missing import explain as _explain
from meshjit.runtime._jaxlib import (
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    PyTreeDef as PyTreeDef,
    SequenceKey as SequenceKey,
)
from meshjit.tree_nodes import (
    Partial as Partial,
    keystr as keystr,
    register_dataclass as register_dataclass,
    register_node as register_node,
    register_node_with_keys as register_node_with_keys,
    register_pytree_node_class as register_pytree_node_class,
    register_pytree_with_keys_class as register_pytree_with_keys_class,
    register_static as register_static,
    static as static,
)
from meshjit.trees import USERS as _TREES

all = _TREES.all  # noqa: A001
all_leaves = _TREES.all_leaves
broadcast = _TREES.broadcast
flatten = _TREES.flatten
flatten_with_path = _TREES.flatten_with_path
leaves = _TREES.leaves
leaves_with_path = _TREES.leaves_with_path
map = _TREES.map  # noqa: A001
map_with_path = _TREES.map_with_path
path_names = _TREES.path_names
reduce = _TREES.reduce
reduce_associative = _TREES.reduce_associative
structure = _TREES.structure
structures = _TREES.structures
transpose = _TREES.transpose
unflatten = _TREES.unflatten

_explain(__name__)
