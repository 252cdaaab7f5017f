"""Are all there? A roll call over plain TCP, before the coordinator starts on the same port.

jaxlib ends a process whose partners do not come, with a stack trace that names nobody. So where no MPI has gathered the
processes already, process 0 first waits for a call from each of the others. When all have called, or time is up, each caller
gets one line back: "go", or who is missing. Both sides prove that they know the job's token (`proof`), so whoever else
connects is no process of the job, and whoever else answers is not process 0. Process 0 serves all connections at once:
one that says nothing keeps nobody waiting.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from collections.abc import Callable, Sequence

from launch import peer, proof
from launch.mark import failing, has_failed, is_waiting, waiting
from launch.rendezvous import Meeting, RendezvousError, split_address

_RETRY_SECONDS = (0.005, 0.1)  # at first; at most, for process 0 may be late by much
_NOTICE_SECONDS = 5.0
_HELLO_SECONDS = 5.0  # in which the other side says its next line, if it is one of ours
_GRACE_SECONDS = 2.0  # process 0 may have started its clock later than a caller
_LOOK_SECONDS = 0.5
_MOST_STRANGERS = 256  # connections that have said nothing yet; the oldest goes for a new one, and one of ours calls again
_FIX = "  fix: look whether every process was started, with the same coordinator and number of processes"
_FIX_PORT = "  fix: set MESHJIT_COORDINATOR=host:port to a free port of process 0's host"
_FIX_TOKEN = (
    "  fix: start all processes with the same MESHJIT_JOB_TOKEN (or none of them with any), or give the job a port of its own: "
    "MESHJIT_COORDINATOR=host:port"
)


def call_roll(meeting: Meeting, timeout: float, bind: str | None = None) -> socket.socket | None:
    """Return once all processes of the meeting have come here. Raises RendezvousError, on every process that has, where
    some have not come within `timeout` seconds; on process 0 it listens on `bind` (default: meeting.bind).

    On process 0 it gives a socket that keeps the port from other users until it is closed, where the system can do that."""
    with waiting(meeting.token, meeting.address, meeting.rank):
        if meeting.rank == 0:
            return _gather(meeting, bind or meeting.bind, timeout)
        return _call(meeting, timeout)


# --- process 0 -------------------------------------------------------------------------------------------------------


def _gather(meeting: Meeting, bind: str, timeout: float) -> socket.socket | None:
    try:
        listener = _listen(bind)
    except RendezvousError as error:
        print(f"[rank 0] {error}", file=sys.stderr, flush=True)  # some seconds before it can be raised
        _tell_neighbours(meeting)
        raise
    with listener:
        roll = _Roll(meeting, listener)
        verdict = "process 0 has failed"
        try:
            verdict = roll.call(timeout)
            held = _held(listener, bind) if verdict == "go" else None
        finally:
            listener.close()  # before anybody looks for the coordinator there
            roll.dismiss(verdict)
    if verdict != "go":
        raise RendezvousError(f"{verdict}\n{_FIX}")
    return held


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
            f"{_FIX_PORT}"
        ) from error


def _tell_neighbours(meeting: Meeting) -> None:
    """Those of this host that wait for process 0 look whether it has failed: not every launcher ends them."""
    end = time.monotonic() + _HELLO_SECONDS + _GRACE_SECONDS
    with failing(meeting.token, meeting.address):
        time.sleep(_LOOK_SECONDS)  # those that are about to wait
        while time.monotonic() < end and any(is_waiting(meeting.token, meeting.address, r) for r in range(1, meeting.size)):
            time.sleep(_LOOK_SECONDS)


def _held(listener: socket.socket, bind: str) -> socket.socket | None:
    """A socket at the listener's port that does not listen: only this user's next server, gRPC's, can share it."""
    if not hasattr(socket, "SO_REUSEPORT"):
        return None
    held = socket.socket(listener.family)
    try:
        for each in (listener, held):  # the listener only now: before, two jobs would have shared the calls
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if split_address(bind)[0] == "[::]":
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # beside the calls, which have the same port
        held.bind(listener.getsockname())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # but beside nobody else's server
    except OSError:
        held.close()
        return None
    return held


