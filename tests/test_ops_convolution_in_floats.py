"""Convolutions of integers and complex numbers as machines write them that convolve floats alone: exact, and wrapped round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import lax
from meshjit.core.op import REGISTRY
from meshjit.ops.window.convolution_in_floats import in_floats
from meshjit.simulate.evaluate import evaluate
from tests.tools.op_harness import assert_close, evaluated, samples

CONVOLUTION = REGISTRY["convolution"]
WAYS = [(d, None) for d in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "complex64", "complex128")]
WAYS += [("int8", "int32"), ("int16", "int32"), ("int8", "float32"), ("complex64", "complex128")]


def filled(generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Integers of the whole range."""
    if dtype.kind == "c":
        return (generator.normal(size=shape) + 1j * generator.normal(size=shape)).astype(dtype)
    return generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize(("dtype", "preferred"), WAYS)
def test_a_convolution_in_floats_is_that_of_its_dtype(dtype: str, preferred: str | None) -> None:
    generator, count = np.random.default_rng(0), 0
    for sample in samples(CONVOLUTION)[::2]:
        types = tuple(t.with_dtype(np.dtype(dtype)) for t in sample.types)
        params = {**sample.params, "preferred": preferred and np.dtype(preferred)}
        (out,) = CONVOLUTION.type_rule(types, params)
        arrays = [filled(generator, t.shape, t.dtype) for t in types]
        (got,) = evaluate(in_floats(types, out, tuple(params.items()), CONVOLUTION), arrays)
        expected = evaluated(CONVOLUTION, arrays, params)[0]
        assert got.dtype == expected.dtype == out.dtype
        kept = types[0].dtype if out.dtype.kind == "c" else out.dtype  # sums of NumPy have no more digits
        assert_close(got.astype(kept), expected.astype(kept), scale=4)
        count += 1
    assert count > 10


@pytest.mark.parametrize("dtype", [np.int32, np.complex64])
def test_text_for_gpus_convolves_floats(dtype: Any) -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME")

    x, w = np.ones((1, 2, 5, 5), dtype), np.ones((3, 2, 3, 3), dtype)
    for platform, floats in (("cuda", True), ("tpu", False), ("cpu", False)):
        text = mj.jit(f).trace(x, w).lower(lowering_platforms=(platform,)).as_text()
        lines = [line for line in text.splitlines() if "stablehlo.convolution" in line]
        assert lines and all(("complex" not in line and "xi32>" not in line) == floats for line in lines)


def test_elements_of_two_bits_are_refused_for_gpus() -> None:
    x = np.ones((4,), mj.numpy.int4)
    traced = mj.jit(lambda x: x.astype("int2")[:2]).trace(x)
    with pytest.raises(NotImplementedError) as error:
        traced.lower(lowering_platforms=("cuda",))
    first, second = str(error.value).splitlines()
    assert first.startswith("lambda: i2[4] at ") and first.endswith(": XLA computes elements of 2 bits wrongly on GPUs")
    assert second == "  fix: x.astype('int8') on devices('cpu') first, and int8 on the GPU"
    traced.lower(lowering_platforms=("cpu",))
