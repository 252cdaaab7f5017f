"""A dim that a reshape merges behind another one is gathered, not exchanged for it, where what follows needs it whole anyway.

    %1: f32[32@x] = reshape(%0: f32[4, 8@x])    x is handed from the minor dim to the major one: an all-to-all
    %1: f32[32] = reshape(%0: f32[4, 8@x])      x is gathered, once for all who need the value whole

Propagation does the former (`sharding/visit.py`). The latter is a seed on the result, whose merged dim is closed.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshjit.core.program import Eqn, Program
from meshjit.core.repeats import kinds_of
from meshjit.plan.draft import Draft
from meshjit.plan.graph import programs_in
from meshjit.plan.proposals.proposal import Proposal
from sharding.axes import overlap
from sharding.graph import Seed
from sharding.placement import Placement


def propose(draft: Draft) -> Iterator[Proposal]:
    numbers, seeds = draft.flat.numbers, draft.propagated.graph.seeds
    merging = [eqn for part in programs_in(draft.program) for eqn in _merging(draft, part)]
    whole = {e: seed for e in merging if (seed := _gathered(draft, e)) is not None and numbers[e.outputs[0]] not in seeds}
    if whole:
        first, planted = next(iter(whole)), {numbers[eqn.outputs[0]]: seed for eqn, seed in whole.items()}
        shapes = f"{list(first.inputs[0].shape)} to {list(first.outputs[0].shape)}"
        yield Proposal(
            "merged", ("merged", *planted), f"gather the minor dim that a reshape from {shapes} merges",
            source=str(first.source or ""), seeds=lambda: {**seeds, **planted},
        )  # fmt: skip


def _merging(draft: Draft, program: Program) -> Iterator[Eqn]:
    """The equations in whose rules dims are several factors."""
    kinds = kinds_of(program)
    models = dict(zip(kinds, program.eqns, strict=True))
    several = {kind for kind, eqn in models.items() if eqn.op.regions is None and not draft.flat.rules[eqn].is_simple}
    return (eqn for eqn, kind in zip(program.eqns, kinds, strict=True) if kind in several)


def _gathered(draft: Draft, eqn: Eqn) -> Seed | None:
    """The result without the axes that its operand has on a minor dim of those that are merged; None if it has none."""
    rule = draft.flat.rules[eqn]
    if not rule.is_passthrough or len(eqn.inputs) != 1 or len(eqn.outputs) != 1:
        return None
    mesh, (dims,) = draft.machine.mesh, rule.results
    result = draft.propagated.placements[draft.flat.numbers[eqn.outputs[0]]]
    merged = [d for d, factors in enumerate(dims) if len(factors) > 1 and result.dims[d]]
    if not merged:
        return None
    before = rule.project(rule.operands[0], draft.propagated.placements[draft.flat.numbers[eqn.inputs[0]]], mesh)
    seed: Placement = result
    for d in merged:
        split, _ = rule.split_dim(dims[d], result.dims[d], mesh)
        handed = [axis for f in dims[d][1:] for axis in before.get(f, ()) if axis not in split[f]]
        kept = tuple([axis for axis in result.dims[d] if not any(overlap(axis, other) for other in handed)])
        seed = seed.with_dim(d, kept)
    if seed == result:
        return None
    return Seed(seed.without_partial(), tuple([d not in merged for d in range(seed.rank)]))
