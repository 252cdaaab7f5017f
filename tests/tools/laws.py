"""The laws of the design, as functions for tests: simulate(partition(plan), mesh) == evaluate(program), and the collectives that a
plan predicts are those that partitioning writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from meshjit.core.collective import Collective, collectives_in
from meshjit.core.plan import Plan
from meshjit.core.program import Program
from meshjit.core.types import TensorType, is_inexact
from meshjit.core.verify import verify
from meshjit.partition.partition import write_locally
from meshjit.plan.make import Annotations, make_plan
from meshjit.simulate.devices import gather, scatter, simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.pipeline import finish
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec


def partitioned(program: Program, mesh: Any, inputs: Sequence[Any], outputs: Sequence[Any], arrays: Sequence[Any]) -> Any:
    """What the mesh's devices compute together: (results, plan, local program)."""
    plan = make_plan(program, mesh, Annotations(inputs, outputs))
    local = verify(partitioned_as_predicted(plan), "partition")
    shards = [scatter(np.asarray(a), p, mesh) for a, p in zip(arrays, plan.inputs, strict=True)]
    with np.errstate(all="ignore"):
        results = simulate(local, mesh, shards)
    shapes = [v.shape for v in program.outputs]
    whole = [gather(r, p, s, mesh) for r, p, s in zip(results, plan.outputs, shapes, strict=True)]
    return whole, plan, local


def partitioned_as_predicted(plan: Plan) -> Program:
    """The local program of a plan. AssertionError where its collectives are not those that the plan predicts."""
    assert plan.target is not None
    local = write_locally(plan, plan.target)
    predicted, written = counted(plan.collectives), counted(collectives_in(local, plan.mesh))
    assert predicted == written, f"the plan predicts {predicted}, partitioning writes {written}\n{plan}\n{local}"
    return finish(local, plan.mesh, plan.target.topology)


def counted(collectives: Iterable[Collective]) -> dict[tuple[str, tuple[str, ...], float], float]:
    """Trips by kind, axes and bytes; of a permute by kind and bytes: among holders of one shard the sender may stand anywhere."""
    counts: dict[tuple[str, tuple[str, ...], float], float] = {}
    for each in collectives:
        axes = () if each.kind == "collective_permute" else tuple(map(str, each.axes))
        key = each.kind, axes, each.nbytes
        counts[key] = counts.get(key, 0.0) + each.trips
    return counts


def check_law(
    program: Program, mesh: AbstractMesh, inputs: Sequence[Any], outputs: Sequence[Any], arrays: Sequence[Any], exact: bool = True
) -> Any:
    """Raise AssertionError, with the plan and the local program, unless partitioned and unpartitioned agree."""
    with np.errstate(all="ignore"):
        expected = evaluate(program, arrays)
    found, plan, local = partitioned(program, mesh, inputs, outputs, arrays)
    for i, (got, want) in enumerate(zip(found, expected, strict=True)):
        message = f"output {i} on {mesh}, inputs {inputs}, outputs {outputs}\n{plan}\n{local}"
        if exact or not is_inexact(want.dtype):
            np.testing.assert_array_equal(got, want, err_msg=message)
        else:
            tolerance = 1e-4 if want.dtype.itemsize >= 4 else 3e-2
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(
                got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance, err_msg=message
            )
    return plan, local


def random_spec(
    generator: np.random.Generator, rank: int, mesh: AbstractMesh, sums: bool = False
) -> PartitionSpec | None:
    """A random spec for a value of this rank: axes dealt to random dims; sometimes None. With `sums` some of the axes that are
    left are unreduced now and then."""
    if generator.random() < 0.2:
        return None
    dims: list[list[str]] = [[] for _ in range(rank)]
    for axis in generator.permutation(list(mesh.axis_names)):
        if rank and generator.random() < 0.7:
            dims[int(generator.integers(rank))].append(str(axis))
    spec = PartitionSpec(*[tuple(d) if d else None for d in dims])
    if not sums or generator.random() < 0.8:
        return spec
    left = [a for a in mesh.axis_names if not any(a in d for d in dims)]
    return spec.update(unreduced=[a for a in left if generator.random() < 0.6])


def normals(generator: np.random.Generator, type: TensorType) -> np.ndarray[Any, Any]:
    """Normally distributed numbers, complex ones where the type is."""
    parts = generator.normal(size=(2, *type.shape))
    return (parts[0] + 1j * parts[1] if type.dtype.kind == "c" else parts[0]).astype(type.dtype)


MESHES = [
    AbstractMesh((2,), ("x",)),
    AbstractMesh((4,), ("x",)),
    AbstractMesh((2, 2), ("x", "y")),
    AbstractMesh((4, 2), ("x", "y")),
    AbstractMesh((2, 2, 2), ("x", "y", "z")),
    AbstractMesh((3, 2), ("x", "y")),
    AbstractMesh((4, 1), ("x", "y")),
    AbstractMesh((1, 2), ("x", "y")),
    AbstractMesh((1,), ("x",)),
]
