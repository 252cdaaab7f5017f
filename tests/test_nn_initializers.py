"""Initializers against JAX 0.10.2: the first number and the sum of the magnitudes from key 3; what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit.nn import initializers
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")

# (call, shape, dtype): first number, sum of magnitudes.
LIKE_JAX: dict[tuple[str, tuple[int, ...], str], tuple[complex, float]] = {
    ("glorot_normal()", (3, 4, 6), "float32"): (-0.387435, 16.03),
    ("glorot_uniform()", (3, 4, 6), "float32"): (-0.380979, 16.797),
    ("lecun_normal()", (3, 4, 6), "float32"): (-0.433166, 17.922),
    ("he_uniform()", (3, 4, 6), "float32"): (-0.602381, 26.558),
    ("he_normal(in_axis=(0, 1), out_axis=(-1,), batch_axis=2)", (3, 4, 2, 6), "float32"): (-0.612589, 53.99),
    ("normal(0.5)", (5,), "float32"): (-0.723128, 2.9633),
    ("glorot_normal()", (3, 4, 6), "bfloat16"): (-0.005737, 16.062),
    ("glorot_uniform()", (3, 4, 6), "bfloat16"): (-0.007019, 17.122),
    ("lecun_normal()", (3, 4, 6), "bfloat16"): (-0.006409, 17.989),
    ("he_uniform()", (3, 4, 6), "bfloat16"): (-0.011047, 26.966),
    ("he_normal(in_axis=(0, 1), out_axis=(-1,), batch_axis=2)", (3, 4, 2, 6), "bfloat16"): (-0.009094, 48.145),
    ("normal(0.5)", (5,), "bfloat16"): (-0.007324, 1.6108),
    ("glorot_normal()", (3, 4, 6), "complex64"): ((0.024749 + 0.004079j), 16.087),
    ("glorot_uniform()", (3, 4, 6), "complex64"): ((0.033597 + 0.005537j), 16.6),
    ("lecun_normal()", (3, 4, 6), "complex64"): ((0.02767 + 0.00456j), 17.986),
    ("he_uniform()", (3, 4, 6), "complex64"): ((0.053121 + 0.008754j), 26.247),
    ("he_normal(in_axis=(0, 1), out_axis=(-1,), batch_axis=2)", (3, 4, 2, 6), "complex64"): ((0.039131 + 0.006449j), 48.584),
    ("normal(0.5)", (5,), "complex64"): ((-0.84087 - 0.687033j), 2.3491),
    ("truncated_normal(2.0, lower=-1.0, upper=0.5)", (5,), "float32"): (-1.696776, 4.4715),
    ("uniform(2.0)", (5,), "float32"): (0.148105, 5.8303),
    ("truncated_normal(2.0, lower=-1.0, upper=0.5)", (5,), "bfloat16"): (-0.402344, 2.731),
    ("uniform(2.0)", (5,), "bfloat16"): (0.984375, 5.9844),
    ("orthogonal(1.5)", (4, 3), "float32"): (-0.730601, 7.7901),
    ("orthogonal(column_axis=0)", (3, 4), "complex64"): ((-0.659227 - 0.538621j), 5.3118),
    ("delta_orthogonal()", (3, 3, 2, 4), "float32"): (0.0, 3.3898),
    ("variance_scaling(2.0, 'fan_geo_avg', 'normal')", (3, 4), "float32"): (-1.098918, 8.5605),
    ("constant(2)", (2,), "float32"): (2.0, 4),
}


@pytest.mark.parametrize(("call", "shape", "dtype"), LIKE_JAX)
def test_draws_the_numbers_of_jax(call: str, shape: tuple[int, ...], dtype: str) -> None:
    first, total = LIKE_JAX[call, shape, dtype]
    x: Any = host(eval(f"initializers.{call}")(mj.random.key(3), shape, dtype))
    assert (x.shape, str(x.dtype)) == (shape, dtype)
    assert x.ravel().astype(np.complex128)[0] == pytest.approx(first, rel=2e-2 if dtype == "bfloat16" else 1e-4)
    assert np.abs(x.astype(np.complex128)).sum() == pytest.approx(total, rel=1e-3)


def test_the_default_dtype_follows_x64() -> None:
    assert initializers.he_normal()(mj.random.key(0), (2, 2)).dtype == np.float32
    with mj.enable_x64(True):
        assert initializers.he_normal()(mj.random.key(0), (2, 2)).dtype == np.float64


def test_an_orthogonal_matrix_is_orthogonal() -> None:
    q = host(initializers.orthogonal(2.0)(mj.random.key(0), (4, 3, 5)))
    np.testing.assert_allclose(q.reshape(12, 5).T @ q.reshape(12, 5), 4 * np.eye(5), atol=1e-5)
    assert host(initializers.orthogonal()(mj.random.key(0), (0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "shape", "text"),
    [
        ("he_normal()", (4,), "shape (4,) has 1 dims, and in_axis is the second last\n  fix: name in_axis and out_axis"),
        ("variance_scaling(1.0, 'fan', 'normal')", (4, 4), "mode is 'fan', not one of fan_in, fan_out, fan_avg, fan_geo_avg"),
        ("variance_scaling(1.0, 'fan_in', 'x')", (4, 4), "distribution is 'x', not one of truncated_normal, normal, uniform"),
        ("orthogonal()", (4,), "orthogonal: shape (4,) has 1 dims, an orthogonal matrix has at least 2"),
        ("delta_orthogonal()", (3, 3), "delta_orthogonal: shape (3, 3) has 2 dims, a kernel has 3, 4 or 5"),
        ("delta_orthogonal()", (3, 4, 2), "delta_orthogonal: 4 features in are more than 2 features out"),
    ],
)
def test_refuses(call: str, shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(ValueError) as error:
        eval(f"initializers.{call}")(mj.random.key(0), shape)
    assert text in str(error.value)
