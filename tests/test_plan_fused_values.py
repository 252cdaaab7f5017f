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


def parts(fun: Callable[..., Any], *types: str) -> list[tuple[str, float]]:
    """The ops of those that take less than their bytes, with the part that they take."""
    program = traced(fun, list(types))
    fused = fused_values(program)
    values = [(eqn.op.name, eqn.outputs[0]) for eqn in program.eqns if eqn.outputs[0].type.nbytes > 1024]
    return sorted({(name, round(fused[v], 2)) for name, v in values if v in fused})


def taken(*names: str, part: float = 0.0) -> list[tuple[str, float]]:
    return [(name, part) for name in names]


ROWS = "f32[64]"
CASES: dict[str, tuple[Callable[..., Any], tuple[str, ...], list[tuple[str, float]]]] = {
    "what repeats elements": (lambda x, v: mnp.tanh(x * v[:, None]) @ x, (SQUARE, ROWS), [*taken("broadcast_in_dim"), *taken("multiply", part=0.02)]),
    "a mask of places": (lambda x: mnp.where(mnp.tri(64, dtype=bool), x, 0.0), (SQUARE,), taken("compare", "constant", "iota")),
    "what is summed": (lambda v: mnp.sum(mnp.broadcast_to(v[:, None], (64, 64)), 1), (ROWS,), taken("broadcast_in_dim", part=0.02)),
    "what a product reads": (lambda x, v: mnp.broadcast_to(v[:, None], (64, 64)) @ x, (SQUARE, ROWS), []),
    "what is handed over": (lambda v: mnp.broadcast_to(v[:, None], (64, 64)), (ROWS,), []),
    "behind a barrier": (lambda x, v: x * lax.optimization_barrier(mnp.broadcast_to(v[:, None], (64, 64))), (SQUARE, ROWS), []),
    "what others are made of, too": (lambda x: (mnp.tanh(x) * mnp.exp(x)) @ x, (SQUARE,), taken("exponential", "tanh")),
    "a chain": (lambda x: mnp.sin(mnp.tanh(x)) @ mnp.ones((64, 1), np.float32), (SQUARE,), taken("tanh", part=1.0)),
    "half as much": (lambda x: mnp.sum(x.astype(np.float32) ** 2), ("bf16[64, 64]",), [*taken("convert"), *taken("integer_pow", part=0.5)]),
    "two for one": (lambda x, y: mnp.sin(x * y) @ y, (SQUARE, SQUARE), taken("multiply", part=1.0)),
    "an array that somebody gave": (lambda x: x * np.arange(4096.0, dtype=np.float32).reshape(64, 64) ** 0.5, (SQUARE,), []),
    "what a loop reads": (
        lambda x, v: lax.fori_loop(0, 3, lambda i, c: c * mnp.tanh(c), mnp.broadcast_to(v[:, None], (64, 64))) + x, (SQUARE, ROWS), [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_takes_less_memory(case: str) -> None:
    fun, types, expected = CASES[case]
    assert parts(fun, *types) == expected


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = mnp.where(mnp.tri(q.shape[1], dtype=bool), q @ k.swapaxes(1, 2), -1e9)
    return nn.softmax(scores) @ v


def test_a_mask_and_what_repeats_sums_are_not_held() -> None:
    """At the peak attention holds its scores, which their exponentials replace; a mask and a row's extreme, repeated, were two more."""
    program: Program = traced(attention, ["f32[8, 256, 16]"] * 3)
    specs = [mj.sharding.PartitionSpec("data")] * 3
    plan = make_plan(program, MESH, Annotations(specs, specs[:1]))
    scores = 4 * math.prod((8 // MESH.shape["data"], 256, 256))
    assert plan.cost is not None and scores < plan.cost.peak_bytes < 1.5 * scores
