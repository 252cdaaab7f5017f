"""What the compiler of a machine that is not here says of a plan: memory, time, whether it fits."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from meshjit.api.compiled import Compiled
from meshjit.api.stages import Planned
from meshjit.api.watching import unwatched
from meshjit.config import config
from meshjit.experimental.topologies import get_topology_desc, in_order_of_links
from meshjit.inspect.unusable import Unusable
from meshjit.report.units import bytes_text, seconds_text
from meshjit.runtime import _jaxlib
from meshjit.targets.files import SUFFIX, topology_named
from sharding.figures import Figures
from sharding.mesh import Mesh

_ABSENT_TPU: Final = {  # what libtpu wants to be told on a machine without a TPU; there several processes may compile at a time
    "TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-16", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}  # fmt: skip

# What XLA:GPU asks of a chip that is not here: NVIDIA H100 and H200 SXM, published figures.
_HOPPER: Final = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth:.0f} l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: {memory:.0f}
  shared_memory_per_block_optin: 232448 cuda_compute_capability {{ major: 9 }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}}
platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 patch: 0 }} device_description_str: "{name}"
"""
_HOPPERS: Final = {"h100": "NVIDIA H100 80GB HBM3", "h200": "NVIDIA H200"}


@contextlib.contextmanager
def absent_accelerators() -> Iterator[None]:
    """The devices are not here: a plugin that looked for them would wait for long. Afterwards the environment is as before."""
    if config.platforms is None:
        with contextlib.suppress(RuntimeError):  # devices are in use already
            config.update("platforms", "cpu")
    told = {name: value for name, value in _ABSENT_TPU.items() if name not in os.environ}
    os.environ.update(told)
    try:
        yield
    finally:
        for name in told:
            del os.environ[name]


def compiled_ahead(planned: Planned, topology: str | None) -> Compiled:
    """A plan compiled for its devices, or for those of a topology. Unusable where there is no compiler for them."""
    if not isinstance(planned.mesh, Mesh) and topology is None:
        raise Unusable("--compile needs the devices, or a --topology whose compiler is installed")
    with unwatched():
        if topology is None or isinstance(planned.mesh, Mesh):
            return planned.lower().compile_now()
        return planned.lower().compile_now(device_assignment=absent_devices(topology, planned.mesh.device_count))


def absent_devices(topology: str, count: int) -> list[Any]:
    """The first `count` devices of "v5e:4x4" or "h100:4x8", in the order of their links."""
    figures, _ = topology_named(topology)
    if SUFFIX in topology or figures.platform == "cpu":
        published = "a published one, such as v5e:4x4 or h100:4x8"
        raise Unusable(f"--compile: no compiler knows the devices of {topology!r}\n  fix: {published}")
    try:
        if figures.platform == "tpu":
            description = get_topology_desc(topology, "tpu")
        else:
            description = get_topology_desc("", "cuda", **_gpus(figures, count))
    except LookupError as error:
        raise Unusable(f"--compile: {error.args[0]}") from None
    except _jaxlib.XlaError as error:
        message = str(error).strip().splitlines()[0]
        fix = "a shape that is built, such as v5e:4x4"
        raise Unusable(f"--compile: the compiler refuses {topology!r}: {message}\n  fix: {fix}") from None
    return in_order_of_links(description.devices)[:count]


def _gpus(figures: Figures, count: int) -> Mapping[str, Any]:
    """What the CUDA plugin asks for: the chip, and slices x hosts x GPUs of each."""
    model = figures.name.partition("-")[0]
    if model not in _HOPPERS:
        problem = f"there is no description of {figures.name} for its compiler"
        raise Unusable(f"--compile: {problem}\n  fix: one of {', '.join(_HOPPERS)}")
    chip = _HOPPER.format(bandwidth=figures.memory_bandwidth, memory=figures.memory, name=_HOPPERS[model])
    each = min(figures.host, count)
    return {"target_config": chip, "topology": f"1x{math.ceil(count / each)}x{each}"}


def estimated_seconds(compiled: Compiled) -> float:
    """The compiler's estimate of one run; 0 where it gives none. libtpu counts -1 s for each instruction that it cannot
    estimate; these are left out."""
    seconds = float((compiled.cost_analysis() or {}).get("optimal_seconds", 0.0))
    return seconds + math.ceil(max(0.0, -seconds))


def held_bytes(compiled: Compiled) -> int:
    """Of one device: arguments, results and temporaries, those that share memory once."""
    memory = compiled.memory_analysis()
    return (
        memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes - memory.alias_size_in_bytes
    )


def compiled_text(planned: Planned, topology: str | None) -> str:
    """`compiled: 1.2 GB a device, fits into 16 GB, 1.83 ms estimated`."""
    compiled = compiled_ahead(planned, topology)
    target = planned.plan.target
    held, limit = held_bytes(compiled), target.topology.memory if target is not None else float("inf")
    fits = "fits" if held <= limit else "DOES NOT FIT"
    seconds = estimated_seconds(compiled)
    estimate = f", {seconds_text(seconds)} estimated" if seconds > 0 else ""
    return f"compiled: {bytes_text(held)} a device, {fits} into {bytes_text(limit)}{estimate}"
