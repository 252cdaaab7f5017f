"""Clients and devices: virtual CPU devices, accelerators by their plugins, devices that need not be present."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]

from meshjit.runtime._jaxlib.kernels import register_gpu_plugin


def cpu_client(
    num_devices: int,
    coordinator: Any = None,
    node_id: int = 0,
    num_nodes: int = 1,
    host: str | None = None,
    asynchronous: bool = True,
) -> Any:
    """A client of `num_devices` virtual CPU devices here; with a coordinator, joined to the other processes.

    `host` is the address on which the other processes reach this one (for Gloo); None: what the host's name says."""
    collectives = None
    if coordinator is not None:
        collectives = _jax.make_gloo_tcp_collectives(distributed_client=coordinator, hostname=host)
    return xla_client.make_cpu_client(
        asynchronous=asynchronous,
        num_devices=num_devices,
        distributed_client=coordinator,
        node_id=node_id,
        num_nodes=num_nodes,
        collectives=collectives,
    )


def plugin_path(platform: str) -> str | None:
    """The shared library of an installed PJRT plugin for "cuda" or "tpu", or None."""
    if platform == "tpu":
        spec = importlib.util.find_spec("libtpu")
        roots, name = list((spec.submodule_search_locations or []) if spec else []), "libtpu.so"
    else:
        plugins = importlib.util.find_spec("jax_plugins")
        roots, name = list((plugins.submodule_search_locations or []) if plugins else []), "xla_cuda_plugin.so"
        roots = [os.path.join(root, kind) for root in roots for kind in ("xla_cuda13", "xla_cuda12")]
    return next((str(Path(root) / name) for root in roots if (Path(root) / name).is_file()), None)


def plugin_client(
    platform: str,
    coordinator: Any = None,
    node_id: int = 0,
    num_nodes: int = 1,
    visible: Sequence[int] | None = None,
) -> Any:
    """A client of the accelerators that the plugin for `platform` ("cuda" or "tpu") drives; `visible` chooses GPUs.

    Raises LookupError where no plugin is installed, and XlaError where the plugin finds no device."""
    _load_plugin(platform)
    options: dict[str, Any] = {}
    if platform == "cuda":
        options = dict(xla_client.generate_pjrt_gpu_plugin_options())  # what the environment says of the allocator
        options |= {"visible_devices": list(visible)} if visible is not None else {}
        options |= {"node_id": node_id, "num_nodes": num_nodes} if coordinator is not None else {}
    return xla_client.make_c_api_client(platform, options, coordinator)


def _load_plugin(platform: str) -> None:
    path = plugin_path(platform)
    if path is None:
        extra = "tpu" if platform == "tpu" else "cuda"
        raise LookupError(f'no PJRT plugin for "{platform}" is installed\n  fix: pip install "meshjit[{extra}]"')
    if not xla_client.pjrt_plugin_loaded(platform):
        plugin = xla_client.load_pjrt_plugin_dynamically(platform, path)
        if platform == "cuda":
            register_gpu_plugin(plugin)
    if not xla_client.pjrt_plugin_initialized(platform):
        xla_client.initialize_pjrt_plugin(platform)


def topology_devices(platform: str, name: str, options: Mapping[str, Any] | None = None) -> list[Any]:
    """Devices that need not be present: `compile` takes them, nothing runs on them. `name` as in "v5p:8x8x8"."""
    _load_plugin(platform)
    return list(_jax.get_default_c_api_topology(platform, name, dict(options or {}))._make_compile_only_devices())


def is_absent(device: Any) -> bool:
    """Whether the device is one of a topology, that can be compiled for and nothing else."""
    return isinstance(device.client, getattr(_jax, "CompileOnlyPyClient", ()))


def devices(client: Any) -> list[Any]:
    """The devices of all processes, as jaxlib orders them."""
    return list(client.devices())


def local_devices(client: Any) -> list[Any]:
    """The devices of this process."""
    return list(client.local_devices())
