"""Code that is written differently for each platform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshjit import numpy as mnp
from meshjit.runtime import client
from meshjit.trace import line_of, user_source


def platform_dependent(*args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]) -> Any:
    """What the function for this platform gives: `cpu=`, `cuda=`, `rocm=`, `tpu=`, or `default`.

    All of them must compute the same. Which one is meant is known when the function is traced, by `default_backend()`: what is
    lowered for another platform keeps the function of this one. Raises ValueError where none is for this platform.
    Source: jax.lax.platform_dependent."""
    here = client.default_backend()
    chosen = per_platform.get(here) or (per_platform.get("gpu") if here in ("cuda", "rocm") else None) or default
    if chosen is None:
        raise ValueError(
            f"platform_dependent: there is no function for {here}, only for {', '.join(per_platform) or 'none'}\n"
            f"  at {line_of(user_source())}\n  fix: {here}=, or default="
        )
    return chosen(*args)


def stage(x: Any, /) -> Any:
    """The value as an array: traced inside of a traced function (`jax.lax.stage`)."""
    return mnp.asarray(x)
