"""Other ways to compute single equations, which have a price once all equations are planned.

While an equation is planned, nobody knows yet who reads its result. Afterwards the readers are known, so each of KINDS proposes
equations that had better be computed otherwise, with the price of both ways. The Program planned like that is a rival of the one
that there is, and takes its place where it is better (`is_better_throughout`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from meshjit.core.program import Eqn
from meshjit.plan.bring_first import bring_first
from meshjit.plan.cost import is_better_throughout
from meshjit.plan.events import Delay, Elsewhere, Event, Reduction
from meshjit.plan.gather_operands import gather_operands
from meshjit.plan.move_operands import move_operands
from meshjit.plan.planned import Planned

KINDS: Final[Sequence[Callable[[Planned], Sequence[Elsewhere]]]] = (gather_operands, move_operands)


def last_changes(planned: Planned, events: Iterable[Event]) -> tuple[Planned, list[Event]]:
    """The equations of a Program as they are planned in the end, and what happened: `events` are those so far."""
    best, changes = bring_first(planned), list[Elsewhere]()
    for propose in KINDS:
        proposed = propose(best)
        rival = best.changed({at: plan for each in proposed for at, plan in each.changes.items()})
        if rival is not best and is_better_throughout(rival.cost, best.cost, planned.machine.topology.memory):
            best, changes = rival, [*changes, *proposed]
    elsewhere = {planned.program.eqns[at] for each in changes for at in each.changes}
    return best, [*(event for event in events if not _is_about(event, elsewhere)), *best.outcome[2], *changes]


def _is_about(event: Event, eqns: Collection[Eqn]) -> bool:
    """Whether it is about the partial sums of one of these equations."""
    return bool(eqns) and isinstance(event, Delay | Reduction) and event.eqn in eqns
