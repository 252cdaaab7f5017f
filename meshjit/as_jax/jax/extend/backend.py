"""`jax.extend.backend`: jaxlib's clients, one for each platform."""

from __future__ import annotations

from typing import Any

from meshjit.config import config as _config
from meshjit.missing import explain as _explain
from meshjit.runtime.client import (  # noqa: F401
    client as _client,
    default_backend as _default_backend,
    default_device as get_default_device,
    platform_named as _platform_named,
)


def get_backend(platform: Any = None) -> Any:
    """The client of a platform, "cpu", "cuda" ("gpu") or "tpu"; a client is itself. RuntimeError where there is none."""
    return _client(platform) if platform is None or isinstance(platform, str) else platform


def backends() -> dict[str, Any]:
    """The clients by platform: those of `config.platforms`, else of the accelerator that works, and of the CPU."""
    names = _config.platforms.split(",") if _config.platforms else [_default_backend(), "cpu"]
    return {name: _client(name) for name in map(_platform_named, names)}


_explain(__name__)
