"""Trees of containers (pytrees). None is a node without leaves.

There are two views of a tree. `USERS` is what `meshjit.tree` shows: an array of keys is a leaf, as every array is. In `WORDS`
it is a node whose one leaf is its words, which is what functions of arrays take apart and put together: jit, vmap, loops,
derivatives. Both views of a tree have as many leaves, in the same order. Classes are registered for both.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from meshjit.runtime import _jaxlib
from meshjit.tree_nodes import Partial, keystr, register_node, register_static

IsLeaf = Callable[[Any], bool] | None
_NOTHING = object()


def _shape_text(node: Any, children: Sequence[tuple[str, Any]]) -> str:
    if node is None:
        return "None"
    if isinstance(node, dict):
        return f"a dict with keys {sorted(map(str, node))}"
    return f"a {type(node).__name__} of {len(children)}"


class Trees:
    """Functions of trees, in one view of them."""

    Partial, keystr = Partial, staticmethod(keystr)
    register_node, register_static = staticmethod(register_node), staticmethod(register_static)

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def _seen(self, flatten: Callable[..., tuple[Any, Any]], tree: Any, *options: Any, leaf: Any = lambda x: x) -> Any:
        """What `flatten` gives; once more where a leaf turns out to be a node of JAX's."""
        result = flatten(tree, *options, self._registry)
        if _jaxlib.jax_is_here() and any([_adopt(type(leaf(x))) for x in result[0]]):
            return self._seen(flatten, tree, *options, leaf=leaf)
        return result

    def flatten(self, tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], Any]:
        """(leaves, treedef); dict keys in sorted order."""
        return self._seen(_jaxlib.flatten, tree, is_leaf)

    def unflatten(self, treedef: Any, leaves: Iterable[Any]) -> Any:
        """The tree of this structure with these leaves."""
        return _jaxlib.unflatten(treedef, leaves)

    def leaves(self, tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
        return self.flatten(tree, is_leaf)[0]

    def structure(self, tree: Any, is_leaf: IsLeaf = None) -> Any:
        return self.flatten(tree, is_leaf)[1]

    def structures(self, treedef: Any) -> list[Any]:
        """The treedefs one level down: those of a tuple's elements."""
        return _jaxlib.children(treedef)

    def outermost(self, treedef: Any) -> tuple[type, Any] | None:
        """(class, what its registration keeps beside the children) of the outermost node; None for a leaf."""
        return _jaxlib.node_data(treedef)

    def with_structures(self, node: tuple[type, Any], structures: Iterable[Any]) -> Any:
        """The treedef of such a node with children of these structures."""
        return _jaxlib.treedef_of(node, structures, self._registry)

    def map(self, f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:  # noqa: A001
        """f on every leaf, and on what the other trees have in its place (they may go deeper)."""
        flat, treedef = self.flatten(tree, is_leaf)
        others = [self._up_to(treedef, tree, other, i + 1) for i, other in enumerate(rest)]
        return self.unflatten(treedef, [f(*xs) for xs in zip(flat, *others, strict=True)])

    def _up_to(self, treedef: Any, tree: Any, other: Any, position: int) -> list[Any]:
        try:
            return _jaxlib.flatten_up_to(treedef, other)
        except (ValueError, TypeError):
            difference = self._difference(self.unflatten(treedef, range(treedef.num_leaves)), other, None, "")
            if difference is None:  # the same keys, but for instance another static field of a dataclass
                difference = ("", str(treedef), str(self.structure(other)))
            where = f" at {difference[0]}" if difference[0] else ""
            where += ": Dict key mismatch" if "a dict" in difference[1] and "a dict" in difference[2] else ""
            raise ValueError(
                f"tree.map: tree {position + 1} does not have the structure of the first{where}\n"
                f"  the first has {difference[1]}, tree {position + 1} has {difference[2]}"
            ) from None

    def reduce(self, function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _NOTHING, is_leaf: IsLeaf = None) -> Any:
        """functools.reduce over the leaves."""
        start = () if initializer is _NOTHING else (initializer,)
        return functools.reduce(function, self.leaves(tree, is_leaf), *start)

    def reduce_associative(
        self, operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = _NOTHING, is_leaf: IsLeaf = None
    ) -> Any:
        """Reduce the leaves in a tree of logarithmic depth, in their order; `identity` is the result where there are none.

        Raises TypeError for no leaves and no identity.  Source: jax.tree.reduce_associative."""
        values = self.leaves(tree, is_leaf)
        if not values and identity is _NOTHING:
            raise TypeError("tree.reduce_associative: a tree without leaves needs an identity")
        while len(values) > 1:
            start = len(values) % 2
            values = values[:start] + [operation(a, b) for a, b in zip(values[start::2], values[start + 1 :: 2], strict=True)]
        return values[0] if values else identity

    def broadcast(self, prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
        """A tree of the structure of `full_tree` whose leaves are those of `prefix_tree` that stand over them."""
        treedef = self.structure(full_tree, is_leaf)
        return self.unflatten(treedef, self.flatten_prefix(prefix_tree, treedef, "prefix", is_leaf))

    def all(self, tree: Any, *, is_leaf: IsLeaf = None) -> bool:  # noqa: A001
        return builtins.all(self.leaves(tree, is_leaf))

    def transpose(self, outer_treedef: Any, inner_treedef: Any, pytree_to_transpose: Any) -> Any:
        """From a tree of structure `outer_treedef` with subtrees of structure `inner_treedef` to the other way round.

        inner_treedef None: the structure of the first subtree. ValueError if the tree is not made like that."""
        outer, inner = outer_treedef, inner_treedef
        subtrees = self._up_to(outer, self.unflatten(outer, range(outer.num_leaves)), pytree_to_transpose, 1)
        if inner is None:
            if not subtrees:
                raise ValueError("tree.transpose: the outer structure has no leaves, so the inner one must be given")
            inner = self.structure(subtrees[0])
        for subtree in subtrees:
            if self.structure(subtree) != inner:
                raise ValueError(f"tree.transpose: a subtree has structure {self.structure(subtree)}, not {inner}")
        rows = [self.leaves(subtree) for subtree in subtrees]
        return self.unflatten(inner, [self.unflatten(outer, [row[i] for row in rows]) for i in range(inner.num_leaves)])

    def leaves_with_path(
        self, tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
    ) -> list[tuple[Any, Any]]:
        return self.flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]

    def flatten_with_path(
        self, tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
    ) -> tuple[list[tuple[Any, Any]], Any]:
        """([(path, leaf)], treedef). is_leaf(node), or is_leaf(path, node) if is_leaf_takes_path."""
        return self._seen(_jaxlib.flatten_with_path, tree, is_leaf, is_leaf_takes_path, leaf=lambda pair: pair[1])

    def map_with_path(
        self,
        f: Callable[..., Any],
        tree: Any,
        *rest: Any,
        is_leaf: Callable[..., bool] | None = None,
        is_leaf_takes_path: bool = False,
    ) -> Any:
        """f(path, leaf, …) on every leaf."""
        flat, treedef = self.flatten_with_path(tree, is_leaf, is_leaf_takes_path)
        others = [self._up_to(treedef, tree, other, i + 1) for i, other in enumerate(rest)]
        return self.unflatten(treedef, [f(path, x, *more) for (path, x), *more in zip(flat, *others, strict=True)])

    def path_names(self, tree: Any, root: str, is_leaf: IsLeaf = None) -> list[str]:
        """One name per leaf: `params['w1'][0].x` for root "params"."""
        return [root + _jaxlib.path_text(path) for path, _ in self.flatten_with_path(tree, is_leaf)[0]]

    def names_in(self, treedef: Any, root: str) -> list[str]:
        """The same for a treedef. Of a class that tells by its leaves which of them are its leaves: their numbers."""
        names = self.path_names(self.unflatten(treedef, range(treedef.num_leaves)), root)
        return names if len(names) == treedef.num_leaves else [f"{root}: leaf {i}" for i in range(treedef.num_leaves)]

    def flatten_prefix(self, prefix: Any, full: Any, what: str, is_leaf: IsLeaf = None) -> list[Any]:
        """One entry of `prefix` per leaf of the treedef `full`; an entry of prefix stands for the whole subtree in its place.

        ValueError with the path where the prefix does not fit, what it has and what is there, and a fix.
        """
        entries, structure = self.flatten(prefix, is_leaf)
        if structure == full:
            return entries
        dummy = self.unflatten(full, range(full.num_leaves))
        difference = self._difference(prefix, dummy, is_leaf, what)
        if difference is not None:
            path, mine, theirs = difference
            raise ValueError(
                f"{path} does not fit: it is {mine}, the value in its place is {theirs}\n"
                "  a prefix has the same containers as the value, down to some level, and one entry for each subtree below\n"
                f"  fix: give one entry for all of {path}, or the same keys as the value"
            )
        result: list[Any] = []
        self._spread(prefix, dummy, is_leaf, result)
        return result

    def _difference(self, prefix: Any, full: Any, is_leaf: IsLeaf, path: str) -> tuple[str, str, str] | None:
        """(path, what prefix has, what full has) of the first place where prefix is not a prefix of full."""
        mine = self._children(prefix, is_leaf)
        if mine is None:
            return None
        theirs = self._children(full, None)
        if theirs is None or type(prefix) is not type(full) or [k for k, _ in theirs] != [k for k, _ in mine]:
            return path, _shape_text(prefix, mine), "a leaf" if theirs is None else _shape_text(full, theirs)
        pairs = zip(mine, theirs, strict=True)
        difference = (self._difference(below, other, is_leaf, path + key) for (key, below), (_, other) in pairs)
        return next((f for f in difference if f is not None), None)

    def _spread(self, prefix: Any, full: Any, is_leaf: IsLeaf, result: list[Any]) -> None:
        one_level = self._children(prefix, is_leaf)
        if one_level is None:
            result.extend([prefix] * len(self.leaves(full)))
            return
        for (_, mine), (_, theirs) in zip(one_level, self._children(full, None) or (), strict=True):
            self._spread(mine, theirs, is_leaf, result)

    def _children(self, node: Any, is_leaf: IsLeaf) -> list[tuple[str, Any]] | None:
        """(path, child) one level down; None for a leaf."""
        if is_leaf is not None and is_leaf(node):
            return None
        first = True

        def stop(x: Any) -> bool:
            nonlocal first
            was, first = first, False
            return not was

        pairs = self.leaves_with_path(node, stop)
        if len(pairs) == 1 and not pairs[0][0] and pairs[0][1] is node:
            return None
        return [(keystr(path), child) for path, child in pairs]

    def children(self, node: Any, is_leaf: IsLeaf = None) -> list[tuple[str, Any]] | None:
        """(path, child) one level down; None for a leaf."""
        return self._children(node, is_leaf)

    def kind_text(self, node: Any) -> str:
        """`a dict with keys ['w1']`, `a tuple of 2`, `None` or `a leaf`, for messages."""
        below = self._children(node, None)
        return "a leaf" if below is None else _shape_text(node, below)

    def is_container(self, x: Any) -> bool:
        """Whether x is a node of a tree: a dict, list, tuple, None or a registered class."""
        return self._children(x, None) is not None

    def all_leaves(self, iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
        """Whether none of these is a node (nor None)."""
        values = list(iterable)
        leaves = self.leaves(values, is_leaf)
        return len(leaves) == len(values) and builtins.all(a is b for a, b in zip(leaves, values, strict=True))


USERS, WORDS = Trees(_jaxlib.registry), Trees(_jaxlib.words_registry)


def _adopt(kind: type) -> bool:
    """Register a class that is a node for JAX, which is in the process, and a leaf here; whether it was one."""
    theirs = getattr(getattr(sys.modules["jax"], "tree_util", None), "default_registry", None)  # none while jax is imported
    if theirs is None or not theirs.is_node(kind) or _jaxlib.is_node(kind):
        return False

    def one_level(x: Any) -> tuple[Any, Any]:
        return theirs.flatten(x, lambda below: below is not x)

    def one_level_with_keys(x: Any) -> tuple[Any, Any]:
        keys = [key for key, _ in theirs.flatten_one_level_with_keys(x)[0]]
        children, treedef = one_level(x)
        return list(zip(keys, children, strict=True)), treedef

    _jaxlib.register_node(kind, one_level, lambda treedef, children: treedef.unflatten(children), one_level_with_keys)
    return True
