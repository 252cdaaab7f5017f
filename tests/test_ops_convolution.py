"""convolution with random windows and groups, against loops written from the specification."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from meshjit.core.types import TensorType, type_of
from meshjit.ops.window.convolution import convolution
from tests.tools.op_harness import evaluated

Array = np.ndarray[Any, Any]


def looped(lhs: Array, rhs: Array, params: dict[str, Any]) -> Array:
    """(batch, feature, *spatial) throughout; every product of an element and a weight, one by one."""
    (out,) = convolution.type_rule((type_of(lhs), type_of(rhs)), params)
    result = np.zeros(out.shape, lhs.dtype)
    for place in np.ndindex(*out.shape):
        result[place] = element(lhs, rhs, params, out.shape, place)
    return result


def element(lhs: Array, rhs: Array, params: dict[str, Any], shape: tuple[int, ...], place: tuple[int, ...]) -> int:
    n, o, *spatial = place
    group = o // (shape[1] // params["feature_group_count"])
    batch = o // (shape[1] // params["batch_group_count"])
    total = 0
    for i, *kernel in np.ndindex(*rhs.shape[1:]):
        at = []
        for d, (p, k) in enumerate(zip(spatial, kernel, strict=True)):
            low = params["padding"][d][0]
            padded = p * params["window_strides"][d] + k * params["rhs_dilation"][d] - low
            at.append(divmod(padded, params["lhs_dilation"][d]))
        hole = any(rest for _, rest in at)
        outside = any(not 0 <= q < m for (q, _), m in zip(at, lhs.shape[2:], strict=True))
        if not hole and not outside:
            source = (batch * shape[0] + n, group * rhs.shape[1] + i, *(q for q, _ in at))
            total += lhs[source] * rhs[(o, i, *kernel)]
    return total


@st.composite
def convolutions(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    rank = draw(st.integers(0, 2))
    groups, batches = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]))
    small = st.integers(1, 2)
    n, c, o = draw(small) * batches, draw(small), draw(small) * groups * batches
    extents = [draw(st.integers(1, 5)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    order = tuple(range(rank + 2))
    params = {
        "window_strides": tuple(draw(st.integers(1, 3)) for _ in range(rank)),
        "padding": tuple((draw(st.integers(-1, 3)), draw(st.integers(-1, 3))) for _ in range(rank)),
        "lhs_dilation": tuple(draw(st.integers(1, 3)) for _ in range(rank)),
        "rhs_dilation": tuple(draw(st.integers(1, 3)) for _ in range(rank)),
        "dimension_numbers": (order,) * 3,
        "feature_group_count": groups,
        "batch_group_count": batches,
        "precision": None,
        "preferred": None,
    }
    return (n, c * groups, *extents), (o, c, *kernel), params


@given(convolutions(), st.integers(0, 2**32 - 1))
def test_convolution_is_its_loop(call: Any, seed: int) -> None:
    lhs_shape, rhs_shape, params = call
    generator = np.random.default_rng(seed)
    lhs, rhs = (generator.integers(-4, 5, shape).astype(np.int32) for shape in (lhs_shape, rhs_shape))
    want = looped(lhs, rhs, params)
    np.testing.assert_array_equal(evaluated(convolution, [lhs, rhs], params)[0], want)
    orders = [tuple(int(d) for d in generator.permutation(lhs.ndim)) for _ in range(3)]
    moved = [np.transpose(x, np.argsort(order)) for x, order in zip((lhs, rhs), orders, strict=False)]
    (got,) = evaluated(convolution, moved, {**params, "dimension_numbers": tuple(orders)})
    np.testing.assert_array_equal(np.transpose(got, orders[2]), want)


def text(lhs: str, rhs: str, **changes: Any) -> str:
    types = (TensorType.parse(lhs), TensorType.parse(rhs))
    rank = types[0].rank - 2
    params = {
        "window_strides": (1,) * rank,
        "padding": ((1, 1),) * rank,
        "lhs_dilation": (1,) * rank,
        "rhs_dilation": (1,) * rank,
        "dimension_numbers": (tuple(range(rank + 2)),) * 3,
        "feature_group_count": 1,
        "batch_group_count": 1,
        "precision": None,
        "preferred": None,
    } | changes
    return str(convolution.factor_rule(types, convolution.type_rule(types, params), params))


def test_factor_rules() -> None:
    assert text("f32[8,3,9]", "f32[4,3,3]") == "a b e, c b 1 -> a c e | sum b, permute e"
    assert text("f32[8,3,9]", "f32[4,3,9]") == "a b e, c b e -> a c 1 | sum b e"
    assert text("f32[8,3,9]", "f32[4,3,1]", padding=((0, 0),)) == "a b e, c b 1 -> a c e | sum b"
    assert text("f32[8,6,9]", "f32[4,3,1]", padding=((0, 0),), feature_group_count=2) == (
        "a (d b) e, (d c) b 1 -> a (d c) e | replicate b"
    )
    assert text("f32[8,6,9]", "f32[4,6,1]", padding=((0, 0),), batch_group_count=2) == (
        "(d a) b e, (d c) b 1 -> a (d c) e | sum b, replicate a"
    )


def test_errors_name_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"5 features of f32\[8,5,9\] are not 1 groups of 3 in features"):
        text("f32[8,5,9]", "f32[4,3,3]")
    with pytest.raises(ValueError, match=r"param feature_group_count is 3: it does not divide the 4 out features"):
        text("f32[8,9,9]", "f32[4,3,3]", feature_group_count=3)
    with pytest.raises(ValueError, match="has 2 feature groups and 2 batch groups; use one"):
        text("f32[8,6,9]", "f32[4,3,3]", feature_group_count=2, batch_group_count=2)
    with pytest.raises(TypeError, match=r"param padding is \(\): there are 1 spatial dims"):
        text("f32[8,3,9]", "f32[4,3,3]", padding=())
