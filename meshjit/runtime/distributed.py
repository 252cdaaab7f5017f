"""Several processes as one machine: joining, agreeing on programs, leaving. Signatures as in `jax.distributed`.

    mpirun -n 4 python script.py        joined on the first use of devices, or by initialize() if called before

`launch` finds out who we are; jaxlib's coordination service, which process 0 runs, joins us and watches heartbeats.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import launch
from launch.rendezvous import meeting_at
from launch.supervise import end_through_mpi
from meshjit.config import config
from meshjit.runtime import _jaxlib


@dataclass(frozen=True)
class Membership:
    """This process among its kin. Without a coordinator it is alone."""

    process_id: int = 0
    num_processes: int = 1
    address: str = ""
    host: str | None = None
    local_device_ids: tuple[int, ...] | None = None  # of accelerators; None: all that are visible
    coordinator: Any = field(default=None, repr=False)
    service: Any = field(default=None, repr=False)  # process 0 runs it
    supervisor: launch.Supervisor | None = field(default=None, repr=False)


_ALONE = Membership()
_membership: Membership | None = None
_joining = threading.RLock()
devices_exist = False  # set by client.py: too late to join


def membership() -> Membership:
    """This process among its kin, as far as it has joined them."""
    return _membership or _ALONE


def is_initialized() -> bool:
    """Whether `initialize` was called, by the user or on the first use of devices under a launcher."""
    return _membership is not None


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    initialization_timeout: float = 60,
    heartbeat_timeout_seconds: int | None = None,
    coordinator_bind_address: str | None = None,
) -> None:
    """Join the other processes; to be called by all of them, before any use of devices. As `jax.distributed.initialize`.

    Without arguments the launcher's environment says who we are (mpirun, srun, MESHJIT_ variables); with them, give the
    first three: `coordinator_address` "host:port" of process 0. `local_device_ids` restricts the accelerators of this
    process (CPU devices are counted by config.num_cpu_devices). Calling it again for the same place does nothing.

    Raises ValueError where it cannot be found out who we are, RuntimeError where devices exist already, where we have
    joined as someone else, or where the others do not come within `initialization_timeout` seconds."""
    with _joining:
        cluster = _cluster(coordinator_address, num_processes, process_id)
        if _membership is not None:
            return _check_same(cluster)
        if devices_exist:
            raise RuntimeError(
                "distributed.initialize came too late: this process has used its devices already\n"
                "  fix: call it first, before any array is made"
            )
        config.freeze("heartbeat_timeout", "the processes have joined")
        heartbeat = heartbeat_timeout_seconds or config.heartbeat_timeout
        local = _local_ids(local_device_ids, cluster, os.environ)
        _join(cluster, local, int(initialization_timeout), heartbeat, coordinator_bind_address)


def initialize_if_launched() -> None:
    """Join on the first use of devices, if a launcher started several of us."""
    if _membership is None and not devices_exist and not launch.detect(os.environ).is_alone:
        initialize()


def _cluster(address: str | None, size: int | None, rank: int | None) -> launch.Cluster:
    """Who we are: from the arguments, completed from the environment."""
    found = launch.detect(os.environ)
    if found.launcher == "none" and None in (address, size, rank):
        names = {"coordinator_address": address, "num_processes": size, "process_id": rank}
        missing = " and ".join(name for name, value in names.items() if value is None)
        seen = "".join(f"\n  {reason}" for reason in found.passed_over)
        raise ValueError(
            f"distributed.initialize: {missing} not given, and no launcher found in the environment{seen}\n"
            "  fix: start with mpirun or srun, or give coordinator_address, num_processes and process_id"
        )
    rank = found.rank if rank is None else rank
    size = found.size if size is None else size
    if size and not 0 <= rank < size:
        raise ValueError(f"distributed.initialize: process_id {rank} is not below num_processes {size}")
    return launch.Cluster(
        rank, size, found.local_rank, found.local_size, address or found.coordinator,
        found.launcher, found.evidence, found.passed_over,
    )  # fmt: skip


def _check_same(cluster: launch.Cluster) -> None:
    joined = membership()
    same = cluster.rank == joined.process_id and cluster.size in (0, joined.num_processes)
    if not same or (cluster.coordinator and joined.address and cluster.coordinator != joined.address):
        raise RuntimeError(
            f"distributed.initialize: this is process {joined.process_id} of {joined.num_processes} at "
            f"{joined.address or 'no address'} already, it cannot become process {cluster.rank} of {cluster.size} at "
            f"{cluster.coordinator or 'another'}\n  fix: call it once, or distributed.shutdown() before"
        )


def _local_ids(
    given: int | Sequence[int] | None, cluster: launch.Cluster, environ: Mapping[str, str]
) -> tuple[int, ...] | None:
    """Which GPUs are ours: as told; else one per process of this host, unless the launcher has shared them out already."""
    if given is not None:
        return (given,) if isinstance(given, int) else tuple(given)
    visible = [name for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if cluster.local_size <= 1 or 0 < len(visible) < cluster.local_size:
        return None
    return (cluster.local_rank,)


def _join(
    cluster: launch.Cluster, local: tuple[int, ...] | None, timeout: int, heartbeat: int, bind: str | None
) -> None:
    global _membership
    if cluster.is_alone:
        _membership = Membership(local_device_ids=local)
        return
    meeting = launch.rendezvous(cluster) if cluster.launcher != "none" else _told(cluster)
    service = coordinator = None
    try:
        if meeting.rank == 0:
            service = _jaxlib.start_coordinator(bind or meeting.bind, meeting.size, heartbeat, timeout)
        coordinator = _jaxlib.connect_coordinator(meeting.address, meeting.rank, heartbeat, timeout)
    except _jaxlib.XlaError as error:
        raise RuntimeError(
            f"process {meeting.rank} of {meeting.size} could not meet the others at {meeting.address} within "
            f"{timeout} s: {error}\n  fix: look whether every process was started and reaches that address"
        ) from error
    _membership = Membership(
        meeting.rank, meeting.size, meeting.address, meeting.host, local, coordinator, service,
        _supervise(meeting, coordinator),
    )  # fmt: skip


def _told(cluster: launch.Cluster) -> launch.Meeting:
    assert cluster.coordinator is not None
    return meeting_at(cluster.coordinator, cluster.rank, cluster.size)


# --- ending together -------------------------------------------------------------------------------------------------

_FAILED = "meshjit/failed"
_DONE = "meshjit/done/"
_FAREWELL_SECONDS = 2.0


def _supervise(meeting: launch.Meeting, coordinator: Any) -> launch.Supervisor:
    if meeting.comm is not None:
        return launch.watch(meeting.rank, end_through_mpi(meeting.comm), shutdown)
    end = _EndThroughStore(coordinator, meeting.rank, meeting.size)
    threading.Thread(target=end.listen, name="meshjit-failures", daemon=True).start()
    return launch.watch(meeting.rank, end, shutdown)


class _EndThroughStore:
    """End a job that no MPI holds together: the one that fails tells the store, the others listen to it."""

    def __init__(self, coordinator: Any, rank: int, size: int) -> None:
        self.coordinator, self.rank, self.size = coordinator, rank, size

    def __call__(self, code: int, reason: str) -> NoReturn:
        try:
            _jaxlib.store_set(self.coordinator, f"{_FAILED}/first", f"{self.rank} {code} {reason}")
            if self.rank == 0:  # the store ends with us: let the others read it first
                self._wait_for_readers()
        except _jaxlib.XlaError:
            pass  # somebody failed before us, or the coordinator is gone; the others will notice that
        os._exit(code)

    def _wait_for_readers(self) -> None:
        end = time.monotonic() + _FAREWELL_SECONDS
        while time.monotonic() < end:
            if len(_jaxlib.store_list(self.coordinator, f"{_FAILED}/read/")) >= self.size - 1:
                return
            time.sleep(0.02)

    def listen(self) -> None:
        """Wait for another's failure, in a thread; returns when the coordinator is left."""
        try:
            message = None
            while message is None:
                message = _jaxlib.store_get(self.coordinator, f"{_FAILED}/first", 3600)
            rank, code, reason = message.split(" ", 2)
            if int(rank) == self.rank:
                return
            _jaxlib.store_set(self.coordinator, f"{_FAILED}/read/{self.rank}", "")
        except _jaxlib.XlaError:
            return
        os.write(2, f"[rank {self.rank}] ends, because process {rank} failed: {reason}\n".encode())
        os._exit(int(code))


