"""What does not change in a loop need not be moved before it: what reads it may be computed where it lies.

    %1: f32[V, D] gathered before the loop    each iteration looks up its rows there                one long message
    %1: f32[V@x, D] as it is                  each iteration sums up the rows that it looked up     many short ones

Iterations share the price of what is brought before them (`Course.sharers`), so the first is planned where starting many
collectives takes longer. Where the second sends less, the first has to halve the time (`is_leaner`).
"""

from __future__ import annotations

from collections.abc import Iterator

from meshjit.core.plan import Plan
from meshjit.core.program import Eqn, Var
from meshjit.core.region import run_regions
from meshjit.plan.draft import Draft
from meshjit.plan.events import Move
from meshjit.plan.proposals.proposal import Proposal

CHOICES = 2  # values that are tried by themselves


def propose(draft: Draft) -> Iterator[Proposal]:
    """All that is moved before loops together, then the largest by themselves."""
    sent = {v: (bytes, loop) for v, bytes, loop in _moved_before(draft.plan) if v not in draft.unmoved}
    values = sorted(sent, key=lambda v: -sent[v][0])
    single = [[v] for v in values[:CHOICES]] if len(values) > 1 else []
    for some in [values, *single] if values else ():
        shapes = ", ".join([str(list(v.shape)) for v in some])
        text = f"read {shapes} in a loop where it lies, and not move it before the loop"
        source = str(sent[some[0]][1].source or "")
        yield Proposal("unmoved", ("unmoved", *some), text, source=source, saves_bytes=True, unmoved=frozenset(some))


def _moved_before(plan: Plan) -> Iterator[tuple[Var, float, Eqn]]:
    """Inputs of loops' bodies that stay the same and are sent before the loop, with the bytes and the loop."""
    for event in plan.events:
        if isinstance(event, Move) and event.walk.bytes and event.eqn is not None and event.eqn.op.regions is not None:
            for region in run_regions(event.eqn):
                same = [i for i in region.invariant if event.eqn.inputs[region.operands[i]] is event.var] if region.loops else []
                yield from [(region.program.inputs[i], event.walk.bytes, event.eqn) for i in same]
    for step in plan.equations:
        for body in step.bodies:
            yield from _moved_before(body)
