"""Distributions with parameters: JAX's numbers from JAX's keys (recorded by tests/tools/random_cases.py), sharded, and their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

import meshjit as mj
from meshjit import numpy as mnp, random
from meshjit.sharding import NamedSharding, PartitionSpec as P
from tests.tools.random_cases import cases, value_of

pytestmark = pytest.mark.device
RECORDED = json.loads((Path(__file__).parent / "goldens" / "random.json").read_text())["cases"]
CASES = [f"{how}: {call}" for how, call in cases()]


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_jax(name: str) -> None:
    """Integers equal, floats to some last places: XLA fuses otherwise, and derivatives are sums of many terms."""
    how, call = name.split(": ", 1)
    expected = RECORDED[name]
    with mj.config.using(threefry_partitionable=how != "original", enable_x64=how == "wide"):
        value = value_of(call, mj)
    assert (str(value.dtype), list(value.shape)) == (expected["dtype"], expected["shape"])
    exact = value.dtype.kind in "iub" or "binomial" in call or "multinomial" in call
    rough = "grad" in call or "orthogonal" in call  # LAPACK rounds in each machine's own way
    tolerance = 0 if exact else 1e-5 if rough else 1e-2 if value.dtype.itemsize == 2 else 1e-6
    np.testing.assert_allclose(value.astype(float).ravel(), expected["values"], rtol=tolerance, atol=0)


def test_every_case_is_recorded() -> None:
    assert set(CASES) == set(RECORDED)


@pytest.mark.parametrize(
    ("name", "parameters", "law"),
    [
        ("gamma", (0.4,), scipy.stats.gamma(0.4)),
        ("wald", (2.0,), scipy.stats.invgauss(2.0)),
        ("triangular", (0.0, 0.3, 1.0), scipy.stats.triang(0.3)),
    ],
)
def test_floats_follow_their_law(name: str, parameters: tuple[float, ...], law: Any) -> None:
    drawn = np.asarray(getattr(random, name)(random.key(1), *parameters, shape=(4000,)))
    assert scipy.stats.kstest(drawn, law.cdf).pvalue > 0.01


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda key: random.poisson(key, 20.0, (4000,)), scipy.stats.poisson(20)),
        (lambda key: random.geometric(key, 0.3, (4000,)), scipy.stats.geom(0.3)),
    ],
)
def test_counts_follow_their_law(draw: Any, law: Any) -> None:
    drawn = np.asarray(draw(random.key(1)))
    assert abs(drawn.mean() - law.mean()) < 5 * law.std() / 4000**0.5
    assert abs(drawn.var() / law.var() - 1) < 0.12


def test_sharded_numbers_are_the_same_and_gamma_costs_no_communication() -> None:
    mesh = mj.make_mesh((4, 2), ("x", "y"))
    place = NamedSharding(mesh, P("x", "y"))

    def draw(key: Any, a: Any) -> Any:
        return random.gamma(key, a, (7, 6)), random.poisson(key, a, (7, 6))

    a = mnp.linspace(0.1, 3, 6)
    whole = mj.jit(draw)(random.key(3), a)
    step = mj.jit(draw, out_shardings=place)
    for ours, theirs in zip(step(random.key(3), a), whole, strict=True):
        assert ours.sharding == place
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    text = mj.jit(lambda key, a: random.gamma(key, a, (7, 6)), out_shardings=place).lower(random.key(3), a).as_text()
    assert "replica_id" in text and not any(word in text for word in ("all_gather", "all_reduce", "collective_permute"))


def test_in_loops_and_under_checkpoint() -> None:
    def total(a: Any) -> Any:
        def step(carry: Any, key: Any) -> Any:
            return carry + mj.checkpoint(lambda a: random.gamma(key, a, (3,)).sum())(a), None

        return mj.lax.scan(step, 0.0, random.split(random.key(0), 4))[0]

    slope = (total(2.01) - total(1.99)) / 0.02
    np.testing.assert_allclose(mj.jit(mj.grad(total))(2.0), slope, rtol=3e-2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k: random.gamma(k, 1.0, dtype=int), "random.gamma: dtype must be a float dtype, got int32"),
        (lambda k: random.gamma(k, np.ones(5), (1,)), "random.gamma: shape (1,) does not hold parameters of shape (5,)"),
        (lambda k: random.poisson(k, 1.0, dtype=float), "random.poisson: dtype must be an integer dtype, got float32"),
        (lambda k: random.dirichlet(k, 1.0), "random.dirichlet: alpha must have a dim or more, is a scalar"),
        (lambda k: random.multivariate_normal(k, 1.0, np.eye(2)), "random.multivariate_normal: mean is a scalar"),
        (lambda k: random.multivariate_normal(k, np.ones(3), np.eye(2)), "cov has shape (2, 2); mean (3,) needs (..., 3, 3)"),
        (lambda k: random.multivariate_normal(k, np.ones(2), np.eye(2), method="lu"), "method is 'lu', not \"cholesky\""),
        (lambda k: random.gamma(random.split(k), 1.0), "random.gamma takes a single key"),
    ],
)
def test_errors_say_what_was_given(call: Any, message: str) -> None:
    with pytest.raises(ValueError) as info:
        call(random.key(0))
    assert message in str(info.value)
