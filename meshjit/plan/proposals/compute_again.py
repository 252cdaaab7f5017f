"""Where a plan needs more memory than there is: what the backward pass reads may be computed again instead of kept.

The values of the forward pass that are held at the peak are made again when they are read (`transform/compute_again.py`), section
by section (`plan/stored.py`), as `checkpoint` would, layer by layer: the first as many as bring the peak below the memory. Either
what goes element by element alone, which costs little, or all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshjit.core.program import Eqn
from meshjit.plan.draft import Draft
from meshjit.plan.events import Move
from meshjit.plan.proposals.proposal import Proposal
from meshjit.plan.stored import Stored
from meshjit.transform.compute_again import Section, compute_again


@dataclass(frozen=True)
class Option:
    """`peak`: bytes, about. `seconds`: that computing the sections again takes, about. `saved`: bytes that are not kept."""

    sections: Sequence[Section]
    count: int  # of all sections
    peak: float
    seconds: float
    saved: int


def propose(draft: Draft) -> Iterator[Proposal]:
    memory = draft.machine.topology.memory
    if draft.cost.peak_bytes <= memory or draft.exact_cost.peak_bytes <= memory:
        return
    stored = Stored(draft.lifetimes)
    options = [option for deep in (False, True) for option in _options(draft, stored, deep, memory)]
    for option in sorted(options, key=lambda option: (max(0.0, option.peak - memory), option.seconds)):
        program, originals = compute_again(draft.program, option.sections)
        key = "compute", frozenset(eqn.outputs[0] for section in option.sections for eqn in section.eqns)
        source = str(option.sections[0].eqns[0].source or "")
        yield Proposal("compute", key, _text(option), source=source, saves_memory=True, program=program, originals=originals)


def _options(draft: Draft, stored: Stored, deep: bool, memory: float) -> Iterator[Option]:
    """The fewest sections that suffice, or all of them."""
    every = [*stored.sections(deep)]
    fewest, most = 1, len(every)
    while fewest < most:
        middle = (fewest + most) // 2
        fewest, most = (fewest, middle) if stored.peak_with(every[:middle]) <= memory else (middle + 1, most)
    peak = stored.peak_with(every[:most])
    if every and peak < draft.exact_cost.peak_bytes:
        chosen = every[:most]
        yield Option(chosen, len(every), peak, _seconds(draft, chosen), stored.saved(chosen))


def _seconds(draft: Draft, sections: Sequence[Section]) -> float:
    """Work, what ops exchange, and what is moved for them now."""
    plans = dict(zip(draft.program.eqns, draft.plan.equations, strict=True))
    moving: dict[Eqn | None, float] = {}
    for event in draft.plan.events:
        if isinstance(event, Move):
            moving[event.eqn] = moving.get(event.eqn, 0.0) + event.walk.seconds
    effects = [(eqn, draft.machine.effect(eqn, plans[eqn])) for section in sections for eqn in section.eqns]
    return sum(effect.work + effect.exchange.moving + moving.get(eqn, 0.0) for eqn, effect in effects)


def _text(option: Option) -> str:
    lines = sorted({eqn.source.line for section in option.sections for eqn in section.eqns if eqn.source is not None})
    where = "" if not lines else f" of line {lines[0]}" if lines[0] == lines[-1] else f" of lines {lines[0]} to {lines[-1]}"
    every = len(option.sections) == option.count
    which = f"all {option.count} sections" if every else f"the first {len(option.sections)} of {option.count} sections"
    which = "the forward pass" if option.count == 1 else which
    return f"compute {which}{where} again in the backward pass, not keep {option.saved:,} bytes"
