"""The command `meshjit`.

    meshjit inspect script.py [args]   run a script; for every function that it jits print placements and costs
    meshjit verify script.py[:name] [args]   run a script; compare every value of the functions that it jits (or of that
                                       one) with what one device computes
    meshjit run script.py [args]       run a script (the same as python script.py, with meshjit's error handling)
    meshjit reproduce file.txt         do again what an InternalError's file holds
    meshjit doctor                     what this machine has: versions, devices, how processes would find each other
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from launch.cluster import detect
from meshjit.api.wrapped import compilation_listeners
from meshjit.cli.reproduce import reproduce
from meshjit.inspect.checking import checks
from meshjit.runtime import _jaxlib, client


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="meshjit", description="SPMD programs, explained.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("inspect", "run a script; print placements, collectives and memory of every function that it jits"),
        ("verify", "run a script; compare every value of every function that it jits (script.py:name: of that one) with"
                   " one device's"),
        ("run", "run a script"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("script", help="a Python file")
        command.add_argument("rest", nargs=argparse.REMAINDER, help="its arguments")
    again = commands.add_parser("reproduce", help="do again what the file of an InternalError holds")
    again.add_argument("file", help="the file that the error named")
    commands.add_parser("doctor", help="versions, devices and launcher of this machine")
    parsed = parser.parse_args(arguments)
    if parsed.command == "doctor":
        return doctor()
    if parsed.command == "reproduce":
        return reproduce(parsed.file)
    if parsed.command == "verify":
        return _verify(parsed.script, parsed.rest)
    if parsed.command == "inspect":
        _listen()
    return _run(parsed.script, parsed.rest)


def _run(script: str, rest: Sequence[str]) -> int:
    """Run a file as `python file args` would."""
    sys.argv = [script, *rest]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    runpy.run_path(script, run_name="__main__")
    return 0


def _verify(script: str, rest: Sequence[str]) -> int:
    """Run a file; check each function with the arguments of its first call. 1 where one differs."""
    path, _, name = script.partition(":")
    with checks(name or None) as results:
        status = _run(path, rest)
    if not results:
        print(f"{path} calls no jitted function{f' named {name}' if name else ''}", file=sys.stderr)
    return status or int(not results or not all(check.passed for check in results))


def _listen() -> None:
    """Print a report whenever a function has been compiled; on several processes only the first one prints."""
    from meshjit.inspect.report import report, report_console  # loads rich, which other commands do without

    console = report_console()

    def listen(compiled: Any) -> None:
        if client.process_index() == 0:
            report(compiled, console)

    compilation_listeners.append(listen)


def doctor() -> int:
    """Print what meshjit would use here, and why."""
    from rich.console import Console  # which other commands do without
    from rich.table import Table

    table = Table("what", "here", title="meshjit doctor", title_justify="left")
    table.add_row("python", sys.version.split()[0])
    table.add_row("numpy", np.__version__)
    table.add_row("jaxlib", _jaxlib.version)
    table.add_row("processes", detect(os.environ).explain())
    table.add_row("devices", ", ".join(map(str, client.devices())))
    Console().print(table)
    return 0
