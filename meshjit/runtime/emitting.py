"""Local Program → StableHLO for the platform that its devices are of, and what that platform has beside XLA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshjit.core.program import Program
from meshjit.emit.emitter import no_kernels
from meshjit.emit.module import emit
from meshjit.runtime import _jaxlib


def emit_for(
    local: Program,
    mesh: Any,
    aliases: Mapping[int, int] | None = None,
    platforms: Sequence[str] = (),
    leading: int = 0,
) -> str:
    """`emit` for the platforms named; where none is, for that of the mesh's devices. What is for CPU alone calls LAPACK;
    anything else, and a mesh without devices, gets text that is legal on all platforms."""
    wanted = set(platforms) or {device.platform for device in getattr(mesh, "flat_devices", ())}
    return emit(local, mesh, aliases, _has_cpu_kernel if wanted == {"cpu"} else no_kernels, leading)


def _has_cpu_kernel(name: str) -> bool:
    return name in _jaxlib.cpu_kernels()


def calls_cpu_kernels(text: str) -> bool:
    """Whether emitted text calls kernels that CPU alone has."""
    return 'call_target_name = "lapack_' in text
