"""The examples with shard_map: values and gradients are those of JAX, and compiled programs send no more than JAX's do."""

from __future__ import annotations

import json

import numpy as np
import pytest

import meshjit as mj
from tests.tools.shard_map_examples import EXAMPLES, GOLDEN, compiled_text, example, trips, values, wire_bytes

pytestmark = pytest.mark.device
FROM_JAX = json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("name", EXAMPLES)
def test_values_are_those_of_jax(name: str) -> None:
    for mine, its in zip(values(mj, example(name, "meshjit")), FROM_JAX[name]["values"], strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_more_is_sent_than_by_jax(name: str) -> None:
    sent = wire_bytes(compiled_text(mj, example(name, "meshjit")), trips(name))
    assert 0 < sent <= FROM_JAX[name]["bytes"]
