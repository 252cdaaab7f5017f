"""`jax.random` for meshjit: the same numbers from the same keys.

    key = random.key(0)
    key, sub = random.split(key)
    w = random.normal(sub, (784, 512))

Keys are typed (`key`) or raw (`PRNGKey`); every function takes both. Under a mesh every device draws its own shard of a
result and nothing is communicated; numbers do not depend on the placement.
"""

from meshjit.missing import explain as _explain
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
from meshjit.random.integers import categorical, choice, permutation, randint
from meshjit.random.keys import (
    PRNGKey,
    PRNGKeyArray,
    clone,
    fold_in,
    key,
    key_data,
    key_impl,
    split,
    wrap_key_data,
)
from meshjit.random.vectors import orthogonal

__all__ = [
    "PRNGKey",
    "PRNGKeyArray",
    "bernoulli",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "clone",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "key_data",
    "key_impl",
    "laplace",
    "logistic",
    "normal",
    "orthogonal",
    "permutation",
    "rademacher",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
    "wrap_key_data",
]

_explain(__name__)
