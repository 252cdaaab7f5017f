"""Objects with `__jax_array__` are taken for the array that it gives, as in JAX: by operators, and by all functions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, numpy as mnp

pytestmark = pytest.mark.device

X = mnp.arange(3.0)


class Parameter:
    """As libraries write them: a box with an array."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __jax_array__(self) -> Any:
        return mnp.asarray(self.value)


P = Parameter(np.arange(3, dtype=np.float32))

CASES = [
    (lambda: X + P, [0, 2, 4]),
    (lambda: P + X, [0, 2, 4]),
    (lambda: P * X - 1, [-1, 0, 3]),
    (lambda: X == P, [True, True, True]),
    (lambda: X @ P, 5),
    (lambda: mnp.asarray(P), [0, 1, 2]),
    (lambda: mnp.array([P, P]), [[0, 1, 2], [0, 1, 2]]),
    (lambda: mnp.stack([P, X]), [[0, 1, 2], [0, 1, 2]]),
    (lambda: mnp.concatenate([X, P]), [0, 1, 2, 0, 1, 2]),
    (lambda: mnp.sin(P) * 0, [0, 0, 0]),
    (lambda: lax.add(X, P), [0, 2, 4]),
    (lambda: mnp.where(X > 1, P, 7), [7, 7, 2]),
    (lambda: mnp.zeros_like(P), [0, 0, 0]),
    (lambda: mnp.reshape(P, (3, 1)), [[0], [1], [2]]),
    (lambda: (mnp.shape(P), mnp.ndim(P), mnp.size(P)), ((3,), 1, 3)),
    (lambda: X.at[0].set(Parameter(5.0)), [5, 1, 2]),
    (lambda: X[Parameter(1)], 1),
    (lambda: mj.jit(lambda x: x * P)(X), [0, 1, 4]),
    (lambda: mj.grad(lambda x: (x * P).sum())(X), [0, 1, 2]),
    (lambda: mj.vmap(lambda x: x * P)(X), np.outer(np.arange(3), np.arange(3))),
    (lambda: lax.fori_loop(0, 3, lambda i, c: c + P, X), [0, 4, 8]),
    (lambda: mj.jit(lambda x: mnp.sum(Parameter(x) + x))(X), 6),
]


@pytest.mark.parametrize(("call", "expected"), CASES)
def test_it_is_taken_for_its_array(call: Any, expected: Any) -> None:
    result = call()
    if isinstance(expected, tuple):
        assert result == expected
    else:
        np.testing.assert_array_equal(result, expected)


def test_the_class_itself_is_no_array() -> None:
    with pytest.raises(TypeError):
        X + Parameter  # noqa: B018
