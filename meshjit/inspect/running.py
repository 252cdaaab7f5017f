"""Runs a Program in two ways for `meshjit.verify`: cut up over a mesh, and whole. Both give every value in between.

On devices both ways go through XLA, so that only partitioning makes a difference; without devices both are NumPy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.plan import Plan
from meshjit.core.program import Program, Var
from meshjit.core.region import run_programs
from meshjit.core.types import TensorType, is_float
from meshjit.emit.module import emit
from meshjit.partition.partition import partition
from meshjit.partition.watch import partition_watched
from meshjit.runtime import _jaxlib
from meshjit.runtime.shardings import one_device_mesh
from meshjit.runtime.targets import target_for
from meshjit.simulate.devices import scatter, simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.pipeline import clean
from sharding.axes import AxisRef
from sharding.mesh import BaseMesh, Mesh
from sharding.spec import Placement

Array = np.ndarray[Any, Any]
_REDUCTIONS: dict[str, Any] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip


class ReplicasDiffer(Exception):
    """Two devices that should hold the same hold something else; `device` is the second of them."""

    def __init__(self, device: int, first: Array, second: Array) -> None:
        super().__init__(f"device {device}")
        self.device, self.first, self.second = device, first, second


def run_whole(program: Program, arrays: Sequence[Array], device: Any) -> dict[Var, Array]:
    """Every value of the Program, on one device, or in NumPy where there is none, or where code in it is for several."""
    variables = tuple(v for eqn in program.eqns for v in eqn.outputs)
    watched = dataclasses.replace(program, outputs=variables)
    if device is None or _is_for_several(program):
        with np.errstate(all="ignore"):
            return dict(zip(variables, evaluate(watched, arrays), strict=True))
    mesh = one_device_mesh(device)
    results = _run(emit(watched, mesh, target=target_for(mesh)), mesh, [[a] for a in arrays], watched.output_types)
    return {var: shards[0] for var, shards in zip(variables, results, strict=True)}


def _is_for_several(program: Program) -> bool:
    """Whether an equation, nested ones included, holds code for single devices of a mesh, which one device cannot run."""
    return any(
        eqn.op.regions is not None and (eqn.op.pinned is not None or any(map(_is_for_several, run_programs(eqn))))
        for eqn in program.eqns
    )


@dataclasses.dataclass(frozen=True)
class Shards:
    """What the devices held: of every value, and of every output of the Program. `usual` are the outputs of the program
    that hands over nothing else, which XLA optimises otherwise; none where it does not come to XLA."""

    values: dict[Var, tuple[Placement, list[Array]]]
    outputs: list[tuple[Placement, list[Array]]]
    usual: list[tuple[Placement, list[Array]]]


def run_partitioned(plan: Plan, arrays: Sequence[Array], on_devices: bool) -> Shards:
    """Everything that the devices of the plan's mesh hold, or would hold. Padding starts as nan: it must not matter."""
    watched, target = partition_watched(plan), plan.target or target_for(plan.mesh)
    local = clean(watched.local, target)
    shards = [scatter(a, p, plan.mesh) for a, p in zip(arrays, plan.inputs, strict=True)]
    usual: list[list[Array]] = []
    if on_devices:
        results = _run(emit(local, plan.mesh, target=target), plan.mesh, shards, local.output_types)
        alone = clean(partition(plan), target)
        usual = _run(emit(alone, plan.mesh, target=target), plan.mesh, shards, alone.output_types)
    else:
        with np.errstate(all="ignore"):
            results = simulate(local, plan.mesh, shards)
    count = len(plan.outputs)
    pairs = zip(watched.values, results[count:], strict=True)
    values = {var: (placement, shards) for (var, placement), shards in pairs}
    outputs = list(zip(plan.outputs, results[:count], strict=True))
    return Shards(values, outputs, list(zip(plan.outputs, usual, strict=False)))


def _run(text: str, mesh: Any, shards: Sequence[Sequence[Array]], outputs: Sequence[TensorType]) -> list[list[Array]]:
    """Compile and run once; `shards[i]` are input i's arrays, one per device, and so are the results."""
    assert isinstance(mesh, Mesh)
    row = tuple(mesh.flat_devices)
    executable = _jaxlib.compile(row[0].client, text, row)
    handles = [_jaxlib.put([np.ascontiguousarray(a).reshape(a.shape) for a in each], row) for each in shards]
    results = _jaxlib.execute(executable, handles, [(t.shape, t.dtype) for t in outputs], row)
    return [[np.asarray(array) for _, array in _jaxlib.fetch(result)] for result in results]


# --- one array from its shards ----------------------------------------------------------------------------------------


def assemble(shards: Sequence[Array], placement: Placement, shape: Sequence[int], mesh: BaseMesh) -> Array:
    """The array that shards hold together; addends are added up. ReplicasDiffer where two devices should agree."""
    if placement.partial:
        shards = _reduced(shards, placement.partial_axes, str(placement.partial_kind), mesh)
    local = placement.local_shape(shape, mesh)
    whole = np.zeros([n * placement.shards(d, mesh) for d, n in enumerate(local)], shards[0].dtype)
    places = [mesh.axes_index(axes) for axes in placement.dims]
    seen: dict[tuple[int, ...], Array] = {}
    for device, shard in enumerate(shards):
        key = tuple(int(p[device]) for p in places)
        inside = tuple(slice(0, max(0, min(n, e - k * n))) for k, n, e in zip(key, local, shape, strict=True))
        first = seen.setdefault(key, shard)
        if first is not shard and not _same_bits(first[inside], shard[inside]):
            raise ReplicasDiffer(device, first[inside], shard[inside])
        whole[tuple(slice(k * n, (k + 1) * n) for k, n in zip(key, local, strict=True))] = shard
    return whole[tuple(slice(0, n) for n in shape)]


def _same_bits(a: Array, b: Array) -> bool:
    first, second = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b))
    return np.array_equal(first, second)


def _reduced(shards: Sequence[Array], axes: Sequence[AxisRef], kind: str, mesh: BaseMesh) -> list[Array]:
    """Every device's shard after an all-reduce; floats of 8 and 16 bits are added in float32."""
    reduced: list[Array] = [shards[0]] * len(shards)
    dtype = shards[0].dtype
    wide = np.dtype(np.float32) if is_float(dtype) and dtype.itemsize < 4 else dtype
    for group in mesh.replica_groups(axes):
        total = shards[group[0]].astype(wide)
        with np.errstate(all="ignore"):
            for device in group[1:]:
                total = np.asarray(_REDUCTIONS[kind](total, shards[device].astype(wide)))
        for device in group:
            reduced[device] = total.astype(dtype)
    return reduced