def shutdown() -> None:
    """Leave: wait until all processes have come here, then take the coordinator down. Does nothing for one that has not
    joined. Arrays and devices remain usable, but programs that span processes do not."""
    global _membership
    left, _membership = membership(), None
    if left.supervisor is not None:
        missing = _wait_until_all_done(left)
        if missing:
            left.supervisor.say(f"gives up waiting for {_processes(missing)} to finish")
            left.supervisor.end(1, f"{_processes(missing)} did not finish")
        left.supervisor.release()
    if left.coordinator is not None:
        left.coordinator.shutdown()
    if left.service is not None:
        left.service.shutdown()


def _wait_until_all_done(left: Membership) -> list[int]:
    """The processes that have not come within config.shutdown_timeout."""
    _jaxlib.store_set(left.coordinator, f"{_DONE}{left.process_id}", "", overwrite=True)
    end, pause = time.monotonic() + config.shutdown_timeout, 0.001
    while True:
        missing = sorted(set(range(left.num_processes)) - _finished(left.coordinator))
        if not missing or time.monotonic() > end:
            return missing
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def _finished(coordinator: Any) -> set[int]:
    return {int(key.rpartition("/")[2]) for key in _jaxlib.store_list(coordinator, _DONE)}


def _processes(ranks: Sequence[int]) -> str:
    """`process 3`, `processes 0, 2`; long lists are cut."""
    shown = ", ".join(map(str, ranks[:8])) + (f", … ({len(ranks)} in all)" if len(ranks) > 8 else "")
    return f"process{'es' if len(ranks) > 1 else ''} {shown}"
