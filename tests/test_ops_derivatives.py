"""jvp rules against central differences, and transposes against their forward ops, in double precision."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from meshjit.core.op import Absent, Op, Sample
from meshjit.core.program import Var
from meshjit.core.types import STORED, is_inexact
from meshjit.ops.base.constants import zeros_like
from tests.tools.op_harness import (
    GLOBAL_OPS,
    Array,
    MissingRule,
    build,
    called,
    describe,
    doubled,
    evaluated,
    generic_point,
    jvp,
    out_types,
    random_like,
    run,
    samples,
)

STEP = 1e-6
ROUNDED = {"reduce_precision": "its tangents are rounded as its values are, so differences see steps"}
IMPLICIT = {"random_gamma": "by its law, at a fixed probability, not along the draws: test_random_distributions"}
STOPPED = {name: "its tangent is zero because it says so" for name in ("stop_gradient", "stop_cotangent")}


def double_samples(op: Op) -> list[Sample]:
    return [s for s in (doubled(op, s) for s in samples(op)) if s is not None]


INEXACT_OPS = [op for op in GLOBAL_OPS if double_samples(op)]


@pytest.mark.parametrize("op", [op for op in INEXACT_OPS if op.name not in ROUNDED | STOPPED | IMPLICIT], ids=str)
def test_jvp_is_the_derivative(op: Op) -> None:
    generator = np.random.default_rng(2)
    for sample in double_samples(op):
        inexact = [i for i, t in enumerate(sample.types) if is_inexact(t.dtype)]
        for active in [inexact, *([i] for i in inexact if len(inexact) > 1)]:
            check_jvp(op, sample, active, generator)


def check_jvp(op: Op, sample: Sample, active: Sequence[int], generator: np.random.Generator) -> None:
    arrays = generic_point(sample, generator)
    tangents = [random_like(arrays[i], generator) for i in active]

    def body(inputs: list[Var]) -> list[Var]:
        given: list[Var | None] = [None] * len(arrays)
        for i, t in zip(active, inputs[len(arrays) :], strict=True):
            given[i] = t
        outs = called(op, inputs[: len(arrays)], sample.params)
        found = jvp(op, inputs[: len(arrays)], given, sample.params)
        pairs = zip(found or [None] * len(outs), outs, strict=True)
        return [zeros_like(out) if t is None else t for t, out in pairs]

    try:
        program = build([*sample.types, *(sample.types[i] for i in active)], body)
    except MissingRule:
        return  # the reason is in docs/ops.md
    for got, want, type in zip(
        run(program, [*arrays, *tangents]),
        differences(op, sample, arrays, active, tangents),
        out_types(op, sample),
        strict=True,
    ):
        if is_inexact(type.dtype):
            assert got.dtype == type.dtype
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5, err_msg=describe(op, sample))


def differences(
    op: Op, sample: Sample, arrays: list[Array], active: Sequence[int], tangents: list[Array]
) -> list[Array]:
    sides = []
    for sign in (1, -1):
        moved = list(arrays)
        for i, t in zip(active, tangents, strict=True):
            moved[i] = arrays[i] + sign * STEP * t
        sides.append(evaluated(op, moved, sample.params))
    return [slope(a, b) for a, b in zip(*sides, strict=True)]


def slope(a: Array, b: Array) -> Array:
    """Where both sides are equal it is 0, of infinities too."""
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0, (a - b) / (2 * STEP)) if is_inexact(a.dtype) else a


@pytest.mark.parametrize("name", ROUNDED | STOPPED)
def test_exceptions_have_a_jvp_all_the_same(name: str) -> None:
    op = next(op for op in GLOBAL_OPS if op.name == name)
    assert op.jvp or op.stops


def groups_of(op: Op, sample: Sample) -> list[tuple[int, ...]]:
    return [
        g for g in op.linear_groups(sample.types, sample.params) if all(is_inexact(sample.types[i].dtype) for i in g)
    ]


LINEAR_OPS = [op for op in INEXACT_OPS if not op.stops and any(groups_of(op, s) for s in double_samples(op))]


@pytest.mark.parametrize("op", LINEAR_OPS, ids=str)
def test_transpose_is_the_adjoint(op: Op) -> None:
    generator = np.random.default_rng(3)
    for sample in double_samples(op):
        for group in groups_of(op, sample):
            for linear in [group, *((i,) for i in group if len(group) > 1)]:
                check_transpose(op, sample, group, linear, generator)


def check_transpose(
    op: Op, sample: Sample, group: Sequence[int], linear: Sequence[int], generator: np.random.Generator
) -> None:
    """<A t, c> == <t, A' c>, where the other members of the group are zero."""
    arrays = generic_point(sample, generator)
    for i in group:
        arrays[i] = random_like(arrays[i], generator) if i in linear else np.zeros_like(arrays[i])
    outs = evaluated(op, arrays, sample.params)
    cotangents = [random_like(out, generator) for out in outs]
    rest = [i for i in range(len(arrays)) if i not in linear]

    def body(inputs: list[Var]) -> list[Var]:
        operands: list[Var | None] = [None] * len(arrays)
        for i, x in zip(rest, inputs, strict=False):
            operands[i] = x
        found = op.transpose(inputs[len(rest) :], operands, sample.types, sample.params)
        assert len(found) == len(arrays)
        assert all(found[i] is None for i in rest), f"{op}: a cotangent for an operand that is not linear here"
        for i in linear:
            assert found[i].type == sample.types[i], describe(op, sample)
        return [found[i] for i in linear]

    program = build([*(sample.types[i] for i in rest), *out_types(op, sample)], body)
    back = run(program, [*(arrays[i] for i in rest), *cotangents])
    left = sum(inner(a, c) for a, c in zip(outs, cotangents, strict=True))
    right = sum(inner(arrays[i], b) for i, b in zip(linear, back, strict=True))
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9, err_msg=describe(op, sample))


