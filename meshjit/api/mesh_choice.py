"""Which mesh, where only the number of devices is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from meshjit.core.plan import Plan
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.refusal import DoesNotFit
from meshjit.plan.automatic.saved_file import read
from sharding.mesh import AbstractMesh, BaseMesh, Mesh

AXES: Final = ("x", "y", "z", "u", "v", "w")
MUCH: Final = 0.95  # a finer mesh is divided further if its plan takes less than so many times the seconds of the one before


class HasPlan(Protocol):
    """A stage with the Plan that was made on a mesh."""

    @property
    def plan(self) -> Plan: ...

    @property
    def mesh(self) -> Any: ...


Stage = TypeVar("Stage", bound=HasPlan)


def best_of_meshes(
    meshes: Sequence[BaseMesh], limits: Limits, planned_on: Callable[[BaseMesh, Limits], Stage], goes_on: bool
) -> Stage:
    """What `planned_on` makes of the only mesh; of several the one whose plan takes least time, or, if the choice `goes_on`, one
    on a mesh that divides an axis of its mesh, as long as that gains much. Proofs are sought on the last alone. DoesNotFit where
    no plan fits on any."""
    if limits.plan is not None:
        meshes = (mesh_of_saved(limits.plan, meshes),)
    if len(meshes) == 1:
        return planned_on(meshes[0], limits)
    share, refusals = limits.one_of(len(meshes)), list[tuple[DoesNotFit, BaseMesh]]()

    def best_on(meshes: Iterable[BaseMesh], best: Stage | None) -> Stage | None:
        for mesh in meshes:
            try:
                stage = planned_on(mesh, share)
            except DoesNotFit as error:
                refusals.append((error, mesh))
            else:
                best = stage if best is None or _is_better(stage.plan, best.plan) else best
        return best

    best = best_on(meshes, None)
    if best is None:  # what would fit is tried where least is held
        return planned_on(min(refusals, key=lambda refusal: refusal[0].least)[1], limits)
    while goes_on:
        finer = best_on(finer_meshes(best.mesh), best)
        assert finer is not None
        goes_on, best = finer is not best and _is_better(finer.plan, best.plan, MUCH), finer
    optimum = best.plan.optimum
    if limits.effort == 0 or (optimum is not None and optimum.is_proved):
        return best
    try:
        return planned_on(best.mesh, limits)
    except DoesNotFit:
        return best


def _is_better(plan: Plan, other: Plan, much: float = 1.0) -> bool:
    """Whether it comes nearer to the memory than one that does not fit, or takes less time than the other one's times `much`."""
    assert plan.cost is not None and other.cost is not None and plan.target is not None
    over, over_other = (max(0.0, cost.peak_bytes - plan.target.topology.memory) for cost in (plan.cost, other.cost))
    return over < over_other or (over == over_other and plan.cost.seconds < much * other.cost.seconds)


def finer_meshes(mesh: BaseMesh) -> Iterator[BaseMesh]:
    """The same devices with one of the axes divided, in every way: (4, 8) is (2, 2, 8), (4, 2, 4) and (4, 4, 2). What can be done
    on the mesh can be done on these, too, with the parts together. A mesh of one axis is left as it is: every two are tried."""
    if not 1 < len(mesh.axis_names) < len(AXES):
        return
    sizes = mesh.axis_sizes
    for i, size in enumerate(sizes):
        yield from (_shaped(mesh, (*sizes[:i], n, size // n, *sizes[i + 1 :])) for n in range(2, size) if size % n == 0)


def mesh_of_saved(path: str, meshes: Sequence[BaseMesh]) -> BaseMesh:
    """That of the meshes, or of those that divide axes of one, which the plan in this file is for; the first if none is."""
    shape = read(path)["mesh"]
    sizes = tuple([n for n in shape.values() if isinstance(n, int)])
    if 2 < len(sizes) <= len(AXES) and math.prod(sizes) == meshes[0].size:
        meshes = (*meshes, _shaped(meshes[0], sizes))
    return next((mesh for mesh in meshes if dict(mesh.shape) == shape), meshes[0])


def _shaped(mesh: BaseMesh, shape: tuple[int, ...]) -> BaseMesh:
    """The same devices as a mesh of this shape."""
    names = AXES[: len(shape)]
    if isinstance(mesh, Mesh):
        return Mesh(np.reshape(mesh.devices, shape), names)
    return AbstractMesh(shape, names, abstract_device=getattr(mesh, "abstract_device", None))
