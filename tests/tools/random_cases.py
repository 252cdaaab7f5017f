"""Calls of `jax.random`'s distributions, whose numbers tests hold to JAX's. Where jax is installed, these are recorded anew by

    python tests/tools/random_cases.py > tests/goldens/random.json
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

# Expressions of random, key (of seed 42; rbg, unsafe: of these implementations), f (an array of float32), jnp, np, grad and vmap.
CALLS = """
    random.gamma(key, f(.05, .5, 1, 3, 100)); random.gamma(key, 2.5, (4,), jnp.bfloat16); random.gamma(key, 1.5, (0, 3));
    random.loggamma(key, f(1e-4, .05, .5, 1, 3, 100)); random.beta(key, f(.01, .5, 3), 2.); random.dirichlet(key, f(.3, 1, 4), (2,));
    random.f(key, f(.3, 1, 4), 3.); random.t(key, f(.3, 1, 4), (3,));
    random.ball(key, 3, 1., (2,));
    random.poisson(key, f(0, .5, 3, 9.9, 10, 50, 1e4, -1, np.nan));
    random.binomial(key, f(5, 50, 500, 5, 50, 1e4, -1, np.inf, np.nan), f(.3, .5, .9, .9, .1, .999, .5, .5, .5));
    random.multinomial(key, 20, f(.2, .3, .5), shape=(4, 3)); random.geometric(key, f(.01, .3, .9));
    random.geometric(key, .3, (4,), jnp.int8); random.pareto(key, f(.5, 3)); random.rayleigh(key, f(.5, 3)); random.wald(key, f(.5, 3));
    random.weibull_min(key, 2., 3., (3,)); random.maxwell(key, (3,)); random.double_sided_maxwell(key, 1., 2., (3,));
    random.triangular(key, 0., .3, 1., (5,)); random.lognormal(key, .5, (3,)); random.lognormal(key, shape=(2,));
    random.multivariate_normal(key, f(1, 2), np.array([[2, .5], [.5, 1]], np.float32), (3,)); random.orthogonal(key, 3);
    random.multivariate_normal(key, np.zeros((4, 2), np.float32), np.eye(2, dtype=np.float32));
    abs(random.multivariate_normal(key, f(0, 0), np.array([[2, 0], [0, 1]], np.float32), (3,), method="eigh"));
    random.categorical(key, f(0, 1, 2, 3, 4), shape=(3,), replace=False); random.bits(key, (4,)); random.rademacher(key, (4,), jnp.float16);
    grad(lambda a: random.gamma(key, a).sum())(f(.05, .5, 1, 3)); grad(lambda a: random.loggamma(key, a).sum())(f(.001, .5, 1, 3));
    grad(lambda s: random.lognormal(key, s, (3,)).sum())(.5);
    grad(lambda p: random.pareto(key, p).sum())(f(.5, 3));
    random.beta(rbg, f(.5, 3), 2.); vmap(lambda k: random.gamma(k, f(.5, 2)))(random.split(rbg));
    vmap(lambda k, a: grad(lambda a: random.loggamma(k, a))(a))(random.split(unsafe), f(.01, 3))
"""

# Those whose bits depend on how keys are split, or on 64 bits.
ORIGINAL = """
    random.gamma(key, f(.05, .5, 1, 3, 100)); random.poisson(key, f(3, 50));
    random.binomial(key, f(5, 500), f(.3, .9))
"""
WIDE = """
    random.gamma(key, 2.5, (4,)); random.poisson(key, f(.5, 50)); random.binomial(key, f(5, 500), f(.3, .9));
    random.geometric(key, f(.01, .9))
"""


def calls(text: str) -> list[str]:
    return [" ".join(call.split()) for call in text.split(";")]


def cases() -> Iterator[tuple[str, str]]:
    """(how, expression): "" is the default, "original" the other form of threefry, "wide" enable_x64."""
    for how, text in (("", CALLS), ("original", ORIGINAL), ("wide", WIDE)):
        yield from ((how, call) for call in calls(text))


def value_of(expression: str, jax: Any) -> np.ndarray[Any, Any]:
    names = {"random": jax.random, "jnp": jax.numpy, "np": np, "grad": jax.grad, "vmap": jax.vmap, "key": jax.random.key(42)}
    names |= {"rbg": jax.random.key(7, impl="rbg"), "unsafe": jax.random.key(7, impl="unsafe_rbg")}
    return np.asarray(eval(expression, {**names, "f": lambda *numbers: np.array(numbers, np.float32)}))


def main() -> None:
    import jax  # pyright: ignore[reportMissingImports]

    recorded = {}
    for how, call in cases():
        jax.config.update("jax_threefry_partitionable", how != "original")
        jax.config.update("jax_enable_x64", how == "wide")
        value = value_of(call, jax)
        recorded[f"{how}: {call}"] = {"dtype": str(value.dtype), "shape": value.shape, "values": value.astype(float).ravel().tolist()}
    print(json.dumps({"jax": jax.__version__, "cases": recorded}, indent=0))


if __name__ == "__main__":
    main()
