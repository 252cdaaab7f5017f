"""What would make a transfer unnecessary: constraints that could, each planned, so that each has its price."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from meshjit.core.plan import PlanCost
from meshjit.core.program import Var
from meshjit.report.curve import cost_of
from meshjit.report.pins import planned_with, spec_at
from meshjit.report.subject import Subject, placement_text
from meshjit.report.transfers import Transfer, transfers
from sharding.axes import AxisRef
from sharding.spec import PartitionSpec, Placement, ShardingError


@dataclasses.dataclass(frozen=True)
class Option:
    """A constraint that was planned: `value`, and those like it in equal layers, at `placement`. `removes`: whether the
    transfer in question is gone then."""

    value: str
    placement: str
    cost: PlanCost
    removes: bool
    var: Var = dataclasses.field(repr=False)
    spec: PartitionSpec = dataclasses.field(repr=False)

    @property
    def text(self) -> str:
        return f"{self.value}: {self.placement}"


def removals(subject: Subject, transfer: Transfer, most: int = 6) -> list[Option]:
    """Constraints after which the plan does without the transfer, cheapest first. Up to `most` are planned."""
    options: list[Option] = []
    for _, (var, placement) in zip(range(most), candidates(subject, transfer), strict=False):
        option = planned_option(subject, var, placement, transfer)
        if option is not None and option.removes:
            options.append(option)
    return sorted(options, key=lambda option: option.cost.seconds)


def planned_option(subject: Subject, var: Var, placement: Placement, transfer: Transfer | None = None) -> Option | None:
    """None where the value cannot be placed so."""
    spec, (name, group) = spec_at(placement), subject.groups[var]
    try:
        other = planned_with(subject, dict.fromkeys(group, spec))
    except ShardingError:
        return None
    gone = transfer is None or not any(_is_same(row, transfer) for row in transfers(other))
    return Option(name, placement_text(placement), cost_of(other), gone, var, spec)


def _is_same(row: Transfer, transfer: Transfer) -> bool:
    return (row.kind, row.axes, row.place, row.var) == (transfer.kind, transfer.axes, transfer.place, transfer.var)


def candidates(subject: Subject, transfer: Transfer) -> Iterator[tuple[Var, Placement]]:
    """The value where it is needed, from the start; then the annotations that its axes come from, each without the axes
    that are sent over, or with them on another dim."""
    if transfer.var is None:
        return
    if transfer.end is not None and transfer.end != subject.plan.placements[transfer.var]:
        yield transfer.var, transfer.end.without_partial()
    axes = [axis for axis in subject.plan.mesh.axis_names if axis in transfer.axes.replace("(", " ").replace(",", " ").split()]
    for var in dict.fromkeys(_sources(subject, transfer)):
        yield from others(subject, var, axes)


def others(subject: Subject, var: Var, axes: list[str]) -> Iterator[tuple[Var, Placement]]:
    """The value's placement without these axes, and with them on each dim that is large enough."""
    now = subject.plan.placements[var].without_partial()
    bare = Placement(tuple(tuple(a for a in each if str(a).partition(":")[0] not in axes) for each in now.dims))
    yield var, bare
    for dim in range(var.rank):
        moved = bare.with_dim(dim, (*bare.dims[dim], *axes))
        if moved != now and var.shape[dim] >= moved.shards(dim, subject.plan.mesh):
            yield var, moved


def _sources(subject: Subject, transfer: Transfer) -> Iterator[Var]:
    """The inputs whose annotations brought the axes to the operands of what makes, or needs, the value."""
    assert transfer.var is not None
    eqns = [eqn for eqn in (subject.makers.get(transfer.var), transfer.eqn) if eqn is not None]
    for var in (transfer.var, *[v for eqn in eqns for v in eqn.inputs]):
        for dim, axes in enumerate(subject.plan.placements[var].dims):
            for axis in axes:
                yield from _seed(subject, var, dim, axis)


def _seed(subject: Subject, var: Var, dim: int, axis: AxisRef) -> Iterator[Var]:
    origin = subject.describer.propagated.origins.get((subject.describer.flat.numbers[var], dim, axis))
    if origin is not None and subject.values[origin.seed] in subject.plan.program.inputs:
        yield subject.values[origin.seed]
