"""Agreeing on programs: processes that must run the same ones, in the same order, find out before they wait for ever."""

from __future__ import annotations

import collections
import difflib
import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from launch.judge import first_difference
from launch.roll_call import name_processes
from meshjit.config import config
from meshjit.runtime import _jaxlib, noting
from meshjit.runtime.distributed import Membership, finished, membership


class DivergenceError(RuntimeError):
    """Processes that must run the same programs in the same order do not. The text names who has what."""


_PATIENCE_SECONDS = 5.0  # after which the missing are named on stderr, while we go on waiting
_TEXT_LIMIT = 1_000_000  # characters of a program that are shared for the diff
_DIFF_LINES = 60
_counters: collections.Counter[str] = collections.Counter()
_HINT = (
    "  fix: every process must run the same functions on the same shapes in the same order; look for branches on\n"
    "       process_index(), on data, time or random numbers, and for loops over sets or directory listings"
)


class _Answer(NamedTuple):
    """What a process says when it comes: its program's digest (or another word) and name, and `_past`, the calls that it has made
    so far."""

    digest: str
    name: str
    past: str = ""


def agree(
    name: str, text: str, timeout: float | None = None, processes: Sequence[int] | None = None, what: str = "compile"
) -> None:
    """Make sure that the processes of a program have the same one, before any of them runs it.

    The n-th call on one process meets the n-th call on every other of `processes` (default: all). Raises
    DivergenceError, on every process, where the texts differ; it shows the difference. Raises it, too, where a process
    has not come within `timeout` seconds (default: config.agreement_timeout), naming the missing. `what` they come to do."""
    joined = membership()
    group = sorted(set(range(joined.num_processes) if processes is None else processes))
    if joined.coordinator is None or len(group) < 2:
        return
    series, number, answers = _meet(joined, group, name, _digest(text), timeout, what)
    if len({answer.digest for answer in answers.values()}) > 1:
        raise DivergenceError(_describe_divergence(joined, series, number, answers, text))
    noting.note(group, f"{what} {name}")
    _forget_last(joined, series, number)


def exchange(name: str, word: str, processes: Sequence[int], timeout: float | None = None) -> dict[int, str]:
    """What each of these processes says, of whom this is one; all of them come. Short words. Raises as `agree` does."""
    joined, group = membership(), sorted(set(processes))
    if joined.coordinator is None or len(group) < 2:
        return {joined.process_id: word}
    series, number, answers = _meet(joined, group, name, word, timeout, "begin")
    noting.note(group, f"begin {name}")
    _forget_last(joined, series, number)
    return {rank: answer.digest for rank, answer in answers.items()}


def _meet(
    joined: Membership, group: Sequence[int], name: str, word: str, timeout: float | None, what: str
) -> tuple[str, int, dict[int, _Answer]]:
    """(the series of meetings, this one's number, what each has said), once all of the group have come to it."""
    series = f"meshjit/program/{_digest(str(group)) if len(group) < joined.num_processes else 'all'}"
    number, _counters[series] = _counters[series], _counters[series] + 1
    past = _past(group)
    mine = json.dumps([word, name, past])
    _jaxlib.store_set(joined.coordinator, f"{series}/{number}/{joined.process_id}", mine)
    with noting.waiting(group, f"the others, to {what} `{name}`"):
        answers = _gather(joined, series, number, name, group, timeout or config.agreement_timeout)
    if len({answer.past or past for answer in answers.values()}) > 1:
        raise DivergenceError(_describe_past(joined, series, number, name, group))
    return series, number, answers


def _forget_last(joined: Membership, series: str, number: int) -> None:
    """All have come to this meeting, so nobody reads our word on the last one any more."""
    if number:
        _jaxlib.store_delete(joined.coordinator, f"{series}/{number - 1}/{joined.process_id}")


