"""Several processes: real ones, under mpirun and without, and the agreement on programs against a store in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.cluster import Cluster
from launch.rendezvous import free_port
from meshjit.runtime import _jaxlib, agreement, distributed
from meshjit.runtime.agreement import DivergenceError, agree
from meshjit.runtime.distributed import Membership, membership
from tests.tools.processes import environment, needs_mpi, side_by_side, under_mpirun

LIMIT = 60  # seconds that any of these jobs may take; all of them end in two

# --- under mpirun ----------------------------------------------------------------------------------------------------


@needs_mpi
def test_under_mpirun_at_an_address_of_the_users(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, "say(*all_reduce())", MESHJIT_COORDINATOR=f"127.0.0.1:{free_port()}")
    assert ended.code == 0 and len(ended.said) == 2, ended.error


@needs_mpi
def test_all_reduce_over_two_processes(tmp_path: Path) -> None:
    ended = under_mpirun(
        tmp_path,
        """
        say(rank, all_reduce(), client.process_count(), client.local_device_count())
        say([device.process_index for device in client.devices()])
        distributed.initialize()  # joined already: nothing to do
        """,
    )
    assert (ended.code, ended.error) == (0, "")
    assert ended.said[::2] == [f"{rank} [[22.0, 22.0], [22.0, 22.0]] 2 2" for rank in range(2)]
    assert ended.said[1::2] == ["[0, 0, 1, 1]"] * 2


@needs_mpi
def test_a_raising_process_ends_the_job(tmp_path: Path) -> None:
    ended = under_mpirun(
        tmp_path,
        """
        all_reduce()
        if rank == 1:
            raise ValueError("broken on purpose")
        all_reduce("second")
        say("survived")
        """,
    )
    assert ended.code != 0 and ended.seconds < LIMIT and ended.said == []
    assert "[rank 1] ValueError: broken on purpose" in ended.error


@needs_mpi
def test_an_exit_code_ends_the_job(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, "all_reduce()\nif rank == 1: sys.exit(3)\nall_reduce('second')")
    assert ended.code == 3 and ended.seconds < LIMIT
    assert "[rank 1] left with exit code 3: the other processes are ended, too" in ended.error


@needs_mpi
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_job(tmp_path: Path, victim: int) -> None:
    body = f"all_reduce()\nif rank == {victim}: os.kill(os.getpid(), 9)\nall_reduce('second')\nsay('survived')"
    ended = under_mpirun(tmp_path, body)
    assert ended.code != 0 and ended.seconds < LIMIT and ended.said == []


@needs_mpi
def test_diverging_programs_raise_everywhere(tmp_path: Path) -> None:
    ended = under_mpirun(
        tmp_path,
        """
        agreement.agree("init", "same")
        try:
            agreement.agree("step", f"module\\n  add\\n  {'multiply' if rank else 'subtract'}\\n  return")
        except agreement.DivergenceError as error:
            say(error)
        """,
    )
    assert (ended.code, ended.error) == (0, "")
    half = len(ended.said) // 2
    said = ended.said[:half]
    assert said == ended.said[half:]  # both say the same
    assert said[0] == "the processes disagree about program 1"
    assert said[1].startswith("  process 0: 'step', fingerprint ") and said[2].startswith("  process 1: 'step'")
    assert said[3:6] == ["  --- process 0", "  +++ process 1", "  @@ -1,4 +1,4 @@"]
    assert said[6:11] == ["   module", "     add", "  -  subtract", "  +  multiply", "     return"]


@needs_mpi
def test_a_process_that_does_not_come_is_named(tmp_path: Path) -> None:
    ended = under_mpirun(
        tmp_path,
        """
        agreement.agree("init", "same")
        if rank == 1:
            time.sleep(200)
        agreement.agree("step", "same", timeout=1)
        """,
    )
    assert ended.code != 0 and ended.seconds < LIMIT
    assert "DivergenceError: program 1, 'step': process 1 did not come within " in ended.error
    assert "process 1 last agreed on program 0, 'init'" in ended.error


@needs_mpi
def test_a_process_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, "if rank == 0: agreement.agree('step', 'same')")
    assert ended.code != 0 and ended.seconds < LIMIT
    assert "program 0, 'step': process 1 did not come and has ended" in ended.error


@needs_mpi
def test_the_first_to_finish_waits_quietly(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, "all_reduce()\nif rank == 1: time.sleep(1)\nsay('done', rank)")
    assert (ended.code, ended.error, ended.said) == (0, "", ["done 0", "done 1"])


@needs_mpi
def test_a_job_outlives_its_heartbeats(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, "all_reduce()\ntime.sleep(7 * rank)\nall_reduce('b')", MESHJIT_HEARTBEAT_TIMEOUT="5")
    assert (ended.code, ended.error) == (0, "")


# --- without MPI -----------------------------------------------------------------------------------------------------


def test_explicit_processes(tmp_path: Path) -> None:
    ended = side_by_side(tmp_path, "say(all_reduce(), distributed.is_initialized())\ndistributed.shutdown()")
    assert [(e.code, e.error, e.said) for e in ended] == [(0, "", ["[[22.0, 22.0], [22.0, 22.0]] True"])] * 2


@pytest.mark.parametrize("failing", [0, 1])
def test_explicit_processes_end_together(tmp_path: Path, failing: int) -> None:
    ended = side_by_side(tmp_path, f"if rank == {failing}: raise ValueError('why')\nall_reduce()\nsay('survived')")
    assert [(e.code, e.said) for e in ended] == [(1, []), (1, [])] and ended[0].seconds < LIMIT
    assert f"[rank {failing}] ValueError: why" in ended[failing].error
    other = 1 - failing
    assert f"[rank {other}] ends, because process {failing} failed: ValueError: why" in ended[other].error


@pytest.mark.parametrize("victim", [0, 1])
def test_missing_heartbeats_end_the_job(tmp_path: Path, victim: int) -> None:
    body = f"if rank == {victim}: os.kill(os.getpid(), 9)\ntime.sleep(150)\nsay('survived')"
    ended = side_by_side(tmp_path, body, MESHJIT_HEARTBEAT_TIMEOUT="3")
    assert all(e.code != 0 and e.said == [] for e in ended) and ended[0].seconds < LIMIT


def test_processes_that_never_come(tmp_path: Path) -> None:
    body = "import sys\nfrom meshjit.runtime import distributed\nprint('ready', flush=True)\ninput()\n"
    body += "distributed.initialize(sys.argv[1], 3, int(sys.argv[2]), initialization_timeout=4)"
    command, address, pipe = [sys.executable, "-c", body], f"127.0.0.1:{free_port()}", subprocess.PIPE
    running = [
        subprocess.Popen([*command, address, str(rank)], env=environment(), text=True, stdin=pipe, stdout=pipe, stderr=pipe)
        for rank in range(2)
    ]
    for process in running:  # at once: importing may take one of them longer than the timeout
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        print(file=process.stdin, flush=True)
    for process in running:
        error = process.communicate(timeout=180)[1]
        assert process.returncode == 1 and "RendezvousError: process 2 of 3 did not come within 4 s; processes 0, 1 came\n  fix:" in error


def test_other_versions_are_named(tmp_path: Path) -> None:
    body = """
    all_reduce()
    say("survived")
    """
    first = "import os\nfrom meshjit.runtime import distributed\n"
    first += "if os.environ['MESHJIT_PROCESS_ID'] == '1': distributed.__version__ = '9.9'\n"
    ended = side_by_side(tmp_path, body, first=first)
    assert [(e.code, e.said) for e in ended] == [(1, []), (1, [])] and ended[0].seconds < LIMIT
    assert "and process 0 run different versions: meshjit 9.9 here, 0.1.0 there\n" in ended[1].error
    assert "fix: start all processes with the same environment" in ended[1].error


def test_another_script_is_an_error(tmp_path: Path) -> None:
    first = "import os, sys\nif os.environ['MESHJIT_PROCESS_ID'] == '1':\n    open(sys.argv[0] + 'x', 'w').close(); sys.argv[0] += 'x'\n"
    ended = side_by_side(tmp_path, "all_reduce()\nsay('survived')", first=first)
    assert [(e.code, e.said) for e in ended] == [(1, []), (1, [])] and ended[0].seconds < LIMIT
    assert "and process 0 run different scripts: SHA-256 of job.pyx is e3b0c44298fc here, " in ended[1].error


# --- who we are ------------------------------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process that has neither joined nor used a device, in an empty environment."""
    monkeypatch.setattr(distributed, "_membership", None)
    monkeypatch.setattr(distributed, "devices_exist", False)
    monkeypatch.setattr(distributed.os, "environ", {})
    return monkeypatch


