"""`jax.experimental.topologies`: devices that need not be present. Programs are planned and compiled for them, not run.

    topology = get_topology_desc(platform="tpu", topology_name="v5e:4x4")     # needs the plugin (libtpu), no TPU
    mesh = make_mesh(topology, (4, 4), ("data", "model"))
    compiled = jit(step, in_shardings=...).lower(...).compile()               # memory_analysis(), cost_analysis(), as_text()

On a machine without a TPU libtpu wants to be told so: TPU_SKIP_MDS_QUERY=1, TPU_ACCELERATOR_TYPE=v5litepod-16,
TPU_WORKER_HOSTNAMES=localhost, TPU_WORKER_ID=0 in the environment; and MESHJIT_PLATFORMS=cpu, so that nobody looks for one.
Several processes compile at a time with ALLOW_MULTIPLE_LIBTPU_LOAD=1; else all but one fail ("multi-process lockfile").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.missing import explain as _explain
from meshjit.runtime import _jaxlib, client
from sharding.mesh import Mesh


@dataclass(frozen=True)
class TopologyDescription:
    """The devices of a machine, with `.id`, `.device_kind`, `.process_index` and, for TPUs, `.coords`."""

    devices: Sequence[Any]


def get_topology_desc(topology_name: str = "", platform: str | None = None, **kwargs: Any) -> TopologyDescription:
    """A machine by name, such as "v5e:4x4" or "v5p:8x8x8"; further arguments go to the platform's plugin.

    Raises LookupError where no plugin of the platform is installed.
    """
    if platform is None:
        raise ValueError('get_topology_desc needs a platform\n  fix: get_topology_desc(platform="tpu", topology_name="v5e:4x4")')
    return TopologyDescription(_jaxlib.topology_devices(platform, topology_name, kwargs))


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """The devices that this process sees, of a platform or of the one in use. RuntimeError for a platform that is not here."""
    return TopologyDescription(client.devices(platform))


def make_mesh(topo: TopologyDescription, mesh_shape: Sequence[int], axis_names: Sequence[str]) -> Mesh:
    """A mesh of the first devices of a topology, TPUs along their coordinates: neighbours in the mesh share links."""
    count = math.prod(mesh_shape)
    if count > len(topo.devices):
        raise ValueError(
            f"a mesh {tuple(mesh_shape)} needs {count} devices, the topology has {len(topo.devices)}\n"
            "  fix: name a larger topology, or a smaller mesh"
        )
    ordered = in_order_of_links(topo.devices)
    grid = np.empty(count, dtype=object)
    grid[:] = ordered[:count]
    return Mesh(grid.reshape(tuple(mesh_shape)), tuple(axis_names))


def in_order_of_links(devices: Sequence[Any]) -> list[Any]:
    """Devices along their torus, which those with coordinates have; others in the order of their numbers."""
    return sorted(devices, key=_place)


def _place(device: Any) -> tuple[Any, ...]:
    """Minor coordinates first, as torus links run; devices without coordinates by id."""
    coords = getattr(device, "coords", None)
    if coords is None:
        return (device.id,)
    return (*reversed(list(coords)), getattr(device, "core_on_chip", 0))

_explain(__name__)
