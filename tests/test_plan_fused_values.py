"""Values that take no memory, because compilers compute them where they are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.core.program import Program
from meshjit.plan.fused_values import fused_values
from meshjit.plan.make import Annotations, make_plan
from tests.tools.wire import MESH, traced

SQUARE = "f32[64, 64]"


def names(fun: Callable[..., Any], *types: str) -> list[str]:
    """The ops of those that take none."""
    program = traced(fun, list(types))
    fused = fused_values(program)
    return sorted(eqn.op.name for eqn in program.eqns if eqn.outputs[0] in fused)


CASES = {
    "constants, and what repeats elements": (lambda x, v: mnp.tanh(x * v[:, None] + 2.0), (SQUARE, "f32[64]"), ["broadcast_in_dim", "constant"]),
    "a mask of places": (lambda x: mnp.where(mnp.tri(64, dtype=bool), x, 0.0), (SQUARE,), ["compare", "constant", "iota"]),
    "what is summed": (lambda v: mnp.sum(mnp.broadcast_to(v[:, None], (64, 64)), 1), ("f32[64]",), ["broadcast_in_dim"]),
    "what a product reads": (lambda x, v: mnp.broadcast_to(v[:, None], (64, 64)) @ x, (SQUARE, "f32[64]"), []),
    "what is handed over": (lambda v: mnp.broadcast_to(v[:, None], (64, 64)), ("f32[64]",), []),
    "behind a barrier": (lambda x, v: x * lax.optimization_barrier(mnp.broadcast_to(v[:, None], (64, 64))), (SQUARE, "f32[64]"), []),
    "what is as large": (lambda x: mnp.tanh(x) * mnp.exp(x), (SQUARE,), []),
    "an array that somebody gave": (lambda x: x * np.arange(4096.0, dtype=np.float32).reshape(64, 64) ** 0.5, (SQUARE,), []),
    "what a loop reads": (
        lambda x, v: lax.fori_loop(0, 3, lambda i, c: c * mnp.tanh(c), mnp.broadcast_to(v[:, None], (64, 64))) + x, (SQUARE, "f32[64]"), [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_takes_no_memory(case: str) -> None:
    fun, types, expected = CASES[case]
    assert sorted({*names(fun, *types)}) == expected


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = mnp.where(mnp.tri(q.shape[1], dtype=bool), q @ k.swapaxes(1, 2), -1e9)
    return nn.softmax(scores) @ v


def test_a_mask_and_what_repeats_sums_are_not_held() -> None:
    """At the peak attention holds its scores and what they become; a mask and a row's extreme, repeated, were two more."""
    program: Program = traced(attention, ["f32[8, 256, 16]"] * 3)
    specs = [mj.sharding.PartitionSpec("data")] * 3
    plan = make_plan(program, MESH, Annotations(specs, specs[:1]))
    scores = 4 * math.prod((8 // MESH.shape["data"], 256, 256))
    assert plan.cost is not None and 2 * scores < plan.cost.peak_bytes < 2.5 * scores
