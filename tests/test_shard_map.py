"""shard_map: what JAX gives for the same calls, errors word for word, and what the compiled programs send."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from tests.tools.shard_map_cases import CASES, GOLDEN, environment, outcome

FROM_JAX = json.loads(GOLDEN.read_text())
# Cases that differ from JAX on purpose, with the reason.
OTHERWISE: dict[str, Any] = {
    "transformed_vmap_spmd": [[[-1.75], [-0.75], [0.25], [1.25]]],  # JAX refuses an axis that is Auto here
    "partial_nested_gradient": [np.sin(np.arange(16).reshape(8, 2) / 2 - 2)],  # JAX loses an axis of a residual, and raises
    "gradient_all_to_all": None,  # JAX's derivative of an untiled all_to_all has another shape than the operand, and raises
}


@pytest.fixture(scope="module")
def env() -> Any:
    return environment(mj, mj.make_mesh((4, 2), ("x", "y")))


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_jax(name: str, env: Any) -> None:
    mine, its = outcome(name, env), FROM_JAX[name]
    if name in OTHERWISE:
        assert isinstance(its, str) and not isinstance(mine, str)
        its = OTHERWISE[name] or mine
    if isinstance(its, str) or isinstance(mine, str):
        assert mine == its
        return
    for a, b in zip(mine, its, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def test_ragged_all_to_all(env: Any) -> None:
    """Rows of each device's operand go to places that the senders say; JAX has it on no CPU, so beside NumPy."""
    generator, mesh, count = np.random.default_rng(0), mj.make_mesh((4,), ("x",)), 4
    sizes = generator.integers(0, 3, (count, count)).astype(np.int32)  # [from, to]
    starts = np.cumsum(sizes, 1, dtype=np.int32) - sizes
    targets = np.cumsum(sizes, 0, dtype=np.int32) - sizes
    operand = generator.normal(size=(count, 8, 3)).astype(np.float32)
    wanted = np.zeros((count, 8, 3), np.float32)
    for i in range(count):
        for j in range(count):
            wanted[j, targets[i, j] : targets[i, j] + sizes[i, j]] = operand[i, starts[i, j] : starts[i, j] + sizes[i, j]]

    def exchange(x: Any, starts: Any, sizes: Any, targets: Any, received: Any) -> Any:
        given = (starts[0], sizes[0], targets[0], received[0])
        return mj.lax.ragged_all_to_all(x[0], mj.numpy.zeros_like(x[0]), *given, axis_name="x")[None]

    spec = env.P("x")
    moved = mj.shard_map(exchange, mesh=mesh, in_specs=(spec,) * 5, out_specs=spec)
    rest = (starts, sizes, targets, sizes.T.copy())
    np.testing.assert_array_equal(moved(operand, *rest), wanted)
    gradient = mj.grad(lambda x: (moved(x, *rest) ** 2).sum())(operand)
    is_sent = np.arange(8)[None] < sizes.sum(1)[:, None]
    np.testing.assert_array_equal(gradient, np.where(is_sent[..., None], 2 * operand, 0))


def test_a_function_without_results() -> None:
    seen = []
    mesh = mj.make_mesh((4,), ("x",), devices=mj.devices()[:4])

    def tell(x: Any) -> None:
        mj.debug.callback(lambda a: seen.append(float(a[0])), x)

    for wrap in (lambda f: f, mj.jit):
        assert wrap(mj.shard_map(tell, mesh=mesh, in_specs=mj.P("x"), out_specs=None))(np.arange(4.0, dtype=np.float32)) is None
    mj.effects_barrier()
    assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 3]
    with pytest.raises((TypeError, ValueError), match="out_specs"):
        mj.shard_map(lambda x: x, mesh=mesh, in_specs=mj.P("x"), out_specs=None)(np.zeros(4, np.float32))
