"""The command `meshjit`.

    meshjit inspect TARGET [args]      placements, collectives and memory of every function that a script jits, or of one; why
    meshjit plan --devices 64 TARGET   the best plan where nobody says where anything lives
    meshjit plan --calibrate --save machine.toml   measure this machine, for --topology machine.toml
    meshjit diff A [B]                 two plans side by side
    meshjit verify script.py[:name] [args]   run a script; compare every value of the functions that it jits (or of that
                                       one) with what one device computes
    meshjit run -n 4 script.py [args]  run a script on several processes of this host; without -n in this process
    meshjit reproduce file.txt         do again what an InternalError's file holds
    meshjit doctor                     what this machine has: versions, devices, how processes would find each other
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import numpy as np

from launch.cluster import ClusterError, detect
from meshjit.cli.diff import add_diff, diff
from meshjit.cli.inspect import add_inspect, inspect, told
from meshjit.cli.plan import add_plan, plan
from meshjit.cli.reproduce import reproduce
from meshjit.cli.run import add_run, run
from meshjit.inspect.checking import checks
from meshjit.inspect.functions import run_script
from meshjit.inspect.unusable import Unusable
from meshjit.runtime import _jaxlib, client
from meshjit.version import __version__ as version

ASKING = {"inspect": inspect, "diff": diff, "plan": plan}


def parser() -> argparse.ArgumentParser:
    """Of the command and all that it can do."""
    parser = argparse.ArgumentParser(prog="meshjit", description="SPMD programs, explained.")
    parser.add_argument("--version", action="version", version=f"meshjit {version}, jaxlib {_jaxlib.version}")
    commands = parser.add_subparsers(dest="command")
    add_inspect(commands)
    add_plan(commands)
    add_diff(commands)
    command = commands.add_parser(
        "verify", help="run a script; compare every value of every function that it jits (script.py:name: of that one) with"
        " one device's",
    )  # fmt: skip
    command.add_argument("script", help="a Python file")
    command.add_argument("rest", nargs=argparse.REMAINDER, help="its arguments")
    add_run(commands)
    again = commands.add_parser("reproduce", help="do again what the file of an InternalError holds")
    again.add_argument("file", help="the file that the error named")
    commands.add_parser("doctor", help="versions, devices and launcher of this machine")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    typed = list(sys.argv[1:] if arguments is None else arguments)
    end = typed.index("--") if typed[:1] == ["plan"] and "--" in typed else len(typed)
    asked = parser()
    parsed = asked.parse_args(typed[:end])
    parsed.behind = typed[end + 1 :]
    if parsed.command is None:
        asked.print_help()
        return 0
    if parsed.command == "doctor":
        return doctor()
    if parsed.command == "reproduce":
        return reproduce(parsed.file)
    if parsed.command == "verify":
        return _verify(parsed.script, parsed.rest)
    if parsed.command in ASKING:
        return told(ASKING[parsed.command], parsed)
    return run(parsed)


def _verify(script: str, rest: Sequence[str]) -> int:
    """Run a file; check each function with the arguments of its first call. 1 where one differs."""
    path, _, name = script.partition(":")
    try:
        with checks(name or None) as results:
            run_script(path, rest)
    except Unusable as error:
        print(f"meshjit verify: {error}", file=sys.stderr)
        return 2
    if not results:
        print(f"{path} calls no jitted function{f' named {name}' if name else ''}", file=sys.stderr)
    return int(not results or not all(check.passed for check in results))


def _processes() -> str:
    """Who this process is among others, from which variables, in words."""
    try:
        cluster = detect(os.environ)
    except ClusterError as error:
        return f"The variables contradict one another: {error}."
    more = "" if cluster.launcher != "none" else "\nSeveral are started by: meshjit run -n 4 script.py, mpirun, srun."
    return f"{cluster.explain()}{more}"


def doctor() -> int:
    """Print what meshjit would use here, and why."""
    from rich.console import Console  # which other commands do without
    from rich.table import Table

    table = Table("what", "here", title="meshjit doctor", title_justify="left")
    table.add_row("python", sys.version.split()[0])
    table.add_row("numpy", np.__version__)
    table.add_row("jaxlib", _jaxlib.version)
    table.add_row("processes", _processes())
    table.add_row("devices", ", ".join(map(str, client.devices())))
    Console().print(table)
    return 0
