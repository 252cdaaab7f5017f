"""A saved plan's text as placements: what somebody wrote into it by hand is checked against the Program and the mesh.

{"b": ["x"]}     factor b of the equation over mesh axis x
"[x, -]"         a value's dim 0 over x
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn, Var
from meshjit.plan.assign import stays_whole
from sharding.axes import AxisRef, check_ref, name_of, parse_ref
from sharding.mesh import BaseMesh
from sharding.placement import Placement
from sharding.rule import FactorRule


def plan_of(spread: Any, eqn: Eqn, rule: FactorRule, mesh: BaseMesh) -> EquationPlan:
    """How an equation is computed whose factors are spread so. ValueError, with what is wrong, where that cannot be."""
    if not isinstance(spread, dict):
        raise ValueError(f"is spread by {spread!r}; write factors with their axes, such as {{'a': ['x']}}")
    assignment = {str(factor): _axes(axes) for factor, axes in spread.items()}
    for factor, axes in assignment.items():
        if factor not in rule.factors:
            raise ValueError(f"has no factor {factor!r}; its rule is {rule}")
        if axes and stays_whole(eqn, rule.kinds.get(factor, "")):
            raise ValueError(f"cannot be spread along {factor!r}, which has to be whole; its rule is {rule}")
    for together in _sharing_values(rule):
        _check_axes([axis for factor in together for axis in assignment.get(factor, ())], mesh)
    return equation_plan(rule, assignment, mesh)


def _sharing_values(rule: FactorRule) -> list[set[str]]:
    """Factors in groups that no value connects: a barrier's values have nothing to do with one another."""
    groups = [{factor} for factor in rule.factors]
    for dims in (*rule.operands, *rule.results):
        near = {factor for factors in dims for factor in factors}
        joined = set[str]().union(*[group for group in groups if group & near])
        groups = [*[group for group in groups if not group & near], *([joined] if joined else [])]
    return groups


def placement_of(text: Any, var: Var, mesh: BaseMesh) -> Placement:
    """ValueError where a value of this type cannot lie so."""
    placement = Placement.parse(str(text))
    if placement.rank != var.rank:
        raise ValueError(f"{text} has {placement.rank} dims, {var.type} has {var.rank}")
    _check_axes(placement.axes(), mesh)
    return placement


def _axes(texts: Any) -> tuple[AxisRef, ...]:
    if not isinstance(texts, list):
        raise ValueError(f"is spread over {texts!r}; write a list of axes, such as ['x']")
    names: Sequence[Any] = texts
    return tuple([parse_ref(str(name)) for name in names])


def _check_axes(axes: Iterable[AxisRef], mesh: BaseMesh) -> None:
    """Each is an axis of the mesh, or a part of one, and stands there once."""
    seen = set[AxisRef]()
    for axis in axes:
        check_ref(axis, mesh.shape)
        if axis in seen or (not isinstance(axis, str) and name_of(axis) in seen):
            raise ValueError(f'uses axis "{axis}" twice')
        seen.add(axis)
