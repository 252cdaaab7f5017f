"""Where an axis came from, in words: the annotation, the constraint or the alternative of planning that it began with."""

from __future__ import annotations

from collections.abc import Mapping

from meshjit.core.plan import Plan
from meshjit.core.program import Eqn, Var
from meshjit.plan.graph import Annotations


def seed_text(
    plan: Plan, annotations: Annotations, names: Mapping[Var, str], makers: Mapping[Var, Eqn], seed: Var, is_own: bool
) -> str:
    """`the annotation of %x, an input`; where the value in question is the seed itself, `the annotation, an input`."""
    subject = "" if is_own else f" of {names[seed]}"
    if any(plan.program.inputs[i] is seed for i in annotations.chosen):
        return f"a choice of planning{subject}, an input"
    if seed in plan.program.inputs:
        return f"the annotation{subject}, an input"
    maker = makers.get(seed)
    if maker is not None and maker.op.seed is not None:
        return f"the constraint{subject}" + (f" at {maker.source}" if maker.source is not None else "")
    outputs = zip(plan.program.outputs, annotations.outputs, strict=True)
    if any(out is seed and spec is not None for out, spec in outputs):
        return f"the annotation{subject}, an output"
    return f"an alternative that was tried and kept{subject}"