class _Notice:
    """Says once, on standard error, what a process waits for, when it has waited for a while."""

    def __init__(self, rank: int) -> None:
        self.rank, self.at = rank, time.monotonic() + _NOTICE_SECONDS

    def say(self, text: Callable[[], str]) -> None:
        if time.monotonic() >= self.at:
            self.at = float("inf")
            print(f"[rank {self.rank}] {text()}", file=sys.stderr, flush=True)


class _Caller:
    """A connection that has not said yet who it is."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.nonce = proof.nonce()
        self.heard = b""
        self.until = time.monotonic() + _HELLO_SECONDS

    @property
    def has_spoken(self) -> bool:
        return b"\n" in self.heard or len(self.heard) > proof.LONGEST

    @property
    def line(self) -> bytes:
        return self.heard.partition(b"\n")[0]


class _Roll:
    """Process 0's side: who has called, and who is still to say who it is."""

    def __init__(self, meeting: Meeting, listener: socket.socket) -> None:
        self.meeting = meeting
        self.listener = listener
        self.strangers: dict[socket.socket, _Caller] = {}  # oldest first
        self.called: dict[int, tuple[_Caller, proof.Hello]] = {}
        self.unproven = 0  # that spoke as processes of meshjit do, without the token
        self.verdict = ""
        self.selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ)

    def call(self, timeout: float) -> str:
        """ "go" when all have called, else what is wrong."""
        deadline = time.monotonic() + timeout
        notice = _Notice(0)
        while not self.verdict and len(self.called) < self.meeting.size - 1:
            if (left := deadline - time.monotonic()) <= 0:
                return self._missing(f"within {timeout:g} s")
            notice.say(lambda: f"{self._missing('so far')}; waiting at {self.meeting.address}")
            for key, _ in self.selector.select(min(left, _NOTICE_SECONDS / 5)):
                if key.fileobj is self.listener:
                    self._accept()
                elif caller := self.strangers.get(key.fileobj):  # pyright: ignore[reportArgumentType, reportCallIssue] - a socket
                    self._hear(caller)
            self._drop([c for c in self.strangers.values() if c.until < time.monotonic()])
        return self.verdict or "go"

    def _missing(self, how: str) -> str:
        size = self.meeting.size
        names = name_processes(sorted(set(range(1, size)) - set(self.called)))
        strangers = f"; of those that came, {self.unproven} did not know this job's token" if self.unproven else ""
        here = f"; {name_processes([0, *sorted(self.called)])} came" if self.called else ""
        return f"{names} of {size} did not come {how}{here}{strangers}"

    def _accept(self) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:  # gone already, or no descriptor is left
            self._drop(list(self.strangers.values())[:1])
            return
        if len(self.strangers) >= _MOST_STRANGERS:
            self._drop(list(self.strangers.values())[:1])
        connection.setblocking(False)
        caller = self.strangers[connection] = _Caller(connection)
        self.selector.register(connection, selectors.EVENT_READ)
        _send(connection, proof.greeting(caller.nonce))

    def _hear(self, caller: _Caller) -> None:
        try:
            heard = caller.connection.recv(proof.LONGEST)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        caller.heard += heard
        if caller.has_spoken:
            self._judge(caller)
        elif not heard:
            self._drop([caller])

    def _judge(self, caller: _Caller) -> None:
        token, size = self.meeting.token, self.meeting.size
        hello = proof.hello_of(caller.line)
        if hello is None:
            self._drop([caller])
        elif not hello.is_proven(token, caller.nonce) or (not self.meeting.is_secret and _is_foreign(caller.connection)):
            self.unproven += 1
            self._answer(caller, hello, "stranger")  # which the caller cannot check either: so it knows
            self._drop([caller])
        elif hello.size != size or not 0 < hello.rank < size:
            self._refuse(caller, hello, f"process {hello.rank} was told of {hello.size} processes, process 0 of {size}")
        elif hello.rank in self.called:
            self._refuse(caller, hello, f"two processes say that they are process {hello.rank} of {size}")
        else:
            self._answer(caller, hello, "here")
            self.selector.unregister(caller.connection)
            del self.strangers[caller.connection]
            self.called[hello.rank] = (caller, hello)

    def _refuse(self, caller: _Caller, hello: proof.Hello, verdict: str) -> None:
        self.verdict = verdict
        for text in ("here", verdict):
            self._answer(caller, hello, text)
        self._drop([caller])

    def _answer(self, caller: _Caller, hello: proof.Hello, text: str) -> None:
        _send(caller.connection, proof.answer(self.meeting.token, caller.nonce, hello.nonce, text))

    def _drop(self, callers: Sequence[_Caller]) -> None:
        for caller in callers:
            self.selector.unregister(caller.connection)
            del self.strangers[caller.connection]
            caller.connection.close()

    def dismiss(self, verdict: str) -> None:
        """Tell all that have called, and hang up."""
        self._drop(list(self.strangers.values()))
        self.selector.close()
        for caller, hello in self.called.values():
            self._answer(caller, hello, verdict)
            caller.connection.close()


