"""Batch rules against a Python loop, for batch dims at several places and operands of which only some have one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from meshjit.core.op import Op, Sample
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.transform.batch import batch
from tests.tools.op_harness import GLOBAL_OPS, Array, assert_close, build, describe, evaluated, run, samples

SIZE = 3
TOGETHER = ("gather_members", "scatter_members")  # whose members know of each other: test_lax_collectives.py
BATCHED_OPS = [op for op in GLOBAL_OPS if op.batch and op.name not in TOGETHER]


@pytest.mark.parametrize("op", BATCHED_OPS, ids=str)
def test_batch_is_a_loop(op: Op) -> None:
    generator = np.random.default_rng(5)
    for sample in samples(op):
        for dims in batch_dims(sample):
            check_batch(op, sample, dims, generator)


def batch_dims(sample: Sample) -> list[list[int | None]]:
    """All at the front, all at different places, and each operand alone."""
    ranks = [t.rank for t in sample.types]
    if not ranks:
        return []
    mixed = [r if i % 2 else min(i + 1, r) for i, r in enumerate(ranks)]
    alone = [[r if i == j else None for i, r in enumerate(ranks)] for j in range(len(ranks))]
    return [[0] * len(ranks), [*mixed], *(alone if len(ranks) > 1 else [])]


def check_batch(op: Op, sample: Sample, dims: Sequence[int | None], generator: np.random.Generator) -> None:
    members = [sample.arrays(generator) for _ in range(SIZE)]
    stacked = [members[0][i] if d is None else np.stack([m[i] for m in members], d) for i, d in enumerate(dims)]
    out_dims: list[int | None] = []

    def body(inputs: list[Var]) -> list[Var]:
        outs, found = op.batch(inputs, dims, sample.params, *([batch] if op.regions else []))
        assert len(outs) == len(found)
        out_dims.extend(found)
        return outs

    results = run(build([TensorType(a.shape, a.dtype) for a in stacked], body), stacked)
    for member in range(SIZE):
        operands = [members[0][i] if d is None else members[member][i] for i, d in enumerate(dims)]
        wanted = evaluated(op, operands, sample.params)
        for result, dim, want in zip(results, out_dims, wanted, strict=True):
            assert_close(taken(result, dim, member), want, f"{describe(op, sample)} batched at {list(dims)}")


def taken(array: Array, dim: int | None, member: int) -> Array:
    return array if dim is None else np.take(array, member, dim)
