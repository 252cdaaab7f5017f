"""Where the processes meet: the coordinator's address, known to all before any of them has a connection.

MPI hands it round where an MPI launcher started the processes. SLURM's variables let each process work it out alone.
Otherwise the user says it: MESHJIT_COORDINATOR=host:port, or the arguments of `distributed.initialize`.

Where processes call one another over TCP they prove that they are of one job, by a token. MESHJIT_JOB_TOKEN is one that nobody
else can know. Without it the token is made of what SLURM tells all tasks of a step: that keeps out other jobs, and whatever does
not speak meshjit, but not somebody who writes a program to get in. On one host other users are kept out all the same (`peer`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launch.cluster import Cluster, expand_nodes


class RendezvousError(RuntimeError):
    """The processes cannot find each other; the text says what was tried and what to do."""


@dataclass(frozen=True)
class Meeting:
    """Where process `rank` of `size` finds the coordinator, which process 0 runs."""

    address: str  # "host:port"
    rank: int
    size: int
    host: str | None  # under which the others reach this process; None: whatever its host's name says
    comm: Any = None  # MPI.COMM_WORLD where MPI brought the processes together
    token: bytes = field(default=b"", repr=False)  # what the processes of this job know
    is_secret: bool = False  # whether nobody else can know the token
    held: socket.socket | None = field(default=None, repr=False)  # keeps process 0's port until the coordinator has it

    @property
    def bind(self) -> str:
        """What process 0 listens on: the address that the others use, where that is one of this host's; else every interface."""
        host, port = split_address(self.address)
        own = host if is_loopback(host) else _own_interface(host)
        return f"{own or ('[::]' if _has_ipv6() else '0.0.0.0')}:{port}"


def meet(cluster: Cluster, environ: Mapping[str, str] | None = None) -> Meeting:
    """Agree on the coordinator. Under MPI all processes must call this together: it waits for them (`arrival`). Raises
    RendezvousError."""
    environ = os.environ if environ is None else environ
    if cluster.coordinator is not None:
        return meeting_at(cluster.coordinator, cluster.rank, cluster.size, environ)
    if cluster.is_mpi:
        return _through_mpi(cluster)
    if cluster.launcher == "slurm":
        return _through_slurm(cluster, environ)
    raise RendezvousError(
        "no launcher says where the processes meet\n"
        "  fix: mpirun or srun, or set MESHJIT_COORDINATOR=host:port, MESHJIT_NUM_PROCESSES and MESHJIT_PROCESS_ID"
    )


def meeting_at(address: str, rank: int, size: int, environ: Mapping[str, str] | None = None) -> Meeting:
    """A meeting at a given address. Raises RendezvousError for an address without a port."""
    host, _ = split_address(address)
    environ = os.environ if environ is None else environ
    return Meeting(address, rank, size, _own_address(host), token=job_token(environ), is_secret=has_secret(environ))


def has_secret(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("MESHJIT_JOB_TOKEN"))


def job_token(environ: Mapping[str, str], *facts: str) -> bytes:
    """What the processes of one job share: MESHJIT_JOB_TOKEN, and facts that are the same on all of them."""
    return hashlib.sha256("\n".join([environ.get("MESHJIT_JOB_TOKEN", ""), *facts]).encode()).digest()


# --- MPI -------------------------------------------------------------------------------------------------------------


def _through_mpi(cluster: Cluster) -> Meeting:
    """Process 0 picks a free port; one gather of hosts tells whether loopback will do; one broadcast tells all."""
    comm = mpi_world(cluster)
    hosts = comm.allgather(host_identity())
    one_host = len(set(hosts)) == 1
    own = "127.0.0.1" if one_host else reachable_address()
    port, held = held_port() if comm.rank == 0 else (0, None)
    address = comm.bcast(f"{own}:{port}" if comm.rank == 0 else None, root=0)
    return Meeting(address, comm.rank, comm.size, own, comm, held=held)


def mpi_world(cluster: Cluster) -> Any:
    """MPI.COMM_WORLD, checked against what the launcher said. Raises RendezvousError where mpi4py is missing, finds no
    MPI library, or finds another one than the launcher's."""
    facts = ", ".join(cluster.evidence)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RendezvousError(
            f"{cluster.launcher} started {cluster.size or 'several'} processes ({facts}), but mpi4py finds no MPI: "
            f"{' '.join(str(error).split())}\n"
            '  fix: pip install "meshjit[mpi]" and start with its own mpirun, or install the MPI that mpirun belongs to'
        ) from error
    comm = MPI.COMM_WORLD
    if cluster.size and (comm.size, comm.rank) != (cluster.size, cluster.rank):
        library = MPI.Get_library_version().splitlines()[0].strip().rstrip(",")
        raise RendezvousError(
            f"{cluster.launcher} says process {cluster.rank} of {cluster.size} ({facts}), but mpi4py "
            f"loaded {library}, where this is process {comm.rank} of {comm.size}\n"
            "  fix: use the mpirun that belongs to that library (for the mpich wheel: the one beside your python)"
        )
    return comm


