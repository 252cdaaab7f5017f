"""jit does what JAX does, expression by expression: values, placements, kinds of errors, what is deleted, how often it traces."""

from __future__ import annotations

import json
from typing import Any

import pytest

import meshjit as mj
import meshjit.numpy as mnp
import meshjit.sharding
from tests.tools import jax_scenarios

pytestmark = pytest.mark.device

EXPECTED: dict[str, str] = json.loads(jax_scenarios.GOLDEN.read_text())

# What differs on purpose: (what meshjit does, why).
NO_MESH = ("raises ValueError", "a spec without a mesh is a ShardingError, as any spec that does not fit")
OPTION = ("raises ValueError", "an unknown compiler option is the caller's mistake, not a failure of the runtime")
DELETED = ("True", "a donated argument is always deleted, also where its memory is of no use: programs do not depend on placement")
LOWERS = "jit(lambda a: a + 1).lower(x).compile()(x)"
OTHERWISE = {
    "within(mesh, lambda: jit(lambda a: jax.lax.with_sharding_constraint(a, P('x', 'x')))(x))": (
        "raises ValueError", "a DuplicateSpecError in JAX, which is nothing but an Exception"
    ),
    f"under(jax.disable_jit, lambda: {LOWERS})": (
        "float32[8, 4] sum 528 at 1.091e+04 0:0-8,0-4", "whoever lowers a function wants it compiled"
    ),
    "jit(same, in_shardings=P('x'))(x)": NO_MESH,
    "jit(same, out_shardings=P('x'))(x)": NO_MESH,
    "jax.lax.with_sharding_constraint(x, P('x'))": NO_MESH,
    "jit(same, compiler_options={'xla_nope': 1})(x)": OPTION,
    "jit(same).lower(x).compile({'xla_nope': True})": OPTION,
    "jit(lambda a: np.sin(a))(3.0)": ("float32[] sum 0.1411 at 0 0:", "NumPy's functions of traced values trace"),
    "twice(lambda f: (f(x), f(placed), f(placed * 1)))": ("1", "where arguments lie is no part of a trace, unless axes are explicit"),
    "deleted(lambda y: jit(lambda b, a: a + b, donate_argnums=-1)(1.0, y))": ("True", "-1 is the last argument"),
    "deleted(lambda y: jit(lambda a: a.sum(), donate_argnums=0)(y))": DELETED,
    "deleted(lambda y: jit(lambda a, b: b, donate_argnums=0, keep_unused=True)(y, 1.0))": DELETED,
}


@pytest.fixture(scope="module")
def scope() -> dict[str, Any]:
    return jax_scenarios.names(mj, mnp, meshjit.sharding)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("expression", jax_scenarios.expressions())
def test_the_outcome_is_that_of_jax(expression: str, scope: dict[str, Any]) -> None:
    wanted = OTHERWISE[expression][0] if expression in OTHERWISE else EXPECTED[expression]
    assert jax_scenarios.outcome(expression, scope) == wanted


def test_deviations_are_deviations() -> None:
    assert set(EXPECTED) == set(jax_scenarios.expressions())
    for expression, (ours, _) in OTHERWISE.items():
        assert EXPECTED[expression] != ours
