"""A dim that is gathered only because a reshape merges it may stay apart from the other (`transform/keep_dims_apart.py`).

What is apart on the way forth may make the way back gather, so the same is proposed for what is gathered then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshjit.core.plan import Plan
from meshjit.core.program import Eqn
from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from meshjit.transform.keep_dims_apart import keep_dims_apart, merge_of


def propose(draft: Draft) -> Iterator[Proposal]:
    merging = {eqn.outputs[0]: eqn for eqn in _merging_gathers(draft.plan)}
    program = keep_dims_apart(draft.program, lambda eqn: eqn.outputs[0] in merging) if merging else draft.program
    if program is not draft.program:
        first = next(iter(merging.values()))
        shapes = f"{list(first.inputs[0].shape)} to {list(first.outputs[0].shape)}"
        yield Proposal(
            "apart", ("apart", frozenset(merging)), f"keep apart the dims that a reshape from {shapes} merges",
            source=str(first.source or ""), program=program, more=propose,
        )  # fmt: skip


def _merging_gathers(plan: Plan) -> Iterator[Eqn]:
    """Reshapes that merge dims, and want their operand less sharded than it is, or cut it at other places."""
    pairs = [*zip(plan.program.eqns, plan.equations, strict=True)]
    copies = {id(step): eqn for eqn, step in pairs if eqn.op.touches == "nothing"}  # equal equations share a step
    merging = {i for i, eqn in copies.items() if merge_of(eqn) is not None}
    for eqn, step in [(eqn, step) for eqn, step in pairs if id(step) in merging or step.bodies]:
        for body in step.bodies:
            yield from _merging_gathers(body)
        if id(step) in merging:
            here, operand = plan.placements[eqn.inputs[0]], step.operands[0]
            sides = ((operand, eqn.inputs[0]), (step.results[0], eqn.outputs[0]))
            before, after = (math.prod(p.local_shape(v.shape, plan.mesh)) for p, v in sides)
            dims = range(here.rank)
            if before != after or any(operand.shards(d, plan.mesh) < here.shards(d, plan.mesh) for d in dims):
                yield eqn
