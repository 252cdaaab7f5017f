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
    """`target_of` with LAPACK for CPU alone, and with the figures given, or those that config.device_model asks for."""
    return target_of(mesh, platforms, _jaxlib.CPU_KERNELS, figures or config.device_model)


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


def calls_cpu_kernels(text: str) -> bool:
    """Whether emitted text calls kernels that CPU alone has."""
    return 'call_target_name = "lapack_' in text
