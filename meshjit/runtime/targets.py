"""The Target of a mesh, with what the devices can call beside XLA."""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshjit.config import config
from meshjit.core.target import Target
from meshjit.runtime import _jaxlib
from meshjit.targets import target_of
from meshjit.targets.files import topology_named
from sharding.figures import Figures
from sharding.mesh import BaseMesh


def target_for(mesh: BaseMesh, platforms: Sequence[str] = (), figures: Figures | None = None) -> Target:
    """`target_of` with what jaxlib has for it beside XLA, and with the figures given, or those that config.device_model names."""
    return target_of(mesh, platforms, _jaxlib.KERNELS, figures or config.device_model)


def figures_for(topology: str, mesh: BaseMesh) -> Figures:
    """Of "v5p:4x4x4", "h100" or a file. ValueError for an unknown one, or where the mesh has another number of devices."""
    try:
        figures, shape = topology_named(topology)
    except (ValueError, OSError) as error:
        raise ValueError(f"topology: {error}") from None
    if shape is not None and math.prod(shape) != mesh.device_count:
        count = math.prod(shape)
        problem = f"topology: {topology!r} has {count} devices, {mesh} has {mesh.device_count}"
        raise ValueError(f"{problem}\n  fix: a mesh of {count} devices, or topology={topology.partition(':')[0]!r}")
    return figures


def library_of(text: str) -> tuple[str, str] | None:
    """(platform, name) of the library that emitted text calls and that one platform alone has; None where it calls none."""
    libraries = (library for prefix, library in _LIBRARIES.items() if f'call_target_name = "{prefix}' in text)
    return next(libraries, None)


_LIBRARIES = {"lapack_": ("cpu", "LAPACK"), "cusolver_": ("gpu", "cuSOLVER"), "cusparse_": ("gpu", "cuSPARSE")}
