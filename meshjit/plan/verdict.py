"""Why one plan was taken and not another, in words: the reasons that decisions about alternatives give."""

from __future__ import annotations

from meshjit.core.decision import rounded
from meshjit.core.plan import PlanCost, Trial
from meshjit.plan.cost import EQUAL_BYTES

STOPPED = "planning it was stopped once it was far slower"


def of_trial(trial: Trial, memory: float) -> str:
    """`memory`: bytes that a device has."""
    cost, before = trial.cost, trial.before
    if cost is None:
        return STOPPED
    if trial.is_accepted:
        return _kept(cost, before, trial.is_short)
    if trial.beaten_by:
        return f"another one does better: {trial.beaten_by}"
    if not trial.fits and not trial.is_short:
        return f"the peak would hold {cost.peak_bytes - memory:,.0f} bytes more than the memory has"
    return rejected(cost, before)


def _kept(cost: PlanCost, before: PlanCost, is_short: bool) -> str:
    fewer, longer = before.peak_bytes - cost.peak_bytes, rounded(cost.seconds - before.seconds) or 0.0
    if longer < 0 and is_short and fewer > 0:
        return f"the plan takes less time, and the peak holds {fewer:,.0f} bytes fewer, for memory is short"
    if longer < 0:
        return "the plan takes less time"
    if not is_short and cost.wire_bytes < before.wire_bytes:
        return f"it sends {cost.wire_bytes:,.0f} bytes a device instead of {before.wire_bytes:,.0f}, for {longer:g} us"
    return f"memory is short, and the peak holds {fewer:,.0f} bytes fewer, for {longer:g} us"


def rejected(cost: PlanCost, before: PlanCost) -> str:
    """Of a plan that is not cheaper in time."""
    if cost.seconds < before.seconds and cost.wire_bytes > EQUAL_BYTES * before.wire_bytes:
        sent = f"{cost.wire_bytes:,.0f} bytes a device where {before.wire_bytes:,.0f} suffice"
        return f"it sends {sent}, and does not halve the time"
    return "the plan is not clearly faster"
