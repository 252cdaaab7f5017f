"""Several processes as one machine: joining, agreeing on programs, leaving. Signatures as in `jax.distributed`.

    mpirun -n 4 python script.py        joined on the first use of devices, or by initialize() if called before

`launch` finds out who we are; jaxlib's coordination service, which process 0 runs, joins us and watches heartbeats.
"""

from __future__ import annotations

import collections
import contextlib
import difflib
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import launch
from launch.rendezvous import meeting_at
from launch.roll_call import call_roll, name_processes
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
    if _membership is None and not devices_exist and not launch.detect(os.environ).is_alone:
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


def _local_ids(
    ids: int | Sequence[int] | None, cluster: launch.Cluster, environ: Mapping[str, str]
) -> tuple[int, ...] | None:
    """Which GPUs are ours: as told; else one per process of this host, unless the launcher has shared them out."""
    if ids is not None:
        return (ids,) if isinstance(ids, int) else tuple(ids)
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
    meeting = launch.meet(cluster) if cluster.launcher != "none" else _told(cluster)
    held = call_roll(meeting, timeout, bind) if meeting.comm is None else meeting.held
    service = None
    try:
        with held or contextlib.nullcontext():  # so that nobody takes the port before the coordinator has it
            if meeting.rank == 0:
                service = _jaxlib.start_coordinator(bind or meeting.bind, meeting.size, heartbeat, timeout)
        coordinator = _jaxlib.connect_coordinator(meeting.address, meeting.rank, heartbeat, timeout)
    except _jaxlib.XlaError as error:
        raise RuntimeError(f"process {meeting.rank} could not join at {meeting.address}: {error}") from error
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
_LEFT = "meshjit/left/"
_NOBODY = "nobody"
_FAREWELL_SECONDS = 2.0  # for the others to read why
_PARTING_SECONDS = 0.2  # for the last of them to end, once it has said that it will


def _supervise(meeting: launch.Meeting, coordinator: Any) -> launch.Supervisor:
    if meeting.comm is not None:
        return launch.watch(meeting.rank, end_through_mpi(meeting.comm), shutdown)
    end = _EndThroughStore(coordinator, meeting.rank, meeting.size)
    end.listener.start()
    return launch.watch(meeting.rank, end, shutdown)


class _EndThroughStore:
    """End a job that no MPI holds together: the one that fails tells the store, the others listen to it.

    Process 0 goes last: the store ends with it, and jaxlib aborts a process whose store is gone."""

    def __init__(self, coordinator: Any, rank: int, size: int) -> None:
        self.coordinator, self.rank, self.size = coordinator, rank, size
        self.listener = threading.Thread(target=self.listen, name="meshjit-failures", daemon=True)

    def __call__(self, code: int, reason: str) -> NoReturn:
        try:
            _jaxlib.store_set(self.coordinator, f"{_FAILED}/first", f"{self.rank} {code} {reason}")
        except _jaxlib.XlaError:
            pass  # somebody failed before us, or the coordinator is gone; the others will notice that
        self._part(code)

    def _part(self, code: int) -> NoReturn:
        try:
            if self.rank:
                _jaxlib.store_set(self.coordinator, f"{_FAILED}/ends/{self.rank}", "", overwrite=True)
            else:
                self._wait_for_the_others()
        except _jaxlib.XlaError:
            pass  # the coordinator is gone
        os._exit(code)

    def _wait_for_the_others(self) -> None:
        end = time.monotonic() + _FAREWELL_SECONDS
        while time.monotonic() < end and len(_jaxlib.store_list(self.coordinator, f"{_FAILED}/ends/")) < self.size - 1:
            time.sleep(0.02)
        time.sleep(_PARTING_SECONDS)

    def listen(self) -> None:
        """Wait for another's failure, in a thread."""
        try:
            message = None
            while message is None:
                message = _jaxlib.store_get(self.coordinator, f"{_FAILED}/first", 3600)
            if message == _NOBODY or int(message.split()[0]) == self.rank:
                return
        except _jaxlib.XlaError:
            return
        rank, code, reason = message.split(" ", 2)
        os.write(2, f"[rank {self.rank}] ends, because process {rank} failed: {reason}\n".encode())
        self._part(int(code))

    def stop_listening(self) -> None:
        """All are done: end the thread, which must not be inside jaxlib when Python goes down."""
        _jaxlib.store_set(self.coordinator, f"{_FAILED}/first", _NOBODY, overwrite=True)
        self.listener.join()


def shutdown() -> None:
    """Leave: wait until all processes have come here, then take the coordinator down. Does nothing for one that has not
    joined. Arrays and devices remain usable, but programs that span processes do not."""
    global _membership
    left, _membership = membership(), None
    if left.supervisor is not None:
        missing = _wait_until_all_done(left)
        if missing:
            left.supervisor.say(f"gives up waiting for {name_processes(missing)} to finish")
            left.supervisor.end(1, f"{name_processes(missing)} did not finish")
        left.supervisor.release()
        if isinstance(left.supervisor.end_job, _EndThroughStore):
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


# --- agreeing on programs --------------------------------------------------------------------------------------------


class DivergenceError(RuntimeError):
    """Processes that must run the same programs in the same order do not. The text names who has what."""


_PATIENCE_SECONDS = 10.0  # after which the missing are named on stderr, while we go on waiting
_TEXT_LIMIT = 1_000_000  # characters of a program that are shared for the diff
_DIFF_LINES = 60
_counters: collections.Counter[str] = collections.Counter()
_HINT = (
    "  fix: every process must run the same functions on the same shapes in the same order; look for branches on\n"
    "       process_index(), on data, time or random numbers, and for loops over sets or directory listings"
)


