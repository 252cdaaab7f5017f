"""How exactly functions and products are computed, as the compiler is told: accuracies, and algorithms of products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, numpy as mnp
from meshjit.core.parser import parse_program
from meshjit.sharding import NamedSharding, PartitionSpec as P

FUNCTIONS = "cbrt cos exp exp2 expm1 log log1p logistic rsqrt sin sqrt tan tanh".split()
X = np.linspace(0.1, 0.9, 7, dtype=np.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_say_how_exact_they_are(name: str) -> None:
    function = getattr(lax, name)
    for accuracy, told in (
        (None, ""), (lax.AccuracyMode.DEFAULT, ""), (lax.AccuracyMode.HIGHEST, "result_accuracy_mode<HIGHEST>"),
        (lax.Tolerance(1e-5, 1e-3, 2), "atol = 1.000000e-05, rtol = 1.000000e-03, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOL"),
    ):  # fmt: skip
        jitted = mj.jit(lambda x, accuracy=accuracy: function(x, accuracy=accuracy))
        text = jitted.lower(X).as_text()
        assert (told in text) if told else ("result_accuracy" not in text)
        np.testing.assert_array_equal(jitted(X), function(X))
    g = lambda x: function(x, accuracy=lax.AccuracyMode.HIGHEST)  # noqa: E731
    np.testing.assert_allclose(mj.vmap(mj.grad(g))(X), mj.vmap(mj.grad(function))(X), rtol=1e-6)
    program = str(mj.jit(g).trace(X).program)
    assert "accuracy='HIGHEST'" in program and str(parse_program(program)) == program
    mesh = mj.make_mesh((4,), ("x",), axis_types=(mj.sharding.AxisType.Auto,))
    np.testing.assert_allclose(mj.jit(mj.vmap(g))(mj.device_put(X, NamedSharding(mesh, P("x")))), function(X), rtol=1e-6)


def test_errors_of_accuracies() -> None:
    with pytest.raises(ValueError, match="Tolerances must be non-negative"):
        lax.Tolerance(ulps=-1)
    with pytest.raises(NotImplementedError, match="Accuracy highest not supported(.|\n)*fix: lax.AccuracyMode.HIGHEST"):
        lax.exp(X, accuracy="highest")  # pyright: ignore[reportArgumentType]


A = np.array([[1, 2, 3], [0.5, 4, -1]], np.float32)
# Preset, dtype of the factors → dtypes in the text, as JAX lowers it: of the factors, of the product.
LOWERED = [
    ("F16_F16_F16", "float32", "f16", "f16"), ("F16_F16_F16", "float16", "f16", "f16"), ("BF16_BF16_F32", "float32", "f32", "f32"),
    ("BF16_BF16_F32", "bfloat16", "bf16", "f32"), ("BF16_BF16_F32", "float16", "bf16", "f32"), ("F32_F32_F32", "bfloat16", "f32", "f32"),
    ("BF16_BF16_F32_X3", "float32", "f32", "f32"), ("BF16_BF16_F32_X6", "float16", "f32", "f32"), ("F64_F64_F64", "float32", "f64", "f64"),
    ("F32_F32_F32", "int32", "f32", "f32"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "factor", "product"), LOWERED)
def test_products_by_algorithms(name: str, dtype: str, factor: str, product: str) -> None:
    a = A.astype(dtype)
    with mj.enable_x64(name == "F64_F64_F64"):
        for precision in (name, lax.DotAlgorithmPreset[name]):
            f = mj.jit(lambda a, precision=precision: lax.dot(a, a.T, precision=precision))
            text = f.lower(a).as_text()
            assert f"tensor<2x3x{factor}>, tensor<3x2x{factor}>) -> tensor<2x2x{product}>" in text
            assert f"accumulation_type = {product}" in text
            result = f(a)
            assert result.dtype == a.dtype
            np.testing.assert_array_equal(np.asarray(result).astype(np.float32), (a @ a.T).astype(np.float32))
    assert "num_primitive_operations = 3" in mj.jit(lambda a: lax.dot(a, a.T, precision="BF16_BF16_F32_X3")).lower(A).as_text()


def test_algorithms_in_derivatives_batches_and_on_several_devices() -> None:
    mesh = mj.make_mesh((2, 2), ("x", "y"), axis_types=(mj.sharding.AxisType.Auto,) * 2)
    f = lambda a, b: mnp.einsum("ij,jk->ik", a, b, precision=lax.DotAlgorithmPreset.F32_F32_F32)  # noqa: E731
    a, b = np.arange(15, dtype=np.float32).reshape(5, 3), np.arange(6, dtype=np.float32).reshape(3, 2)
    placed = mj.device_put(a, NamedSharding(mesh, P("x", "y"))), mj.device_put(b, NamedSharding(mesh, P("y")))
    np.testing.assert_array_equal(mj.jit(f)(*placed), a @ b)
    gradient = mj.jit(mj.grad(lambda a, b: f(a, b).sum()))
    np.testing.assert_array_equal(gradient(*placed), np.ones((5, 2)) @ b.T)
    assert gradient.lower(a, b).as_text().count("dot_algorithm<") == 1
    np.testing.assert_array_equal(mj.vmap(f)(np.stack([a, a]), np.stack([b, b])), np.stack([a @ b] * 2))
    with mj.default_matmul_precision("BF16_BF16_F32"):
        assert "lhs_precision_type = bf16" in mj.jit(lambda a, b: a @ b).lower(a, b).as_text()
    wide = lax.dot(a.astype("bfloat16"), b.astype("bfloat16"), precision="BF16_BF16_F32", preferred_element_type=np.float32)
    assert wide.dtype == np.float32


@pytest.mark.parametrize("precision", ["F16_F16_F32", lax.DotAlgorithmPreset.TF32_TF32_F32_X3, lax.DotAlgorithm(np.float32, np.float32, np.float32)])
def test_algorithms_that_the_platform_does_not_have(precision: Any) -> None:
    with pytest.raises(ValueError, match="is not supported by dot_general on CPU\n  fix: one of BF16_BF16_F32,"):
        lax.dot(A, A.T, precision=precision)
    text = mj.jit(lambda a: lax.dot(a, a.T, precision=precision)).trace(A).lower(lowering_platforms=("cuda",)).as_text()
    assert "algorithm = #stablehlo.dot_algorithm<" in text


def test_transposed_convolutions_with_consistent_padding() -> None:
    """JAX's numbers."""
    x, w = np.arange(1.0, 6, dtype=np.float32).reshape(1, 5, 1), np.arange(1.0, 4, dtype=np.float32).reshape(3, 1, 1)
    for padding in ("SAME", "VALID"):
        both = [lax.conv_transpose(x, w, (2,), padding, use_consistent_padding=flag) for flag in (False, True)]
        np.testing.assert_array_equal(*both)
    consistent = lax.conv_transpose(x, w, (2,), [(1, 0)], use_consistent_padding=True)
    np.testing.assert_array_equal(consistent, lax.conv_transpose(x, w, (2,), [(1, 2)]))
    plain = lax.conv_transpose(x, w, (2,), [(0, 0)], use_consistent_padding=True)
    np.testing.assert_array_equal(plain, lax.conv_transpose(x, w, (2,), "VALID"))