# --- SLURM -----------------------------------------------------------------------------------------------------------


def _through_slurm(cluster: Cluster, environ: Mapping[str, str]) -> Meeting:
    """The first node of the step, at a port that job and step determine."""
    nodes = expand_nodes(environ["SLURM_STEP_NODELIST"])
    job, step = int(environ["SLURM_JOB_ID"]), int(environ.get("SLURM_STEP_ID") or environ["SLURM_STEPID"])
    port = 61440 + (job * 16 + step) % 4096
    token = job_token(environ, *(f"{name}={environ.get(name, '')}" for name in _SLURM_FACTS), f"step {step}")
    host, own = ("127.0.0.1", "127.0.0.1") if len(nodes) == 1 else (nodes[0], _own_address(nodes[0]))
    return Meeting(f"{host}:{port}", cluster.rank, cluster.size, own, token=token, is_secret=has_secret(environ))


_SLURM_FACTS = ("SLURM_JOB_ID", "SLURM_JOB_UID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")


# --- addresses -------------------------------------------------------------------------------------------------------


def split_address(address: str) -> tuple[str, int]:
    """("host", port) of "host:port" or "[::1]:port"; the host without brackets only where it needs none."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise RendezvousError(f"the coordinator's address {address!r} is not of the form host:port")
    return host, int(port)


def is_loopback(host: str) -> bool:
    return host in ("localhost", "[::1]") or host.startswith("127.")


def host_identity() -> str:
    """Equal for processes on one machine, different for different machines, also where containers share a name."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        network = os.readlink("/proc/self/ns/net")  # loopback reaches within one network namespace only
    except OSError:
        boot = network = ""
    return f"{socket.gethostname()} {boot} {network}"


def reachable_address(toward: str | None = None) -> str:
    """An address of this host that others can reach: the one its name resolves to, unless that is loopback (as
    Debian's /etc/hosts has it) or nothing; then the one from which packets to `toward` would leave."""
    for candidate in (_source_address(toward) if toward else None, _named_address(), _source_address("10.255.255.255")):
        if candidate and not is_loopback(candidate):
            return candidate
    raise RendezvousError(
        f"no address under which other hosts could reach this one: {socket.gethostname()!r} resolves to "
        f"{_named_address() or 'nothing'} and there is no route outside\n"
        "  fix: set MESHJIT_COORDINATOR=host:port to an address of process 0's host"
    )


def _own_address(coordinator_host: str) -> str | None:
    """This process's address for the others; None, the host's name, where no better is known."""
    if is_loopback(coordinator_host):
        return "127.0.0.1"
    try:
        return reachable_address(toward=coordinator_host)
    except RendezvousError:
        return None


def _own_interface(host: str) -> str:
    """The address of this host that a name or an address stands for, written as before a port. "" where it stands for several,
    for loopback (as Debian's /etc/hosts has it) or for none of ours: behind a load balancer or NAT."""
    try:
        addresses = {entry[4][0] for entry in socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)}
    except OSError:
        return ""
    address = str(next(iter(addresses)))
    written = f"[{address}]" if ":" in address else address
    if len(addresses) > 1 or is_loopback(written) or "%" in address:
        return ""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return ""
    return written


def _named_address() -> str | None:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return None


def _source_address(toward: str) -> str | None:
    """The own address on the route to a host. Connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((toward, 9))
            return probe.getsockname()[0]
        except OSError:
            return None


def await_listener(address: str, seconds: float) -> bool:
    """Wait until somebody listens at the address; False where nobody does within so many seconds.

    gRPC tries again only a second after nobody has listened."""
    host, port = split_address(address)
    end, pause = time.monotonic() + seconds, 0.001
    while (left := end - time.monotonic()) > 0:
        with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), port), timeout=left):
            return True
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return False


def free_port() -> int:
    """A port that is free now; another process may take it before it is used."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


def held_port() -> tuple[int, socket.socket]:
    """A free port, and what keeps it from other users and from being given away until it is closed. It does not listen: gRPC
    shares the port with it, as a server of the same user may (SO_REUSEPORT)."""
    held = socket.socket()
    with contextlib.suppress(AttributeError, OSError):  # where there is no such option, the port is only likely to stay free
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("", 0))
        return held.getsockname()[1], held
    return free_port(), held


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::", 0))
            return True
    except OSError:
        return False