def inner(a: Array, b: Array) -> float:
    return float(np.real(np.sum(a * b)))


@pytest.mark.parametrize("op", GLOBAL_OPS, ids=str)
def test_linear_is_true_of_sums(op: Op) -> None:
    """op(x + y) == op(x) + op(y) in each group, integers included: partial sums flow through on its word."""
    generator = np.random.default_rng(4)
    for sample in samples(op):
        for group in op.linear_groups(sample.types, sample.params):
            if any(t.dtype == np.bool_ or t.dtype in STORED for t in (*(sample.types[i] for i in group), *out_types(op, sample))):
                continue  # nothing is added up in such a dtype
            first, second = sample.arrays(generator), sample.arrays(generator)
            left, right, both = ([*first] for _ in range(3))
            for i in group:
                right[i] = summand(first[i], second[i])
                both[i] = (first[i] + right[i]).astype(first[i].dtype)
            pieces = zip(*(evaluated(op, a, sample.params) for a in (left, right, both)), strict=True)
            for a, b, c in pieces:
                total = (a + b).astype(a.dtype)
                np.testing.assert_allclose(
                    c.astype(np.complex128),
                    total.astype(np.complex128),
                    rtol=0.05,
                    atol=0.05,
                    err_msg=describe(op, sample),
                )


def summand(x: Array, y: Array) -> Array:
    """y, and 0 where x + y is out of the dtype's range: 4 + 4 is 6 in float4_e2m1fn."""
    if not is_inexact(x.dtype):
        return y
    exact = x.astype(np.complex128) + y.astype(np.complex128)
    return np.where(np.isclose((x + y).astype(np.complex128), exact, rtol=0.05), y, np.zeros_like(y))


@pytest.mark.parametrize("op", GLOBAL_OPS, ids=str)
def test_a_missing_rule_says_why(op: Op) -> None:
    for rule in ("jvp", "transpose", "batch"):
        value = getattr(op, rule)
        if isinstance(value, Absent):
            assert value.reason and (value.op, value.rule) == (op.name, rule)
            text = f"{op.name} has no {rule} rule: " if value.error is None else re.escape(value.reason)
            with pytest.raises(value.error or MissingRule, match=text):
                value()