def test_nobody_to_join(alone: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="num_processes and process_id not given, and no launcher found"):
        distributed.initialize("a:1")
    with pytest.raises(ValueError, match="process_id 4 is not below num_processes 4"):
        distributed.initialize("a:1", 4, 4)
    alone.setattr(distributed.os, "environ", {"SLURM_JOB_ID": "1"})
    with pytest.raises(
        ValueError, match="no launcher found in the environment\n  SLURM: .* not set: a shell in an alloc"
    ):
        distributed.initialize()
    distributed.initialize_if_launched()
    assert not distributed.is_initialized() and membership() == Membership()


def test_one_process_joins_nobody(alone: pytest.MonkeyPatch) -> None:
    distributed.initialize("a:1", 1, 0)
    assert distributed.is_initialized() and membership().num_processes == 1
    agree("step", "text")
    with pytest.raises(
        RuntimeError, match="this is process 0 of 1 at no address already, it cannot become process 1 of 2"
    ):
        distributed.initialize("a:1", 2, 1)
    distributed.shutdown()
    assert not distributed.is_initialized()


def test_too_late_to_join(alone: pytest.MonkeyPatch) -> None:
    alone.setattr(distributed, "devices_exist", True)
    with pytest.raises(RuntimeError, match="came too late: this process has used its devices already"):
        distributed.initialize("a:1", 2, 1)


