"""What the processes of a job do together outside of programs: gather, broadcast, compare, wait.

All processes call these, in one order, as those of `jax.experimental.multihost_utils`. Who does not come is named, after 5
seconds on standard error and at the timeout in the error; who comes with something else is shown to all.
Alone, a process is a job of one.

    process_allgather(tree)                    every process's arrays, on every process
    broadcast_one_to_all(tree)                 process 0's arrays, on every process
    assert_equal(tree, "the configuration")    AssertionError on all where one has something else
    sync_global_devices("epoch 3")             nobody goes on before all have come
    barrier("saved", timeout=60)               the same, for so long
    set_value("key", "text"), get_value("key") a store that all share
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.api import jit
from meshjit.api.putting import device_put
from meshjit.api.shardings import broadcast as _broadcast
from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.runtime import _jaxlib, client
from meshjit.runtime.agreement import DivergenceError as DivergenceError, agree
from meshjit.runtime.array import Array
from meshjit.runtime.assembling import make_array_from_process_local_data, make_array_from_single_device_arrays
from meshjit.runtime.distributed import membership
from meshjit.runtime.noting import wait_for_calls
from meshjit.runtime.preemption import reached_preemption_sync_point as reached_preemption_sync_point
from meshjit.trees import WORDS as tree
from sharding.mesh import Mesh
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec

_SHOWN = 8  # elements of a leaf that an error shows


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """NumPy arrays of what every process has, in the order of their ranks.

    A leaf [a, b] of each process becomes [processes, a, b], or [processes · a, b] with `tiled`. A global Array (only with
    `tiled`) becomes its whole value, also where its devices are those of some processes alone. Raises DivergenceError on every
    process where shapes or dtypes differ, and for an Array whose devices are all one process's, which takes it for its own."""
    flat, structure = tree.flatten(in_tree)
    for leaf in flat:
        if _is_global(leaf) and not tiled:
            raise ValueError(
                f"process_allgather: {leaf.type} is an array of all processes already\n  fix: tiled=True gives its whole value"
            )
    values = [leaf if _is_global(leaf) else _host(leaf) for leaf in flat]
    agree("process_allgather", "\n".join(_leaf_text(value) for value in values), what="gather in")
    return tree.unflatten(structure, [_whole(value) if _is_global(value) else _gathered(value, tiled) for value in values])


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """NumPy arrays of what one process has: process 0, or the only one that says `is_source`. The others give arrays of the same
    shapes and dtypes, whose elements do not count. Raises DivergenceError where these differ."""
    source = client.process_index() == 0 if is_source is None else bool(is_source)
    flat, structure = tree.flatten(in_tree)
    values = [_host(leaf) for leaf in flat]
    agree("broadcast_one_to_all", "\n".join(_type_text(value) for value in values), what="broadcast in")
    return tree.unflatten(structure, [_sent(value, source) for value in values])


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """AssertionError on every process, which names who has what, where elements, shape or dtype of a leaf differ between any."""
    names = tree.path_names(in_tree, "tree")
    text = "\n".join(f"{name}: {_content(_host(leaf))}" for name, leaf in zip(names, tree.leaves(in_tree), strict=True))
    try:
        agree("assert_equal", f"{tree.structure(in_tree)}\n{text}\n", what="compare in")
    except DivergenceError as error:
        raise AssertionError(f"{fail_message}\n{error}" if fail_message else str(error)) from None


def sync_global_devices(name: str) -> None:
    """Wait until all processes have come here with this name, and what they have started on devices has ended."""
    wait_for_calls()
    agree(f"sync_global_devices({name!r})", name, what="meet in")


def barrier(name: str, timeout: float | None = None, processes: Sequence[int] | None = None) -> None:
    """Wait until all processes (or these) have come here with this name. Raises DivergenceError, which names the missing, after
    `timeout` seconds (default: config.agreement_timeout)."""
    agree(f"barrier({name!r})", name, timeout, processes, what="meet in")


def set_value(key: str, value: str, overwrite: bool = False) -> None:
    """Write into the store that the processes share. Raises KeyError for a key that is there, without `overwrite`."""
    coordinator = membership().coordinator
    if coordinator is None:
        if key in _alone and not overwrite:
            raise KeyError(f"{key!r} is in the store already; overwrite=True replaces it")
        _alone[key] = value
        return
    try:
        _jaxlib.store_set(coordinator, f"meshjit/user/{key}", value, overwrite)
    except _jaxlib.XlaError as error:
        if "ALREADY_EXISTS" in str(error):
            raise KeyError(f"{key!r} is in the store already; overwrite=True replaces it") from None
        raise


def get_value(key: str, timeout: float = 60.0) -> str:
    """What some process has written, waiting for it. Raises TimeoutError after so many seconds."""
    coordinator = membership().coordinator
    value = _alone.get(key) if coordinator is None else _jaxlib.store_get(coordinator, f"meshjit/user/{key}", timeout)
    if value is None:
        raise TimeoutError(f"nobody has written {key!r} into the store within {timeout:g} s")
    return value


