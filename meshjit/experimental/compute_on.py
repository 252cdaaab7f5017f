"""`jax.experimental.compute_on`: on which part of a machine functions compute."""

from __future__ import annotations

import functools
from typing import Any

from meshjit.missing import explain as _explain
from meshjit.runtime import client
from meshjit.trace import line_of, user_source
from sharding.mesh import Mesh, current_mesh

_TYPES = ("device_host", "device", "tpu_sparsecore")


class compute_on:  # noqa: N801 - JAX's name
    """As a context manager, or a decorator of functions: what is computed inside is computed by this part of the machine.

    compute_type: "device" is where programs run anyway; "device_host", "tpu_sparsecore" and "gpu_stream:NUMBER" are parts of it.
    CPU devices have none, and compute as ever. Elsewhere NotImplementedError: a program runs on its devices as a whole.
    `pure_callback` computes with NumPy on the host there, and `device_put(x, memory.Space.Host)` keeps arrays in its memory.

    ValueError for another name, TypeError for what is no str."""

    def __init__(self, compute_type: str) -> None:
        if not isinstance(compute_type, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"compute_on: compute_type must be a str, got {compute_type!r}")
        if compute_type not in _TYPES and not compute_type.startswith("gpu_stream:"):
            raise ValueError(f"compute_on: {compute_type!r} is none of {', '.join(_TYPES)} and gpu_stream:NUMBER")
        self.compute_type = compute_type

    def __call__(self, func: Any) -> Any:
        @functools.wraps(func)
        def computed(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return computed

    def __enter__(self) -> compute_on:
        platform = _platform()
        if self.compute_type != "device" and platform != "cpu":
            raise NotImplementedError(
                f"compute_on({self.compute_type!r}): a program runs as a whole on its devices, which are of platform {platform}\n"
                f"  at {line_of(user_source())}\n"
                "  fix: pure_callback for NumPy on the host; device_put(x, memory.Space.Host) keeps arrays in the host's memory"
            )
        return self

    def __exit__(self, *error: Any) -> None:
        """Nothing to end."""


def _platform() -> str:
    mesh = current_mesh()
    device = mesh.flat_devices[0] if isinstance(mesh, Mesh) else client.default_device()
    return device.platform


_explain(__name__)
