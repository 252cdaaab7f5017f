"""`meshjit run` on one host: what its processes say, how they end, and that none is left behind. Plain Python scripts, without meshjit."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from launch.child import prefixed
from launch.hosts import HostError, Hosts
from launch.job import Job

START = """
import sys
from pathlib import Path
from launch.hosts import Hosts
from launch import job
from launch.job import Job, run_job
job._FAREWELL_SECONDS = {farewell}
command = [sys.executable, "-c", Path(sys.argv[1]).read_text()]
sys.exit(run_job(Job(command, {processes}, **{options})))
"""
BODY = """
import os, signal, subprocess, sys, time
rank = int(os.environ["MESHJIT_PROCESS_ID"])
"""


def start(tmp_path: Path, body: str, processes: int = 2, farewell: float = 4, **options: object) -> subprocess.Popen[str]:
    script = tmp_path / "body.py"
    script.write_text(BODY + textwrap.dedent(body))
    code = START.format(processes=processes, farewell=farewell, options=options)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )


def run(tmp_path: Path, body: str, processes: int = 2, farewell: float = 4, **options: object) -> tuple[int, list[str], list[str]]:
    with start(tmp_path, body, processes, farewell, **options) as process:
        out, error = process.communicate(timeout=180)
    return process.returncode, sorted(out.splitlines()), error.splitlines()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_each_is_told_who_it_is_and_heard_under_its_rank(tmp_path: Path) -> None:
    body = """
    print(*(os.environ["MESHJIT_" + name] for name in ("NUM_PROCESSES", "LOCAL_RANK", "LOCAL_SIZE", "NUM_CPU_DEVICES")))
    os.write(1, b"from C, without a line feed")
    """
    code, out, error = run(tmp_path, body, 2, devices=3)
    assert (code, error) == (0, [])
    assert out == ["[0] 2 0 2 3", "[0] from C, without a line feed", "[1] 2 1 2 3", "[1] from C, without a line feed"]


def test_only_the_first_and_files(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "print('hello', rank)", only_first=True, log_folder=str(tmp_path / "logs"))
    assert (code, out) == (0, ["[0] hello 0"])
    assert [(tmp_path / f"logs/rank-{rank}.log").read_text() for rank in range(2)] == ["hello 0\n", "hello 1\n"]


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("sys.exit(3)", 3, "left with exit code 3"),
        ("os._exit(4)", 4, "left with exit code 4"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was ended by signal 9, SIGKILL: killed"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "was ended by signal 11, SIGSEGV: a segmentation fault"),
    ],
)
def test_the_first_failure_is_named_last(tmp_path: Path, end: str, code: int, words: str) -> None:
    body = f"""
    for i in range(30): print('line', i, flush=True)
    if rank == 1:
        open({str(tmp_path / "failing")!r}, "w").close()
        {end}
    while not os.path.exists({str(tmp_path / "failing")!r}): time.sleep(0.02)
    time.sleep(4)
    sys.exit(1)
    """
    status, _, error = run(tmp_path, body, 3, farewell=60)
    assert status == code
    assert error[-1].startswith("[meshjit run] rank 1 (host ") and error[-1].endswith(words)
    assert error[-21:-1] == [f"[meshjit run]   line {i}" for i in range(10, 30)]
    assert error[0] == f"{error[-1]}; the others are ended"  # said a second after it
    assert error[1:3] == [f"[meshjit run] after it rank {rank} left with exit code 1" for rank in (0, 2)]


def test_who_is_blamed_is_named_last(tmp_path: Path) -> None:
    """The others end by errors of their own, for connections to those that have ended are closed."""
    body = """
    if rank == 0:
        sys.exit("Gloo all-reduce failed: connection closed by peer")
    time.sleep(0.3 * rank)
    sys.exit(f"[rank {rank}] ends, process 2 (host here, pid 7) waits for the others, to compile `step`")
    """
    code, _, error = run(tmp_path, body, 3)
    assert code == 1 and error[-1].startswith("[meshjit run] rank 2 (") and error[-1].endswith("left with exit code 1")
    assert "[meshjit run] the last lines of rank 2:" in error
    assert [line for line in error if "after it" in line] == [f"[meshjit run] after it rank {r} left with exit code 1" for r in (0, 1)]


def test_who_does_not_end_by_itself_is_ended(tmp_path: Path) -> None:
    body = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while rank and not os.path.exists(READY): time.sleep(0.02)
    if rank: sys.exit(7)
    print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]).pid, flush=True)
    open(READY, "w").close()
    time.sleep(100)
    """
    code, out, error = run(tmp_path, body.replace("READY", repr(str(tmp_path / "ready"))), 2, grace=0.5)
    assert code == 7 and error[1] == "[meshjit run] after it rank 0 was ended by signal 9, SIGKILL: killed"
    assert not is_alive(int(out[0].split()[1]))  # nor is what it has started


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
@pytest.mark.parametrize(
    ("end", "victim", "words"),
    [
        ("sys.exit(0)", 1, "has left with exit code 0"),
        ("sys.exit(0)", 0, "has left with exit code 0"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", 1, "is stopped (SIGSTOP, or a debugger) for "),
    ],
)
def test_who_keeps_the_others_from_meeting_is_named(tmp_path: Path, end: str, victim: int, words: str) -> None:
    body = f"""
    if rank == {victim}: {end}
    from launch.rendezvous import meeting_at
    from launch.roll_call import call_roll
    call_roll(meeting_at(os.environ["MESHJIT_COORDINATOR"], rank, 3), 500)
    """
    code, _, error = run(tmp_path, body, 3)
    why = [line for line in error if line.startswith("[meshjit run] ")]
    assert code == 1 and why[0].startswith(f"[meshjit run] rank {victim} (host ") and f" {words}" in why[0], error
    assert why[0] == f"{why[1]}; the job is ended" and why[1].endswith(", and the others wait for it: they have not met")


def test_who_leaves_early_may_where_nobody_waits(tmp_path: Path) -> None:
    assert run(tmp_path, "if rank: sys.exit(0)\ntime.sleep(4)\nprint('done')", 2) == (0, ["[0] done"], [])


def test_timeout(tmp_path: Path) -> None:
    code, _, error = run(tmp_path, "time.sleep(100)", 2, timeout=0.5)
    assert code == 124 and error == ["[meshjit run] the job has taken longer than 0.5 s (--timeout): it is ended"]


def test_restarts(tmp_path: Path) -> None:
    body = "attempt = int(os.environ['MESHJIT_RESTART'])\nprint(attempt)\nsys.exit(5 if attempt == 0 else 0)"
    code, out, error = run(tmp_path, body, 1, restarts=2)
    assert (code, out) == (0, ["[0] 0", "[0] 1"]) and error[-1] == "[meshjit run] restart 1 of 2 in 1 s"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_reach_the_processes(tmp_path: Path, number: int, code: int) -> None:
    body = """
    signal.signal(signal.SIGUSR1, lambda *_: print("usr1", flush=True))
    def end(*_):
        print("asked", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    while True: time.sleep(0.05)
    """
    with start(tmp_path, body) as process:
        assert process.stdout is not None
        assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] ready\n", "[1] ready\n"]
        process.send_signal(signal.SIGUSR1)
        assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] usr1\n", "[1] usr1\n"]
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
    assert (process.returncode, sorted(out.splitlines())) == (code, ["[0] asked", "[1] asked"])


