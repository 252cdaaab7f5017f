"""The devices: one client per platform, made on first use; joined to the other processes where there are several.

Devices are jaxlib's own objects; what counts of them is `.id`, `.process_index`, `.platform`, `.device_kind`.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from typing import Any

from meshjit.config import config
from meshjit.runtime import _jaxlib, distributed, forking

log = logging.getLogger("meshjit")

_ALIASES = {"gpu": "cuda"}
_making = threading.RLock()
_clients: dict[str, Any] = {}


def devices(backend: str | None = None) -> list[Any]:
    """The devices of all processes, by process and then by id: the same list on every process."""
    return list(_all_devices(platform_named(backend)))


def local_devices(process_index: int | None = None, backend: str | None = None, host_id: int | None = None) -> list[Any]:
    """The devices of this process, or of another, by id. `host_id` is JAX's old name for `process_index`."""
    process = process_index if process_index is not None else host_id
    if isinstance(process, str):
        raise TypeError(f"local_devices: process_index must be a number, got {process!r}\n  fix: backend={process!r}")
    if process is None:
        return list(_own_devices(platform_named(backend)))
    members = [d for d in _all_devices(platform_named(backend)) if d.process_index == process]
    if not members:
        raise ValueError(f"local_devices: there is no process {process}; there are {process_indices(backend)}")
    return members


def default_device() -> Any:
    """Where values go that nobody placed: `config.default_device`, else the first of this process."""
    chosen = config.default_device
    return local_devices()[0] if chosen is None else chosen


def device_count(backend: str | None = None) -> int:
    """Devices of all processes."""
    return len(_all_devices(platform_named(backend)))


def local_device_count(backend: str | None = None) -> int:
    """Devices of this process."""
    return len(_own_devices(platform_named(backend)))


def process_index(backend: str | None = None) -> int:
    """The rank of this process: 0 where there is one."""
    return client(backend).process_index()


def process_count(backend: str | None = None) -> int:
    """How many processes own devices."""
    return len({device.process_index for device in _all_devices(platform_named(backend))})


def process_indices(backend: str | None = None) -> list[int]:
    """The ranks of the processes that own devices."""
    return sorted({device.process_index for device in _all_devices(platform_named(backend))})


def default_backend() -> str:
    """The platform that `devices()` means: "cpu", "cuda" or "tpu"."""
    return platform_named(None)


def client(backend: str | None = None) -> Any:
    """jaxlib's client of a platform. Raises RuntimeError where the platform cannot be had."""
    platform = platform_named(backend)
    with _making:
        if platform not in _clients:
            _clients[platform] = _make(platform)
        return _clients[platform]


def made_clients() -> dict[str, Any]:
    """jaxlib's clients that exist so far, by platform."""
    return dict(_clients)


def platform_named(backend: str | None) -> str:
    """"cpu", "cuda" or "tpu"; None is the platform that `devices()` means."""
    if backend is None:
        return _default_platform()
    name = _ALIASES.get(backend.lower(), backend.lower())
    if name not in ("cpu", "cuda", "tpu"):
        raise RuntimeError(f"unknown backend {backend!r}: expected cpu, cuda (or gpu) or tpu")
    return name


@functools.cache
def _all_devices(platform: str) -> tuple[Any, ...]:
    return tuple(sorted(_jaxlib.devices(client(platform)), key=lambda d: (d.process_index, d.id)))


@functools.cache
def _own_devices(platform: str) -> tuple[Any, ...]:
    return tuple(sorted(_jaxlib.local_devices(client(platform)), key=lambda d: d.id))


@functools.cache
def _default_platform() -> str:
    """The first platform of config.platforms; without that an accelerator whose plugin is installed and works."""
    if config.platforms is not None:
        return config.platforms.split(",")[0]
    installed = (platform for platform in ("cuda", "tpu") if _jaxlib.plugin_path(platform) is not None)
    platform = next(filter(_works, installed), "cpu")
    config.found_out("platforms", platform)
    return platform


def _works(platform: str) -> bool:
    try:
        return bool(_jaxlib.devices(client(platform)))
    except RuntimeError as error:
        log.warning("the %s plugin is installed but gives no devices, so CPU is used: %s", platform, error)
        return False


def _make(platform: str) -> Any:
    if config.auto_initialize:
        distributed.initialize_if_launched()
    joined = distributed.membership()
    distributed.devices_exist = True
    config.freeze("platforms", "devices are in use")
    forking.warn_at_fork()
    if platform == "cpu":
        return _make_cpu(joined)
    try:
        return _jaxlib.plugin_client(
            platform, joined.coordinator, joined.process_id, joined.num_processes, joined.local_device_ids
        )
    except LookupError as error:
        raise RuntimeError(f'no {platform} devices: {error.args[0]}, or use "cpu"') from error
    except _jaxlib.XlaError as error:
        raise RuntimeError(f'no {platform} devices: {error}\n  fix: use "cpu", or look at the driver') from error


def _make_cpu(joined: distributed.Membership) -> Any:
    config.read_again("num_cpu_devices", os.environ)  # XLA reads XLA_FLAGS as late (chex.set_n_cpu_devices)
    for option in ("num_cpu_devices", "cpu_collectives", "cpu_enable_async_dispatch"):
        config.freeze(option, "the CPU devices exist already")
    if config.cpu_collectives == "none":
        return _jaxlib.cpu_client(config.num_cpu_devices, asynchronous=config.cpu_enable_async_dispatch)
    return _jaxlib.cpu_client(
        config.num_cpu_devices,
        joined.coordinator,
        joined.process_id,
        joined.num_processes,
        joined.host,
        config.cpu_enable_async_dispatch,
    )
