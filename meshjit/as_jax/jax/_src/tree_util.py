"""`jax._src.tree_util`."""

from collections.abc import Callable
from typing import Any

from meshjit.missing import explain as _explain
from meshjit.runtime import _jaxlib
from meshjit.tree_util import KeyEntry, flatten_one_level as flatten_one_level
from meshjit.trees import USERS

BuiltInKeyEntry = KeyEntry


class _Registry:
    """Which classes are nodes: `kind in _registry`."""

    def __contains__(self, kind: Any) -> bool:
        return _jaxlib.is_node(kind)


_registry = _Registry()


def prefix_errors(
    prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[Callable[[str], ValueError]]:
    """Why the one is no prefix of the other: what makes the error of a name for the prefix. Empty where it is one."""

    def error_of(name: str) -> ValueError | None:
        try:
            USERS.flatten_prefix(prefix_tree, USERS.structure(full_tree, is_leaf), name, is_leaf)
        except ValueError as error:
            return error
        return None

    return [] if error_of("prefix") is None else [lambda name: error_of(name) or ValueError(name)]

_explain(__name__)
