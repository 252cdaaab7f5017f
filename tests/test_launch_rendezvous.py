"""Where the processes meet: addresses, SLURM, and MPI in stand-ins (the real one is in test_runtime_distributed)."""

from __future__ import annotations

import socket
import sys
import threading
import time
import types
from typing import Any

import pytest

from launch import rendezvous as module
from launch.cluster import Cluster, detect
from launch.rendezvous import Meeting, RendezvousError, await_listener, free_port, meet, meeting_at, split_address
from tests.tools.cluster_environments import SRUN


class FakeWorld:
    """What rendezvous asks of MPI.COMM_WORLD; `hosts` are the other processes'."""

    def __init__(self, rank: int, size: int, hosts: list[str]) -> None:
        self.rank, self.size, self.hosts = rank, size, hosts

    def allgather(self, mine: str) -> list[str]:
        return [mine, *self.hosts]

    def bcast(self, value: Any, root: int) -> Any:
        return value if self.rank == root else "10.1.2.3:4444"


def pretend_mpi(monkeypatch: pytest.MonkeyPatch, world: FakeWorld) -> None:
    mpi = types.SimpleNamespace(COMM_WORLD=world, Get_library_version=lambda: "MPICH Version: 5.0.2\nmore")
    package = types.ModuleType("mpi4py")
    package.MPI = mpi  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mpi4py", package)


def test_one_host_meets_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_mpi(monkeypatch, FakeWorld(0, 2, [module.host_identity()]))
    meeting = meet(Cluster(0, 2, launcher="mpich"))
    assert split_address(meeting.address)[0] == meeting.host == "127.0.0.1"
    assert meeting.bind == meeting.address  # nobody else can reach it
    with meeting.held, pytest.raises(OSError), socket.create_server(split_address(meeting.address)):
        pass


def test_a_host_without_a_resolvable_name_still_meets_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def unresolvable(name: str) -> str:
        raise socket.gaierror(name)

    monkeypatch.setattr(socket, "gethostbyname", unresolvable)
    pretend_mpi(monkeypatch, FakeWorld(0, 2, [module.host_identity()]))
    meeting = meet(Cluster(0, 2, launcher="mpich"))
    assert meeting.host == "127.0.0.1"
    meeting.held.close()


def test_several_hosts_meet_on_an_address_that_others_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "10.1.2.3")
    pretend_mpi(monkeypatch, FakeWorld(0, 2, ["elsewhere"]))
    meeting = meet(Cluster(0, 2, launcher="open mpi"))
    assert split_address(meeting.address)[0] == meeting.host == "10.1.2.3"
    assert meeting.bind.rpartition(":")[0] in ("[::]", "0.0.0.0")
    meeting.held.close()
    pretend_mpi(monkeypatch, FakeWorld(1, 2, ["elsewhere"]))
    assert meet(Cluster(1, 2, launcher="open mpi")).address == "10.1.2.3:4444"


def test_a_name_that_means_loopback_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "127.0.1.1")  # as Debian's /etc/hosts has it
    monkeypatch.setattr(module, "_source_address", lambda toward: "10.1.2.3")
    assert module.reachable_address() == "10.1.2.3"
    monkeypatch.setattr(module, "_source_address", lambda toward: None)
    with pytest.raises(
        RendezvousError, match=r"resolves to 127.0.1.1 and there is no route outside\n  fix: set MESHJIT_"
    ):
        module.reachable_address()


def test_another_mpi_than_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_mpi(monkeypatch, FakeWorld(0, 1, []))
    with pytest.raises(
        RendezvousError, match="says process 0 of 4 .*loaded MPICH Version: 5.0.2, where this is .* 0 of 1"
    ):
        meet(Cluster(0, 4, launcher="open mpi"))


def test_no_mpi_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(
        RendezvousError, match=r'mpich started 4 processes \(PMI_RANK=0\).*\n.*pip install "meshjit\[mpi\]"'
    ):
        meet(Cluster(0, 4, launcher="mpich", evidence=("PMI_RANK=0",)))