def test_interrupted_twice_kills(tmp_path: Path) -> None:
    with start(tmp_path, "signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(100)", grace=1000) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_killed_launcher_leaves_no_orphans(tmp_path: Path, options: dict[str, object] | None = None) -> None:
    body = """
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    print(os.getpid(), child.pid, flush=True)
    time.sleep(100)
    """
    with start(tmp_path, body, **(options or {})) as process:
        assert process.stdout is not None
        pids = [int(word) for _ in range(2) for word in process.stdout.readline().split()[1:]]
        assert all(map(is_alive, pids)) and len(pids) == 4
        process.kill()
        process.communicate(timeout=30)
    end = time.monotonic() + 30
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert [pid for pid in pids if is_alive(pid)] == []


def test_labels() -> None:
    assert prefixed(3, b"x", 2, False) == b"[ 3] x\n"
    assert prefixed(1, b"[rank 1] x", 1, False) == b"[1] x\n"
    assert prefixed(0, b"x", 1, True) == b"\033[36m[0] \033[0mx\n"


def test_a_token_of_the_users_is_kept() -> None:
    assert Job(["x"], 1, {"MESHJIT_JOB_TOKEN": "mine"}).environment(0, 1, "ours")["MESHJIT_JOB_TOKEN"] == "mine"


