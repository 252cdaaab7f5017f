"""The file of a saved plan: what each of its entries may be, and whether somebody changed it since it was written."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from meshjit.core.plan import APART, DIGEST, EQUAL, PlanCost, digest_of
from meshjit.plan.automatic.candidate import REFINEMENTS
from meshjit.plan.automatic.rewritten import WAYS
from meshjit.plan.automatic.saved import FORMAT, SavedPlanError

REST: Final = "rest"
LONGEST: Final = 40  # characters of an entry in a message
_FIX: Final = "save one with plan.save(path)"
_NEEDED: Final = ("mesh", "machine", "equations", "values", "outputs", "refined")


class _Kind(NamedTuple):
    is_right: Callable[[Any], bool]
    text: str  # what may stand there


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are(value: Any, count: int | None, is_one: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and (count is None or len(value) == count) and all(map(is_one, value))


def _is_cost(value: Any) -> bool:
    return isinstance(value, dict) and {*value} == {*PlanCost.__annotations__} and all(map(_is_number, value.values()))


def _is_equation(value: Any) -> bool:
    return _are(value, 2, lambda _: True) and _is_text(value[0])


_TEXT: Final = _Kind(_is_text, "a text")
_PLACEMENTS: Final = _Kind(lambda v: _are(v, None, _is_text), "a list of placements, such as '[x, -]'")
_COSTS: Final = f"numbers from 0 on of {', '.join(PlanCost.__annotations__)}"
_SECONDS: Final = _Kind(_is_number, "seconds, from 0 on")

# Of each entry, for those that are there.
_KINDS: Final[Mapping[str, _Kind]] = {
    "format": _Kind(lambda v: v == FORMAT, str(FORMAT)),
    "function": _TEXT,
    "mesh": _Kind(lambda v: isinstance(v, dict) and all(_is_count(n) and n for n in v.values()), "axes with sizes, {'x': 8}"),
    "machine": _TEXT,
    "equations": _Kind(lambda v: _are(v, None, _is_equation), "a list of texts, each with a spread: ['tanh …', {'a': ['x']}]"),
    "arguments": _Kind(
        lambda v: isinstance(v, dict) and all(_are(each, 2, _is_text) for each in v.values()), "types and placements, by name"
    ),
    "values": _PLACEMENTS,
    "outputs": _PLACEMENTS,
    "collected": _Kind(
        lambda v: isinstance(v, dict) and all(isinstance(each, bool) for each in v.values()), "true or false, by number of value"
    ),
    "refined": _Kind(lambda v: _is_text(v) and v in REFINEMENTS, f"one of {', '.join(map(repr, REFINEMENTS))}"),
    "way": _Kind(_is_count, "a number from 0 on"),
    "memory": _Kind(lambda v: _is_number(v) and v > 0, "bytes, more than 0"),
    "written": _Kind(lambda v: _are(v, None, lambda w: _is_text(w) and w in WAYS), f"a list of {', '.join(map(repr, WAYS))}"),
    "before": _Kind(_is_cost, _COSTS),
    "asked": _TEXT,
    "seconds": _SECONDS,
    "bound": _SECONDS,
    "optimum": _TEXT,
    "fastest": _Kind(lambda v: v is None or _is_cost(v), f"null, or {_COSTS}"),
    DIGEST: _TEXT,
}


def read(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """What `Plan.save` wrote. SavedPlanError for a file that it did not write, or that cannot be read, and for an entry that no
    plan has."""
    name = os.fspath(path)
    try:
        with open(path, encoding="utf-8") as file:
            saved = json.load(file)
    except OSError as error:
        raise SavedPlanError(f"{name} cannot be read: {error.strerror}\n  fix: {_FIX}") from None
    except (ValueError, RecursionError) as error:  # no JSON, or no text at all
        raise SavedPlanError(f"{name} is no saved plan: {error}\n  fix: {_FIX}") from None
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise SavedPlanError(f"{name} is no saved plan of format {FORMAT}\n  fix: {_FIX}")
    missing = [each for each in (*_NEEDED, *(["written"] if "before" in saved else [])) if each not in saved]
    if missing:
        raise SavedPlanError(f"{name} is no whole plan: {missing[0]!r} is missing\n  fix: {_FIX}")
    _check_entries(name, saved)
    _check_bound(name, saved)
    return saved


def edited(saved: Mapping[str, Any]) -> frozenset[str]:
    """Which entries are others than `Plan.save` wrote: those of `APART`, and the rest together."""
    before, now = (text.split("-") for text in (saved.get(DIGEST, ""), digest_of(saved)))
    before = before if len(before) == len(now) else [""] * len(now)
    return frozenset([name for name, a, b in zip((*APART, REST), before, now, strict=True) if a != b])


def _check_entries(path: str, saved: Mapping[str, Any]) -> None:
    for name, value in saved.items():
        kind = _KINDS.get(name)
        if kind is None:
            near = difflib.get_close_matches(name, _KINDS, n=1)
            problem, fix = "which no plan has", f"{near[0]!r}" if near else f"leave it out; there are {', '.join(_KINDS)}"
            raise SavedPlanError(f"{path} is no saved plan: it has {name!r}, {problem}\n  fix: {fix}")
        if not kind.is_right(value):
            shown = str(value)
            shown = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
            raise SavedPlanError(f"{path} is no saved plan: {name!r} is {shown!r}, not {kind.text}\n  fix: {_FIX}")


def _check_bound(path: str, saved: Mapping[str, Any]) -> None:
    """SavedPlanError for a bound that is higher than the seconds of a plan that there is."""
    if "bound" not in saved or "seconds" not in saved:
        return
    fastest = saved.get("fastest") or {"work_seconds": saved["seconds"], "move_seconds": 0.0}
    least, bound = fastest["work_seconds"] + fastest["move_seconds"], saved["bound"]
    if bound > least * EQUAL:
        problem = f"'bound' is {bound:g} s, and a plan takes {least:g} s, so no bound is higher"
        raise SavedPlanError(f"{path} is no saved plan: {problem}\n  fix: leave out 'bound', or {_FIX}")
