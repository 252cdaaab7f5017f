"""Names that every room uses: versions, types, errors."""

from __future__ import annotations

from typing import Any

from jaxlib import (
    _jax,  # pyright: ignore[reportAttributeAccessIssue]
    version as _version,
)

version: str = _version.__version__
XlaError = _jax.JaxRuntimeError  # a RuntimeError; what XLA raises while running or talking to the coordinator
Device = _jax.Device
PyTreeDef = _jax.pytree.PyTreeDef
ShardType = tuple[tuple[int, ...], Any]  # (shape, dtype) of what one device holds


class CompilationError(Exception):
    """XLA refused a program. `text` is the StableHLO, `path` a file that holds it."""

    def __init__(self, reason: str, text: str, path: str) -> None:
        super().__init__(f"XLA could not compile the program: {reason}\n  the program is in {path}")
        self.reason, self.text, self.path = reason, text, path
