"""`meshjit run`: a script on several processes, here or on other hosts, or as one process of a job that others have started."""

from __future__ import annotations

import argparse
import os
import runpy
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launch.cluster import Cluster, ClusterError, detect
from launch.hosts import HostError, Hosts
from launch.job import Job, run_job
from meshjit.inspect.functions import missing_script, run_script

_EPILOG = """\
Without -n and --host the script runs in this process: alone, or as one of those that mpirun, srun or the like has started.
Exit code: that of the process that failed first; 128 + n after signal n; 124 after --timeout.
Ctrl-C asks all processes to end, and kills them 5 seconds later; twice, it kills them at once."""


def add_run(commands: Any) -> None:
    """The command and its options."""
    form, text = argparse.RawDescriptionHelpFormatter, "run a script, on several processes (-n)"
    run = commands.add_parser("run", help=text, epilog=_EPILOG, formatter_class=form)
    run.add_argument("-n", "--processes", type=_positive, metavar="N", help="so many processes")
    run.add_argument("--host", metavar="H1,H2", help="on these hosts, by ssh, in equal blocks; H1:4,H2:2 says how many on each")
    run.add_argument("--ssh", metavar="COMMAND", help="what runs a command on a host (default: ssh -o BatchMode=yes)")
    run.add_argument("--python", metavar="PATH", help="the hosts' Python (default: the path of this one)")
    run.add_argument("--devices-per-process", type=_positive, metavar="K", help="CPU devices of each")
    run.add_argument("--restarts", type=int, default=0, metavar="R", help="start a job that failed again, at most so often")
    run.add_argument("--timeout", type=float, metavar="S", help="end the job after so many seconds")
    run.add_argument("--log-dir", type=Path, metavar="D", help="what each process says also goes to D/rank-<rank>.log")
    run.add_argument("--only-first", action="store_true", help="show what rank 0 says, not the others")
    run.add_argument("--no-color", action="store_true", help="ranks without colours")
    run.add_argument("--dry-run", action="store_true", help="say what would run, and why, and run nothing")
    run.add_argument("-m", "--module", action="store_true", help="the script is the name of a module, as in python -m")
    run.add_argument("script", help="a Python file")
    run.add_argument("rest", nargs=argparse.REMAINDER, help="its arguments")


def run(parsed: argparse.Namespace, environ: Mapping[str, str] | None = None) -> int:
    """What `meshjit run` does; the exit code."""
    environ = os.environ if environ is None else environ
    try:
        cluster = detect(environ)
    except ClusterError as error:
        print(f"meshjit run: {error}", file=sys.stderr)
        return 2
    is_launcher = bool(parsed.processes or parsed.host)
    if is_launcher and not cluster.is_alone:  # a job of one process, such as a shell that srun started, may start others
        print(_started_already(cluster), file=sys.stderr)
        return 2
    try:
        job = _job(parsed, environ)
    except HostError as error:
        print(f"meshjit run: {error}", file=sys.stderr)
        return 2
    if parsed.dry_run:
        print(_dry(job, is_launcher, cluster))
        return 0
    if not parsed.module and not parsed.host and (text := missing_script(parsed.script)):
        print(f"meshjit run: {text}", file=sys.stderr)
        return 2
    if is_launcher:
        return run_job(job)
    if parsed.devices_per_process:
        os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", str(parsed.devices_per_process))
    if parsed.module:
        sys.argv = [parsed.script, *parsed.rest]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(parsed.script, run_name="__main__", alter_sys=True)
    else:
        run_script(parsed.script, parsed.rest)
    return 0


def _job(parsed: argparse.Namespace, environ: Mapping[str, str]) -> Job:
    hosts = Hosts.read(parsed.host, parsed.processes, parsed.ssh, parsed.python) if parsed.host else Hosts()
    command = [parsed.python or sys.executable, *(["-m"] if parsed.module else []), parsed.script, *parsed.rest]
    return Job(
        command, parsed.processes or hosts.processes or 1, environ, parsed.devices_per_process, parsed.timeout, parsed.restarts,
        parsed.log_dir, parsed.only_first, colored=sys.stdout.isatty() and not parsed.no_color, hosts=hosts,
    )  # fmt: skip


def _started_already(cluster: Cluster) -> str:
    facts = ", ".join(cluster.evidence)
    return (
        f"meshjit run: this is process {cluster.rank} of {cluster.size or 'several'} of {cluster.launcher} already ({facts})\n"
        "  fix: leave -n and --host out, so that each of these processes runs the script once"
    )


def _dry(job: Job, is_launcher: bool, cluster: Cluster) -> str:
    command = shlex.join(job.command)
    if not is_launcher:
        return f"{cluster.explain()}\nwould run in this process: {command}"
    where = f"by `{shlex.join(job.hosts.shell)}`" if job.hosts.names else "on this host"
    lines = [f"would start {job.processes} processes {where}, which meet at a free port of {job.hosts.first}"]
    own = dict(job.environ)
    for rank in range(job.processes):
        new = {k: v for k, v in job.environment(rank, 0, "…").items() if own.get(k) != v}
        new["MESHJIT_COORDINATOR"] = f"{job.hosts.first}:<port>"
        host = f"{job.hosts.of(rank)}: " if job.hosts.names else ""
        lines.append(f"  rank {rank}: {host}{' '.join(f'{k}={v}' for k, v in new.items())} {command}")
    return "\n".join([*lines, *(f"Not believed: {reason}." for reason in cluster.passed_over)])


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)
