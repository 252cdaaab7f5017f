"""Shifts of one value as parts of one padded value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import numpy as mnp
from meshjit.core.program import Builder, Program
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.arithmetic import add
from meshjit.ops.slicing.roll import shift
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.share_shifts import share_shifts


def shifted(dtype: str, *amounts: tuple[tuple[int, int], ...]) -> Program:
    """Shifts of a value that is computed from a shift; each by several (amount, dimension) one after the other."""
    with Builder("main") as builder:
        x = builder.input(TensorType((5, 4), DTYPES[dtype]))
        value = add(x, shift(x, shift=1, dimension=0))
        results = []
        for steps in amounts:
            result = value
            for amount, dim in steps:
                result = shift(result, shift=amount, dimension=dim)
            results.append(result)
        return builder.build(results)


@pytest.mark.parametrize("dtype", ["f32", "c64", "i32"])
@pytest.mark.parametrize(
    ("amounts", "pads"),
    [
        ((((1, 0),), ((-1, 0),), ((2, 1),), ((-1, 1),)), 1),
        ((((1, 0), (1, 1)), ((-1, 0), (1, 1)), ((1, 0), (-1, 1))), 1),
        ((((1, 0), (2, 0)), ((3, 0),), ((-3, 0), (1, 0))), 1),  # twice along one dim stays twice
        ((((1, 0),), ((7, 0),), ((-9, 1),), ((4, 1), (1, 0))), 0),  # beyond the end
        ((((1, 0),), ((1, 0),)), 0),
        ((((0, 0),), ((0, 1),)), 0),
    ],
)
def test_values_stay(dtype: str, amounts: Any, pads: int) -> None:
    program = shifted(dtype, *amounts)
    other = share_shifts(program)
    x = np.arange(1, 21).reshape(5, 4).astype(DTYPES[dtype])
    for got, want in zip(evaluate(other, [x]), evaluate(program, [x]), strict=True):
        np.testing.assert_array_equal(got, want)
    assert sum(eqn.op.name == "pad" for eqn in other.eqns) == pads


def sweeps(u: Any) -> Any:
    for _ in range(4):
        q = mnp.pad(u, 1)
        u = 0.2 * (u + q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:])
    return u


def test_sweeps_of_a_stencil_are_not_computed_again_for_each_that_reads_them() -> None:
    x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    lowered = mj.jit(sweeps).lower(x)
    assert lowered.as_text("local").count("pad(") == 3, "the first reads what stands in memory"
    assert lowered.compile().as_text().count(" add(") < 120, "4 · 4, and those of places"
    text = mj.jit(mj.vmap(sweeps)).lower(np.stack([x] * 2)).as_text("local")
    assert text.count("pad(") == 3


def test_what_is_sent_anyway_is_not_padded() -> None:
    mesh = Mesh(np.array(mj.devices()[:4]), ("x",))
    rows = NamedSharding(mesh, P("x", None))
    lowered = mj.jit(sweeps, in_shardings=rows, out_shardings=rows).lower(np.zeros((64, 64), np.float32))
    assert "pad(" not in lowered.as_text("local")
