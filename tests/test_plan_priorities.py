"""Priorities of spec entries: who comes first where annotations disagree about what nobody annotated."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import lax
from meshjit.core.parser import parse_program
from meshjit.core.printer import print_program
from meshjit.sharding import NamedSharding, PartitionSpec

P = PartitionSpec


def placed(a: PartitionSpec, b: PartitionSpec, **options: Any) -> Any:
    """The placement of a @ b on 4 devices, both of which would like the one axis."""
    mesh = mj.make_mesh((4,), ("x",))
    low = mj.jit(lambda a, b: a @ b, in_shardings=tuple(NamedSharding(mesh, s) for s in (a, b)), **options).lower(
        np.ones((8, 16), np.float32), np.ones((16, 8), np.float32)
    )
    return low.plan.outputs[0].dims


def test_entries_of_priority_0_come_first() -> None:
    rows, columns = P("x", None), P(None, "x")
    assert placed(rows.with_priorities(1), columns) == ((), ("x",))
    assert placed(rows, columns.with_priorities(0, 1)) == (("x",), ())
    assert placed(rows.with_priorities(2), columns.with_priorities(0, 5)) == (("x",), ())


def test_jits_that_differ_in_priorities_only_do_not_share_plans() -> None:
    mesh = mj.make_mesh((4,), ("x",))

    def fun(a: Any, b: Any) -> Any:
        return a @ b

    found = []
    for priority in (0, 1):
        a, b = P("x", None).with_priorities(priority), P(None, "x").with_priorities(0, 1 - priority)
        jitted = mj.jit(fun, in_shardings=(NamedSharding(mesh, a), NamedSharding(mesh, b)))
        found.append(jitted(np.ones((8, 8), np.float32), np.ones((8, 8), np.float32)).sharding.spec)
    assert found == [P("x"), P(None, "x")]


def test_one_entry_may_wait_while_another_does_not() -> None:
    mesh = mj.make_mesh((2, 2), ("x", "y"))

    def fun(a: Any, b: Any) -> Any:
        return lax.mul(a, b)

    for priorities, wanted in (((0, 1), (("x",), ())), ((1, 0), ((), ("y",)))):
        a = NamedSharding(mesh, P("x", "y").with_priorities(*priorities))
        other = NamedSharding(mesh, P("y", "x").with_priorities(2, 2))
        low = mj.jit(fun, in_shardings=(a, other)).lower(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32))
        assert low.plan.inputs[0].dims == (("x",), ("y",)) and low.plan.inputs[1].dims == (("y",), ("x",))
        result = low.plan.outputs[0].dims
        assert all(have[: len(want)] == want for have, want in zip(result, wanted, strict=True)), result


def test_a_constraint_may_have_priorities_and_programs_say_so() -> None:
    mesh = mj.make_mesh((4,), ("x",))
    place = NamedSharding(mesh, P("x", None).with_priorities(3))
    traced = mj.jit(lambda a: lax.with_sharding_constraint(a * 2, place)).trace(np.ones((8, 8), np.float32))
    text = print_program(traced.program)
    assert "P('x', None)/(3, 0)" in text
    assert print_program(parse_program(text)) == text


def test_values_do_not_depend_on_priorities() -> None:
    mesh = mj.make_mesh((4,), ("x",))
    a, b = (np.arange(48, dtype=np.float32).reshape(s) for s in ((6, 8), (8, 6)))
    for priority in (0, 1):
        shardings = (NamedSharding(mesh, P("x").with_priorities(priority)), NamedSharding(mesh, P(None, "x")))
        np.testing.assert_allclose(np.asarray(mj.jit(lambda a, b: a @ b, in_shardings=shardings)(a, b)), a @ b)


def test_specs_with_priorities() -> None:
    spec = P("x", None).with_priorities(1)
    assert spec == P("x", None) and hash(spec) == hash(P("x", None)) and spec.priorities == (1, 0)
    assert P("x").priorities == () and P("x").with_priorities(0).priorities == ()
    for again in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)):
        assert again.priorities == (1, 0)
    with pytest.raises(ValueError, match=r"priorities \(1, 2\) of P\('x',\): give at most one number from 0"):
        P("x").with_priorities(1, 2)
    with pytest.raises(ValueError, match="from 0 on"):
        P("x").with_priorities(-1)
