"""The Target of a mesh, with what the devices can call beside XLA."""

from __future__ import annotations

from collections.abc import Sequence

from meshjit.config import config
from meshjit.core.target import Target
from meshjit.runtime import _jaxlib
from meshjit.targets import target_of
from sharding.mesh import BaseMesh


def target_for(mesh: BaseMesh, platforms: Sequence[str] = ()) -> Target:
    """`target_of` with LAPACK for CPU alone, and with the figures that config.device_model asks for."""
    return target_of(mesh, platforms, _jaxlib.CPU_KERNELS, config.device_model)


def calls_cpu_kernels(text: str) -> bool:
    """Whether emitted text calls kernels that CPU alone has."""
    return 'call_target_name = "lapack_' in text