def test_slurm_needs_nobody_to_talk_to() -> None:
    first = meet(detect({**SRUN, "SLURM_STEP_NODELIST": "gpu01"}), {**SRUN, "SLURM_STEP_NODELIST": "gpu01"})
    assert (first.address, first.host) == (f"127.0.0.1:{61440 + 77 * 16}", "127.0.0.1")
    meetings = [meet(detect(e), e) for e in ({**SRUN, "SLURM_PROCID": str(r)} for r in range(8))]
    assert {m.address for m in meetings} == {f"gpu01:{61440 + 77 * 16}"} and [m.rank for m in meetings] == list(
        range(8)
    )
    other_step = {**SRUN, "SLURM_STEP_ID": "1"}
    assert meet(detect(other_step), other_step).address != meetings[0].address


def test_processes_of_a_job_share_a_token() -> None:
    def token(**more: str) -> bytes:
        environ = {**SRUN, **more}
        return meet(detect(environ), environ).token

    assert token() == token(SLURM_PROCID="1", SLURM_LOCALID="1", SLURM_NODEID="1")
    others = [token(SLURM_STEP_ID="1"), token(SLURM_JOB_ID="78"), token(MESHJIT_JOB_TOKEN="secret"), token(MESHJIT_JOB_TOKEN="Secret")]
    assert len({token(), *others}) == 5
    told = [meeting_at("127.0.0.1:80", 1, 2, {"MESHJIT_JOB_TOKEN": word}) for word in ("a", "a", "b")]
    assert told[0].token == told[1].token != told[2].token and repr(told[0].token) not in repr(told[0])


def test_nothing_known() -> None:
    with pytest.raises(RendezvousError, match="fix: mpirun or srun, or set MESHJIT_COORDINATOR"):
        meet(Cluster(0, 2))


@pytest.mark.parametrize("address", ["host", "host:", ":80", "host:x", "host:0", "host:65536"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(RendezvousError, match="not of the form host:port"):
        split_address(address)


@pytest.mark.parametrize(
    ("names", "own", "host"),
    [
        (["192.0.2.7"], True, "192.0.2.7"),
        (["fd00::7"], True, "[fd00::7]"),
        (["192.0.2.7"], False, ""),  # behind a load balancer
        (["192.0.2.7", "fd00::7"], True, ""),  # nobody knows which the others take
        (["127.0.1.1"], True, ""),  # Debian's /etc/hosts
        ([], True, ""),
    ],
)
def test_it_listens_where_the_others_call(names: list[str], own: bool, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Probe:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> Probe:
            return self

        def __exit__(self, *_: object) -> None: ...
        def bind(self, address: tuple[str, int]) -> None:
            if not own:
                raise OSError

    def resolved(*_: object, **__: object) -> Any:
        if not names:
            raise socket.gaierror
        return [(0, 0, 0, "", (name, 0)) for name in names]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(socket, "socket", Probe)
    monkeypatch.setattr(module, "_has_ipv6", lambda: True)
    assert Meeting("first:80", 0, 2, None).bind == f"{host or '[::]'}:80"


def test_good_addresses() -> None:
    assert split_address("[::1]:80") == ("[::1]", 80)
    assert Meeting("[::1]:80", 0, 2, None).bind == "[::1]:80"
    assert meeting_at("127.0.0.1:80", 1, 2).host == "127.0.0.1"
    assert 0 < free_port() < 65536


def test_waits_until_somebody_listens():
    address = f"127.0.0.1:{free_port()}"
    assert not await_listener(address, 0.05)
    listener = socket.socket()
    later = threading.Timer(0.2, lambda: (listener.bind(("127.0.0.1", int(address.rpartition(":")[2]))), listener.listen()))
    start = time.monotonic()
    later.start()
    with listener:
        assert await_listener(address, 20)
    assert 0.1 < time.monotonic() - start < 10
