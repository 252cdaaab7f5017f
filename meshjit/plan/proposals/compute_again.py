"""Where a plan needs more memory than there is: what the backward pass reads may be computed again instead of kept.

The values of the forward pass that are held at the peak are made again when they are read (`transform/compute_again.py`), section
by section (`plan/stored.py`), as `checkpoint` would, layer by layer: as many as bring the peak below the memory. First come those
that take least for their bytes, of equal layers the first. Either what goes element by element alone, which costs little, or all.

Where even so far more is held than there is memory, nothing is computed again: it would take longer, and not fit.

What a loop stacks for a later one is made again in that one's iterations (`transform/compute_again_in_loops.py`), the same values
in each: as little as suffices (`plan/loop_residuals.py`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from meshjit.core.program import Eqn, Program, Var
from meshjit.plan.draft import Draft
from meshjit.plan.events import Move
from meshjit.plan.loop_residuals import Cut, Residuals, loop_residuals
from meshjit.plan.proposals.proposal import Proposal
from meshjit.plan.stored import Stored
from meshjit.transform.compute_again import Section, compute_again
from meshjit.transform.compute_again_in_loops import compute_again_in_loop

FAR: Final = 2.0  # times the memory: what holds more all the same is not computed again, since it would not fit by far
TRIED: Final = 3  # ways to compute sections again with which the plan fits, by what is known before; else one


@dataclass(frozen=True)
class Option:
    """`peak`: bytes, about. `seconds`: that computing the equations again takes, about. `write`: the Program that does so.
    `less`: given how many bytes fewer than `peak` turned out to be held, an option with as few equations as then suffice."""

    eqns: Sequence[Eqn]
    peak: float
    seconds: float
    text: str
    write: Callable[[], tuple[Program, Mapping[Var, Var]]] = field(repr=False)
    less: Callable[[float], Iterator[Option]] | None = field(default=None, repr=False)


def propose(draft: Draft) -> Iterator[Proposal]:
    if draft.fits:
        return
    memory = draft.machine.topology.memory
    stored, seconds = Stored(draft.lifetimes), _seconds_of(draft)
    ways = itertools.product((False, True), range(len(stored.cuts)))
    sections = [option for deep, way in ways for option in _of_sections(draft, stored, [*stored.sections(deep, way)], seconds)]
    best = sorted(sections, key=lambda option: _worth(option, memory))
    options = [*[o for n, o in enumerate(best[:TRIED]) if not n or o.peak <= memory], *_of_loops(draft)]
    for option in sorted([o for o in options if o.peak <= FAR * memory], key=lambda option: _worth(option, memory)):
        yield _proposal(option)


def _proposal(option: Option) -> Proposal:
    program, originals = option.write()
    key, source = ("compute", frozenset(eqn.outputs[0] for eqn in option.eqns)), str(option.eqns[0].source or "")

    def less(peak: float) -> Proposal | None:
        fewer = option.peak - peak
        other = next(option.less(fewer), None) if option.less is not None and fewer > 0 else None
        return None if other is None or len(other.eqns) >= len(option.eqns) else _proposal(other)

    return Proposal(
        "compute", key, option.text, source=source, saves_memory=True, program=program, originals=originals, less=less
    )  # fmt: skip


# --- sections of the Program --------------------------------------------------------------------------------------------


def _worth(option: Option, memory: float) -> tuple[float, float]:
    """What it holds beyond the memory, and how long it takes: less is better."""
    return max(0.0, option.peak - memory), option.seconds


def _of_sections(
    draft: Draft, stored: Stored, sections: Sequence[Section], seconds: Mapping[Eqn, float], fewer: float = 0.0
) -> Iterator[Option]:
    """The fewest sections that suffice, or all of them; first those that take least for their bytes. Some hold more at another
    place than they save at the peak. `fewer`: how many bytes too many the estimates of what is held are."""
    memory = draft.machine.topology.memory + fewer
    every = [section for section in sections if stored.peak_with([section]) <= max(stored.held)]
    taken = [sum(seconds[eqn] for eqn in section.eqns) for section in every]
    order = sorted(range(len(every)), key=lambda n: taken[n] / max(1, stored.saved([every[n]])))
    fewest, most = 1, len(every)
    while fewest < most:
        middle = (fewest + most) // 2
        is_enough = stored.peak_with([every[n] for n in order[:middle]]) <= memory
        fewest, most = (fewest, middle) if is_enough else (middle + 1, most)
    chosen = [every[n] for n in sorted(order[:most])]
    peak = stored.peak_with(chosen)
    if every and peak - fewer < draft.exact_cost.peak_bytes:
        eqns = [eqn for section in chosen for eqn in section.eqns]
        text = _text(chosen, sections, _lines(eqns), stored.saved(chosen))
        write = functools.partial(compute_again, draft.program, chosen)
        less = functools.partial(_of_sections, draft, stored, sections, seconds)
        yield Option(eqns, peak, sum(taken[n] for n in order[:most]), text, write, less)


def _seconds_of(draft: Draft) -> Mapping[Eqn, float]:
    """By equation: work, what ops exchange, and what is moved for it now."""
    moving: dict[Eqn | None, float] = {}
    for event in draft.plan.events:
        if isinstance(event, Move):
            moving[event.eqn] = moving.get(event.eqn, 0.0) + event.walk.seconds
    both = zip(draft.program.eqns, draft.plan.equations, strict=True)
    effects = ((eqn, draft.machine.effect(eqn, plan)) for eqn, plan in both)
    return {eqn: effect.work + effect.exchange.moving + moving.get(eqn, 0.0) for eqn, effect in effects}


def _text(sections: Sequence[Section], every: Sequence[Section], lines: str, saved: int) -> str:
    count, are_first = len(every), [*sections] == [*every[: len(sections)]]
    which = f"the first {len(sections)} of {count} sections" if are_first else f"{len(sections)} of {count} sections"
    which = f"all {count} sections" if len(sections) == count else which
    which = "the forward pass" if count == 1 else which
    return f"compute {which}{lines} again in the backward pass, not keep {saved:,} bytes"


def _lines(eqns: Iterable[Eqn]) -> str:
    lines = sorted({eqn.source.line for eqn in eqns if eqn.source is not None})
    if not lines:
        return ""
    return f" of line {lines[0]}" if lines[0] == lines[-1] else f" of lines {lines[0]} to {lines[-1]}"


# --- loops --------------------------------------------------------------------------------------------------------------


def _of_loops(draft: Draft) -> Iterator[Option]:
    for residuals, is_nested in loop_residuals(draft.plan, draft.machine):
        for cut in residuals.ladder():
            peak = _peak_with(draft, residuals, cut, is_nested)
            if peak < draft.exact_cost.peak_bytes:
                write = _writes(draft.program, cut)
                yield Option(cut.again.eqns, peak, cut.seconds, _loop_text(residuals, cut), write)


def _writes(program: Program, cut: Cut) -> Callable[[], tuple[Program, Mapping[Var, Var]]]:
    return lambda: compute_again_in_loop(program, cut.again)


def _peak_with(draft: Draft, residuals: Residuals, cut: Cut, is_nested: bool) -> float:
    """The most bytes that are held, about: between the loops, fewer by what is not kept."""
    fewer = residuals.now - cut.bytes
    if is_nested:
        return draft.exact_cost.peak_bytes - fewer
    held = draft.lifetimes.held_bytes()
    between = range(residuals.first, residuals.second + 1)
    return max(bytes_ - fewer if n in between else bytes_ for n, bytes_ in enumerate(held))


def _loop_text(residuals: Residuals, cut: Cut) -> str:
    pair, count = residuals.pair, len(residuals.pair.stacked)
    which = "all" if cut.dropped == count else f"{cut.dropped} of"
    where = "" if pair.forward.source is None else f" in line {pair.forward.source.line}"
    saved = residuals.now - cut.bytes
    return (
        f"compute {which} {count} values that a loop of {residuals.length}{where} keeps of each iteration again"
        f" in the backward pass, not keep {saved:,.0f} bytes"
    )
