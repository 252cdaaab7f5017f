"""Which axes an equation's factors are spread over.

After propagation the values around an equation may still disagree. Each of them suggests a spread: its own placement
read as factors, completed by what the others say about factors it does not have. The cheapest suggestion wins, where
the cost is that of bringing the operands there and the results back to where they live.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn, Var
from meshjit.plan.displaced import displaced
from sharding.axes import AxisRef, overlap
from sharding.mesh import BaseMesh
from sharding.reshard import plan_reshard
from sharding.rule import FactorRule
from sharding.spec import Placement
from sharding.topology import Topology

Assignment = dict[str, tuple[AxisRef, ...]]


def assign(
    eqn: Eqn,
    rule: FactorRule,
    placements: Mapping[Var, Placement],
    mesh: BaseMesh,
    topology: Topology,
    made: Collection[Var] = (),
) -> EquationPlan:
    """The cheapest legal assignment for one equation, and the placements that follow from it.

    Values in `made` come from no operands (iota): partitioning makes them again wherever they are wanted, at no cost.
    """
    wholes = frozenset(f for f, kind in rule.kinds.items() if _stays_whole(eqn, kind))
    views = _views(eqn, rule, placements, mesh)
    candidates: dict[tuple[tuple[str, tuple[AxisRef, ...]], ...], EquationPlan] = {}
    for first in range(len(views)):
        ordered = [views[first], *views[:first], *views[first + 1 :]]
        merged = _merge(ordered, wholes)
        for spread in (merged, *displaced(rule, ordered, merged, wholes, mesh), *_unreduced(eqn, rule, merged)):
            spread = consistent(rule, spread, mesh)
            key = tuple(sorted(spread.items()))
            if key not in candidates:
                candidates[key] = equation_plan(rule, spread, mesh)
    if not candidates:
        return equation_plan(rule, {}, mesh)
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    return min(candidates.values(), key=lambda step: _cost(eqn, step, placements, mesh, topology, made))


def _stays_whole(eqn: Eqn, kind: str) -> bool:
    """Replicated factors always; permuted ones unless the op brings its own way of exchanging borders."""
    return kind == "replicate" or (kind == "permute" and eqn.op.partition is None)


def _unreduced(eqn: Eqn, rule: FactorRule, merged: Assignment) -> list[Assignment]:
    """The spread without axes on reduced factors: all of a few updates on every device rather than the sum of results as
    large as what they update. Only for ops that say what repeating their work costs."""
    if eqn.op.passes is None or not any(merged.get(f) for f in rule.reductions):
        return []
    return [{f: axes for f, axes in merged.items() if f not in rule.reductions}]


def _views(
    eqn: Eqn, rule: FactorRule, placements: Mapping[Var, Placement], mesh: BaseMesh
) -> list[Assignment]:
    """What each value says about the factors: results first, so that with equal costs results stay where they are."""
    sides = [*zip(rule.results, eqn.outputs, strict=True), *zip(rule.operands, eqn.inputs, strict=True)]
    return [rule.project(dims, placements[var], mesh) for dims, var in sides]


def _merge(views: Sequence[Assignment], wholes: frozenset[str]) -> Assignment:
    """The first view's axes, then for factors without any those of the next views, as far as axes are free.

    No axis serves two factors, even two that meet in no value: one device cannot be two different rows at once.
    """
    merged: Assignment = {}
    used: list[AxisRef] = []
    for view in views:
        for factor, axes in view.items():
            if factor in wholes or merged.get(factor):
                continue
            free = _free_prefix(axes, used)
            if free:
                merged[factor] = free
                used.extend(free)
    return merged


def _free_prefix(axes: Iterable[AxisRef], used: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
    kept: list[AxisRef] = []
    for axis in axes:
        if any(overlap(axis, other) for other in used):
            break
        kept.append(axis)
    return tuple(kept)


def consistent(rule: FactorRule, assignment: Assignment, mesh: BaseMesh) -> Assignment:
    """The assignment without axes that some dim of several factors cannot express.

    `(a b) -> a b` with b over x but a over nothing: the merged dim would be strided, so b gives x up. Repeated until
    every value agrees, because one dim's loss may be another's.
    """
    if rule.is_simple:
        return assignment
    while True:
        before = dict(assignment)
        for dims in (*rule.operands, *rule.results):
            for dim in dims:
                if len(dim) > 1:
                    placed = Placement(rule.placement((dim,), assignment, mesh))
                    kept = rule.project((dim,), placed, mesh)
                    assignment = {f: a if f not in dim else kept.get(f, ()) for f, a in assignment.items()}
        assignment = {f: a for f, a in assignment.items() if a}
        if assignment == {f: a for f, a in before.items() if a}:
            return assignment


def _cost(
    eqn: Eqn,
    step: EquationPlan,
    placements: Mapping[Var, Placement],
    mesh: BaseMesh,
    topology: Topology,
    made: Collection[Var],
) -> tuple[float, float]:
    """Predicted seconds of the reshards around the equation, and of its work if that is more than its memory traffic;
    with equal ones, the elements that a device is left with."""
    seconds = 0.0
    work = 0.0
    passes = eqn.op.passes(eqn.input_types, eqn.params) / topology.memory_bandwidth if eqn.op.passes else 0.0
    for var, wanted in zip(eqn.inputs, step.operands, strict=True):
        if var not in made:
            seconds += _reshard_seconds(var, placements[var], wanted, mesh, topology)
        size = _local_size(var, wanted, mesh)
        seconds += passes * size * var.dtype.itemsize
        work += size
    for var, natural in zip(eqn.outputs, step.results, strict=True):
        seconds += _reshard_seconds(var, natural, placements[var].without_partial(), mesh, topology)
        work += _local_size(var, natural, mesh)
    return seconds, work


def _reshard_seconds(
    var: Var, source: Placement, target: Placement, mesh: BaseMesh, topology: Topology
) -> float:
    if source == target:
        return 0.0
    return plan_reshard(var.shape, var.dtype.itemsize, source, target, mesh, topology).seconds


def _local_size(var: Var, placement: Placement, mesh: BaseMesh) -> int:
    size = 1
    for n in placement.local_shape(var.shape, mesh):
        size *= n
    return size
