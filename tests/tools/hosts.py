"""Faults that need a machine of their own, as root on Linux: two hosts, and memory that is short.

    python -m tests.tools.hosts [fault ...]           two network namespaces joined by a veth pair stand for two hosts, with one
                                                      process each; "network" takes the link down
    python -m tests.tools.hosts --memory              a job in a control group of 1 GB, of which process 1 wants more

Says what it cannot do, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

from tests.tools import faults

FAULTS = ("raise", "exit 0", "os._exit", "SIGKILL", "SIGSTOP", "diverge", "skip", "endless loop", "network", "none")
ADDRESSES = ("10.213.77.1", "10.213.77.2")
SSH = """#!/bin/sh
host=$1; shift
case $host in {cases}
esac
"""
LIMIT = 1 << 30  # bytes of the control group


@contextlib.contextmanager
def two_hosts() -> Generator[tuple[str, list[str]]]:
    """(what `faults.run` takes for `under`, the network namespaces)."""
    names = [f"meshjit-{os.getpid()}-{side}" for side in "ab"]
    ends = [f"mj{os.getpid()}{side}" for side in "ab"]
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for name, end, address in zip(names, ends, ADDRESSES, strict=True):
            _ip("link", "set", end, "netns", name)
            _ip("-n", name, "link", "set", end, "name", "link0")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "link0")
            for device in ("lo", "link0"):
                _ip("-n", name, "link", "set", device, "up")
        with tempfile.TemporaryDirectory() as folder:
            ssh = Path(folder) / "ssh"
            cases = " ".join(f'{a}) exec ip netns exec {n} sh -c "$*";;' for n, a in zip(names, ADDRESSES, strict=True))
            ssh.write_text(SSH.format(cases=cases))
            ssh.chmod(0o755)
            yield f"run --host {','.join(ADDRESSES)} --ssh {ssh}", names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def small_group() -> Generator[Callable[[], None]]:
    """What a process calls to be in a control group of little memory."""
    old = Path("/sys/fs/cgroup/memory")
    folder = (old if old.is_dir() else Path("/sys/fs/cgroup")) / f"meshjit-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")).write_text(str(LIMIT))
        yield lambda: (folder / "cgroup.procs").write_text(str(os.getpid())) and None
    finally:
        folder.rmdir()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--say", action="store_true", help="show what the jobs say")
    parser.add_argument("fault", nargs="*")
    arguments = parser.parse_args()
    try:
        wrong = memory(arguments.say) if arguments.memory else network(arguments.fault or FAULTS, arguments.say)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"this machine does not allow it: {error}")
    sys.exit("\n".join(wrong))


def network(wanted: list[str] | tuple[str, ...], say: bool) -> list[str]:
    wrong: list[str] = []
    print(faults.HEAD)
    with two_hosts() as (under, names):
        for fault in wanted:
            for name in names:
                _ip("-n", name, "link", "set", "link0", "up")  # "network" has taken it down
            ended = faults.run(fault, under, "steps", processes=2)
            faults.tell("steps", fault, "two hosts", ended)
            wrong += [f"{fault}: {why}" for why in faults.complaints(fault, "steps", ended)]
            print(ended.said if say else "", end="")
    return wrong


def memory(say: bool) -> list[str]:
    print(faults.HEAD)
    with small_group() as enter:
        ended = faults.run("memory of the group", "run", "steps", processes=2, enter=enter, MESHJIT_STALL_TIMEOUT="60")
    faults.tell("steps", "memory of the group", "run", ended)
    print(ended.said if say else "", end="")
    told = "the memory of its control group was full (out of memory)" in ended.said
    return [*([] if told else ["the kernel's word was not told"]), *faults.complaints("memory of the group", "steps", ended)]


if __name__ == "__main__":
    main()