@pytest.mark.parametrize(
    ("given", "cluster", "visible", "ids"),
    [
        (None, Cluster(0, 1), None, None),
        (None, Cluster(3, 8, 1, 4), None, (1,)),
        (None, Cluster(3, 8, 1, 4), "0,1,2,3", (1,)),
        (None, Cluster(3, 8, 1, 4), "1", None),  # the launcher has given each process its own
        (2, Cluster(3, 8, 1, 4), None, (2,)),
        ([0, 1], Cluster(0, 1), None, (0, 1)),
    ],
)
def test_which_gpus_are_ours(given: Any, cluster: Cluster, visible: str | None, ids: Any) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert distributed._local_ids(given, cluster, environ) == ids


# --- agreeing, against a store in memory -----------------------------------------------------------------------------


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """This is process 0 of 5; what the others say is written into the store by hand."""
    kept: dict[str, str] = {}
    monkeypatch.setattr(distributed, "_membership", Membership(0, 5, coordinator=object()))
    monkeypatch.setattr(agreement, "_counters", type(agreement._counters)())
    monkeypatch.setattr(_jaxlib, "store_set", lambda _, key, value: kept.__setitem__(key, value))
    monkeypatch.setattr(_jaxlib, "store_list", lambda _, at: {k: v for k, v in kept.items() if k.startswith(at)})
    monkeypatch.setattr(_jaxlib, "store_get", lambda _, key, timeout: kept.get(key))
    monkeypatch.setattr(_jaxlib, "store_delete", lambda _, key: kept.pop(key))
    return kept


def say(store: dict[str, str], number: int, texts: dict[int, str], name: str = "step", series: str = "all") -> None:
    for rank, text in texts.items():
        store[f"meshjit/program/{series}/{number}/{rank}"] = f'["{agreement._digest(text)}", "{name}"]'
        store[f"meshjit/program/{series}/text/{number}/{rank}"] = text


def test_agreement_leaves_one_word_behind(store: dict[str, str]) -> None:
    for number in range(3):
        say(store, number, dict.fromkeys(range(1, 5), f"program {number}"))
        agree("step", f"program {number}")
    assert [key for key in store if key.endswith("/0")] == ["meshjit/program/all/2/0"]


def test_camps_are_listed_largest_first(store: dict[str, str]) -> None:
    say(store, 0, {1: "a\nb", 2: "a\nc", 3: "a\nb", 4: "a\nb"})
    with pytest.raises(DivergenceError) as caught:
        agree("step", "a\nc")
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines[1:3]] == ["  processes 1, 3, 4", "  processes 0, 2"]
    assert lines[3:9] == [
        "  --- processes 1, 3, 4",
        "  +++ processes 0, 2",
        "  @@ -1,2 +1,2 @@",
        "   a",
        "  -b",
        "  +c",
    ]
    assert lines[9].startswith("  fix: every process must run the same functions")


def test_long_differences_are_cut(store: dict[str, str]) -> None:
    say(store, 0, dict.fromkeys(range(1, 5), "\n".join(map(str, range(500)))))
    with pytest.raises(DivergenceError, match="… 444 more lines"):
        agree("step", "nothing")


def test_a_part_of_the_processes(store: dict[str, str]) -> None:
    series = agreement._digest("[0, 2]")
    say(store, 0, {2: "text"}, series=series)
    agree("step", "text", processes=[2, 0])
    agree("step", "text", processes=[0])
    assert f"meshjit/program/{series}/0/0" in store


def test_the_missing_are_named_with_what_they_did_last(store: dict[str, str]) -> None:
    say(store, 0, dict.fromkeys(range(1, 5), "text"), "init")
    agree("init", "text")
    say(store, 1, {1: "text", 3: "text"})
    with pytest.raises(DivergenceError) as caught:
        agree("step", "text", timeout=0.01)
    assert str(caught.value).splitlines()[:3] == [
        "program 1, 'step': processes 2, 4 did not come within 0 s",
        "  process 2 last agreed on program 0, 'init'",
        "  process 4 last agreed on program 0, 'init'",
    ]


def test_waiting_is_announced(
    store: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agreement, "_PATIENCE_SECONDS", 0.0)
    with pytest.raises(DivergenceError):
        agree("step", "text", timeout=0.05)
    assert capsys.readouterr().err == (
        "[rank 0] program 0, 'step': processes 1, 2, 3, 4 did not come in 0 s; still waiting\n"
    )
