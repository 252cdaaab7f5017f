"""A bound on all plans of a large Program, found once somebody asks how good its plan is.

On one or two axes it is that of a proof (`prove.py`) that makes no plans. On more, and where everything that can be chosen is
too much, the problem is relaxed: axes of one size with links as quick are alike (`alike_axes.py`); where that is too much, all of
one size are, as quick as the quickest of these. Where even that is too much, the mesh has two of its axes, of two one, and its
devices are as many times as fast as devices share each of theirs.

    8x8x8 devices   ->   8x8 devices, each with 8 times the flops, memory and links; all links like the quickest

What a plan does on the two axes is a choice of the relaxed problem, and takes no longer there: another axis divides work and
bytes by its size at most, ops' own rules cost nothing (on alike axes they cost what they cost), and what is brought counts by its
lower bound (`floors.py`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from meshjit.core.target import Target
from meshjit.plan.automatic.alike_axes import AlikeAxes, AlikeFloors, AlikeWays, Counts, Sharing
from meshjit.plan.automatic.domain import Domain
from meshjit.plan.automatic.eliminate import TooWide
from meshjit.plan.automatic.floors import Floors
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.price_list import PriceList, has_many_axes
from meshjit.plan.automatic.prove import Proof
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft
from meshjit.plan.graph import Annotations, programs_in
from sharding.axes import name_of
from sharding.distances import Distances
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec, placement_of
from sharding.topology import Topology

KEPT: Final = 2  # axes
# Shortest ones, where a machine's axes are alike with such links.
WAYS: Final = WeakKeyDictionary[Machine, "dict[Topology, tuple[Distances, AlikeWays]]"]()


def bound_on(draft: Draft, ties: Mapping[int, int], upper: float, effort: float) -> float:
    """Seconds that every plan of a draft's Program takes at least, no more than those of a plan that is there; 0 where the tables
    would be too large."""
    relaxed, bound = Relaxed(draft, ties, upper, effort), 0.0
    if not has_many_axes(draft.machine):
        bound = relaxed.bound_with(draft.machine, draft.annotations)
    return bound or relaxed.bound()


@dataclass
class Relaxed:
    """The relaxed problem of a draft. `upper`: seconds of a plan that is there. `effort`, `rent`, `worth`, `near`: as of a proof.
    `attempt` is given what is best where axes are alike: with axes in the order of the mesh it is often a good plan. `proof` is
    that of the bound, once it is known."""

    draft: Draft
    ties: Mapping[int, int]
    upper: float
    effort: float
    deadline: float = math.inf
    rent: float = 0.0
    worth: float = 0.0
    near: float = 0.0
    attempt: Callable[[Model, Sequence[int]], object] | None = None
    proof: Proof | None = None

    def bound(self) -> float:
        """Seconds that every plan takes at least, no more than `upper`; 0 where values have to be on axes that are not kept,
        too."""
        machine, annotations = self.draft.machine, self.draft.annotations
        sizes = machine.mesh.shape
        axes = sorted([name for name, size in sizes.items() if size > 1], key=lambda name: -sizes[name])
        eqns = itertools.chain.from_iterable(program.eqns for program in programs_in(self.draft.program))
        if len(axes) < KEPT or any(eqn.op.seed is not None or eqn.op.pinned is not None for eqn in eqns):
            return 0.0
        whole = _without(annotations, self.draft, frozenset())
        for alike in alike_machines(machine):
            bound = self.bound_with(alike, whole, Counts(alike))
            if bound or time.perf_counter() > self.deadline:
                return bound
        kept = axes[: min(KEPT, len(axes) - 1)]
        return self.bound_with(relaxed(machine, kept), _without(annotations, self.draft, frozenset(kept)))

    def bound_with(self, machine: Machine, annotations: Annotations, domain: Domain | None = None) -> float:
        """That of a proof on a machine; 0 where it would be too large."""
        draft, ties, is_alike = self.draft, self.ties, isinstance(machine, AlikeAxes)
        floors = _alike_floors(draft, machine) if is_alike else Floors(machine, not isinstance(machine, Sharing))
        prices = PriceList(machine, stays=isinstance(machine, Sharing), floors=floors)
        try:
            model = Model(draft.program, draft.flat, machine, annotations, ties, domain=domain, bounds=prices, is_whole=False)
        except TooWide:
            return 0.0
        proof = self.proof = Proof(model, self.upper, None, self.effort, self.deadline, self.rent, self.worth)
        proof.near = self.near
        proof.run()
        if self.attempt is not None and is_alike and not proof.is_closed:
            for choices in proof.suggested():
                self.attempt(model, choices)
        return min(self.upper, proof.bound)


def _alike_floors(draft: Draft, machine: Machine) -> AlikeFloors:
    """Shortest ways are the same for all that is planned on the draft's machine, such as one Program written in several ways."""
    assert isinstance(machine, AlikeAxes)
    floors = AlikeFloors(machine)
    ways = WAYS.setdefault(draft.machine, {})
    floors.distances, floors.least = ways.setdefault(machine.topology, (floors.distances, floors.least))
    return floors


def alike_machines(machine: Machine) -> Iterator[AlikeAxes]:
    """With axes as they are; then, if that is another machine, with each like the quickest of its size."""
    mesh, topology = machine.mesh, machine.topology
    same = {name: [other for other, size in mesh.shape.items() if size == mesh.shape[name]] for name in mesh.axis_names}
    latency = {name: min(topology.latency[other] for other in others) for name, others in same.items()}
    bandwidth = {name: max(topology.bandwidth[other] for other in others) for name, others in same.items()}
    for each in dict.fromkeys((topology, dataclasses.replace(topology, latency=latency, bandwidth=bandwidth))):
        alike = AlikeAxes(mesh, dataclasses.replace(machine.target, topology=each))
        alike.uses = machine.uses  # of values, whatever the machine
        yield alike


def relaxed(machine: Machine, axes: list[str]) -> Machine:
    """These axes alone; each device does what all along the others do together."""
    whole = machine.mesh
    kept = [name for name in whole.axis_names if name in axes]
    mesh = AbstractMesh(tuple(whole.shape[name] for name in kept), tuple(kept))
    topology = _faster(machine.topology, kept, math.prod(whole.axis_sizes) // math.prod(mesh.axis_sizes))
    target: Target = dataclasses.replace(machine.target, topology=topology)
    return Sharing(mesh, target)


def _faster(topology: Topology, axes: list[str], times: int) -> Topology:
    quickest, start = times * max(topology.bandwidth.values()), min(topology.latency.values())
    return dataclasses.replace(
        topology,
        latency=dict.fromkeys(axes, start),
        bandwidth=dict.fromkeys(axes, quickest),
        flops=times * topology.flops,
        flops_of={dtype: times * rate for dtype, rate in topology.flops_of.items()},
        memory_bandwidth=times * topology.memory_bandwidth,
    )


def _without(annotations: Annotations, draft: Draft, axes: frozenset[str]) -> Annotations:
    """Annotations that name no other axes; the others would say what is not chosen here."""

    def kept(spec: PartitionSpec | None, rank: int) -> PartitionSpec | None:
        named = [] if spec is None else [name_of(axis) for axis in placement_of(spec, rank).axes()]
        return spec if axes.issuperset(named) else None

    program = draft.program
    inputs = [kept(spec, v.rank) for spec, v in zip(annotations.inputs, program.inputs, strict=True)]
    outputs = [kept(spec, v.rank) for spec, v in zip(annotations.outputs, program.outputs, strict=True)]
    return dataclasses.replace(annotations, inputs=inputs, outputs=outputs)
