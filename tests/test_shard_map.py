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
