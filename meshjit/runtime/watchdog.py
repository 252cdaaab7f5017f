"""Watches over a job: each process says how far it has come, process 0 compares, and says who holds up the others.

Two threads in each process: one tells the store (`_beat`), and on process 0 judges; one looks whether the store still
answers. Neither touches what the main thread does: a call costs what its note costs (`noting`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from launch import fate
from launch.judge import Verdict, judge, parting
from launch.progress import REMEMBERED, Person, Report
from launch.rendezvous import host_identity
from launch.roll_call import name_processes
from launch.supervise import Supervisor
from meshjit.config import config
from meshjit.runtime import _jaxlib, noting
from meshjit.runtime.ending import JUDGED, failure_of_another
from meshjit.runtime.stacks import main_line, stacks

_PERIOD = 0.5  # seconds between two words of a process
_TELLING = 1.0  # seconds without progress after which a process says all of its last calls that it remembers
_FEW = 8  # calls that it says otherwise
_SILENT = "has said nothing for {:.0f} s: it has died, was stopped, or the network between us is gone"
_SILENCE_SECONDS = 1.6  # three words of a process; the error itself says that something is wrong
_GRACE_SECONDS = 3.0  # in which a process whose connections are closed has gone, too
_DIED = "has died: it was killed, crashed, or left by os._exit"
_STACKS_SECONDS = 1.5  # that the others have to send their stacks
_LASTS_SECONDS = 5.0  # that all have to send their last calls, once these are known to differ
_REPORTS, _FIRST, _ASKS, _STACKS = "meshjit/watch/", "meshjit/first/", "meshjit/asks/", "meshjit/stacks/"
_LASTS = "meshjit/lasts/"


class Watchdog:
    """Of one process. `start` it once all have joined, `stop` it before the coordinator goes."""

    def __init__(self, coordinator: Any, rank: int, size: int, supervisor: Supervisor) -> None:
        self.coordinator, self.rank, self.size, self.supervisor = coordinator, rank, size, supervisor
        self.me = person(rank)
        self.has_ended = False
        self.stopping = threading.Event()
        self.answered = time.monotonic()  # when the store last did
        self.since, self.signature = time.monotonic(), None
        self.first = self.me if rank == 0 else None  # process 0
        self.heard: dict[int, tuple[int, float]] = {}  # rank → its last tick, and when that came
        self.people: dict[int, Person] = {rank: self.me}
        self.suspects: dict[int, str] = {}
        self.reported: tuple[Any, float] = (None, 0.0)
        self.has_judged = False  # whether the job ends because of what was found out here
        self.tick = self.asked = 0
        threads = [("meshjit-watch", self._beat_on), *([("meshjit-watch-store", self._watch_store)] if rank else [])]
        self.threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in threads]

    def start(self) -> None:
        noting.histories[noting.group_name(range(self.size))]  # everybody has this one, so who never calls is missed
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """No thread may be inside jaxlib when Python goes down."""
        self.stopping.set()
        for thread in self.threads:
            thread.join(timeout=5)

    def compare(self, pasts: Mapping[int, Mapping[str, str]]) -> None:
        """At the end: end the job with an error if some have made other calls than the others, or fewer."""
        for series in sorted({name for past in pasts.values() for name in past}):
            camps: dict[str, list[int]] = defaultdict(list)
            for rank, past in sorted(pasts.items()):
                if series in past:
                    camps[past[series]].append(rank)
            if len(camps) > 1:
                made = [f"{name_processes(ranks)} {past.partition(':')[0]}" for past, ranks in camps.items()]
                self._end_apart(f"the processes have not made the same calls: {', '.join(made)}, and not the same ones")

    def _end_apart(self, why: str) -> None:
        """The same calls ended on all processes before anybody compared them: process 0 says now which was the first that
        was not the same, the others wait for it."""
        if self.rank:
            _jaxlib.store_set(self.coordinator, f"{_LASTS}{self.rank}", self._as_text(self.report(REMEMBERED)))
            time.sleep(2 * _LASTS_SECONDS)
        else:
            verdict = parting(self._last_reports(), self.people)
            if verdict is not None:
                self._end(verdict)
            self.supervisor.say(f"{why}\nso the results of one another's calls have met, and cannot be trusted")
        self.supervisor.end(1, JUDGED + why)

    def _last_reports(self) -> dict[int, Report]:
        reports, end = {0: self.report(REMEMBERED)}, time.monotonic() + _LASTS_SECONDS
        while len(reports) < self.size and time.monotonic() < end:
            for key, value in _jaxlib.store_list(self.coordinator, _LASTS).items():
                self._read(int(key.rpartition("/")[2]), json.loads(value), reports)
            time.sleep(0.02)
        return reports

    def explain(self, error: BaseException) -> str:
        """What is known of an error that comes of another process's death: who has died. "" of any other."""
        if not isinstance(error, _jaxlib.XlaError | ValueError) or "Gloo" not in str(error) or self.has_judged:
            return ""
        with contextlib.suppress(_jaxlib.XlaError):  # where it was process 0, the store has gone with it
            self._reports()
        people = {**self.people, **({0: self.first} if self.first is not None else {})}
        end = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < end:
            if failure := failure_of_another(self.coordinator, self.rank):
                return failure
            gone = [who for who in people.values() if who.machine == self.me.machine and fate.is_gone(who.pid, who.started)]
            if gone:
                return "\n".join(f"{who} {_DIED}" for who in gone)
            time.sleep(0.02)
        silent = self._silent([who for who in people.values() if who.machine != self.me.machine and who.rank])
        return "\n".join(f"{who} {_SILENT.format(_SILENCE_SECONDS)}" for who in silent)

    def _silent(self, far: list[Person]) -> list[Person]:
        """Who of other hosts says nothing more."""
        if not far:
            return []
        with contextlib.suppress(_jaxlib.XlaError):
            self._reports()
            before = dict(self.heard)
            time.sleep(_SILENCE_SECONDS)
            self._reports()
            return [who for who in far if self.heard.get(who.rank) == before.get(who.rank)]
        return []

    def _beat_on(self) -> None:
        period = max(_PERIOD, self.size / 400)  # process 0 reads them all
        while not self.stopping.is_set():
            try:
                self._beat()  # at once, too: who dies early is to be known to the others
            except (_jaxlib.XlaError, RuntimeError):
                return  # the coordinator is gone
            self.stopping.wait(period)

    def _beat(self) -> None:
        self.tick += 1
        report = self.report()
        if self.rank:
            _jaxlib.store_set(self.coordinator, f"{_REPORTS}{self.rank}", self._as_text(report), overwrite=True)
        elif self.tick == 1:
            _jaxlib.store_set(self.coordinator, f"{_FIRST}0", json.dumps(asdict(self.me)), overwrite=True)
        self.answered = time.monotonic()
        if self.rank == 0:
            self._judge(report)
        else:
            self._answer_asks()
            if self.first is None:
                stored = _jaxlib.store_list(self.coordinator, _FIRST)
                self.first = Person(**json.loads(stored[f"{_FIRST}0"])) if stored else None

    def _as_text(self, report: Report) -> str:
        return json.dumps({"tick": self.tick, "who": asdict(self.me), "report": asdict(report)})

    def report(self, most: int = _FEW) -> Report:
        """How far this process is, with at least that many of its last calls."""
        histories = dict(noting.histories)
        counts = {name: (series.count, series.check) for name, series in histories.items()}
        pending = any(noting.is_pending(series) for series in histories.values())
        signature = (counts, pending, noting.waits, self.has_ended)
        if signature != self.signature:
            self.since, self.signature = time.monotonic(), signature
        idle = time.monotonic() - self.since
        most = REMEMBERED if idle >= _TELLING else most
        tails = {name: series.told(most) for name, series in histories.items()}
        milestones = {name: list(series.milestones) for name, series in histories.items()}
        calls, since = noting.longest_host_call()
        return Report(
            counts, tails, milestones, pending, idle, self.has_ended, *noting.waits, at=main_line(), calls=calls, calls_for=since
        )

    # --- process 0 judges ---------------------------------------------------------------------------------------------

    def _judge(self, mine: Report) -> None:
        reports = {0: mine, **self._reports()}
        for rank, (_, when) in self.heard.items():
            reports[rank] = replace(reports[rank], silence=time.monotonic() - when)
        verdict = judge(reports, self.people, self._fates(), config.stall_report)
        if verdict is None or self._is_ending():
            return
        if verdict.is_certain:
            self._end(verdict)
        self._report_late(verdict, max(report.idle + report.silence for report in reports.values()))

    def _reports(self) -> dict[int, Report]:
        reports: dict[int, Report] = {}
        for key, value in _jaxlib.store_list(self.coordinator, _REPORTS).items():
            rank, message = int(key.rpartition("/")[2]), json.loads(value)
            if self.heard.get(rank, (0, 0.0))[0] != message["tick"]:
                self.heard[rank] = (message["tick"], time.monotonic())
            self._read(rank, message, reports)
        return reports

    def _read(self, rank: int, message: Mapping[str, Any], reports: dict[int, Report]) -> None:
        self.people[rank], reports[rank] = Person(**message["who"]), Report(**message["report"])

    def _fates(self) -> dict[int, str]:
        """What has become of the others for sure: seen twice, for they may be about to say it themselves."""
        fates = {}
        for rank, who in self.people.items():
            if rank and (words := self._fate(who)):
                fates[rank] = words
        certain = {rank: words for rank, words in fates.items() if rank in self.suspects}
        self.suspects = fates
        return certain

    def _fate(self, who: Person) -> str:
        """Words for what has become of a process that has said nothing for a while."""
        silence = time.monotonic() - self.heard.get(who.rank, (0, time.monotonic()))[1]
        if who.machine == self.me.machine:
            if fate.is_gone(who.pid, who.started):
                return _DIED
            if silence > config.stall_report / 2 and fate.is_stopped(who.pid, who.started):
                return f"is stopped (SIGSTOP, or a debugger) for {silence:.0f} s"
        elif silence > 0.8 * config.heartbeat_timeout:  # before jaxlib ends us without a name
            return _SILENT.format(silence)
        return ""

    def _is_ending(self) -> bool:
        return getattr(self.supervisor.end_job, "is_ending", False) or self.stopping.is_set()

    def _end(self, verdict: Verdict) -> None:
        self.has_judged = True
        self.supervisor.say(f"{verdict.text}\nthe job is ended")
        for rank in verdict.ranks:
            who = self.people[rank]
            if rank and who.machine == self.me.machine and fate.is_stopped(who.pid, who.started):
                os.kill(who.pid, signal.SIGKILL)  # it cannot end by itself
        self.supervisor.end(1, JUDGED + verdict.text.splitlines()[0])

    def _report_late(self, verdict: Verdict, idle: float) -> None:
        """Say who is late: once, and again when it has taken twice as long."""
        about, until = self.reported
        if idle >= config.stall_timeout:
            return self._end(verdict)
        if (verdict.ranks, verdict.text.count("\n")) == about and idle < until:
            return
        self.reported = ((verdict.ranks, verdict.text.count("\n")), 2 * idle)
        rest = f"the job is ended after {config.stall_timeout:g} s of this (config.stall_timeout, MESHJIT_STALL_TIMEOUT)"
        self.supervisor.say("\n".join([verdict.text, *self._all_stacks(), rest]))

    def _all_stacks(self) -> list[str]:
        """The Python stacks of all processes, alike ones together."""
        self.asked += 1
        _jaxlib.store_set(self.coordinator, f"{_ASKS}stacks", str(self.asked), overwrite=True)
        sent: dict[int, str] = {0: stacks()}
        end = time.monotonic() + _STACKS_SECONDS
        while len(sent) < len(self.people) and time.monotonic() < end:
            time.sleep(0.05)
            stored = _jaxlib.store_list(self.coordinator, f"{_STACKS}{self.asked}/")
            sent |= {int(key.rpartition("/")[2]): value for key, value in stored.items()}
        return tell_stacks(sent, sorted(set(self.people) - set(sent)))

    # --- the others --------------------------------------------------------------------------------------------------

    def _answer_asks(self) -> None:
        asked = int(_jaxlib.store_list(self.coordinator, _ASKS).get(f"{_ASKS}stacks", 0))
        if asked > self.asked:
            self.asked = asked
            _jaxlib.store_set(self.coordinator, f"{_STACKS}{asked}/{self.rank}", stacks(), overwrite=True)

    def _watch_store(self) -> None:
        """Process 0 cannot say that it was stopped itself."""
        while not self.stopping.wait(_PERIOD):
            silence = time.monotonic() - self.answered
            if silence < config.stall_report / 2 or self.first is None or self._is_ending():
                continue
            here = self.first.machine == self.me.machine
            if here and fate.is_stopped(self.first.pid, self.first.started):
                self._leave(f"{self.first} is stopped (SIGSTOP, or a debugger) for {silence:.0f} s")
            if not here and silence > 0.9 * config.heartbeat_timeout:
                self._leave(
                    f"{self.first} has not answered for {silence:.0f} s: it was stopped, or the network between us is gone"
                )

    def _leave(self, why: str) -> None:
        self.supervisor.say(f"{why}\nthe job is ended" if self.rank == 1 else f"ends, for {why}")
        if self.first is not None and fate.is_stopped(self.first.pid, self.first.started):
            os.kill(self.first.pid, signal.SIGKILL)  # it cannot end by itself
        getattr(self.supervisor.end_job, "leave", self.supervisor.end_job)(1, why)


def person(rank: int) -> Person:
    """This process."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    pid = os.getpid()
    return Person(rank, socket.gethostname(), pid, fate.start_time(pid), f"{host_identity()} {space}")


def tell_stacks(sent: Mapping[int, str], silent: list[int]) -> list[str]:
    """Stacks for people: those that are alike together."""
    alike: dict[str, list[int]] = defaultdict(list)
    for rank, text in sorted(sent.items()):
        alike[text].append(rank)
    lines = [line for text, ranks in alike.items() for line in (f"stack of {name_processes(ranks)}:", *text.splitlines())]
    return [*lines, *([f"no stack came from {name_processes(silent)}"] if silent else [])]