def _is_foreign(connection: socket.socket) -> bool:
    try:
        return peer.is_of_another_user(connection)
    except OSError:  # it has gone
        return True


def _send(connection: socket.socket, line: bytes) -> None:
    try:
        connection.send(line)  # a line fits into any socket's buffer
    except OSError:
        pass  # it has gone; jaxlib's heartbeats take it from here


# --- the others ------------------------------------------------------------------------------------------------------


def _call(meeting: Meeting, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    host, port = split_address(meeting.address)
    reason, notice, (pause, longest) = "no answer", _Notice(meeting.rank), _RETRY_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((host.strip("[]"), port), timeout=left) as connection:
                verdict = _ask(meeting, connection, deadline)
        except _OtherError as error:
            reason = str(error)
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            if verdict == "go":
                return
            raise RendezvousError(f"{verdict}\n{_FIX}")
        if has_failed(meeting.token, meeting.address):
            raise RendezvousError(f"process 0 could not listen on {meeting.address}, and says why\n{_FIX_PORT}")
        notice.say(lambda: f"waits for process 0 at {meeting.address}: {reason}")  # noqa: B023 - said at once
        time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
        pause = min(2 * pause, longest)
    raise RendezvousError(
        f"process {meeting.rank} of {meeting.size} could not reach process 0 at {meeting.address} "
        f"within {timeout:g} s: {reason}\n{_FIX}"
    )


class _OtherError(Exception):
    """What answers is no roll call, as far as one can tell by now. The text says what it does."""


def _ask(meeting: Meeting, connection: socket.socket, deadline: float) -> str:
    """Process 0's verdict. Raises RendezvousError where whoever answers does not know the token."""
    soon = min(deadline, time.monotonic() + _HELLO_SECONDS)
    theirs, mine = proof.nonce_of(first := _line(connection, soon)), proof.nonce()
    if theirs is None:
        raise _OtherError(f"what answers there is not process 0, it says {first[:40]!r}")
    if not meeting.is_secret and peer.is_of_another_user(connection):
        raise _impostor(meeting, "is run by another user, so it is not process 0")
    connection.sendall(proof.hello(meeting.token, meeting.rank, meeting.size, theirs, mine))
    for until in (soon, deadline + _GRACE_SECONDS):
        text = proof.answered(meeting.token, theirs, mine, _line(connection, until))
        if text is None:
            raise _impostor(meeting, "does not know this job's token, so it is another job's process, or a stranger")
        if text != "here":
            return text
    raise _OtherError("process 0 said nothing more")


def _impostor(meeting: Meeting, why: str) -> RendezvousError:
    return RendezvousError(
        f"process {meeting.rank} of {meeting.size}: what answers at {meeting.address} {why}\n{_FIX_TOKEN}"
    )


def _line(connection: socket.socket, until: float) -> bytes:
    """The next line. Raises _OtherError where it does not come in time or has no end."""
    heard = b""
    while not heard.endswith(b"\n"):
        connection.settimeout(max(0.001, until - time.monotonic()))
        try:
            byte = connection.recv(1)  # the next line is not ours to take yet
        except TimeoutError:
            raise _OtherError(f"what answers there says {'nothing' if not heard else repr(heard[:40])}") from None
        if not byte or len(heard) > proof.LONGEST:
            raise _OtherError(f"what answers there hangs up{f' after {heard[:40]!r}' if heard else ''}")
        heard += byte
    return heard[:-1]


def name_processes(ranks: Sequence[int]) -> str:
    """`process 3`, `processes 0, 2`; long lists are cut."""
    shown = ", ".join(map(str, ranks[:8])) + (f", … ({len(ranks)} in all)" if len(ranks) > 8 else "")
    return f"process{'es' if len(ranks) > 1 else ''} {shown}"
