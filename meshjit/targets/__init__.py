"""Targets by platform, and which one a mesh and `lowering_platforms` ask for.

    target_of(mesh)                                   that of the mesh's devices, or of its `abstract_device`
    target_of(mesh, ("tpu",))                         TPUs on the axes of this mesh, whatever devices it has
    target_of(mesh, ("tpu", "cpu"))                   planned for a TPU, as text that a CPU can compile, too
    target_of(mesh, model="cluster.toml")             devices of the figures in a file, see `meshjit/targets/files.py`
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from meshjit.core.target import NO_KERNELS, Target
from meshjit.targets import cpu, gpu, tpu
from meshjit.targets.files import figures_named
from sharding.figures import DEVICES, Figures, devices_of, figures_of_kind
from sharding.mesh import BaseMesh

PLATFORMS: Final = ("cpu", "cuda", "rocm", "gpu", "tpu")  # the names that users and devices give platforms
_FAULTS: Final = (
    *("loses_nan", "needs_barrier_before_all_to_all", "lacks_bitwise_collectives", "materializes_updates"),
    *("ends_at_sums_of_constants", "lacks_two_bits", "updates_bytes", "convolves_floats_only", "drops_barriers"),
)
DEFAULTS: Final = {"cpu": "cpu", "gpu": "h100", "tpu": "v5e"}  # where nobody says which
_TARGETS: Final = {"cpu": cpu.target, "gpu": gpu.target, "tpu": tpu.target}


def target_of(
    mesh: BaseMesh,
    platforms: Sequence[str] = (),
    kernels: Mapping[str, Container[str]] = MappingProxyType({}),
    model: str | Figures | None = None,
) -> Target:
    """The Target of the first of `platforms`, avoiding the faults of all of them; without any, of the mesh's own.

    kernels: by platform, what devices can call. Only text for one platform may: a mesh that names no device gets text for all.
    model: a name in DEVICES, a file of figures, or figures, that count for its platform, whatever the devices say they are.
    """
    own, kind = _device_of(mesh)
    chosen = figures_named(model) if model else getattr(getattr(mesh, "abstract_device", None), "figures", None)
    asked = {family(name): name for name in reversed(platforms or (own,))}
    names = list(dict.fromkeys(family(name) for name in platforms or (own,)))
    targets = [_target(mesh, name, asked[name], kind if own and family(own) == name else "", chosen) for name in names]
    may_call = bool(platforms or own) and len(names) == 1 and "rocm" not in (own, *platforms)
    faults = {name: any(getattr(target, name) for target in targets) for name in _FAULTS}
    return dataclasses.replace(targets[0], kernels=kernels.get(names[0], NO_KERNELS) if may_call else NO_KERNELS, **faults)


def _device_of(mesh: BaseMesh) -> tuple[str, str]:
    """Platform and kind of the mesh's devices; ("", "") where it does not say."""
    device = getattr(mesh, "abstract_device", None) or next(iter(getattr(mesh, "flat_devices", ())), None)
    return ("", "") if device is None else (str(getattr(device, "platform", "cpu")), str(getattr(device, "device_kind", "")))


def family(platform: str) -> str:
    """ "gpu" for CUDA and ROCm; platforms that nobody has figures of count as CPU."""
    return "gpu" if platform in ("cuda", "rocm", "gpu") else "tpu" if platform == "tpu" else "cpu"


def _target(mesh: BaseMesh, platform: str, asked: str, kind: str, chosen: Figures | None) -> Target:
    figures = chosen if chosen is not None and chosen.platform == platform else _figures(platform, asked, kind)
    return _TARGETS[platform](mesh, figures)


@functools.cache
def _figures(platform: str, asked: str, kind: str) -> Figures:
    """The figures for this `device_kind`; those of the default, with one warning, where there are none. `asked`: the platform as
    users and devices name it, which may be one that nobody has figures of."""
    default = DEVICES[DEFAULTS[platform]]
    figures = default if platform == "cpu" else figures_of_kind(platform, kind)
    is_unknown = asked not in ("", *_TARGETS, "cuda")
    if is_unknown and (platform == "cpu" or not kind):
        _warn_of_unknown(f"platform {asked!r}", platform, default)
    elif figures is None and kind:
        _warn_of_unknown(f"kind {kind!r}", platform, default)
    return figures or default


def _warn_of_unknown(what: str, platform: str, default: Figures) -> None:
    instead = default.name if platform == default.name else f"{platform} {default.name}"
    warnings.warn(
        f"meshjit has no figures for devices of {what}: programs are planned as for {instead}\n"
        f'  fix: meshjit.config.update("device_model", …) with the nearest of {", ".join(devices_of(platform))},'
        " or a file that meshjit plan --calibrate --save writes; or MESHJIT_DEVICE_MODEL",
        stacklevel=3,
    )


__all__ = ["DEFAULTS", "PLATFORMS", "family", "target_of"]
