"""Every op beside every kind of loop and branch, compiled on a mesh: what XLA makes of an op must fit what it makes of loops.

XLA expands some ops (erf, top_k, sorts of several operands, …) and passes their results into loops as parts of tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit.core.op import REGISTRY, Op, Sample
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.constants import scalar
from meshjit.plan.make import Annotations
from meshjit.runtime.executable import Executable
from meshjit.runtime.lowering import lower
from meshjit.runtime.placing import place
from meshjit.simulate.evaluate import evaluate
from sharding.mesh import Mesh
from tests.tools.laws import random_spec
from tests.tools.op_harness import GLOBAL_OPS, assert_close, called, describe, out_types, samples

I32 = TensorType((), DTYPES["i32"])
SCALES = {"lgamma": 20.0, "digamma": 20.0, "polygamma": 50.0}  # XLA's f32 approximations are this much worse


def chosen(op: Op) -> list[Sample]:
    """A sample that has elements; ops that have none such give their first."""
    full = [s for s in samples(op) if all(t.size for t in out_types(op, s)) and all(t.size for t in s.types)]
    return full[:1] or samples(op)[:1]


def body(types: Sequence[TensorType], results: Any) -> Program:
    with Builder("body") as builder:
        return builder.build(results(*[builder.input(t) for t in types]))


def looped(op: Op, sample: Sample) -> Program:
    """The op's results as slices, constants, carries and operands of loops and branches, and the op inside of them."""
    with Builder(op.name) as builder:
        operands, count = [builder.input(t) for t in sample.types], builder.input(I32)
        results = called(op, operands, sample.params)
        outputs = list(results)
        for value in results:
            outputs += [*scanned(value), closed_over(value), carried(value, count), *branched(value, count)]
        return builder.build([*outputs, *inside(op, sample, operands)])


def scanned(value: Var) -> list[Var]:
    """As slices, which come out again as carry and stacked."""
    if not value.rank or not value.shape[0]:
        return []
    slice = value.type.with_shape(value.shape[1:])
    step = body([slice, slice], lambda carry, x: [x, x])
    start = REGISTRY["constant"](value=np.zeros(slice.shape, slice.dtype))
    params = {"body": step, "length": value.shape[0], "reverse": False, "unroll": 1, "num_consts": 0, "num_carry": 1}
    return list(REGISTRY["scan"](start, value, **params))


def closed_over(value: Var) -> Var:
    """By a loop that stacks it."""
    step = body([value.type], lambda x: [x])
    return REGISTRY["scan"](value, body=step, length=2, reverse=False, unroll=1, num_consts=1, num_carry=0)


def carried(value: Var, count: Var) -> Var:
    """Into a while loop, which another value that it closes over replaces in its first iteration."""
    cond = body([I32, I32, value.type], lambda n, i, x: [REGISTRY["compare"](i, n, direction="LT")])
    step = body([value.type, I32, value.type], lambda x, i, y: [REGISTRY["add"](i, scalar(1, I32.dtype)), x])
    loop = {"cond": cond, "body": step, "cond_consts": 1, "body_consts": 1}
    return REGISTRY["while"](count, value, scalar(0, I32.dtype), value, **loop)[1]


def branched(value: Var, count: Var) -> list[Var]:
    """By one branch of three, and as the operand that another branch gives."""
    other = REGISTRY["constant"](value=np.zeros(value.shape, value.dtype))
    types = [value.type, other.type]
    branches = tuple(body(types, lambda x, y, i=i: [(x, y)[i % 2]]) for i in range(3))
    return [REGISTRY["case"](index, value, other, branches=branches) for index in (count, scalar(0, I32.dtype))]


def inside(op: Op, sample: Sample, operands: Sequence[Var]) -> list[Var]:
    """Called in the body of a loop."""
    step = body(sample.types, lambda *xs: called(op, xs, sample.params))
    params = {"length": 2, "reverse": False, "unroll": 1, "num_consts": len(operands), "num_carry": 0}
    results = REGISTRY["scan"](*operands, body=step, **params)
    return list(results) if isinstance(results, tuple) else [results]


@pytest.mark.device
@pytest.mark.parametrize("op", GLOBAL_OPS, ids=str)
def test_results_pass_through_loops_and_branches_on_a_mesh(op: Op) -> None:
    mesh = Mesh(np.array(mj.devices()[:4]).reshape(2, 2), ("x", "y"))
    generator = np.random.default_rng(len(op.name))
    for sample in chosen(op):
        program, arrays = looped(op, sample), [*sample.arrays(generator), np.array(2, np.int32)]
        specs = [[random_spec(generator, v.rank, mesh) for v in vs] for vs in (program.inputs, program.outputs)]
        executable = Executable(lower(program, mesh, Annotations(*specs)), [False] * len(program.outputs))
        placed = [place(a, s, committed=True) for a, s in zip(arrays, executable.in_shardings, strict=True)]
        with np.errstate(all="ignore"):
            expected = evaluate(program, arrays)
        for i, (got, want) in enumerate(zip(executable(placed), expected, strict=True)):
            assert_close(np.asarray(got), want, f"{describe(op, sample)}: output {i}", SCALES.get(op.name, 1.0))
