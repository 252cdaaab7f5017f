"""Which updates are written to memory before they are put in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder, Program, Var
from meshjit.core.region import programs_of
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.constants import scalar
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.materialize_updates import materialize_updates

F32 = DTYPES["f32"]
op = REGISTRY.__getitem__


def block(x: Var, start: int, rows: int = 4) -> Var:
    return op("slice")(x, start=(start, 0), limit=(start + rows, 2), strides=(1, 1))


def at(start: int) -> tuple[Var, Var]:
    return scalar(start, np.int32), scalar(0, np.int32)


def viewed(x: Var) -> Var:
    return op("reshape")(op("reshape")(x, shape=(12,)), shape=(6, 2))


CASES: dict[str, tuple[int, Callable[[Var, Var], Var]]] = {  # how many updates are materialized
    "of blocks elsewhere": (1, lambda x, u: op("update_slice")(x, op("subtract")(block(x, 2), block(x, 0)), start=(1, 0))),
    "of a view of the operand": (1, lambda x, u: op("update_slice")(x, block(viewed(x), 2), start=(1, 0))),
    "into a view": (1, lambda x, u: op("update_slice")(viewed(x), block(x, 2), start=(1, 0))),
    "of blocks turned round": (
        1, lambda x, u: op("update_slice")(x, op("reverse")(block(x, 1), dimensions=(0,)), start=(1, 0))
    ),
    "behind another update": (
        1, lambda x, u: op("update_slice")(op("update_slice")(x, u, start=(0, 0)), block(x, 2), start=(1, 0))
    ),
    "at a computed place": (1, lambda x, u: op("dynamic_update_slice")(x, block(x, 2), *at(1))),
    "of the same block": (0, lambda x, u: op("update_slice")(x, op("add")(block(x, 1), u), start=(1, 0))),
    "of something else": (0, lambda x, u: op("update_slice")(x, op("reverse")(u, dimensions=(0,)), start=(1, 0))),
}  # fmt: skip


def program(make: Callable[[Var, Var], Var]) -> Program:
    with Builder("main") as builder:
        x, u = builder.input(TensorType((6, 2), F32)), builder.input(TensorType((4, 2), F32))
        return builder.build([make(x, u)])


def count(program: Program) -> int:
    nested = (inner for eqn in program.eqns for inner in programs_of(eqn.params))
    return sum(eqn.op.name == "materialize" for eqn in program.eqns) + sum(map(count, nested))


def arrays() -> list[Any]:
    return [np.arange(12, dtype=np.float32).reshape(6, 2) ** 2, np.arange(8, dtype=np.float32).reshape(4, 2)]


@pytest.mark.parametrize("name", CASES)
def test_an_update_is_materialized_where_it_reads_other_places_of_its_operand(name: str) -> None:
    expected, make = CASES[name]
    before = program(make)
    after = materialize_updates(before)
    assert count(after) == expected, f"{after}"
    np.testing.assert_array_equal(evaluate(after, arrays())[0], evaluate(before, arrays())[0])


def test_the_same_block_at_a_computed_place_stays_in_place() -> None:
    def make(x: Var, u: Var) -> Var:
        starts = at(1)
        mine = op("dynamic_slice")(x, *starts, slice_sizes=(4, 2))
        return op("dynamic_update_slice")(x, op("add")(mine, u), *starts)

    assert count(materialize_updates(program(make))) == 0


def test_updates_in_bodies_of_loops_are_seen() -> None:
    with Builder("body") as builder:
        x = builder.input(TensorType((6, 2), F32))
        body = builder.build([op("update_slice")(x, block(x, 2), start=(1, 0))])
    loop = {"body": body, "length": 3, "reverse": False, "unroll": 1, "num_consts": 0, "num_carry": 1}
    before = program(lambda x, u: op("scan")(x, **loop))
    after = materialize_updates(before)
    assert count(after) == 1
    np.testing.assert_array_equal(evaluate(after, arrays())[0], evaluate(before, arrays())[0])


def test_of_a_long_chain_of_updates_each_is_seen() -> None:
    """Deeper than Python's stack."""

    def make(x: Var, u: Var) -> Var:
        for i in range(2000):
            x = op("update_slice")(x, block(x, i % 3), start=(1, 0))
        return x

    assert count(materialize_updates(program(make))) == 1333  # every third is of the same block
