"""Functions that are planned and not run: what stands in a Compiled's place under `meshjit inspect --abstract`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from meshjit.api.stages import Lowered, Planned, Traced
from meshjit.api.watching import imaginers
from meshjit.core.program import Var
from meshjit.runtime.array import LeafKey
from meshjit.runtime.client import devices
from meshjit.runtime.placing import untouched_zeros
from meshjit.runtime.shardings import sharding_of
from meshjit.trees import WORDS as tree
from sharding.mesh import Mesh
from sharding.named import NamedSharding, SingleDeviceSharding
from sharding.spec import PartitionSpec, Placement

Planner = Callable[[Traced], Planned]


@contextmanager
def imagining(planner: Planner) -> Generator[None]:
    """Inside the block jitted functions are planned when they are called, or compiled ahead, and give zeros of the right types
    and placements."""

    def imagine(stage: Traced | Lowered) -> Imagined:
        return Imagined(planner(stage if isinstance(stage, Traced) else stage.traced))

    imaginers.append(imagine)
    try:
        yield
    finally:
        imaginers.remove(imagine)


class Imagined:
    """Called in a Compiled's place: it gives zeros. `call` is what it was asked for."""

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self.call = planned.call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(tree.leaves((args, kwargs)), False)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.call.title} was planned, not compiled: there is no {name} without running it")

    def spelt(self, keys: Sequence[LeafKey]) -> Imagined:
        return self

    def needs_moving(self, keys: Sequence[LeafKey]) -> bool:
        """So that no call goes past Python."""
        return True

    def run(self, leaves: Sequence[Any], steady: bool) -> Any:
        planned = self.planned
        plan, weak = planned.plan, planned.traced_program.out_weak
        here = _mesh_of(leaves)
        zeros = [self._zeros(*each, here) for each in zip(plan.program.outputs, plan.outputs, weak, strict=True)]
        return tree.unflatten(planned.traced_program.out_tree, zeros)

    def _zeros(self, var: Var, placement: Placement, weak: bool, here: Mesh | None) -> Any:
        """For a mesh without devices: whole on that of the arguments, or where they have none uncommitted on one device."""
        mesh, committed = self.planned.plan.mesh, self.planned.committed
        if not isinstance(mesh, Mesh) and here is not None:
            return untouched_zeros(var.type, NamedSharding(here, PartitionSpec()), True, weak)
        if not isinstance(mesh, Mesh):
            return untouched_zeros(var.type, SingleDeviceSharding(devices()[0]), False, weak)
        sharding = sharding_of(placement, mesh, None)
        return untouched_zeros(var.type, sharding, committed or not isinstance(sharding, SingleDeviceSharding), weak)


def _mesh_of(leaves: Sequence[Any]) -> Mesh | None:
    """That of the first argument that lies on one."""
    placed = [getattr(leaf, "sharding", None) for leaf in leaves]
    return next((s.mesh for s in placed if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh)), None)