def _past(group: Sequence[int]) -> str:
    return noting.pasts().get(noting.group_name(group), "0:00000000")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _gather(joined: Membership, series: str, number: int, name: str, group: Sequence[int], timeout: float) -> dict[int, _Answer]:
    """Rank → answer, once all of the group have come."""
    start, pause, warned = time.monotonic(), 0.0005, False
    while True:
        stored = _jaxlib.store_list(joined.coordinator, f"{series}/{number}/")
        answers = {int(key.rpartition("/")[2]): _Answer(*json.loads(value)) for key, value in stored.items()}
        missing = [rank for rank in group if rank not in answers]
        waited = time.monotonic() - start
        if not missing:
            return answers
        if waited > timeout:
            raise DivergenceError(_describe_missing(joined, series, number, name, missing, f"within {waited:.0f} s"))
        if waited > 1 and (gone := sorted(set(missing) & finished(joined.coordinator))):
            raise DivergenceError(_describe_missing(joined, series, number, name, gone, "and has ended"))
        if waited > _PATIENCE_SECONDS and not warned:
            warned = True
            notice = _describe_missing(joined, series, number, name, missing, f"in {waited:.0f} s; still waiting")
            print(f"[rank {joined.process_id}] {notice.splitlines()[0]}", file=sys.stderr, flush=True)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _describe_missing(joined: Membership, series: str, number: int, name: str, missing: Sequence[int], how: str) -> str:
    """Who did not come, and what each of them was seen with last."""
    stored = _jaxlib.store_list(joined.coordinator, f"{series}/{number - 1}/") if number else {}
    last = {int(key.rpartition("/")[2]): json.loads(value)[1] for key, value in stored.items()}
    lines = [f"program {number}, {name!r}: {name_processes(missing)} did not come {how}"]
    lines += [f"  process {r} last agreed on program {number - 1}, {last[r]!r}" for r in missing[:8] if r in last]
    return "\n".join([*lines, _HINT])


def _describe_past(joined: Membership, series: str, number: int, name: str, group: Sequence[int]) -> str:
    """The first call that some have made and others have not: left out, made twice, or another one."""
    told = noting.histories[noting.group_name(group)].told()
    mine = json.dumps(told)
    texts = _share_texts(joined, f"{series}/past/{number}", group, mine, most=len(group))
    tails = {rank: [tuple(call) for call in json.loads(text)] for rank, text in texts.items() if text}
    lines = [f"program {number}, {name!r}: the processes have not made the same calls before"]
    difference = first_difference(tails)
    if difference:
        lines += [f"  {line}" for line in difference[1](name_processes).splitlines()]
    else:
        made = collections.defaultdict(list)
        for rank, tail in sorted(tails.items()):
            made[tail[-1][0] if tail else 0].append(rank)
        lines += [f"  {name_processes(ranks)} made {count} calls{_last(tails[ranks[0]])}" for count, ranks in made.items()]
    return "\n".join([*lines, _HINT])


def _last(tail: Sequence[tuple[int, str, str]]) -> str:
    return f", the last `{tail[-1][1]}` at {tail[-1][2]}" if tail else ""


def _describe_divergence(joined: Membership, series: str, number: int, answers: Mapping[int, _Answer], text: str) -> str:
    """Who has what, and how the largest camp's program differs from the others'."""
    camps: dict[str, list[int]] = collections.defaultdict(list)
    for rank, answer in sorted(answers.items()):
        camps[answer.digest].append(rank)
    order = sorted(camps.values(), key=lambda ranks: (-len(ranks), ranks))
    texts = _share_texts(joined, f"{series}/text/{number}", [ranks[0] for ranks in order], text)
    lines = [f"the processes disagree about program {number}"]
    lines += [f"  {name_processes(ranks)}: {answers[ranks[0]].name!r}, fingerprint {answers[ranks[0]].digest}" for ranks in order]
    for ranks in order[1:3]:
        lines += _difference(name_processes(order[0]), texts[order[0][0]], name_processes(ranks), texts[ranks[0]])
    return "\n".join([*lines, _HINT])


def _share_texts(joined: Membership, prefix: str, speakers: Sequence[int], text: str, most: int = 3) -> dict[int, str | None]:
    """The programs of the speakers, one for each camp; None for one that did not get through."""
    if joined.process_id in speakers:
        _jaxlib.store_set(joined.coordinator, f"{prefix}/{joined.process_id}", text[:_TEXT_LIMIT])
    return {rank: _jaxlib.store_get(joined.coordinator, f"{prefix}/{rank}", 10) for rank in speakers[:most]}


def _difference(left_name: str, left: str | None, right_name: str, right: str | None) -> list[str]:
    if left is None or right is None:
        return [f"  the program of {left_name if left is None else right_name} could not be had"]
    diff = list(difflib.unified_diff(left.splitlines(), right.splitlines(), left_name, right_name, lineterm="", n=2))
    if not diff:
        return [f"  the first {_TEXT_LIMIT} characters are the same"]
    cut = [f"… {len(diff) - _DIFF_LINES} more lines"] if len(diff) > _DIFF_LINES else []
    return [f"  {line}" for line in [*diff[:_DIFF_LINES], *cut]]
