"""Regions that run, and regions that are rules: a custom derivative goes through every pass, and is never run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import meshjit.ops  # noqa: F401  the parser looks ops up by name
from meshjit.core.evaluate import evaluated
from meshjit.core.op import REGISTRY, Op
from meshjit.core.parser import parse_program
from meshjit.core.program import Program, current_builder
from meshjit.core.region import Region, run_programs
from meshjit.core.verify import IllegalProgram, verify
from meshjit.ops.control.call import call_steps
from meshjit.ops.control.nested import whole_rule
from meshjit.partition.partition import partition
from meshjit.plan.make import Annotations, make_plan
from meshjit.simulate.devices import simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.jvp import jvp
from meshjit.transform.pipeline import simplify
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec as P

TEXT = """
program main(%x: f32[4]) -> (f32[4]) {
  %y: f32[4] = custom(%x) {rule=program rule(%x: f32[4], %t: f32[4]) -> (f32[4]) {
    %dead: f32[4] = negate(%x)
    %a: f32[4] = add(%t, %t)
    return %a }, body=program f(%x: f32[4]) -> (f32[4]) {
    %dead: f32[4] = negate(%x)
    %s: f32[4] = sine(%x)
    return %s }}
  return %y
}
"""


def _jvp(primals: Any, tangents: Any, params: Any, derivative: Any) -> Any:
    """The rule says what the tangent is."""
    outputs = current_builder().emit(REGISTRY["custom"], primals, params)
    return outputs, current_builder().inline(params["rule"], [*primals, *tangents])


def _regions(params: Any) -> tuple[Region, ...]:
    return Region(params["rule"], (), (), role="rule"), Region(params["body"], (0,), (0,))


@pytest.fixture(autouse=True)
def custom() -> Iterator[None]:
    Op(
        name="custom", type_rule=lambda ins, params: ins, factor_rule=whole_rule, evaluate=evaluated(call_steps),
        emit=lambda e, operands, ins, outs, params: e.program(params["body"], operands), samples=lambda: [],
        batch=lambda *args: ([], []), jvp=_jvp, regions=_regions, steps=call_steps,
    )  # fmt: skip
    yield
    del REGISTRY["custom"]


def program() -> Program:
    return verify(parse_program(TEXT))


def test_a_rule_is_printed_and_parsed() -> None:
    text = str(program())
    assert str(verify(parse_program(text))) == text


def test_a_rule_is_not_run() -> None:
    assert [p.name for p in run_programs(program().eqns[0])] == ["f"]
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(program(), [x])[0], np.sin(x))


def test_passes_leave_rules_as_they_are() -> None:
    before = program()
    (eqn,) = verify(simplify(before)).eqns
    assert len(eqn.params["body"].eqns) == 1
    assert eqn.params["rule"] is before.eqns[0].params["rule"]


def test_a_rule_is_neither_planned_nor_partitioned() -> None:
    mesh, x = AbstractMesh((2,), ("x",)), np.arange(4, dtype=np.float32)
    plan = make_plan(simplify(program()), mesh, Annotations([P("x")], [P("x")]))
    local = verify(partition(plan))
    (eqn,) = local.eqns
    assert eqn.params["body"].inputs[0].shape == (2,)
    assert eqn.params["rule"].inputs[0].shape == (4,)
    (shards,) = simulate(local, mesh, [[x[:2], x[2:]]])
    np.testing.assert_array_equal(np.concatenate(shards), np.sin(x))


def test_a_derivative_asks_for_the_rule() -> None:
    derivative, _ = jvp(program(), [True])
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(verify(derivative), [x, x])[1], 2 * x)


def test_programs_stand_in_the_order_of_the_regions() -> None:
    before = program()
    (eqn,) = before.eqns
    swapped = eqn.with_params({name: eqn.params[name] for name in ("body", "rule")})
    with pytest.raises(IllegalProgram, match="regions in another order than the Programs in its params"):
        verify(Program(before.name, before.inputs, (swapped,), before.outputs))
