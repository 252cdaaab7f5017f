"""The roll call: threads as processes, real sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from launch import peer, proof, roll_call
from launch.mark import HAS_MARKS
from launch.rendezvous import Meeting, RendezvousError, _has_ipv6, free_port
from launch.roll_call import call_roll, name_processes


def call(ranks: list[int], size: int, timeout: float, host: str = "127.0.0.1") -> list[str]:
    """What each of the ranks gets: "" or the error's text."""
    address = f"{host}:{free_port()}"

    def one(rank: int) -> str:
        try:
            held = call_roll(Meeting(address, rank, size, None), timeout)
            if held is not None:
                held.close()
            return ""
        except RendezvousError as error:
            return str(error)

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(one, ranks))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_all_are_there(host: str) -> None:
    assert call([2, 0, 1, 3], 4, 60, host) == [""] * 4


def test_the_missing_are_named_to_all() -> None:
    said = call([0, 2], 4, 3)
    assert said[0] == said[1]
    assert said[0].splitlines()[0] == "processes 1, 3 of 4 did not come within 3 s; processes 0, 2 came"
    assert "fix: look whether every process was started" in said[0]


def test_nobody_to_call() -> None:
    (said,) = call([1], 2, 2)
    assert said.startswith("process 1 of 2 could not reach process 0 at 127.0.0.1:")
    assert "within 2 s: Connection refused" in said


def test_one_rank_twice() -> None:
    said = call([0, 1, 1], 3, 60)
    assert any("two processes say that they are process 1 of 3" in text for text in said)


TOKEN = b"known to the job alone"


def meeting(rank: int, port: int, size: int = 2, token: bytes = TOKEN) -> Meeting:
    return Meeting(f"127.0.0.1:{port}", rank, size, None, token=token)


def connect(port: int) -> socket.socket:
    """A stranger, once process 0 listens."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        except ConnectionRefusedError:
            time.sleep(0.01)


@contextlib.contextmanager
def listening(size: int = 2, timeout: float = 60) -> Iterator[tuple[int, Any]]:
    """A port at which process 0 calls the roll, and its future."""
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call_roll, meeting(0, port, size), timeout)
        yield port, waiting
        if waiting.exception() is None:
            waiting.result().close()


STRANGERS = {
    "silent": b"",
    "web": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "half a line": b"meshjit 1 2 ",
    "bytes": bytes(range(256)) + b"\n",
    "endless": b"x" * 100_000,
    "the line of before": b"meshjit 1\n",
    "another token": proof.hello(b"guessed", 1, 2, "0" * 32, "1" * 32),
    "another's line again": proof.hello(TOKEN, 1, 2, "0" * 32, "1" * 32),
    "huge numbers": proof.hello(TOKEN, 10**30, 10**30, "0" * 32, "1" * 32),
}


@pytest.mark.parametrize("said", STRANGERS.values(), ids=STRANGERS)
def test_strangers_neither_join_nor_delay(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roll_call, "_HELLO_SECONDS", 1000.0)  # whoever waited for one of them would wait too long
    with listening() as (port, waiting), contextlib.ExitStack() as stack:
        for _ in range(20):
            stranger = stack.enter_context(connect(port))
            with contextlib.suppress(OSError):  # it may have hung up in the middle
                stranger.sendall(said)
        stack.enter_context(connect(port)).close()  # a port scanner
        time.sleep(0.05)
        assert not waiting.done()
        call_roll(meeting(1, port), 60)
        waiting.result()


def test_more_strangers_than_are_listened_to() -> None:
    with listening() as (port, waiting), contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(connect(port))
        call_roll(meeting(1, port), 60)
        waiting.result()


@pytest.fixture
def time_is_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What ends the time of a roll call that was begun before, within a second."""
    ahead = [0.0]
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0], sleep=time.sleep)
    monkeypatch.setattr(roll_call, "time", clock)
    return lambda: ahead.__setitem__(0, 1000.0)


