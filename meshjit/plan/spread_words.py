"""What it means that an equation's factors are spread over axes, in words.

    rule b m k, b k n -> b m n | sum k      k over model    k is summed up: each device has an addend of the result
                                            b over data     b is in all values: devices compute parts of all of them
                                            n over model    n is not in operand 0: devices along model read the same of it
"""

from __future__ import annotations

from meshjit.core.plan import EquationPlan
from sharding.axes import axes_text
from sharding.rule import FactorRule


def spread(plan: EquationPlan) -> str:
    parts = [f"{factor} over {axes_text(axes)}" for factor, axes in plan.assignment.items() if axes]
    return ", ".join(parts) or "all of it on every device"


def reasons(plan: EquationPlan) -> tuple[str, ...]:
    """One for each factor that is spread, with the rule first, which says where the factors are."""
    spread_factors = [factor for factor, axes in plan.assignment.items() if axes]
    meanings = (_meaning(plan.rule, factor, axes_text(plan.assignment[factor])) for factor in spread_factors)
    return f"the rule is {plan.rule}", *meanings


def _meaning(rule: FactorRule, factor: str, axes: str) -> str:
    kind = rule.kinds.get(factor)
    if kind == "sum":
        return f"{factor} is summed up: each device has an addend of the result"
    if kind == "permute":
        return f"along {factor} elements move: devices send those that others need"
    if kind is not None:
        return f"{factor} is reduced by {kind}: each device has a candidate"
    lacking = [i for i, dims in enumerate(rule.operands) if dims and not any(factor in dim for dim in dims)]
    if not lacking:
        return f"{factor} is in all values: devices compute parts of all of them"
    names = " and ".join(f"operand {i}" for i in lacking)
    return f"{factor} is not in {names}: devices along {axes} read the same of it"
