"""The coordination service of several processes: joining, a store of keys, barriers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

from meshjit.runtime._jaxlib.base import XlaError

_NONE: Mapping[str, Any] = {}


def has_mutual_tls() -> bool:
    """Whether this jaxlib can be given certificates for the coordination service."""
    return "mtls_cert_file" in (_jax.get_distributed_runtime_service.__doc__ or "")


def start_coordinator(
    address: str, num_nodes: int, heartbeat_timeout: int = 10, timeout: int = 60, tls: Mapping[str, Any] = _NONE
) -> Any:
    """The service that one process runs for all, listening on `address` ("[::]:port"). `.shutdown()` ends it.

    Service and clients must be given the same `heartbeat_timeout` (seconds): clients send at a fraction of theirs. `tls`:
    jaxlib's mtls_ arguments."""
    return _jax.get_distributed_runtime_service(
        address,
        num_nodes,
        heartbeat_timeout=heartbeat_timeout,
        cluster_register_timeout=timeout,
        shutdown_timeout=heartbeat_timeout,
        **tls,
    )


def connect_coordinator(
    address: str, node_id: int, heartbeat_timeout: int = 10, timeout: int = 60, tls: Mapping[str, Any] = _NONE
) -> Any:
    """Join the service; returns once all processes have.

    When a process dies, jaxlib ends the others (SIGABRT) with a message that names it: at once where it ran the
    service, else after `heartbeat_timeout` seconds. jaxlib can be given a Python function to call instead, but cannot
    convert the argument for it."""
    client = _jax.get_distributed_runtime_client(
        address,
        node_id,
        init_timeout=timeout,
        heartbeat_timeout=heartbeat_timeout,
        shutdown_timeout=heartbeat_timeout,
        shutdown_on_destruction=False,
        use_compression=True,
        **tls,
    )
    client.connect()
    return client


def store_set(coordinator: Any, key: str, value: str, overwrite: bool = False) -> None:
    coordinator.key_value_set(key, value, allow_overwrite=overwrite)


def store_get(coordinator: Any, key: str, timeout: float) -> str | None:
    """The value, waiting for it; None after `timeout` seconds."""
    try:
        return coordinator.blocking_key_value_get(key, max(1, int(timeout * 1000)))
    except XlaError as error:
        if "DEADLINE_EXCEEDED" in str(error):
            return None
        raise


def store_list(coordinator: Any, prefix: str) -> dict[str, str]:
    """All keys below `prefix`, at this moment."""
    return dict(coordinator.key_value_dir_get(prefix))


def store_delete(coordinator: Any, key: str) -> None:
    """Delete a key, and all keys below it."""
    coordinator.key_value_delete(key)


def barrier(coordinator: Any, name: str, timeout: float) -> bool:
    """Wait for all processes; False when they did not come within `timeout` seconds. A name serves once."""
    try:
        coordinator.wait_at_barrier(name, max(1, int(timeout * 1000)))
    except XlaError:
        return False
    return True
