"""Every op under random placements of its operands and results, even and uneven, against its NumPy meaning."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import meshjit.ops  # noqa: F401
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder
from tests.tools.laws import MESHES, check_law, random_spec

CASES = [
    pytest.param(name, i, id=f"{name}-{i}")
    for name, op in sorted(REGISTRY.items())
    if not op.is_local
    for i, _ in enumerate(op.samples())
]
TRIALS = 6


@pytest.mark.parametrize(("name", "index"), CASES)
def test_partitioned_op_is_the_op(name, index):
    op = REGISTRY[name]
    sample = list(op.samples())[index]
    generator = np.random.default_rng(zlib.crc32(f"{name}-{index}".encode()))
    arrays = sample.arrays(generator)
    with Builder(name) as builder:
        inputs = [builder.input(t) for t in sample.types]
        program = builder.build(builder.emit(op, inputs, sample.params))
    meshes = [m for m in MESHES if op.seed is None or {"x", "y"} <= set(m.axis_names)]
    for _ in range(TRIALS):
        mesh = meshes[int(generator.integers(len(meshes)))]
        given = [random_spec(generator, t.rank, mesh) for t in sample.types]
        wanted = [random_spec(generator, v.rank, mesh) for v in program.outputs]
        check_law(program, mesh, given, wanted, arrays, exact=False)
