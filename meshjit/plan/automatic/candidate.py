"""A plan that is compared with others: by its seconds, and a rent for the bytes of arguments and results.

The rent decides between plans that take equally long: parameters are not replicated merely because that costs nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from meshjit.core.plan import Plan
from meshjit.core.types import TensorType
from meshjit.plan.cost import Machine
from meshjit.plan.draft import SURELY, Draft, first_draft
from meshjit.plan.lifetimes import Lifetimes
from meshjit.plan.proposals import USUAL
from meshjit.plan.proposals.spread_again import with_axes
from meshjit.plan.search import search
from sharding.placement import Placement
from sharding.spec import PartitionSpec, placement_of, spec_of

Inputs: TypeAlias = Sequence[PartitionSpec | None]
Refinement: TypeAlias = Literal[
    "", "memory", "blocks", "all", "propagated", "propagated, none computed again", "propagated, spread"
]  # fmt: skip
SPREAD: Final = "propagated, spread"
BLOCKS: Final = "blocks"
FOR_TIME: Final = USUAL - {"unmoved"}  # what proposals for the sake of bytes lead to may take longer
REFINEMENTS: Final[Mapping[str, Container[str]]] = {
    "": (), "memory": ("inside", "again", "compute"), BLOCKS: ("fastest",),
    "all": FOR_TIME,
    "propagated": FOR_TIME, "propagated, none computed again": FOR_TIME - {"compute"}, "propagated, spread": FOR_TIME,
}  # fmt: skip
WAYS: Final = 27  # to spread inputs, three axes over two dims
RENT: Final = 1e-4  # of the seconds that reading an argument or writing a result once takes


@dataclass(frozen=True)
class Candidate:
    """`peak`: the most bytes that a device holds at a time. `draft`: what was prescribed, if anything was; `refined_by`: the
    proposals that made the plan of it, "" for none, "propagated…" where they were made for what the annotations alone give, with
    inputs in the `way`-th of `ways_of_inputs`."""

    plan: Plan
    seconds: float
    peak: float
    draft: Draft | None = None
    refined_by: Refinement = ""
    way: int = 0

    @property
    def computes_again(self) -> bool:
        """Whether the plan computes something again to fit. Bounds say nothing of such plans."""
        return self._has("compute")

    @property
    def is_in_blocks(self) -> bool:
        """Whether loops do several iterations at once, which only proposals try."""
        return self._has("block")

    def _has(self, kind: str) -> bool:
        return any(trial.kind == kind and trial.is_accepted for trial in self.plan.trials)

    def is_better_than(self, other: Candidate, memory: float) -> bool:
        over, others = (max(0.0, each.peak - memory) for each in (self, other))
        return over < others or (over == others and self.seconds < other.seconds)


def candidate_of(plan: Plan | Draft, machine: Machine) -> Candidate:
    draft, plan = (plan, plan.plan) if isinstance(plan, Draft) else (None, plan)
    assert plan.cost is not None
    types = [v.type for v in (*plan.program.inputs, *plan.program.outputs)]
    seconds = plan.cost.seconds + rent(types, [*plan.inputs, *plan.outputs], machine)
    peak = plan.cost.peak_bytes
    if peak > SURELY * machine.topology.memory:
        peak = float(max(Lifetimes(plan.program, machine, plan.equations, plan.inputs, plan.outputs).held_bytes()))
    return Candidate(plan, seconds, peak, draft)


def refined(candidate: Candidate, machine: Machine, by: Refinement = "all") -> Candidate:
    """What proposals make of a candidate, as of any plan; or only those that save memory."""
    assert candidate.draft is not None
    plan = search(candidate.draft, REFINEMENTS[by])
    return dataclasses.replace(candidate_of(plan, machine), draft=candidate.draft, refined_by=by)


def propagated(draft: Draft, ties: Mapping[int, int], by: Refinement) -> Candidate:
    """The plan without any search but for proposals; once more with its outputs where the inputs are that they are tied to."""
    plan, outputs = search(draft, REFINEMENTS[by]), list(draft.annotations.outputs)
    for output, source in ties.items():
        if plan.outputs[output] != plan.inputs[source]:
            outputs[output] = spec_of(plan.inputs[source])
    if outputs != list(draft.annotations.outputs):
        annotations = dataclasses.replace(draft.annotations, outputs=outputs)
        plan = search(first_draft(draft.program, annotations, draft.assigner), REFINEMENTS[by])
    return dataclasses.replace(candidate_of(plan, draft.machine), refined_by=by)


def spread(draft: Draft, ties: Mapping[int, int], ways: Sequence[Inputs], way: int) -> Candidate:
    """That plan where the inputs lie as one of the `ways_of_inputs` says."""
    given = draft.annotations.inputs
    chosen = [i for i, (spec, before) in enumerate(zip(ways[way], given, strict=True)) if spec is not before]
    annotations = dataclasses.replace(draft.annotations, inputs=ways[way], chosen=frozenset(chosen))
    candidate = propagated(first_draft(draft.program, annotations, draft.assigner), ties, SPREAD)
    return dataclasses.replace(candidate, way=way)


def ways_of_inputs(draft: Draft) -> Sequence[Inputs]:
    """The ways to spread the large inputs that nobody placed, each with the specs of all inputs. An input is large if it has as
    many bytes as a shard of the largest one. In the first way each is over all axes that divide it. The others are all ways to
    give axes to dims, the same for every large input; there are none if these are more than WAYS.

        over x=2, y=4     f32[512, 512] over [y, x]; over [x, -], [-, x], [y, -], [x*y, -], [y, x], …, [-, x*y]
    """
    mesh, vars, given = draft.machine.mesh, draft.program.inputs, draft.annotations.inputs
    names = [name for name, size in mesh.shape.items() if size > 1]
    least = max([v.type.nbytes for v in vars], default=0) / mesh.device_count
    free = [spec is None and v.type.nbytes >= least for spec, v in zip(given, vars, strict=True)]

    def specs(place: Callable[[tuple[int, ...]], Placement]) -> list[PartitionSpec | None]:
        return [spec_of(place(v.shape)) if f else spec for spec, v, f in zip(given, vars, free, strict=True)]

    def over_all(shape: tuple[int, ...]) -> Placement:
        return with_axes(shape, Placement.replicated(len(shape)), names, mesh)

    def dealt(shape: tuple[int, ...], dims: Sequence[int]) -> Placement:
        axes = [tuple([name for name, dim in zip(names, dims, strict=True) if dim == d]) for d in range(len(shape))]
        return Placement(tuple([have if mesh.axes_size(have) <= n else () for n, have in zip(shape, axes, strict=True)]))

    rank = max([len(v.shape) for v, f in zip(vars, free, strict=True) if f], default=0)
    ways = [specs(over_all)]
    if (rank + 1) ** len(names) <= WAYS:
        every = itertools.product(range(rank + 1), repeat=len(names))  # the last stands for no dim
        ways += [specs(functools.partial(dealt, dims=dims)) for dims in every if min(dims, default=rank) < rank]
    return [way for n, way in enumerate(ways) if way not in ways[:n]]


def rent(types: Sequence[TensorType], placements: Sequence[Placement], machine: Machine) -> float:
    held = sum(machine.local_bytes(t, p) for t, p in zip(types, placements, strict=True))
    return RENT * held / machine.topology.memory_bandwidth


def arguments_bytes(plan: Plan, machine: Machine) -> float:
    """What a device holds of the arguments."""
    return sum(machine.local_bytes(v.type, p) for v, p in zip(plan.program.inputs, plan.inputs, strict=True))


def most_rent(draft: Draft) -> float:
    """That of the plan whose arguments and results are whole, where nobody says where they lie."""
    program, (inputs, outputs) = draft.program, (draft.annotations.inputs, draft.annotations.outputs)
    sides = [*zip(program.inputs, inputs, strict=True), *zip(program.outputs, outputs, strict=True)]
    places = [placement_of(spec or PartitionSpec(), v.rank).without_partial() for v, spec in sides]
    return rent([v.type for v, _ in sides], places, draft.machine)