_alone: dict[str, str] = {}  # the store of a process that has joined nobody


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Global Arrays of which each process has the part on its own devices. `pspecs`: a PartitionSpec, or a prefix of a tree."""
    flat, structure = tree.flatten(local_inputs)
    shardings = _shardings(pspecs, global_mesh, structure)
    made = [x if _is_global(x) else make_array_from_process_local_data(s, x) for x, s in zip(flat, shardings, strict=True)]
    return tree.unflatten(structure, made)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Arrays of the part of each global Array that this process's devices hold, on those devices; the inverse.

    Raises ValueError where this process's devices are no block of the mesh, or where extents do not divide."""
    flat, structure = tree.flatten(global_inputs)
    shardings = _shardings(pspecs, global_mesh, structure)
    return tree.unflatten(structure, [_local(x, s) if _is_global(x) else x for x, s in zip(flat, shardings, strict=True)])


def _shardings(pspecs: Any, mesh: Mesh, structure: Any) -> list[NamedSharding]:
    return [NamedSharding(mesh, PartitionSpec() if spec is None else spec) for spec in _broadcast(pspecs, structure, "pspecs")]


def _local(x: Array, sharding: NamedSharding) -> Array:
    """The part of this process: its shards, as an array on the local block of the mesh."""
    assert isinstance(sharding.mesh, Mesh)
    placed = device_put(x, sharding)
    block = NamedSharding(_local_mesh(sharding.mesh), sharding.spec)
    many = tuple(n * len(sharding.device_set) for n in (1,) * x.ndim)
    everywhere, here = sharding.shard_shape(many), block.shard_shape(many)
    parts = [whole * a // b for whole, a, b in zip(x.shape, everywhere, here, strict=True)]
    counts = [whole // a for whole, a in zip(many, everywhere, strict=True)]
    uneven = [dim for dim in range(x.ndim) if x.shape[dim] % counts[dim]]
    if uneven:
        raise ValueError(
            f"global_array_to_host_local_array: dim {uneven[0]} of {x.type} does not divide into {counts[uneven[0]]} equal"
            " shards, so processes have parts of different extents\n  fix: x.addressable_shards has this process's"
        )
    return make_array_from_single_device_arrays(tuple(parts), block, [shard.data for shard in placed.addressable_shards])


def _local_mesh(mesh: Mesh) -> Mesh:
    here = np.vectorize(lambda device: device.process_index == client.process_index())(mesh.devices)
    places = [np.flatnonzero(here.any(axis=tuple(d for d in range(here.ndim) if d != dim))) for dim in range(here.ndim)]
    block = mesh.devices[np.ix_(*places)]
    if block.size != here.sum() or not block.size:
        raise ValueError(
            f"process {client.process_index()} owns {int(here.sum())} devices of {mesh}, which are no block of it\n"
            "  fix: a mesh whose axes run over processes as wholes; or x.addressable_shards"
        )
    return Mesh(block, mesh.axis_names)


# --- leaves ------------------------------------------------------------------------------------------------------------


def _is_global(leaf: Any) -> bool:
    return isinstance(leaf, Array) and not leaf.is_fully_addressable


def _host(leaf: Any) -> np.ndarray[Any, Any]:
    value = np.asarray(leaf)
    return np.asarray(value, canonical(value.dtype, config.enable_x64))


def _type_text(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}"


def _leaf_text(leaf: Any) -> str:
    if not _is_global(leaf):
        return _type_text(leaf)
    return f"{_type_text(leaf)} on devices of {' and '.join(f'process {rank}' for rank in _owners(leaf))}, a global array"


def _owners(x: Array) -> list[int]:
    """The processes whose devices hold it."""
    return sorted({device.process_index for device in x.sharding.device_set})


def _content(value: np.ndarray[Any, Any]) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
    shown = ", ".join(map(str, value.reshape(-1)[:_SHOWN].tolist())) + (", …" if value.size > _SHOWN else "")
    return f"{_type_text(value)} [{shown}] sha256 {digest}"


def _processes() -> Mesh:
    """One device of each process."""
    firsts = {device.process_index: device for device in reversed(client.devices())}
    return Mesh([firsts[rank] for rank in sorted(firsts)], ("processes",))


def _whole(x: Any) -> np.ndarray[Any, Any]:
    """Of a global Array; the first of its processes sends it to those that have nothing of it."""
    assert isinstance(x.sharding, NamedSharding)
    owners, rank = _owners(x), client.process_index()
    value = np.zeros(x.shape, x.dtype)
    if rank in owners:
        value = np.asarray(device_put(x, NamedSharding(x.sharding.mesh, PartitionSpec())).addressable_shards[0].data)
    return value if len(owners) == client.process_count() else _sent(value, rank == owners[0])


def _gathered(value: np.ndarray[Any, Any], tiled: bool) -> np.ndarray[Any, Any]:
    stacked = value if tiled and value.ndim else value[None]
    mesh = _processes()
    if mesh.size == 1:
        return value.copy() if tiled else stacked.copy()
    rows = make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("processes")), stacked)
    return _whole(rows)


def _sent(value: np.ndarray[Any, Any], source: bool) -> np.ndarray[Any, Any]:
    """The bytes of all processes added up, where all but the source's are zero: right for every dtype, and for NaN."""
    mesh = _processes()
    if mesh.size == 1 or not value.size:
        return value.copy()
    raw = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)[None]
    part = raw if source else np.zeros_like(raw)
    rows = make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("processes")), part)
    added = jit(_sum_of_bytes, out_shardings=NamedSharding(mesh, PartitionSpec()))(rows)
    data = np.asarray(added.addressable_shards[0].data)
    return np.frombuffer(data.tobytes(), value.dtype).reshape(value.shape).copy()


def _sum_of_bytes(rows: Any) -> Any:
    return rows.sum(axis=0, dtype=np.uint8)