def test_lines_that_were_overheard_serve_nobody_else(time_is_up: Callable[[], None]) -> None:
    """A stranger between process 1 and process 0, who then says the same words."""
    with listening(size=3) as (port, waiting):
        with connect(port) as first, connect(port) as second:
            nonces = [proof.nonce_of(stream.makefile("rb").readline().strip()) for stream in (first, second)]
            assert nonces[0] and nonces[0] != nonces[1]
            words = proof.hello(TOKEN, 1, 3, nonces[0], proof.nonce())
            second.sendall(words)
            assert second.makefile("rb").readline().endswith(b" stranger\n")
            first.sendall(words)
            assert first.makefile("rb").readline().endswith(b" here\n")
        time_is_up()
        with pytest.raises(RendezvousError, match="process 2 of 3 did not come within 60 s; .*of those that came, 1 did not know"):
            waiting.result()


def test_a_process_with_another_token_is_told(time_is_up: Callable[[], None]) -> None:
    with listening() as (port, waiting):
        connect(port).close()
        with pytest.raises(RendezvousError) as caught:
            call_roll(meeting(1, port, token=b"another"), 60)
        assert str(caught.value) == (
            f"process 1 of 2: what answers at 127.0.0.1:{port} does not know this job's token, so it is another job's process, "
            "or a stranger\n  fix: start all processes with the same MESHJIT_JOB_TOKEN (or none of them with any), or give the job "
            "a port of its own: MESHJIT_COORDINATOR=host:port"
        )
        time_is_up()
        with pytest.raises(RendezvousError, match=r"within 60 s; of those that came, 1 did not know this job's token\n  fix"):
            waiting.result()


def test_a_process_that_was_told_of_another_number_of_processes() -> None:
    with listening() as (port, waiting):
        for wait in (lambda: call_roll(meeting(1, port, size=3), 60), waiting.result):
            with pytest.raises(RendezvousError, match="process 1 was told of 3 processes, process 0 of 2"):
                wait()


LINUX = pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="only Linux has a table of sockets")


@contextlib.contextmanager
def connected(host: str, family: int = socket.AF_INET, **options: Any) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server((host, 0), family=family, **options) as server:
        target = ("127.0.0.1" if options else host, server.getsockname()[1])
        with socket.create_connection(target) as near, server.accept()[0] as far:
            yield near, far


