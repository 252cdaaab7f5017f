"""Elementwise ops on the values where conventions differ: nan, infinities, signed zeros, the ends of integers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from meshjit.core.op import Op, Params
from meshjit.core.types import DTYPES, type_of
from meshjit.ops.base.conversion import converted
from tests.tools.op_harness import GLOBAL_OPS, Array, evaluated, module, run_xla, samples, wide

FLOATS = [
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.49999997,
    3.0,
    1e30,
    -1e30,
    300.7,
    -1.7,
]

# Where what XLA's CPU backend gives is no promise: (op, dtype) -> why. Everything else has to agree.
UNSPECIFIED = {
    ("power", "i8"): "without MLIR, as tests compile, -1 to a negative power is 0",
    ("power", "u8"): "exponents of 128 and more are read as negative",
    ("power", "i32"): "exponents near the largest integer leave the loop too early",
}


def edge_values(dtype: str) -> Array:
    if DTYPES[dtype].kind in "iu":
        limits = np.iinfo(DTYPES[dtype])
        small = range(-3 if limits.min else 0, 4)
        return np.array([limits.min, limits.min + 1, *small, 7, 31, 32, limits.max - 1, limits.max], DTYPES[dtype])
    with np.errstate(all="ignore"):
        return np.array(FLOATS, np.float64).astype(DTYPES[dtype])


def combinations(dtype: str, count: int) -> list[Array]:
    """All combinations of edge values, one array per operand."""
    return [np.array(column) for column in zip(*itertools.product(edge_values(dtype), repeat=count), strict=True)]


CHOSEN = """negate add subtract multiply divide remainder maximum minimum abs sign floor ceil round_nearest_even
round_nearest_afz sqrt rsqrt is_finite compare and or xor not shift_left shift_right_arithmetic shift_right_logical
popcnt count_leading_zeros power reduce_precision exponential log tanh logistic""".split()


def edge_calls(op: Op) -> list[tuple[list[Array], Params]]:
    calls: list[tuple[list[Array], Params]] = []
    arity = len(samples(op)[0].types)
    params = list({str(s.params): s.params for s in samples(op)}.values())
    for dtype in ("f32", "i32", "i8", "u8", "bf16", "f64"):
        if (op.name, dtype) in UNSPECIFIED:
            continue
        arrays = combinations(dtype, arity)
        for each in params:
            try:
                op.type_rule(tuple(map(type_of, arrays)), each)
            except TypeError:
                continue
            calls.append((arrays, each))
    return calls


@pytest.mark.parametrize("name", CHOSEN)
def test_xla_agrees_at_the_edges(name: str) -> None:
    op = next(op for op in GLOBAL_OPS if op.name == name)
    check(op, edge_calls(op))


def check(op: Op, calls: list[tuple[list[Array], Params]]) -> None:
    typed = [(op, tuple(map(type_of, arrays)), params) for arrays, params in calls]
    emitted = [(op, ins, op.type_rule(ins, params), params) for op, ins, params in typed]
    outputs = tuple(t for _, _, outs, _ in emitted for t in outs)
    results = run_xla(module(emitted), [[a] for arrays, _ in calls for a in arrays], outputs)
    for (arrays, params), (got,) in zip(calls, results, strict=True):
        (want,) = evaluated(op, arrays, params)
        columns = [wide(a) for a in (*arrays, got, want)]
        rtol = {1: 0.1, 2: 0.02, 4: 1e-5, 8: 1e-12}[want.dtype.itemsize] if want.dtype.kind not in "iub" else 0
        bad = ~np.isclose(columns[-1], columns[-2], rtol=rtol, atol=1e-30, equal_nan=True)
        table = "\n".join(str([str(c[i]) for c in columns]) for i in np.flatnonzero(bad)[:20])
        assert not bad.any(), f"{op}({', '.join(str(a.dtype) for a in arrays)}) {params}: operands, XLA, NumPy\n{table}"


def test_conversions_at_the_edges() -> None:
    from meshjit.ops.base.conversion import convert

    names = ("f32", "f64", "bf16", "f16", "i32", "i8", "u8", "i64", "u32", "bool")
    sources = [edge_values(n) for n in names if n != "bool"]
    check(convert, [([a], {"dtype": DTYPES[b]}) for a in sources for b in names])


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (np.nan, "i32", 0),
        (3e9, "i32", 2**31 - 1),
        (-1.7, "i8", -1),
        (-1.7, "u8", 0),
        (300.0, "u8", 255),
        (np.nan, "bool", True),
    ],
)
def test_floats_become_integers_by_truncation_and_saturation(value: float, dtype: str, want: Any) -> None:
    assert converted(np.array(value, np.float32), DTYPES[dtype]) == want


def test_nan_is_the_extreme_of_reductions() -> None:
    from meshjit.ops.base.reduction import reduce_max, reduce_min
    from meshjit.ops.reduce.arg_reduction import argmax, argmin
    from meshjit.ops.reduce.cumulative import cummax

    x = np.array([[3, np.nan, 1, np.nan], [2, 5, 5, 1], [-np.inf, -np.inf, -np.inf, -np.inf]], np.float32)
    index = {"axis": 1, "index_dtype": DTYPES["i32"]}
    for op, params in [(argmax, index), (argmin, index), (reduce_max, {"axes": (1,)}), (reduce_min, {"axes": (1,)})]:
        check(op, [([x], params)])
    check(cummax, [([x], {"axis": 1, "reverse": r}) for r in (False, True)])
    assert argmax.evaluate(x, **index).tolist() == [1, 1, 0]
