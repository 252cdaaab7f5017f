"""NumPy's own functions on traced values: they trace, or say why not; on concrete Arrays they are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.errors import TracerArrayConversionError

pytestmark = pytest.mark.device

X = np.array([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5], [1.0, 1.5, 4.0]], np.float32)
V = np.array([1.0, 2.0, 3.0], np.float32)

FUNCTIONS: list[Callable[[Any], Any]] = [
    np.tanh, np.exp, np.cbrt, np.absolute, np.conjugate, np.square, np.sum, np.mean, np.max, np.argmax, np.cumsum, np.transpose,
    np.ravel, np.linalg.norm, np.linalg.det, np.linalg.inv, np.fft.fft, np.fft.irfft, np.diag, np.trace, np.zeros_like, np.sort,
    lambda x: np.sum(x, axis=0, keepdims=True), lambda x: np.concatenate([x, X]), lambda x: np.stack([V, x[0]]),
    lambda x: np.where(x > 0, x, 0), lambda x: np.einsum("ij,j->i", x, V), lambda x: np.dot(V, x), lambda x: np.matmul(x, x),
    lambda x: np.maximum(x, 0), lambda x: np.clip(x, 0, 1), lambda x: np.broadcast_to(x, (2, 3, 3)), lambda x: np.reshape(x, -1),
    lambda x: np.add.reduce(x), lambda x: np.maximum.reduce(x, axis=1), lambda x: np.logical_and.reduce(x > -1),
    lambda x: np.add.accumulate(x), lambda x: np.multiply.accumulate(x, axis=1), lambda x: np.subtract.outer(x, V),
    lambda x: np.multiply.outer(V, x), lambda x: np.linalg.solve(x, V), lambda x: np.interp(x, V, V * 2),
    lambda x: V + x, lambda x: V @ x, lambda x: np.float32(2) ** x, lambda x: V > x, lambda x: np.divmod(x, V)[1],
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(FUNCTIONS)))
def test_they_trace(case: int) -> None:
    function = FUNCTIONS[case]
    expected = np.asarray(function(X))
    result = mj.jit(function)(X)
    assert isinstance(result, mj.Array)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=2e-5, atol=1e-5)


def test_they_are_differentiated_and_batched() -> None:
    gradient = mj.grad(lambda w: np.sum(np.tanh(X @ w)))(V)
    np.testing.assert_allclose(gradient, X.T @ (1 - np.tanh(X @ V) ** 2), rtol=1e-4)  # cancels
    np.testing.assert_allclose(mj.vmap(np.linalg.norm)(X), np.linalg.norm(X, axis=1), rtol=1e-6)


def test_what_only_looks_at_shapes_needs_no_counterpart() -> None:
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.extend([np.shape(x), np.ndim(x), np.size(x), np.iscomplexobj(x), np.isfortran(V), np.common_type(x), np.isscalar(x)])
        return x

    mj.jit(look)(X)
    assert seen == [(3, 3), 2, 9, False, False, np.float32, False]


def test_an_operator_names_its_result() -> None:
    def total(x: Any) -> Any:
        a = np.ones(3, np.float32)
        a += x
        a *= V
        return a

    np.testing.assert_array_equal(mj.jit(total)(V), (1 + V) * V)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: np.isnat(x), "numpy.isnat of a traced value has no counterpart in meshjit.numpy"),
        (lambda x: np.real_if_close(x), "numpy.real_if_close of a traced value has no counterpart in meshjit.numpy"),
        (lambda x: np.minimum.accumulate(x), "numpy.minimum.accumulate of a traced value has no counterpart in meshjit.numpy"),
        (lambda x: np.add(x, 1, out=np.zeros(3)), "numpy.add of a traced value cannot write into an array of NumPy's"),
        (lambda x: np.add(x, 1, where=V > 1), "numpy.add of a traced value was given where="),
        (lambda x: np.asarray(x), r"Traced<i32\[3\]> has no value while lambda is traced: NumPy asked for its elements"),
    ],
)
def test_what_does_not_go(wrong: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(TracerArrayConversionError, match=message) as error:
        mj.jit(wrong)(mnp.arange(3))
    assert "at test_numpy_of_numpy.py:" in str(error.value) and "\n  fix: " in str(error.value)


def test_concrete_arrays_are_left_to_numpy() -> None:
    assert type(np.tanh(mnp.ones(3))) is type(np.add(mnp.ones(3), V)) is np.ndarray
    assert isinstance(V + mnp.ones(3), mj.Array)
