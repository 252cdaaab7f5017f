"""An output that nobody placed, and that is computed over more axes than propagation gave it: it may stay as it is computed.

    %2: c64[64, 64@x] = fft(%1)      computed as [-, x*y], gathered over y to be handed over
    %2: c64[64, 64@x*y] = fft(%1)    computed and handed over as [-, x*y]

The second is a seed on the output. Outputs that lie as an input of their type does are not asked: they may be the next call's.
Nor are any where the user constrained values in between: what follows these is to lie as they do.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshjit.core.program import Var
from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from sharding.graph import Seed
from sharding.placement import Placement


def propose(draft: Draft) -> Iterator[Proposal]:
    numbers, seeds = draft.flat.numbers, draft.propagated.graph.seeds
    inputs = {numbers[var] for var in draft.program.inputs}
    kept = dict(_gathered(draft)) if inputs.issuperset(draft.flat.graph.seeds) else {}
    if kept and not any(numbers[var] in seeds for var in kept):
        texts = ", ".join(f"{list(var.shape)} as {placement}" for var, placement in kept.items())
        planted = {numbers[var]: Seed(placement) for var, placement in kept.items()}
        yield Proposal(
            "leave", ("leave", *kept), f"hand outputs over as they are computed: {texts}", seeds=lambda: {**seeds, **planted}
        )


def _gathered(draft: Draft) -> Iterator[tuple[Var, Placement]]:
    """Free outputs, with the placement that they are gathered from."""
    program, plan, machine = draft.program, draft.plan, draft.machine
    steps = zip(program.eqns, plan.equations, strict=True)
    made = {v: p for eqn, step in steps for v, p in zip(eqn.outputs, step.results, strict=True)}
    entered = {(v.type, p) for v, p in zip(program.inputs, plan.inputs, strict=True)}
    for var, spec, needed in zip(program.outputs, draft.annotations.outputs, plan.outputs, strict=True):
        here = made.get(var)
        if spec is not None or here is None or here.partial or (var.type, needed) in entered:
            continue
        if machine.local_bytes(var.type, here) < machine.local_bytes(var.type, needed):
            yield var, here
