"""The roll call: threads as processes, real sockets."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from launch.rendezvous import Meeting, RendezvousError, free_port
from launch.roll_call import call_roll, name_processes


def call(ranks: list[int], size: int, timeout: float, host: str = "127.0.0.1") -> list[str]:
    """What each of the ranks gets: "" or the error's text."""
    address = f"{host}:{free_port()}"

    def one(rank: int) -> str:
        try:
            call_roll(Meeting(address, rank, size, None), timeout)
            return ""
        except RendezvousError as error:
            return str(error)

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(one, ranks))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_all_are_there(host: str) -> None:
    assert call([2, 0, 1, 3], 4, 10, host) == [""] * 4


def test_the_missing_are_named_to_all() -> None:
    said = call([0, 2], 4, 0.3)
    assert said[0] == said[1]
    assert said[0].splitlines()[0] == "processes 1, 3 of 4 did not come within 0.3 s"
    assert "fix: look whether every process was started" in said[0]


def test_nobody_to_call() -> None:
    (said,) = call([1], 2, 0.2)
    assert said.startswith("process 1 of 2 could not reach process 0 at 127.0.0.1:")
    assert "within 0.2 s: Connection refused" in said


def test_one_rank_twice() -> None:
    said = call([0, 1, 1], 3, 5)
    assert any("two processes say that they are process 1 of 3" in text for text in said)


def test_strangers_are_ignored() -> None:
    port = free_port()
    meeting = Meeting(f"127.0.0.1:{port}", 0, 2, None)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call_roll, meeting, 10)
        for word in (b"GET / HTTP/1.1\n", b"meshjit 7\n", b"meshjit 1\n"):
            while True:
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=5) as caller:
                        caller.sendall(word)
                        assert caller.makefile().readline() in ("", "go\n")
                    break
                except ConnectionRefusedError:
                    continue
                except ConnectionResetError:
                    break
        assert waiting.result() is None


def test_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            RendezvousError, match=r"process 0 cannot listen on 127.0.0.1:\d+: Address already in use\n  fix: set "
        ):
            call_roll(Meeting(address, 0, 2, None), 1)


def test_names() -> None:
    assert name_processes([3]) == "process 3" and name_processes([0, 2]) == "processes 0, 2"
    assert name_processes(list(range(20))) == "processes 0, 1, 2, 3, 4, 5, 6, 7, … (20 in all)"
