"""Drawn functions as users write them, manual regions, custom rules and explicit axes in one another: the law, and what JAX gives."""

from __future__ import annotations

import json

import numpy as np
import pytest

import meshjit as mj
from meshjit.simulate.evaluate import evaluate
from tests.tools.fuzz_functions import FURTHER, GOLDEN, RECORDED, RULES, drawn_by, is_alike, summary
from tests.tools.fuzz_users import fails, law, traced

CHUNK = 8
FROM_JAX = json.loads(GOLDEN.read_text())
# Seeds that differ from JAX on purpose, with the reason.
OTHERWISE = {
    6: "the gradient of nested code for single devices, whose text JAX's verifier refuses",
}


@pytest.mark.parametrize("start", [*range(1000, 1080, CHUNK), *range(RULES + 1000, RULES + 1024, CHUNK)])
def test_partitioned_is_whole(start: int) -> None:
    for seed in range(start, start + CHUNK):
        drawn = drawn_by(mj, seed)
        try:
            program = traced(drawn)
        except (TypeError, ValueError):  # not a function that JAX would take, which the other test asks
            continue
        law(program, drawn, seed)


@pytest.mark.device
@pytest.mark.parametrize("start", range(FURTHER, FURTHER + 24, CHUNK))
def test_further_steps(start: int) -> None:
    """Inferred specs, members spread over axes, sums that leave code for devices unfinished, integers, empty arrays."""
    problems = {seed: fails(seed) for seed in range(start, start + CHUNK)}
    assert not any(problems.values()), problems


@pytest.mark.parametrize("seed", [3046, 3127], ids=["code for devices of nothing", "and a permute"])
def test_once_the_plan_did_not_say_all_that_is_sent(seed: int) -> None:
    drawn = drawn_by(mj, seed)
    law(traced(drawn), drawn, seed)


@pytest.mark.device
@pytest.mark.parametrize("start", RECORDED[::CHUNK])
def test_values_are_those_of_jax(start: int) -> None:
    for seed in range(start, start + CHUNK):
        mine, its = summary(mj, seed), FROM_JAX[str(seed)]
        assert is_alike(mine, its) != (seed in OTHERWISE), f"seed {seed}: JAX gives {its}, we give {mine}"


@pytest.mark.device
@pytest.mark.parametrize("start", range(0, 24, CHUNK))
def test_compiled_is_evaluated(start: int) -> None:
    for seed in range(start, start + CHUNK):
        drawn = drawn_by(mj, seed)
        for got, expected in zip(drawn.results(mj), evaluate(traced(drawn), drawn.arrays), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
