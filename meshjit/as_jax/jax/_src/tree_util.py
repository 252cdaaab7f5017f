"""`jax._src.tree_util`."""

from typing import Any

from meshjit.missing import explain as _explain
from meshjit.runtime import _jaxlib


class _Registry:
    """Which classes are nodes: `kind in _registry`."""

    def __contains__(self, kind: Any) -> bool:
        return _jaxlib.is_node(kind)


_registry = _Registry()

_explain(__name__)
