"""Warnings for donated arguments whose memory no result takes, each with its reason."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from meshjit.api.call import Call
from meshjit.api.leaves import stack_level
from meshjit.api.placements import output_names
from meshjit.runtime.lowering import Lowering
from meshjit.trace import Traced as TracedProgram
from sharding.spec import spec_of, spec_text


def warn_of_unused(call: Call, traced: TracedProgram, lowering: Lowering, kept: Sequence[int]) -> None:
    """As JAX, warn of donated arrays that no result can take the memory of; a Python number is no loss."""
    put = [i for i, donated in enumerate(call.donated) if donated and call.keys[i].sharding is not None]
    place = {i: n for n, i in enumerate(kept)}
    useless = [i for i in put if i in place and place[i] not in lowering.aliases]
    unread = [i for i in put if i not in place]
    if useless:
        listed = ", ".join(f"{_typed(call, i)} ({_reason(call, traced, lowering, place[i], kept)})" for i in useless)
        _warn(
            f"{call.title}: donated memory was not used: {listed}\n"
            "  a result can take it if it has the same shape and dtype on every device\n"
            "  fix: do not donate it, or delete it yourself with x.delete()"
        )
    if unread:
        _warn(
            f"{call.title}: donated arguments are not used: {', '.join(_typed(call, i) for i in unread)}\n"
            "  the results do not depend on them, so they are neither read nor deleted\n"
            "  fix: leave them out; keep_unused=True passes them nevertheless"
        )


def _typed(call: Call, i: int) -> str:
    return f"{call.names[i]} {call.keys[i].type}"


def _reason(call: Call, traced: TracedProgram, lowering: Lowering, n: int, kept: Sequence[int]) -> str:
    """Why no result takes the memory of the n-th input that is kept."""
    plan, names = lowering.plan, output_names(traced)
    type = plan.program.inputs[n].type
    same = [o for o, v in enumerate(plan.program.outputs) if v.type == type]
    if not same:
        return "no result has its type"
    takers = {o: i for i, o in lowering.aliases.items()}
    free = [o for o in same if o not in takers]
    if free:
        mine, theirs = (spec_text(spec_of(p)) for p in (plan.inputs[n], plan.outputs[free[0]]))
        return f"it is placed {mine}, {names[free[0]]} {theirs}"
    return f"{names[same[0]]} takes that of {call.input_name(kept[takers[same[0]]])}"


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=stack_level())
