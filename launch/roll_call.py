"""Are all there? A roll call over plain TCP, before the coordinator starts on the same port.

jaxlib ends a process whose partners do not come, with a stack trace that names nobody. So where no MPI has gathered the
processes already, process 0 first waits for one short connection from each of the others. When all have called, or time
is up, each caller gets one line back: "go", or who is missing.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence

from launch.rendezvous import Meeting, RendezvousError, split_address

_RETRY_SECONDS = 0.1
_HELLO_SECONDS = 2.0  # a caller that says nothing is no process of ours
_FIX = "  fix: look whether every process was started, with the same coordinator and number of processes"


def call_roll(meeting: Meeting, timeout: float, bind: str | None = None) -> None:
    """Return once all processes of the meeting have come here. Raises RendezvousError, on every process that has, where
    some have not come within `timeout` seconds; on process 0 it listens on `bind` (default: meeting.bind)."""
    if meeting.rank == 0:
        _gather(bind or meeting.bind, meeting.size, timeout)
    else:
        _call(meeting, timeout)


def _gather(bind: str, size: int, timeout: float) -> None:
    callers: dict[int, socket.socket] = {}
    verdict = "go"
    try:
        with _listen(bind) as listener:
            verdict = _accept_all(listener, callers, size, time.monotonic() + timeout, timeout)
    finally:
        for caller in callers.values():
            with caller:
                _send(caller, verdict)
    if verdict != "go":
        raise RendezvousError(f"{verdict}\n{_FIX}")


def _listen(bind: str) -> socket.socket:
    host, port = split_address(bind)
    try:
        if host == "[::]":
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        return socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        raise RendezvousError(
            f"process 0 cannot listen on {bind}: {os.strerror(error.errno or 0)}\n"
            "  fix: set MESHJIT_COORDINATOR=host:port to a free port of process 0's host"
        ) from error


def _accept_all(
    listener: socket.socket, callers: dict[int, socket.socket], size: int, deadline: float, timeout: float
) -> str:
    """Fill `callers`; "go" when all have called, else what is wrong."""
    while len(callers) < size - 1:
        listener.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            caller, _ = listener.accept()
        except TimeoutError:
            missing = sorted(set(range(1, size)) - set(callers))
            return f"{name_processes(missing)} of {size} did not come within {timeout:g} s"
        rank = _hello(caller, size)
        if rank in callers:
            _send(caller, verdict := f"two processes say that they are process {rank} of {size}")
            caller.close()
            return verdict
        if rank is None:
            caller.close()
        else:
            callers[rank] = caller
    return "go"


def _hello(caller: socket.socket, size: int) -> int | None:
    """The rank that a caller gives; None for a stranger."""
    caller.settimeout(_HELLO_SECONDS)
    try:
        words = caller.makefile("r", encoding="ascii", errors="replace").readline(80).split()
    except OSError:
        return None
    known = len(words) == 2 and words[0] == "meshjit" and words[1].isdigit() and 0 < int(words[1]) < size
    return int(words[1]) if known else None


def _send(caller: socket.socket, line: str) -> None:
    try:
        caller.sendall(f"{line}\n".encode())
    except OSError:
        pass  # it has gone; jaxlib's heartbeats take it from here


def _call(meeting: Meeting, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    host, port = split_address(meeting.address)
    reason = "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((host.strip("[]"), port), timeout=left) as caller:
                caller.sendall(f"meshjit {meeting.rank}\n".encode())
                caller.settimeout(left + _HELLO_SECONDS)  # process 0 may have started its clock later
                verdict = caller.makefile("r").readline().strip()
        except OSError as error:
            reason, verdict = error.strerror or str(error), ""
        if verdict == "go":
            return
        if verdict:
            raise RendezvousError(f"{verdict}\n{_FIX}")
        time.sleep(min(_RETRY_SECONDS, left))
    raise RendezvousError(
        f"process {meeting.rank} of {meeting.size} could not reach process 0 at {meeting.address} "
        f"within {timeout:g} s: {reason}\n{_FIX}"
    )


def name_processes(ranks: Sequence[int]) -> str:
    """`process 3`, `processes 0, 2`; long lists are cut."""
    shown = ", ".join(map(str, ranks[:8])) + (f", … ({len(ranks)} in all)" if len(ranks) > 8 else "")
    return f"process{'es' if len(ranks) > 1 else ''} {shown}"
