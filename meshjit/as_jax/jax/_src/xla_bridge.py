"""`jax._src.xla_bridge`."""

from typing import Any

from meshjit.missing import explain as _explain
from meshjit.runtime.client import made_clients

_explain(__name__)
_explained = globals()["__getattr__"]


def __getattr__(name: str) -> Any:
    """`_backends`: jaxlib's clients that exist so far, by platform."""
    return made_clients() if name == "_backends" else _explained(name)
