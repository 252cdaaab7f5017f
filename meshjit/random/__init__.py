"""`jax.random` for meshjit: the same numbers from the same keys.

    key = random.key(0)
    key, sub = random.split(key)
    w = random.normal(sub, (784, 512))

Keys are typed (`key`) or raw (`PRNGKey`); every function takes both. Under a mesh every device draws its own shard of a
result and nothing is communicated; numbers do not depend on the placement.
"""

from meshjit.missing import explain as _explain
from meshjit.random.counts import binomial, geometric, multinomial, poisson
from meshjit.random.floats import (
    bernoulli,
    bits,
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    normal,
    rademacher,
    truncated_normal,
    uniform,
)
from meshjit.random.formulas import (
    double_sided_maxwell,
    lognormal,
    maxwell,
    pareto,
    rayleigh,
    triangular,
    wald,
    weibull_min,
)
from meshjit.random.gammas import ball, beta, chisquare, dirichlet, f, gamma, generalized_normal, loggamma, t
from meshjit.random.integers import categorical, choice, permutation, randint
from meshjit.random.keys import (
    PRNGKey,
    PRNGKeyArray,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from meshjit.random.vectors import multivariate_normal, orthogonal

__all__ = [
    "PRNGKey",
    "PRNGKeyArray",
    "ball",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "clone",
    "dirichlet",
    "double_sided_maxwell",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "generalized_normal",
    "geometric",
    "gumbel",
    "key",
    "key_data",
    "key_dtype",
    "key_impl",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "maxwell",
    "multinomial",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull_min",
    "wrap_key_data",
]

_explain(__name__)
