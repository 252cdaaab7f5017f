"""What the type rules say when something does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit.ops  # noqa: F401
from meshjit.core.op import REGISTRY
from meshjit.core.types import DTYPES, TensorType
from sharding.spec import PartitionSpec

REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("add", "f32[4] f32[5]", {}, "add: operand shapes differ: f32[4] and f32[5]"),
    ("add", "f32[4] i32[4]", {}, "add: operand dtypes differ: f32[4] and i32[4]"),
    ("add", "bool[4] bool[4]", {}, "add: takes number operands, was given bool[4]"),
    ("add", "f32[4]", {}, "add: takes 2 operands, was given 1"),
    ("integer_pow", "i32[4]", {"exponent": -1}, "integer_pow: param exponent is -1: operand i32[4] has no inverse"),
    ("compare", "f32[] f32[]", {"direction": "lt"}, "compare: param direction is 'lt': write one of EQ NE LT LE GT GE"),
    ("compare", "c64[] c64[]", {"direction": "LT"}, "compare: param direction is LT: c64[] has no order"),
    ("select", "f32[4] f32[4] f32[4]", {}, "select: pred must be bool, is f32[4]"),
    ("select", "bool[] f32[4] f32[4]", {}, "select: pred bool[] and branches f32[4] differ in shape"),
    (
        "bitcast_convert",
        "f32[4]",
        {"dtype": DTYPES["i16"]},
        "bitcast_convert: param dtype is int16: f32[4] has 32 bits per element and int16 has 16",
    ),
    ("complex", "f16[4] f16[4]", {}, "complex: parts must be f32 or f64, are f16[4]"),
    (
        "broadcast_in_dim",
        "f32[4]",
        {"shape": (3, 5), "dimensions": (1,)},
        "broadcast_in_dim: param shape is (3, 5): dim 0 of operand f32[4] has extent 4, which cannot become 5",
    ),
    (
        "reshape",
        "f32[4,3]",
        {"shape": (5,)},
        "reshape: param shape is (5,): it holds 5 elements, operand f32[4,3] has 12",
    ),
    (
        "transpose",
        "f32[4,3]",
        {"permutation": (0, 0)},
        "transpose: param permutation is (0, 0): operand f32[4,3] has 2 dims; name each once",
    ),
    (
        "slice",
        "f32[4]",
        {"start": (1,), "limit": (5,), "strides": (1,)},
        "slice: dim 0 of operand f32[4] cannot be cut to [1:5:1]",
    ),
    (
        "concatenate",
        "f32[4,3] f32[4,2]",
        {"dimension": 0},
        "concatenate: operands f32[4,3] and f32[4,2] differ in more than dim 0",
    ),
    ("reduce_sum", "f32[4]", {"axes": (1,)}, "reduce_sum: param axes is (1,): name each dim of f32[4] at most once"),
    ("reduce_sum", "bool[4]", {"axes": (0,)}, "reduce_sum: takes number operands, was given bool[4]"),
    (
        "argmax",
        "f32[2,0]",
        {"axis": 1, "index_dtype": DTYPES["i32"]},
        "argmax: dim 1 of operand f32[2,0] is empty: there is no place to give",
    ),
    (
        "dynamic_slice",
        "f32[4,3] i32[]",
        {"slice_sizes": (2, 3)},
        "dynamic_slice: operand f32[4,3] needs 2 starts, was given 1",
    ),
    (
        "dynamic_update_slice",
        "f32[4] f32[5] i32[]",
        {},
        "dynamic_update_slice: update f32[5] is no part of operand f32[4]",
    ),
    (
        "iota",
        "",
        {"dtype": DTYPES["bool"], "shape": (3,), "dimension": 0},
        "iota: param dtype is bool: a number is needed",
    ),
    (
        "sharding_constraint",
        "f32[4]",
        {"spec": PartitionSpec("x", "y")},
        "sharding_constraint: param spec is P('x', 'y'): operand f32[4] has 1 dims",
    ),
]


@pytest.mark.parametrize(("name", "types", "params", "message"), REFUSED, ids=[f"{r[0]}-{r[1]}" for r in REFUSED])
def test_type_rules_say_what_does_not_fit(name: str, types: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as error:
        REGISTRY[name].type_rule(tuple(map(TensorType.parse, types.split())), params)
    assert str(error.value) == message


def test_helpers_make_constants_of_any_size() -> None:
    from meshjit.core.program import Builder
    from meshjit.ops.base.constants import full, ones, scalar, zeros, zeros_like

    huge = TensorType((1 << 20, 1 << 20), DTYPES["bf16"])
    with Builder("constants") as builder:
        made = [full(huge, 2), zeros(huge), ones(huge), scalar(-1.5, np.float32), zeros_like(zeros(huge))]
    assert [v.type for v in made[:3]] == [huge] * 3 and made[3].type == TensorType((), DTYPES["f32"])
    assert all(not any(eqn.params["value"].strides) for eqn in builder.eqns)