def agree(name: str, text: str, timeout: float | None = None, processes: Sequence[int] | None = None) -> None:
    """Make sure that the processes of a program have the same one, before any of them runs it.

    The n-th call on one process meets the n-th call on every other of `processes` (default: all). Raises
    DivergenceError, on every process, where the texts differ; it shows the difference. Raises it, too, where a process
    has not come within `timeout` seconds (default: config.agreement_timeout), naming the missing."""
    joined = membership()
    group = sorted(set(range(joined.num_processes) if processes is None else processes))
    if joined.coordinator is None or len(group) < 2:
        return
    series = f"meshjit/program/{_digest(str(group)) if len(group) < joined.num_processes else 'all'}"
    number, _counters[series] = _counters[series], _counters[series] + 1
    mine = json.dumps([_digest(text), name])
    _jaxlib.store_set(joined.coordinator, f"{series}/{number}/{joined.process_id}", mine)
    answers = _gather(joined, series, number, name, group, timeout or config.agreement_timeout)
    if len({digest for digest, _ in answers.values()}) > 1:
        raise DivergenceError(_describe_divergence(joined, series, number, answers, text))
    if number:  # all have come to this one, so nobody reads our word on the last one any more
        _jaxlib.store_delete(joined.coordinator, f"{series}/{number - 1}/{joined.process_id}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _gather(
    joined: Membership, series: str, number: int, name: str, group: Sequence[int], timeout: float
) -> dict[int, tuple[str, str]]:
    """Rank -> (digest, name), once all of the group have come."""
    start, pause, warned = time.monotonic(), 0.0005, False
    while True:
        stored = _jaxlib.store_list(joined.coordinator, f"{series}/{number}/")
        answers = {int(key.rpartition("/")[2]): tuple(json.loads(value)) for key, value in stored.items()}
        missing = [rank for rank in group if rank not in answers]
        waited = time.monotonic() - start
        if not missing:
            return answers
        if waited > timeout:
            raise DivergenceError(_describe_missing(joined, series, number, name, missing, f"within {waited:.0f} s"))
        if waited > 1 and (gone := sorted(set(missing) & _finished(joined.coordinator))):
            raise DivergenceError(_describe_missing(joined, series, number, name, gone, "and has ended"))
        if waited > _PATIENCE_SECONDS and not warned:
            warned = True
            notice = _describe_missing(joined, series, number, name, missing, f"in {waited:.0f} s; still waiting")
            print(f"[rank {joined.process_id}] {notice.splitlines()[0]}", file=sys.stderr, flush=True)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _describe_missing(joined: Membership, series: str, number: int, name: str, missing: Sequence[int], how: str) -> str:
    """Who did not come, and what each of them was seen with last."""
    stored = _jaxlib.store_list(joined.coordinator, f"{series}/{number - 1}/") if number else {}
    last = {int(key.rpartition("/")[2]): json.loads(value)[1] for key, value in stored.items()}
    lines = [f"program {number}, {name!r}: {name_processes(missing)} did not come {how}"]
    lines += [f"  process {r} last agreed on program {number - 1}, {last[r]!r}" for r in missing[:8] if r in last]
    return "\n".join([*lines, _HINT])


def _describe_divergence(
    joined: Membership, series: str, number: int, answers: Mapping[int, tuple[str, str]], text: str
) -> str:
    """Who has what, and how the largest camp's program differs from the others'."""
    camps: dict[str, list[int]] = collections.defaultdict(list)
    for rank, (digest, _) in sorted(answers.items()):
        camps[digest].append(rank)
    order = sorted(camps.values(), key=lambda ranks: (-len(ranks), ranks))
    texts = _share_texts(joined, f"{series}/text/{number}", [ranks[0] for ranks in order], text)
    lines = [f"the processes disagree about program {number}"]
    lines += [f"  {name_processes(ranks)}: {answers[ranks[0]][1]!r}, fingerprint {answers[ranks[0]][0]}" for ranks in order]
    for ranks in order[1:3]:
        lines += _difference(name_processes(order[0]), texts[order[0][0]], name_processes(ranks), texts[ranks[0]])
    return "\n".join([*lines, _HINT])


def _share_texts(joined: Membership, prefix: str, speakers: Sequence[int], text: str) -> dict[int, str | None]:
    """The programs of the speakers, one for each camp; None for one that did not get through."""
    if joined.process_id in speakers:
        _jaxlib.store_set(joined.coordinator, f"{prefix}/{joined.process_id}", text[:_TEXT_LIMIT])
    return {rank: _jaxlib.store_get(joined.coordinator, f"{prefix}/{rank}", 10) for rank in speakers[:3]}


def _difference(left_name: str, left: str | None, right_name: str, right: str | None) -> list[str]:
    if left is None or right is None:
        return [f"  the program of {left_name if left is None else right_name} could not be had"]
    diff = list(difflib.unified_diff(left.splitlines(), right.splitlines(), left_name, right_name, lineterm="", n=2))
    if not diff:
        return [f"  the first {_TEXT_LIMIT} characters are the same"]
    cut = [f"… {len(diff) - _DIFF_LINES} more lines"] if len(diff) > _DIFF_LINES else []
    return [f"  {line}" for line in [*diff[:_DIFF_LINES], *cut]]
