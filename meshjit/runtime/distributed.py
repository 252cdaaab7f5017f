"""Several processes as one machine: joining and leaving. Signatures as in `jax.distributed`.

    mpirun -n 4 python script.py        joined on the first use of devices, or by initialize() if called before

`launch` finds out who we are; jaxlib's coordination service, which process 0 runs, joins us and watches heartbeats.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

import launch
from launch.arrival import arrival
from launch.rendezvous import await_listener, meeting_at
from launch.roll_call import call_roll, name_processes
from launch.supervise import end_through_mpi
from meshjit.config import config
from meshjit.runtime import _jaxlib
from meshjit.runtime.certificates import certificates
from meshjit.runtime.ending import EndThroughStore
from meshjit.runtime.noting import pasts
from meshjit.runtime.watchdog import Watchdog
from meshjit.version import __version__

log = logging.getLogger("meshjit")


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
    watchdog: Watchdog | None = field(default=None, repr=False)


_LISTENS_SECONDS = 5.0  # in which process 0 starts the coordinator, once all have come; whoever comes later waits in jaxlib
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
    """Join the other processes; all of them call this, before any use of devices. As `jax.distributed.initialize`.

    Without arguments the launcher's environment says who we are (mpirun, srun, MESHJIT_ variables); with them, give the
    first three: `coordinator_address` "host:port" of process 0. `local_device_ids` restricts the accelerators of this
    process (CPU devices are counted by config.num_cpu_devices). Calling it again for the same place does nothing. Without MPI,
    MESHJIT_JOB_TOKEN in the environment, a secret word that is the same for all of them, keeps strangers out.

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
    if _membership is not None or devices_exist:
        return
    cluster = launch.detect(os.environ)
    for doubt in cluster.doubts if cluster.launcher == "none" else ():
        log.warning("%s; so this process runs alone", doubt)
    if not cluster.is_alone:
        initialize()


