"""What machines can do: published figures of TPUs and GPUs, measured ones of XLA on a CPU, each with its source.

Rates are peaks for dense operands. They serve to compare plans, not to foretell times: only their ratios matter.
`meshjit plan --calibrate` measures a machine and writes such figures as a file; `meshjit/targets/files.py` reads it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Final

FOREVER: Final = 1 << 62  # devices: all of them are in one host


@dataclasses.dataclass(frozen=True)
class Figures:
    """Of one kind of device, and of how such devices are connected. Hashable.

    kinds: its `device_kind`, in lower case: one of them is the device's own (TPU) or part of it (GPU). flops: a second, by dtype
    of the operands of a contraction; other dtypes run at the rate of the first. memory_bandwidth: bytes a second; memory: bytes.
    link: bytes a second that a device sends along a ring of neighbours; of a torus, over one link in one direction. wraps: a
    torus closes dims of multiples of this into rings, which are used both ways; 0: no torus.
    host: consecutive devices that `link` connects. network: bytes a second that one device sends beyond them, and
    network_latency the seconds that it takes to start. latency: the same inside, of a torus per hop; latency_growth: seconds more
    for every doubling of a group beyond two; step_latency: seconds that a local op costs at least. slowdown, minor_slowdown: as
    in Topology. overlaps: collectives that run while the device computes. detour: seconds that partial sums have to gain by
    way of axes that neither end is sharded over.
    """

    name: str
    platform: str
    source: str
    flops: Mapping[str, float]
    memory_bandwidth: float
    memory: float
    link: float
    latency: float
    network: float = 0.0
    network_latency: float = 50e-6
    host: int = FOREVER
    wraps: int = 0
    kinds: tuple[str, ...] = ()
    step_latency: float = 1e-6
    latency_growth: float = 0.0
    slowdown: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    minor_slowdown: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    overlaps: frozenset[str] = frozenset()
    detour: float = 0.0

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        tables = ("flops", "slowdown", "minor_slowdown")
        fields = tuple(getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in tables)
        return hash((fields, *(frozenset(table.items()) for table in (self.flops, self.slowdown, self.minor_slowdown))))


def figures_of_kind(platform: str, kind: str) -> Figures | None:
    """Of a `device_kind` such as "TPU v5 lite" or "NVIDIA H100 80GB HBM3"; None where there are none."""
    kind = kind.lower()
    for figures in DEVICES.values():
        is_it = kind in figures.kinds if platform == "tpu" else any(part in kind for part in figures.kinds)
        if figures.platform == platform and is_it:
            return figures
    return None


def devices_of(platform: str) -> tuple[str, ...]:
    """The names in DEVICES of a platform."""
    return tuple([name for name, figures in DEVICES.items() if figures.platform == platform])


# What libtpu 0.0.52 schedules as a start and a done with work between them, for v5e:4x4 and by default. The others are one step.
_TPU_OVERLAPS: Final = frozenset({"all_gather", "collective_permute"})
# The gradient of a replicated weight, bf16[768, 768], at the end of a ViT step over data=4, model=4. Sliced, reduce-scattered
# and gathered it is predicted to gain 6 microseconds of an all-reduce's 41. But libtpu 0.0.52 puts off all products for
# gradients until the gather, to run them beside it: the step holds 336 MB instead of 216, and is estimated at 9.10 ms instead
# of 7.52. A gain as small as that is within the error of prices; where it is larger, fewer bytes decide.
_TPU_DETOUR: Final = 10e-6
# XLA:GPU starts all of them asynchronously (docs.jax.dev/en/latest/gpu_performance_tips.html).
_GPU_OVERLAPS: Final = frozenset({"all_gather", "reduce_scatter", "all_reduce", "collective_permute", "all_to_all"})
_BOOK: Final = "jax-ml.github.io/scaling-book/tpus (one-way bytes a link)"
_CLOUD: Final = "docs.cloud.google.com/tpu/docs"


def _tpu(
    name: str, kinds: str, flops: Mapping[str, float], memory: tuple[float, float], links: tuple[float, float], wraps: int
) -> Figures:
    """memory: (bytes a second, bytes). links: bytes a second of (a link in one direction, the network between slices)."""
    source = f"{_CLOUD}/{name}; {_BOOK}"
    return Figures(
        name, "tpu", source, flops, *memory, links[0], 1e-6, links[1], wraps=wraps,
        kinds=tuple(kinds.split(", ")), overlaps=_TPU_OVERLAPS, detour=_TPU_DETOUR,
    )  # fmt: skip


def _gpus(
    name: str, system: str, flops: Mapping[str, float], memory: tuple[float, float], nvlink: float, networks: tuple[float, float]
) -> Iterable[Figures]:
    """Hosts of eight, with InfiniBand between them, and with Ethernet. networks: bytes a second of one GPU over either."""
    source = f"NVIDIA {system} data sheets"
    for suffix, network in zip(("", "-ethernet"), networks, strict=True):
        yield Figures(
            name + suffix, "gpu", source, flops, *memory, nvlink, 10e-6, network, 50e-6 if suffix else 30e-6, host=8,
            kinds=() if suffix else (name,), step_latency=3e-6, overlaps=_GPU_OVERLAPS,
        )  # fmt: skip


def _rates(bfloat16: float, **others: float) -> Mapping[str, float]:
    return {"bfloat16": bfloat16, "float16": bfloat16, **others}


# XLA:CPU devices of one host, measured on 8 of them over 2 cores (jaxlib 0.10.2, 4 KiB to 1 MiB). A collective costs 0.13 to
# 0.2 ms however small, so fewer is better. XLA's own reduce-scatter along a minor dim is some nine times as dear per byte as
# along the first, its all-gather three times; with a local transposition, as the figures have it, 1.5 to 2 times as much.
# Then a reduce-scatter takes as long as an all-reduce and a slice, and moves half the bytes.
_CPU: Final = Figures(
    "cpu", "cpu", "measured: meshjit plan --calibrate", {"float32": 20e9}, 5e9, 8e9, 0.9e9, 160e-6, step_latency=2e-6,
    slowdown={"all_reduce": 1.15, "all_gather": 1.35, "all_to_all": 6.3, "collective_permute": 4.0},
    minor_slowdown={"reduce_scatter": 1.9, "all_gather": 1.6},
)  # fmt: skip

# TF32 is what XLA multiplies float32 in. Hosts of eight: DGX and HGX systems, one network card of 200 (A100) or 400 Gb/s a GPU.
# Ethernet: AWS p4d (400 Gb/s a host), Google a3-highgpu (800), a3-ultragpu and a4-highgpu (3,200).
_H100_RATES: Final = _rates(989e12, float32=494e12, float64=67e12, int8=1979e12, float8_e4m3fn=1979e12, float8_e5m2=1979e12)
_B200_RATES: Final = _rates(2250e12, float32=1100e12, float64=40e12, int8=4500e12, float8_e4m3fn=4500e12, float8_e5m2=4500e12)

_V7X_RATES: Final = _rates(1153.5e12, float8_e4m3fn=2307e12, float8_e5m2=2307e12)
_A100_RATES: Final = _rates(312e12, float32=156e12, float64=19.5e12, int8=624e12)

DEVICES: Final[Mapping[str, Figures]] = {
    figures.name: figures
    for figures in (
        _tpu("v4", "tpu v4", _rates(275e12, int8=275e12), (1.228e12, 32e9), (45e9, 6.25e9), 4),
        _tpu("v5e", "tpu v5 lite, tpu v5e", _rates(197e12, int8=394e12), (0.819e12, 16e9), (45e9, 3.1e9), 16),
        _tpu("v5p", "tpu v5, tpu v5p", _rates(459e12, int8=918e12), (2.765e12, 95e9), (90e9, 6.25e9), 4),
        _tpu("v6e", "tpu v6 lite, tpu v6e", _rates(918e12, int8=1836e12), (1.638e12, 32e9), (90e9, 12.5e9), 16),
        _tpu("tpu7x", "tpu7x", _V7X_RATES, (3.69e12, 96e9), (90e9, 6.25e9), 4),  # a chip is two devices, each with half of it
        *_gpus("a100", "A100 80GB SXM and DGX A100", _A100_RATES, (2.039e12, 80e9), 300e9, (25e9, 6.25e9)),
        *_gpus("h100", "H100 SXM and DGX H100", _H100_RATES, (3.35e12, 80e9), 450e9, (50e9, 12.5e9)),
        *_gpus("h200", "H200 SXM and DGX H200", _H100_RATES, (4.8e12, 141e9), 450e9, (50e9, 50e9)),
        *_gpus("b200", "HGX B200 and DGX B200", _B200_RATES, (8e12, 192e9), 900e9, (50e9, 50e9)),
        _CPU,
        dataclasses.replace(
            _CPU, name="cpu-ethernet", source="as cpu; hosts of 8 devices share 25 Gb/s",
            host=8, network=3.1e9 / 8, network_latency=400e-6,
        ),
    )
}  # fmt: skip
