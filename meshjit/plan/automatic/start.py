"""Where descents begin: at what propagation makes of a batch over all devices, or over some axes.

    step(state, batch: i32[256, 1024])    on x=8, y=8: batch[x*y, -] or batch[-, x*y], whichever takes less; then over x alone

Of what is too wide for an elimination a part stays as it was before. From nothing that is no choice in particular: a descent for
12 recurrent layers, whose loops are wide, ended at 30.3 ms from there, where a batch over all devices takes 27.6, and the descent
from that ends at 24.0. The batch is all arguments that no result replaces; where each is replaced, it is all arguments.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from meshjit.core.plan import EquationPlan, steps_in
from meshjit.core.program import Eqn, Var
from meshjit.plan.automatic.domain import Plans
from meshjit.plan.draft import Draft, first_draft
from meshjit.plan.flow import Limit, TooDear
from sharding.axes import AxisRef
from sharding.mesh import BaseMesh
from sharding.placement import Placement
from sharding.spec import PartitionSpec

Key = TypeVar("Key")
MOST_DIMS: Final = 4  # positions of a batch's dims that are tried
MOST_SUBSETS: Final = 64  # of axes


class Start(NamedTuple):
    """A draft, and the axes that its batch does not take."""

    draft: Draft
    left: tuple[str, ...]


def starts(draft: Draft, ties: Mapping[int, int]) -> Iterator[Start]:
    """The batch over as many devices as there are, then over fewer; once for axes of equal sizes."""
    names, tried = tuple([name for name, size in draft.machine.mesh.shape.items() if size > 1]), set[tuple[int, ...]]()
    for axes in _subsets(names, draft.machine.mesh):
        begun = _batch_over(axes, draft, ties, tried)
        if begun is not None:
            taken = {axis for i in begun.annotations.chosen for axis in begun.plan.inputs[i].axes()}
            yield Start(begun, tuple([name for name in names if name not in taken]))


def _subsets(names: Sequence[str], mesh: BaseMesh) -> list[tuple[str, ...]]:
    """Of axes, those of most devices first."""
    subsets = (some for count in range(len(names), 0, -1) for some in itertools.combinations(names, count))
    return sorted(itertools.islice(subsets, MOST_SUBSETS), key=lambda some: -mesh.axes_size(some))


def _batch_over(axes: Sequence[str], draft: Draft, ties: Mapping[int, int], tried: set[tuple[int, ...]]) -> Draft | None:
    """The cheapest of the drafts whose batch is over the axes along one dim; none where that was tried, or no dim is divided."""
    best: Draft | None = None
    for specs, chosen, sizes in _ways(axes, draft, ties):
        annotations = dataclasses.replace(draft.annotations, inputs=specs, chosen=chosen)
        limit = None if best is None else Limit(best.cost.seconds)
        if sizes not in tried:
            tried.add(sizes)
            with contextlib.suppress(TooDear):
                best = first_draft(draft.program, annotations, draft.assigner, limit)
    return best


def _ways(
    axes: Sequence[str], draft: Draft, ties: Mapping[int, int]
) -> Iterator[tuple[list[PartitionSpec | None], frozenset[int], tuple[int, ...]]]:
    """The specs of all inputs, which of them are new, and the dim and the sizes of the axes: for each position of a dim, at which
    every array of the batch is divided that has it."""
    given, mesh = draft.annotations.inputs, draft.machine.mesh
    shapes = [v.shape for v in draft.program.inputs]
    free = [i for i, spec in enumerate(given) if spec is None]
    batch = [i for i in free if i not in ties.values()] or free
    for d in range(min(MOST_DIMS, max([len(shapes[i]) for i in batch], default=0))):
        dividing = {i: _dividing(shapes[i][d], axes, mesh) for i in batch if len(shapes[i]) > d}
        chosen = frozenset([i for i, names in dividing.items() if names])
        if chosen:
            specs = [PartitionSpec(*[None] * d, dividing[i]) if i in chosen else spec for i, spec in enumerate(given)]
            yield specs, chosen, (d, *sorted([mesh.shape[name] for name in max(dividing.values(), key=len)]))


def _dividing(extent: int, axes: Sequence[str], mesh: BaseMesh) -> tuple[str, ...]:
    """The first of the axes that divide it together."""
    names, devices = list[str](), 1
    for name in axes:
        size = mesh.shape[name]
        if extent and extent % (devices * size) == 0:
            names, devices = [*names, name], devices * size
    return tuple(names)


def plans_of(draft: Draft, common: Plans) -> dict[Eqn, EquationPlan]:
    """How the draft computes each equation, nested ones included, as far as that is over whole axes; without partial sums that
    flow through."""
    return {
        eqn: common.plan(eqn, plan.rule, {factor: axes for factor, axes in _whole(plan.assignment, draft).items() if axes})
        for eqn, plan in steps_in(draft.plan)
        if not plan.bodies and plan.rule == draft.flat.rules[eqn]
    }


def placements_of(draft: Draft) -> dict[Var, Placement]:
    """Where each value is, as far as that is over whole axes."""
    placements = draft.flat.placements(draft.propagated)
    return {var: Placement(tuple(_whole(dict(enumerate(p.dims)), draft).values())) for var, p in placements.items()}


def _whole(axes: Mapping[Key, tuple[AxisRef, ...]], draft: Draft) -> dict[Key, tuple[AxisRef, ...]]:
    names = draft.machine.mesh.shape
    return {key: tuple([axis for axis in have if axis in names]) for key, have in axes.items()}
