"""Who holds up a job, told from what its processes say of themselves. Pure: tables of reports test it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from launch.progress import Person, Report
from launch.roll_call import name_processes


class Verdict(NamedTuple):
    """Who holds up the job. `is_certain`: the job cannot go on any more."""

    ranks: tuple[int, ...]
    text: str
    is_certain: bool


def judge(
    reports: Mapping[int, Report],
    people: Mapping[int, Person],
    fates: Mapping[int, str],
    patience: float,
) -> Verdict | None:
    """Who holds up the others; None while nobody does for sure, or for longer than `patience` seconds.

    `fates` is what the system says of processes: "is stopped", "has died"."""
    job = _Job(reports, people)
    certain = job.fated(fates) or parting(reports, people) or job.ended() or job.crossed()
    return certain or job.late(patience) or job.held(patience)


def parting(reports: Mapping[int, Report], people: Mapping[int, Person]) -> Verdict | None:
    """The first call that was not the same on all processes; None where what they say does not show it."""
    job = _Job(reports, people)
    return job.diverged() or job.parted()


_SOON = 2.0  # seconds that a call may take longer here than there, before somebody who has left is held to be missing


class _Job:
    def __init__(self, reports: Mapping[int, Report], people: Mapping[int, Person]) -> None:
        self.reports, self.people = reports, people

    def fated(self, fates: Mapping[int, str]) -> Verdict | None:
        ranks = tuple(sorted(rank for rank in fates if rank not in self.reports or not self.reports[rank].has_ended))
        if not ranks:
            return None
        lines = [f"{self.people[rank]} {fates[rank]}{self._last(rank)}" for rank in ranks]
        return Verdict(ranks, "\n".join([*lines, *self._waiting(ranks)]), True)

    def diverged(self) -> Verdict | None:
        """The first call of a number that is not the same everywhere, where anybody still says what it was."""
        for series in sorted({s for report in self.reports.values() for s in report.tails}):
            tails = {rank: report.tails[series] for rank, report in self.reports.items() if series in report.tails}
            difference = first_difference(tails)
            if difference:
                return Verdict(difference[0], difference[1](self.name), True)
        return None

    def parted(self) -> Verdict | None:
        """Whose calls were other ones long before: only checksums are left of them."""
        for series in sorted({s for report in self.reports.values() for s in report.milestones}):
            checks: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
            for rank, report in sorted(self.reports.items()):
                for number, check in report.milestones.get(series, ()):
                    checks[number][check].append(rank)
            for number, camps in sorted(checks.items()):
                if len(camps) > 1:
                    order = sorted(camps.values(), key=lambda ranks: (len(ranks), -ranks[0]))
                    lines = [f"the processes have made different calls among the first {number}"]
                    lines += [f"  {self.name(ranks)} went one way{self._last(ranks[0])}" for ranks in order]
                    return Verdict(tuple(r for ranks in order[:-1] for r in ranks), "\n".join(lines), True)
        return None

    def ended(self) -> Verdict | None:
        """Who has left the program, while others are in a call that it never made."""
        for rank, report in sorted(self.reports.items()):
            for theirs in self.reports.values() if report.has_ended else ():
                more = any(n > report.counts[s][0] for s, (n, _) in theirs.counts.items() if s in report.counts)
                if more and theirs.is_pending and theirs.idle >= _SOON:
                    return self._left(rank)
        return None

    def crossed(self) -> Verdict | None:
        """Who waits for the others to meet, while they are in a call that it has not made: neither can go on."""
        for rank, report in sorted(self.reports.items()):
            series = report.waits_in
            if not report.waits or series not in report.counts or report.silence > _SOON:
                continue
            for theirs in self.reports.values():
                more = theirs.counts.get(series, (0, 0))[0] > report.counts[series][0]
                if more and theirs.is_pending and theirs.idle >= _SOON + report.silence:
                    lines = [f"{self.people[rank]} waits for {report.waits}{f' at {report.at}' if report.at else ''}"]
                    return Verdict((rank,), "\n".join([*lines, *self._waiting((rank,))]), True)
        return None

    def _left(self, rank: int) -> Verdict:
        made = sum(count for count, _ in self.reports[rank].counts.values())
        lines = [f"{self.people[rank]} has left its program, without an error, after {made} calls"]
        return Verdict((rank,), "\n".join([*lines, *self._waiting((rank,))]), True)

    def late(self, patience: float) -> Verdict | None:
        """Who has not begun a call in which others have waited for longer than `patience`."""
        for series in sorted({s for report in self.reports.values() for s in report.counts}):
            counts = {rank: report.counts[series][0] for rank, report in self.reports.items() if series in report.counts}
            waiting = [
                rank
                for rank, count in counts.items()
                if count > min(counts.values()) and self._is_waiting(rank) and _idle(self.reports[rank]) >= patience
            ]
            if not waiting:
                continue
            most = max(counts[rank] for rank in waiting)
            late = tuple(sorted(rank for rank, count in counts.items() if count < most and rank not in waiting))
            if late:
                lines = [f"{self.people[rank]} has not begun call {counts[rank] + 1}{self._where(rank)}" for rank in late]
                return Verdict(late, "\n".join([*lines, *self._waiting(late)]), False)
        return None

    def held(self, patience: float) -> Verdict | None:
        """Whose program waits for a Python function that it has called, while all are in one call."""
        holding = tuple(r for r, report in sorted(self.reports.items()) if report.calls and report.calls_for >= patience)
        others = [report for rank, report in self.reports.items() if rank not in holding and report.is_pending]
        if not holding or not any(_idle(report) >= patience for report in others):
            return None
        lines = [
            f"{self.people[rank]} waits for `{self.reports[rank].calls}`, which its program has called and which has not come"
            f" back for {self.reports[rank].calls_for:.0f} s"
            for rank in holding
        ]
        return Verdict(holding, "\n".join([*lines, *self._waiting(holding)]), False)

    def _is_waiting(self, rank: int) -> bool:
        return self.reports[rank].is_pending or bool(self.reports[rank].waits)

    def _where(self, rank: int) -> str:
        report = self.reports[rank]
        place = f"; it is at {report.at}" if report.at else ""
        return f"{place}, and has not moved for {_idle(report):.0f} s" if _idle(report) >= 1 else place

    def _last(self, rank: int) -> str:
        report = self.reports.get(rank)
        tail = max((tail for tail in report.tails.values() if tail), key=lambda t: t[-1][0], default=()) if report else ()
        if tail:
            return f"; its last call was {describe(*tail[-1])}"
        begun = max((count for count, _ in report.counts.values()), default=0) if report else 0
        return f"; it had begun {begun} calls" if begun else ""

    def _waiting(self, culprits: Sequence[int]) -> list[str]:
        """What the others do meanwhile, those in the same place together."""
        groups: dict[str, list[int]] = defaultdict(list)
        for rank, report in sorted(self.reports.items()):
            if rank not in culprits and not report.has_ended:
                groups[_doing(report)].append(rank)
        return [f"  {self.name(ranks)}: {doing}" for doing, ranks in groups.items() if doing]

    def name(self, ranks: Sequence[int]) -> str:
        if len(ranks) == 1 and ranks[0] in self.people:
            return str(self.people[ranks[0]])
        return name_processes(ranks)


def _idle(report: Report) -> float:
    return report.idle + report.silence


def _doing(report: Report) -> str:
    tail = max((tail for tail in report.tails.values() if tail), key=lambda t: t[-1][0], default=())
    since = f" for {report.idle:.0f} s" if report.idle >= 1 else ""
    if report.waits:
        return f"waits{since} for {report.waits}"
    if tail and report.is_pending:
        return f"waits{since} in {describe(*tail[-1])}"
    return f"is at {report.at}{since}" if report.at else ""


def describe(number: int, what: str, place: str) -> str:
    return f"call {number}, `{what}`{f' at {place}' if place else ''}"


def first_difference(
    tails: Mapping[int, Sequence[tuple[int, str, str]]],
) -> tuple[tuple[int, ...], Callable[[Callable[[Sequence[int]], str]], str]] | None:
    """The first call that was not the same on all processes: (those in the minority, a function from how to name processes to
    the text). None where the tails agree as far as they overlap."""
    by_number: dict[int, dict[int, tuple[str, str]]] = defaultdict(dict)
    for rank, tail in tails.items():
        for number, what, place in tail:
            by_number[number][rank] = (what, place)
    for number, calls in sorted(by_number.items()):
        camps: dict[str, list[int]] = defaultdict(list)
        for rank, (what, _) in sorted(calls.items()):
            camps[what].append(rank)
        if len(camps) > 1:
            order = sorted(camps.values(), key=lambda ranks: (len(ranks), -ranks[0]))
            return tuple(r for ranks in order[:-1] for r in ranks), _differing(number, order, calls)
    return None


def _differing(
    number: int, camps: Sequence[Sequence[int]], calls: Mapping[int, tuple[str, str]]
) -> Callable[[Callable[[Sequence[int]], str]], str]:
    def text(name: Callable[[Sequence[int]], str]) -> str:
        lines = [f"  {name(ranks)}: {describe(number, *calls[ranks[0]])}" for ranks in camps]
        return "\n".join([f"the processes have gone different ways at call {number}", *lines])

    return text
