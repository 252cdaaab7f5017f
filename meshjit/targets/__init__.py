"""Targets by platform, and which one a mesh and `lowering_platforms` ask for.

    target_of(mesh)                                   that of the mesh's devices, or of its `abstract_device`
    target_of(mesh, ("tpu",))                         TPUs on the axes of this mesh, whatever devices it has
    target_of(mesh, ("tpu", "cpu"))                   planned for a TPU, as text that a CPU can compile, too
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Container, Sequence
from typing import Final

from meshjit.core.target import NO_KERNELS, Target
from meshjit.targets import cpu, gpu, tpu
from sharding.mesh import BaseMesh
from sharding.topology import GPU_MODELS, TPU_CHIPS, gpu_model, tpu_chip

PLATFORMS: Final = ("cpu", "cuda", "rocm", "gpu", "tpu")  # the names that users and devices give platforms
_FAULTS: Final = ("loses_nan", "needs_barrier_before_all_to_all", "lacks_bitwise_collectives", "materializes_updates")
_DEFAULTS: Final = {"gpu": "h100", "tpu": "v5e"}  # where nobody says which


def target_of(
    mesh: BaseMesh, platforms: Sequence[str] = (), kernels: Container[str] = NO_KERNELS, model: str | None = None
) -> Target:
    """The Target of the first of `platforms`, avoiding the faults of all of them; without any, of the mesh's own.

    kernels: what CPU devices can call. Only text for CPU alone may: a mesh that names no device gets text for all platforms.
    model: a GPU model or TPU chip whose figures count, whatever the devices say they are.
    """
    own, kind = _device_of(mesh)
    names = list(dict.fromkeys(_family(name) for name in platforms or (own,)))
    targets = [_target(mesh, name, kind if own and _family(own) == name else "", model) for name in names]
    may_call = bool(platforms or own) and names == ["cpu"]
    faults = {name: any(getattr(target, name) for target in targets) for name in _FAULTS}
    return dataclasses.replace(targets[0], kernels=kernels if may_call else NO_KERNELS, **faults)


def _device_of(mesh: BaseMesh) -> tuple[str, str]:
    """Platform and kind of the mesh's devices; ("", "") where it does not say."""
    device = getattr(mesh, "abstract_device", None) or next(iter(getattr(mesh, "flat_devices", ())), None)
    return ("", "") if device is None else (str(getattr(device, "platform", "cpu")), str(getattr(device, "device_kind", "")))


def _family(platform: str) -> str:
    """ "gpu" for CUDA and ROCm; platforms that nobody has figures of count as CPU."""
    return "gpu" if platform in ("cuda", "rocm", "gpu") else "tpu" if platform == "tpu" else "cpu"


def _target(mesh: BaseMesh, platform: str, kind: str, model: str | None) -> Target:
    if platform == "gpu":
        return gpu.target(mesh, model if model in GPU_MODELS else _named(platform, kind))
    if platform == "tpu":
        return tpu.target(mesh, model if model in TPU_CHIPS else _named(platform, kind))
    return cpu.target(mesh)


@functools.cache
def _named(platform: str, kind: str) -> str:
    """The name of the figures for this `device_kind`; those of the default, with one warning, where there are none."""
    name = gpu_model(kind) if platform == "gpu" else tpu_chip(kind)
    default, table = _DEFAULTS[platform], GPU_MODELS if platform == "gpu" else TPU_CHIPS
    if name is None and kind:
        warnings.warn(
            f"meshjit has no figures for devices of kind {kind!r}: programs are planned as for {platform} {default}\n"
            f'  fix: meshjit.config.update("device_model", …) with the nearest of {", ".join(table)}, or MESHJIT_DEVICE_MODEL',
            stacklevel=2,
        )
    return name or default


__all__ = ["PLATFORMS", "target_of"]