@LINUX
@pytest.mark.parametrize(
    ("host", "family", "options"),
    [("127.0.0.1", socket.AF_INET, {}), ("::1", socket.AF_INET6, {}), ("::", socket.AF_INET6, {"dualstack_ipv6": True})],
    ids=["IPv4", "IPv6", "both"],
)
def test_whose_process_is_at_the_other_end(host: str, family: int, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if family == socket.AF_INET6 and not _has_ipv6():
        pytest.skip("no IPv6 here")
    with connected(host, family, **options) as ends:
        assert not any(peer.is_of_another_user(end) for end in ends)
        real = list(peer._rows())
        monkeypatch.setattr(peer, "_rows", lambda: [(each, (54321, inode)) for each, (_, inode) in real])
        assert all(peer.is_of_another_user(end) for end in ends)
        monkeypatch.setattr(peer, "_rows", lambda: [(each, (0, inode)) for each, (_, inode) in real])
        assert not any(peer.is_of_another_user(end) for end in ends)  # root could do anything
        monkeypatch.setattr(peer, "_rows", lambda: [(each, (0, 0)) for each, _ in real])
        assert all(peer.is_of_another_user(end) for end in ends)  # closed at once
        monkeypatch.setattr(peer, "_rows", lambda: [])
        assert not any(peer.is_of_another_user(end) for end in ends)  # a table that says nothing


@LINUX
def test_other_users_of_the_host_stay_out_without_a_secret(
    monkeypatch: pytest.MonkeyPatch, time_is_up: Callable[[], None]
) -> None:
    monkeypatch.setattr(peer, "is_of_another_user", lambda connection: True)
    with listening() as (port, waiting):
        connect(port).close()
        with pytest.raises(RendezvousError, match="is run by another user, so it is not process 0\n  fix: start all processes with"):
            call_roll(meeting(1, port), 60)
        with connect(port) as stranger:  # who knows what the token is made of
            nonce = proof.nonce_of(stranger.makefile("rb").readline().strip())
            stranger.sendall(proof.hello(TOKEN, 1, 2, nonce or "", proof.nonce()))
            assert stranger.makefile("rb").readline().endswith(b" stranger\n")
        time_is_up()
        with pytest.raises(RendezvousError, match="of those that came, 1 did not know"):
            waiting.result()


def test_with_a_secret_users_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "is_of_another_user", lambda connection: True)
    port = free_port()
    both = [Meeting(f"127.0.0.1:{port}", rank, 2, None, token=TOKEN, is_secret=True) for rank in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        held, _ = pool.map(lambda each: call_roll(each, 60), both)
    assert held is not None
    held.close()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
@LINUX
def test_a_real_other_user() -> None:
    code = (
        "import encodings.idna, os, socket, sys; os.setuid(54321); s = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
        "sys.stdin.read(1); s.close()"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        command = [sys.executable, "-I", "-c", code, str(server.getsockname()[1])]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as other:
            with server.accept()[0] as connection:
                found = [peer.is_of_another_user(connection)]
                other.communicate(b".")
                assert [*found, peer.is_of_another_user(connection)] == [True, True]


def fake(says: bytes) -> Any:
    """A server that another has started at the port first; it says the same to all."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.sendall(says)
                self.request.recv(1000)
                self.request.sendall(b"0" * 64 + b" go\n")

    return socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (proof.greeting("0" * 32), r"what answers at .* does not know this job's token, .*\n  fix: start all processes with"),
        (b"\x00\x00\x12\x04\x00\xfe\xff\n", r"within 2 s: what answers there is not process 0, it says b'.*xfe"),  # gRPC
        (b"SSH-2.0-OpenSSH_9.6\r\n", "what answers there is not process 0, it says b'SSH-2.0"),
        (b"x" * 10_000, "what answers there hangs up after b'xxx"),
        (b"half", "what answers there says b'half'"),
        (b"", "what answers there says nothing"),
    ],
    ids=["stranger", "grpc", "ssh", "endless", "half", "silent"],
)
def test_who_answers_in_place_of_process_0_is_not_believed(says: bytes, reason: str) -> None:
    with fake(says) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            with pytest.raises(RendezvousError, match=reason):
                call_roll(meeting(1, server.server_address[1]), 2)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="ports cannot be shared")
def test_the_port_is_kept_until_the_coordinator_has_it() -> None:
    with listening() as (port, waiting):
        call_roll(meeting(1, port), 60)
        waiting.result()
        with pytest.raises(OSError), socket.create_server(("127.0.0.1", port)):
            pass
        with socket.create_server(("127.0.0.1", port), reuse_port=True), connect(port):  # as gRPC does
            pass


def test_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            RendezvousError, match=r"process 0 cannot listen on 127.0.0.1:\d+: Address already in use\n  fix: set "
        ):
            call_roll(Meeting(address, 0, 2, None), 1)


@pytest.mark.skipif(not HAS_MARKS, reason="processes make no marks here")
@pytest.mark.parametrize("speaks", [True, False])
def test_those_of_this_host_hear_that_process_0_has_no_port(speaks: bool, capfd: pytest.CaptureFixture[str]) -> None:
    start = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as taken, ThreadPoolExecutor(3) as pool:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        each = [pool.submit(call_roll, Meeting(address, rank, 3, None), 60) for rank in range(3)]
        if speaks:
            for _ in range(2):
                with taken.accept()[0] as connection:
                    connection.sendall(b"SSH-2.0\n")
        with pytest.raises(RendezvousError, match="process 0 cannot listen on"):
            each[0].result()
        for waiting in each[1:]:
            with pytest.raises(RendezvousError, match=rf"process 0 could not listen on {address}, and says why\n  fix: set "):
                waiting.result()
    assert time.monotonic() - start < 30
    assert f"[rank 0] process 0 cannot listen on {address}" in capfd.readouterr().err


def test_names() -> None:
    assert name_processes([3]) == "process 3" and name_processes([0, 2]) == "processes 0, 2"
    assert name_processes(list(range(20))) == "processes 0, 1, 2, 3, 4, 5, 6, 7, … (20 in all)"
