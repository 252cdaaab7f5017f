"""One tree in both views: what is known of a treedef of WORDS, in which keys are their words, said of the one that users see."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from meshjit.core.keys import KeyType, PRNGKeyArray
from meshjit.core.ref import Ref
from meshjit.tree_nodes import register_node
from meshjit.trees import USERS, WORDS


@dataclasses.dataclass(frozen=True)
class HiddenFloat0:
    """Stands in a structure for a float0 array, which has no elements (`meshjit/trace/float0.py`)."""

    shape: tuple[int, ...]


FLOAT0 = np.dtype([("float0", "V")])
register_node(HiddenFloat0, lambda hidden: ((), hidden.shape), lambda shape, _: np.zeros(shape, FLOAT0))


_LEAF = USERS.structure(0)


@functools.lru_cache(1024)
def key_types(treedef: Any) -> tuple[KeyType | None, ...]:
    """Per leaf of a treedef of WORDS: of what dtype the keys are whose words it is, None for other arrays."""
    return tuple(_key_types(treedef))


def _key_types(treedef: Any) -> Iterator[KeyType | None]:
    node = WORDS.outermost(treedef)
    if node is None or node[0] is PRNGKeyArray:
        yield None if node is None else node[1]
    else:
        for child in WORDS.structures(treedef):
            yield from _key_types(child)


def hidden_dims(treedef: Any) -> tuple[int, ...]:
    """Per leaf of a treedef of WORDS: 1 where the last dim is that of the words of keys, which users do not see, else 0."""
    return tuple(0 if dtype is None else 1 for dtype in key_types(treedef))


@functools.lru_cache(1024)
def users_treedef(treedef: Any) -> Any:
    """The structure that users see, of a treedef of WORDS. No tree is made of it: a class may look at its leaves."""
    return _users_treedef(treedef)


def _users_treedef(treedef: Any) -> Any:
    node = WORDS.outermost(treedef)
    if node is None or node[0] in (PRNGKeyArray, Ref):
        return _LEAF
    return USERS.with_structures(node, map(_users_treedef, WORDS.structures(treedef)))


def about_leaves(treedef: Any, leaves: Iterable[Any]) -> Any:
    """The tree that users see of something that is said of every leaf (a sharding, a type), of a treedef of WORDS."""
    return USERS.unflatten(users_treedef(treedef), leaves)


def tangents(treedef: Any, leaves: Iterable[Any]) -> Any:
    """The tree that users see of derivatives, of a treedef of WORDS: for keys, which have none, an array of float0."""
    pairs = zip(leaves, hidden_dims(treedef), strict=True)
    return about_leaves(treedef, [x[..., 0] if hidden and isinstance(x, np.ndarray) else x for x, hidden in pairs])
