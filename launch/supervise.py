"""How the processes of a job end: together, and soon.

A process that waits in a collective for one that has failed waits for ever. So a process that fails says so, with its
rank before every line, and ends the whole job. What counts as failing:

    an exception that nobody caught, in any thread; KeyboardInterrupt        sys.excepthook, threading.excepthook
    sys.exit(nonzero), exit(nonzero), also from argparse, click, pytest       the last code given, if it reached the top
    `raise SystemExit(nonzero)` without sys.exit                              Python 3.12 and later (sys.monitoring)

Who leaves by os._exit says so and is gone: the others find out, or their launcher ends them before they can say why. A process
that is killed says nothing: mpirun reaps the others, or they miss its heartbeats. A process that ends well waits for the others
(`finish`), for they may still need what it serves.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import dis
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn

_OWN = ("meshjit", "launch")
EndJob = Callable[[int, str], Any]  # (exit code, reason in one line): ends this process and all others


class Supervisor:
    """The hooks of one process. Made by `watch`; `release` takes them out again."""

    def __init__(self, rank: int, end_job: EndJob, finish: Callable[[], None]) -> None:
        self.rank, self.end_job, self.finish = rank, end_job, finish
        self.pid = os.getpid()
        self.exit_code: Any = None  # the last that sys.exit was given; it may have been caught since
        self.outermost = _outermost_frame()
        self.explain: Callable[[BaseException], str] = lambda error: ""  # more about an error that ends the job
        self.previous = (sys.excepthook, threading.excepthook, sys.exit)
        self.leave = os._exit

    def install(self) -> None:
        sys.excepthook, threading.excepthook = self.on_exception, self.on_thread_exception
        sys.exit = self.exit  # type: ignore[assignment]
        os._exit = self.leave_at_once  # type: ignore[assignment]
        for name in ("exit", "quit"):
            if hasattr(builtins, name):
                setattr(builtins, name, self.exit)
        self.monitoring = _watch_unwinding(self.on_unwind)
        atexit.register(self.at_exit)

    def release(self) -> None:
        """From now on this process is on its own."""
        atexit.unregister(self.at_exit)
        sys.excepthook, threading.excepthook, sys.exit = self.previous
        os._exit = self.leave
        _unwatch_unwinding(self.monitoring)
        self.outermost = None

    def on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None, where: str = "") -> None:
        """sys.excepthook: say what happened, under the rank, and end the job."""
        if self.previous[0] is sys.__excepthook__:
            lines = "".join(traceback.format_exception(kind, error, trace))
            self.say(f"{where}{lines}")
        else:  # the user has a hook that prints better than we do
            self.say(f"{where}{kind.__name__}:")
            self.previous[0](kind, error, trace)
        if self.pid == os.getpid() and not _is_interactive():  # a forked child's failure is its parent's business
            code = 130 if issubclass(kind, KeyboardInterrupt) else 1
            more = self.explain(error)
            if more:
                self.say(more)
            self.end(code, more.partition("\n")[0] or "".join(traceback.format_exception_only(kind, error)).strip())

    def on_thread_exception(self, args: threading.ExceptHookArgs) -> None:
        """threading.excepthook: a thread that fails leaves work undone that others may wait for."""
        if args.exc_type is SystemExit:
            return
        name = args.thread.name if args.thread is not None else "?"
        error = args.exc_value if args.exc_value is not None else args.exc_type()
        self.on_exception(args.exc_type, error, args.exc_traceback, f"in thread {name}:\n")

    def exit(self, status: Any = None, /) -> None:
        """sys.exit, remembering the status. It may yet be caught: `at_exit` looks whether it was."""
        self.exit_code = status
        self.previous[2](status)

    def leave_at_once(self, status: int) -> NoReturn:
        """os._exit, which runs nothing else. A forked child, and code of this project that ends a job, say nothing here."""
        caller = sys._getframe(1)
        module = caller.f_globals.get("__name__", "")
        if self.pid == os.getpid() and module.partition(".")[0] not in _OWN:
            where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            with contextlib.suppress(OSError):
                text = f"leaves by os._exit({status}) at {where} (host {socket.gethostname()}, pid {self.pid})"
                os.write(2, f"[rank {self.rank}] {text}\n".encode())
        self.leave(status)

    def on_unwind(self, code: CodeType, offset: int, error: BaseException) -> None:
        """sys.monitoring: an exception leaves a frame; a SystemExit that leaves the outermost one ends the process."""
        if isinstance(error, SystemExit) and self.outermost is not None and code is self.outermost.f_code:
            self.exit_code = error.code

    def at_exit(self) -> None:
        if self.pid != os.getpid():
            return
        if self.exit_code not in (None, 0) and not _ended_by_return(self.outermost):
            code = self.exit_code if isinstance(self.exit_code, int) else 1
            self.say(f"left with exit code {code}: the other processes are ended, too\n")
            self.end(code, f"exit code {code}")
        self.finish()

    def say(self, text: str) -> None:
        """To stderr in one write, so that lines of several processes do not mix; each under the rank."""
        prefix = f"[rank {self.rank}] "
        lines = "".join(f"{prefix}{line}\n" for line in text.rstrip("\n").split("\n"))
        print(lines, end="", file=sys.stderr, flush=True)

    def end(self, code: int, reason: str) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        self.end_job(code, reason)


def watch(rank: int, end_job: EndJob, finish: Callable[[], None]) -> Supervisor:
    """Install the hooks: a failure calls `end_job(code, reason)`, a good end `finish()`."""
    supervisor = Supervisor(rank, end_job, finish)
    supervisor.install()
    return supervisor


def end_through_mpi(comm: Any) -> EndJob:
    """End the job as MPI does: mpirun kills what does not go by itself."""

    def end(code: int, reason: str) -> None:
        time.sleep(_FORWARDING_SECONDS)
        comm.Abort(code)

    return end


_FORWARDING_SECONDS = 0.3  # mpirun drops what a process printed if the abort overtakes it


# --- did the program end by return, or by SystemExit? -----------------------------------------------------------------


def _outermost_frame() -> FrameType | None:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _ended_by_return(frame: FrameType | None) -> bool:
    """Whether the main program's frame stopped at a return, rather than where an exception left it."""
    if frame is None or frame.f_lasti < 0:
        return False
    last = next((i for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti), None)
    return last is not None and last.opname.startswith("RETURN")


def _is_interactive() -> bool:
    """At a prompt an exception ends nothing."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _watch_unwinding(callback: Callable[[CodeType, int, BaseException], Any]) -> int | None:
    """Be told of frames that exceptions leave (Python 3.12). None where that cannot be had; else what undoes it."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        return None
    tool = next((number for number in (3, 4) if monitoring.get_tool(number) is None), None)  # no well-known tool's
    if tool is not None:
        monitoring.use_tool_id(tool, "meshjit.launch")
        monitoring.register_callback(tool, monitoring.events.PY_UNWIND, callback)
        monitoring.set_events(tool, monitoring.events.PY_UNWIND)
    return tool


def _unwatch_unwinding(tool: int | None) -> None:
    if tool is not None:
        getattr(sys, "monitoring").free_tool_id(tool)  # noqa: B009  (not in Python 3.11)
