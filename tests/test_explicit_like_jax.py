"""Programs with explicit axes do what JAX does: types, placements, elements, kinds of errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

import meshjit as mj
import meshjit.numpy as mnp
import meshjit.sharding
from tests.tools import explicit_scenarios

pytestmark = pytest.mark.device

EXPECTED: dict[str, str] = json.loads(explicit_scenarios.GOLDEN.read_text())
MOVES = "no doubt about the result: its elements lie where the operand's do, or next to them, and uneven shards exchange borders"
WHOLE = "a value that is whole on every device is cut where it lies, at no cost"

# What differs on purpose: (what meshjit does, why).
OTHERWISE: dict[str, tuple[str, str]] = {
    "on(lambda x: jnp.cumsum(x, 0), a((8, 4), 'X', 'Y'))": (
        "P('X', 'Y') sum 398 at 8218 of f32[8@X,4@Y]; eager P('X', 'Y') sum 398 at 8218", MOVES
    ),
    "on(lambda x: x.reshape(8, 4), a((4, 8), 'X', 'Y'))": (
        "P(('X', 'Y'), None) sum 90 at 1428 of f32[8@(X,Y),4]; eager P(('X', 'Y'), None) sum 90 at 1428", MOVES
    ),
    "on(lambda x: x.reshape(16, 2), a((8, 4), 'X'))": (
        "P('X', None) sum 90 at 1428 of f32[16@X,2]; eager P('X', None) sum 90 at 1428", MOVES
    ),
    "on(lambda x: x[:4], a((8, 4), 'X', 'Y'))": (
        "P('X', 'Y') sum 43 at 344 of f32[4@X,4@Y]; eager P('X', 'Y') sum 43 at 344", "eager calls do what jit does"
    ),
    "on(lambda x: x[:, :2], a((8, 4), 'X', 'Y'))": (
        "P('X', 'Y') sum 43 at 316 of f32[8@X,2@Y]; eager P('X', 'Y') sum 43 at 316", "eager calls do what jit does"
    ),
    "on(lambda x, i: x[i], a((8, 4), None, 'Y'), i([0, 1, 2, 3], 'X'))": (
        "P('X', 'Y') sum 43 at 344 of f32[4@X,4@Y]; eager P('X', 'Y') sum 43 at 344", MOVES
    ),
    "on(lambda x: x.at[0].get(out_sharding=P('Y')), a((8, 4), 'X', 'Y'))": (
        "P('Y') sum 6 at 14 of f32[4@Y]; eager P('Y') sum 6 at 14", "the caller said where the result is"
    ),
    "on(lambda x, y: jnp.concatenate([x, y], 1), a((8, 4), 'X'), a((8, 4)))": (
        "P('X', None) sum 180 at 5792 of f32[8@X,8]; eager P('X', None) sum 180 at 5792", WHOLE
    ),
    "on(lambda x: jnp.linalg.cholesky(x @ x.mT + jnp.eye(4)), a((4, 4, 4), 'X'))": (
        "P('X', None, None) sum 147.3 at 4628 of f32[4@X,4,4]; eager P('X', None, None) sum 147.3 at 4628",
        "matrices of a batch have nothing to do with one another",
    ),
    "on(lambda x, y: jnp.matmul(x, y), a((4, 8, 4), 'X'), a((4, 4, 16), 'Y'))": (
        "raises ShardingTypeError", "a ValueError as in JAX, and one that names both operands"
    ),
    "on(lambda x, y: jnp.sin(jnp.einsum('bd,df->bf', x, y, out_sharding=P('X', None, unreduced={'Y'}))), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))": (
        "raises ShardingTypeError", "the sine of a sum is not the sum of sines: a mistake, not something that is missing"
    ),
    "on(lambda u: u > 0, part('X'))": ("raises ShardingTypeError", "a mistake, not something that is missing"),
    "on(lambda u: jnp.stack([u, u]), part('X'))": (
        "P(None, 'X', None; unreduced Y) sum 8524 at 1.097e+06 of f32[2,8@X,16]{U:Y};"
        " eager P(None, 'X', None; unreduced Y) sum 8524 at 1.097e+06",
        "the sum of what was stacked: JAX's is twice as large",
    ),
    "on(lambda: jnp.array([1., 2.]))": ("P(None) sum 3 at 2 of f32[2]; eager P(None) sum 3 at 2", "a spec in a type has an entry per dim"),
    "on(lambda x: wsc(x, P('X')), a((8, 4), 'X'))": (
        "P('X', None) sum 90 at 1428 of f32[8@X,4]; eager P('X', None) sum 90 at 1428", "a spec in a type has an entry per dim"
    ),
    "on(lambda x: reshard(x, None), a((8, 4), 'X'))": (
        "P('X', None) sum 90 at 1428 of f32[8@X,4]; eager P('X') sum 90 at 1428", "None leaves a leaf of a tree where it is"
    ),
    "within(automesh, lambda: on(lambda x: reshard(x, P('X')), np.ones((8, 4), np.float32)))": (
        "P('X') sum 32 at 496 of f32[8,4]; eager P('X') sum 32 at 496", "reshard also moves over automatic axes"
    ),
    "within(automesh, lambda: on(lambda x: jnp.reshape(x, (32,), out_sharding=P('X')), np.ones((8, 4), np.float32)))": (
        "P('X') sum 32 at 496 of f32[32]; eager P('X') sum 32 at 496", "out_sharding over automatic axes is a constraint"
    ),
    "within(automesh, lambda: on(lambda x: explicit_axes(lambda p: noted(p) * 2, axes=('X',), in_sharding=P('X'))(x), np.ones((8, 4), np.float32)))": (
        "P('X') sum 64 at 992 of f32[8@X,4], f32[8,4]; eager P('X', None) sum 64 at 992", "a spec in a type has an entry per dim"
    ),
    "on(lambda x: jax.jit(lambda c: noted(c) * 2, out_shardings=NamedSharding(mesh, P('Y')))(x), a((8, 4), 'X'))": (
        "P('Y', None) sum 180 at 2856 of f32[8@X,4], f32[8@Y,4]; eager P('Y') sum 180 at 2856",
        "what out_shardings of a nested jit say holds around it, too",
    ),
}  # fmt: skip

# Gradients outside of jit through shard_map: JAX leaves out trailing None there, and nowhere else.
FULL = "a spec in a type has an entry per dim"
for expression, (theirs, ours) in {
    e: pair
    for e in EXPECTED
    if e.startswith("on(") and "jax.grad" in e and "mapped" in e
    for pair in (
        ("eager P()", "eager P(None)"),
        ("eager P(; unreduced", "eager P(None; unreduced"),
        ("eager P('X'; reduced", "eager P('X', None; reduced"),
    )
    if pair[0] in EXPECTED[e]
}.items():
    OTHERWISE[expression] = (EXPECTED[expression].replace(theirs, ours), FULL)


@pytest.fixture(scope="module")
def scope() -> dict[str, Any]:
    return explicit_scenarios.names(mj, mnp, meshjit.sharding)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("expression", explicit_scenarios.expressions())
def test_the_outcome_is_that_of_jax(expression: str, scope: dict[str, Any]) -> None:
    wanted = OTHERWISE[expression][0] if expression in OTHERWISE else EXPECTED[expression]
    assert explicit_scenarios.outcome(expression, scope) == wanted


def test_deviations_are_deviations() -> None:
    assert set(EXPECTED) == set(explicit_scenarios.expressions())
    for expression, (ours, _) in OTHERWISE.items():
        assert EXPECTED[expression] != ours