# --- other hosts -------------------------------------------------------------------------------------------------------

# Stands for ssh: the host's name, and a command for a shell there.
SSH = """#!/bin/sh
host=$1; shift
[ $host = away ] && { echo "no route to $host" >&2; exit 255; }
HOST=$host exec setsid --wait sh -c "$*"  # out of reach of whoever kills what is here
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    return Hosts.read("a:1,user@b:2", None, f"sh {ssh}")


def test_processes_of_other_hosts(tmp_path: Path, hosts: Hosts) -> None:
    body = """
    told = [os.environ["MESHJIT_" + name] for name in ("COORDINATOR", "NUM_PROCESSES", "LOCAL_RANK", "LOCAL_SIZE")]
    print(os.environ["HOST"], told[0].rpartition(":")[0], *told[1:], os.getcwd())
    """
    code, out, error = run(tmp_path, body, 3, hosts=hosts)
    here = Path(__file__).parents[1]
    assert (code, error) == (0, [])
    assert out == [f"[0] a a 3 0 1 {here}", f"[1] user@b a 3 0 2 {here}", f"[2] user@b a 3 1 2 {here}"]


def test_a_failure_on_another_host(tmp_path: Path, hosts: Hosts) -> None:
    body = """
    if rank == 2: os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(100)
    """
    code, _, error = run(tmp_path, body, 3, hosts=hosts)
    assert code == 139 and error[-1] == "[meshjit run] rank 2 (host user@b) was ended by signal 11, SIGSEGV: a segmentation fault"
    assert error[1:3] == [f"[meshjit run] after it rank {rank} was ended by signal 15, SIGTERM: asked to end" for rank in (0, 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_killed_launcher_leaves_no_orphans_on_other_hosts(tmp_path: Path, hosts: Hosts) -> None:
    test_a_killed_launcher_leaves_no_orphans(tmp_path, {"hosts": Hosts(hosts.names, (1, 1), hosts.shell)})


@pytest.mark.parametrize(
    ("text", "processes", "words"),
    [
        ("a:x,b:1", None, "--host a:x,b:1: not of the form h1,h2 or h1:4,h2:4, each host once"),
        ("a,a", None, "--host a,a: not of the form h1,h2 or h1:4,h2:4, each host once"),
        ("a,b:1", None, "--host a,b:1: not of the form h1,h2 or h1:4,h2:4, each host once"),
        ("a:1,b:1", 3, "--host a:1,b:1: has 2 processes on 2 hosts, -n says 3\n  fix: leave -n out, or the counts"),
        ("a,b", 1, "--host a,b: has 1 processes on 2 hosts, -n says 1\n  fix: leave -n out, or the counts"),
        ("localhost,b", 2, "--host localhost,b: the other hosts cannot reach localhost\n  fix: this host's name"),
    ],
)
def test_hosts_that_do_not_fit(text: str, processes: int | None, words: str) -> None:
    with pytest.raises(HostError) as error:
        Hosts.read(text, processes)
    assert str(error.value) == words


def test_ranks_are_in_blocks() -> None:
    hosts = Hosts.read("a,b", 5)
    assert [(hosts.of(rank), *hosts.local(rank, 5)) for rank in range(5)] == [("a", 0, 3), ("a", 1, 3), ("a", 2, 3), ("b", 0, 2), ("b", 1, 2)]


def test_a_host_that_is_not_there(tmp_path: Path, hosts: Hosts) -> None:
    away = Hosts(("away",), (1,), hosts.shell, "python")
    code, _, error = run(tmp_path, "pass", 1, hosts=away)
    assert code == 2 and error == [
        "[meshjit run] host away cannot be reached, or has no python: no route to away",
        f"[meshjit run]   fix: sh {tmp_path / 'ssh'} away has to work without a password; --python names another Python",
    ]