def _cluster(address: str | None, size: int | None, rank: int | None) -> launch.Cluster:
    """Who we are: from the arguments, completed from the environment."""
    cluster = launch.detect(os.environ)
    if cluster.launcher == "none" and None in (address, size, rank):
        names = {"coordinator_address": address, "num_processes": size, "process_id": rank}
        missing = " and ".join(name for name, value in names.items() if value is None)
        seen = "".join(f"\n  {reason}" for reason in cluster.passed_over)
        raise ValueError(
            f"distributed.initialize: {missing} not given, and no launcher found in the environment{seen}\n"
            "  fix: start with mpirun or srun, or give coordinator_address, num_processes and process_id"
        )
    rank = cluster.rank if rank is None else rank
    size = cluster.size if size is None else size
    if size and not 0 <= rank < size:
        raise ValueError(f"distributed.initialize: process_id {rank} is not below num_processes {size}")
    return launch.Cluster(
        rank, size, cluster.local_rank, cluster.local_size, address or cluster.coordinator,
        cluster.launcher, cluster.evidence, cluster.passed_over,
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


def _local_ids(ids: int | Sequence[int] | None, cluster: launch.Cluster, environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """Which GPUs are ours: as told; else one per process of this host, unless the launcher has shared them out."""
    if ids is not None:
        return (ids,) if isinstance(ids, int) else tuple(ids)
    visible = [name for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if cluster.local_size <= 1 or 0 < len(visible) < cluster.local_size:
        return None
    return (cluster.local_rank,)


def _join(cluster: launch.Cluster, local: tuple[int, ...] | None, timeout: int, heartbeat: int, bind: str | None) -> None:
    global _membership
    if cluster.is_alone:
        _membership = Membership(local_device_ids=local)
        return
    tls = certificates()
    through_mpi = cluster.is_mpi and cluster.coordinator is None  # else nobody stays until all have come: the roll call waits
    with arrival(cluster, timeout) if through_mpi else contextlib.nullcontext():
        meeting = launch.meet(cluster) if cluster.launcher != "none" else _told(cluster)
    held = call_roll(meeting, timeout, bind) if meeting.comm is None else meeting.held
    service = None
    try:
        with held or contextlib.nullcontext():  # so that nobody takes the port before the coordinator has it
            if meeting.rank == 0:
                service = _jaxlib.start_coordinator(bind or meeting.bind, meeting.size, heartbeat, timeout, tls)
            else:
                await_listener(meeting.address, _LISTENS_SECONDS)
        coordinator = _jaxlib.connect_coordinator(meeting.address, meeting.rank, heartbeat, timeout, tls)
    except _jaxlib.XlaError as error:
        raise RuntimeError(f"process {meeting.rank} could not join at {meeting.address}: {error}") from error
    supervisor = _supervise(meeting, coordinator)
    watchdog = Watchdog(coordinator, meeting.rank, meeting.size, supervisor) if config.watchdog else None
    _membership = Membership(
        meeting.rank, meeting.size, meeting.address, meeting.host, local, coordinator, service, supervisor, watchdog
    )
    if watchdog is not None:
        supervisor.explain = watchdog.explain
        watchdog.start()
    _compare_software(coordinator, meeting.rank)


def _compare_software(coordinator: Any, rank: int) -> None:
    """RuntimeError where this process runs other versions than process 0, which plan and write programs differently, or another
    script."""
    versions = {"Python": platform.python_version(), "meshjit": __version__, "jaxlib": _jaxlib.version}
    versions["numpy"] = numpy.__version__
    mine = {**versions, "script": _script_digest()}
    if rank == 0:
        return _jaxlib.store_set(coordinator, _SOFTWARE, json.dumps(mine))
    theirs = json.loads(_jaxlib.store_get(coordinator, _SOFTWARE, 60) or json.dumps(mine))
    differing = [f"{name} {mine[name]} here, {theirs.get(name)} there" for name in versions if mine[name] != theirs.get(name)]
    if differing:
        raise RuntimeError(
            f"process {rank} (host {socket.gethostname()}) and process 0 run different versions: {'; '.join(differing)}\n"
            "  fix: start all processes with the same environment"
        )
    if mine["script"] and theirs.get("script") and mine["script"] != theirs["script"]:
        raise RuntimeError(
            f"process {rank} (host {socket.gethostname()}) and process 0 run different scripts: SHA-256 of"
            f" {os.path.basename(sys.argv[0])} is {mine['script'][:12]} here, {theirs['script'][:12]} there\n"
            "  fix: bring the same file to all hosts; what differs between processes depends on process_index()"
        )


_SOFTWARE = "meshjit/software"


def _script_digest() -> str:
    """Of the script that this process runs; "" where it is no file."""
    try:
        with open(sys.argv[0], "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except (OSError, IndexError, ValueError):
        return ""


def _told(cluster: launch.Cluster) -> launch.Meeting:
    assert cluster.coordinator is not None
    return meeting_at(cluster.coordinator, cluster.rank, cluster.size)


# --- ending together -------------------------------------------------------------------------------------------------

_DONE = "meshjit/done/"
_LEFT = "meshjit/left/"


def _supervise(meeting: launch.Meeting, coordinator: Any) -> launch.Supervisor:
    if meeting.comm is not None:
        return launch.watch(meeting.rank, end_through_mpi(meeting.comm), shutdown)
    end = EndThroughStore(coordinator, meeting.rank, meeting.size)
    end.listener.start()
    return launch.watch(meeting.rank, end, shutdown)


def shutdown() -> None:
    """Leave: wait until all processes have come here, then take the coordinator down. Does nothing for one that has not
    joined. Arrays and devices remain usable, but programs that span processes do not."""
    global _membership
    left, _membership = membership(), None
    if left.watchdog is not None:
        left.watchdog.has_ended = True
    if left.supervisor is not None:
        missing = _wait_until_all_done(left)
        if left.watchdog is not None and not missing:
            left.watchdog.stop()
            left.watchdog.compare(_pasts(left.coordinator))
        if missing:
            left.supervisor.say(f"gives up waiting for {name_processes(missing)} to finish")
            left.supervisor.end(1, f"{name_processes(missing)} did not finish")
        left.supervisor.release()
        if isinstance(left.supervisor.end_job, EndThroughStore):
            left.supervisor.end_job.stop_listening()
    if left.coordinator is not None:
        _disconnect(left)


def _disconnect(left: Membership) -> None:
    """Process 0 goes last: a client whose service vanishes ends its process. The store answers clients that have shut
    down, too, so that is where they say so."""
    if left.service is None:
        left.coordinator.shutdown()
        with contextlib.suppress(_jaxlib.XlaError):  # the service may go before it has answered
            _jaxlib.store_set(left.coordinator, f"{_LEFT}{left.process_id}", "")
        return
    end = time.monotonic() + config.heartbeat_timeout
    while len(_jaxlib.store_list(left.coordinator, _LEFT)) < left.num_processes - 1 and time.monotonic() < end:
        time.sleep(0.002)
    left.coordinator.shutdown()
    left.service.shutdown()


def _wait_until_all_done(left: Membership) -> list[int]:
    """The processes that have not come within config.shutdown_timeout."""
    _jaxlib.store_set(left.coordinator, f"{_DONE}{left.process_id}", json.dumps(pasts()), overwrite=True)
    end, pause = time.monotonic() + config.shutdown_timeout, 0.001
    while True:
        missing = sorted(set(range(left.num_processes)) - finished(left.coordinator))
        if not missing or time.monotonic() > end:
            return missing
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def _pasts(coordinator: Any) -> dict[int, dict[str, str]]:
    """What each process had done when it came to its end."""
    stored = _jaxlib.store_list(coordinator, _DONE)
    return {int(key.rpartition("/")[2]): json.loads(value) for key, value in stored.items()}


def finished(coordinator: Any) -> set[int]:
    """Who has come to the end of its program."""
    return {int(key.rpartition("/")[2]) for key in _jaxlib.store_list(coordinator, _DONE)}
