"""`jax._src.compiler`: what chex wraps to forbid that anything is compiled for a platform."""

from __future__ import annotations

from typing import Any

from meshjit.missing import explain as _explain
from meshjit.runtime import _jaxlib

__all__ = ["backend_compile_and_load"]

backend_compile_and_load = _jaxlib.compile


def _compile(client: Any, *args: Any, **kwargs: Any) -> Any:
    return globals()["backend_compile_and_load"](client, *args, **kwargs)


_jaxlib.compile = _compile  # what runs looks its function up here, so that it can be wrapped
_explain(__name__)
