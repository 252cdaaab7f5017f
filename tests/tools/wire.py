"""How much a function puts on the wire, for tests: its plan, its local program and the collectives by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import tree
from meshjit.core.collective import collectives_in
from meshjit.core.program import Program
from meshjit.core.target import Target
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.inspect.collectives import collective_rows
from meshjit.partition.partition import partition
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import PartitionSpec
from meshjit.simulate.devices import gather, scatter, simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.trace import Argument, trace_to_program
from meshjit.transform.pipeline import simplify
from sharding.mesh import AbstractMesh
from tests.tools.laws import check_law

Specs = Sequence[PartitionSpec | None]
MESH = AbstractMesh((4, 2), ("data", "model"))


def traced(fun: Callable[..., Any], types: Sequence[str]) -> Program:
    """The Program of `fun` of arguments of these types, such as "f32[8, 4]"."""
    arguments = [Argument(TensorType.parse(t), False, f"a{i}") for i, t in enumerate(types)]
    found = trace_to_program(fun, arguments, tree.structure((tuple(range(len(arguments))), {})))
    assert not found.captured, "the function closes over arrays"
    return simplify(found.program)


def partitioned_program(
    program: Program, mesh: AbstractMesh, inputs: Specs, outputs: Specs, target: Target | None = None
) -> Program:
    return verify(simplify(partition(make_plan(program, mesh, Annotations(inputs, outputs), target))))


def traffic(
    fun: Callable[..., Any], types: Sequence[str], mesh: AbstractMesh, inputs: Specs, outputs: Specs, target: Target | None = None
) -> dict[str, float]:
    """Bytes that one device puts on the wire, by collective; on CPUs if no target is given."""
    local = partitioned_program(traced(fun, types), mesh, inputs, outputs, target)
    found: dict[str, float] = {}
    for each in collectives_in(local, mesh):
        found[each.kind] = found.get(each.kind, 0.0) + each.wire_bytes(mesh)
    return found


def check_function(
    fun: Callable[..., Any], arrays: Sequence[np.ndarray[Any, Any]], mesh: AbstractMesh, inputs: Specs, outputs: Specs,
    exact: bool = True,
) -> None:
    """The law for a whole function: partitioned and unpartitioned agree."""
    types = [str(TensorType(tuple(a.shape), a.dtype)) for a in arrays]
    check_law(traced(fun, types), mesh, inputs, outputs, arrays, exact)


def moved(
    fun: Callable[..., Any],
    arguments: dict[str, PartitionSpec | None],
    outputs: Specs,
    mesh: AbstractMesh = MESH,
    target: Target | None = None,
) -> list[str]:
    """What goes over the wire when `fun` runs on arguments of these types and specs; also checks what it computes."""
    types = [text.split("#")[0].strip() for text in arguments]  # "f32[8, 4] #2" is another argument of that type
    program = traced(fun, types)
    plan = make_plan(program, mesh, Annotations(list(arguments.values()), list(outputs)), target)
    local = simplify(partition(plan))
    generator = np.random.default_rng(0)
    arrays = [generator.integers(0, 2, t.shape).astype(t.dtype) for t in program.input_types]
    shards = [scatter(a, p, mesh) for a, p in zip(arrays, plan.inputs, strict=True)]
    for got, placement, want in zip(simulate(local, mesh, shards), plan.outputs, evaluate(program, arrays), strict=True):
        np.testing.assert_allclose(gather(got, placement, want.shape, mesh), want, rtol=1e-4)
    return [f"{row.count} {row.kind}({row.axes}) {row.bytes}" for row in collective_rows(local, mesh)]
