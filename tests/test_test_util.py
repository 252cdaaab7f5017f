"""`meshjit.test_util`: right derivatives pass, wrong ones do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.test_util import check_grads

pytestmark = pytest.mark.device

WHAT = {"fwd": "JVP tangent", "rev": "VJP cotangent projection", "lin": "LIN of JVP tangent"}


@pytest.mark.parametrize("modes", [("fwd",), ("rev",), ("fwd", "rev"), ("lin",)])
def test_right_derivatives_pass(modes: tuple[str, ...]) -> None:
    check_grads(lambda x, y: mnp.sin(x) * y, (mnp.arange(3.0), mnp.ones(3)), order=2, modes=modes)
    check_grads(lambda p: mnp.sum(p["a"] ** 3), ({"a": np.arange(1, 4, dtype=np.float32)},), order=2, modes=modes)


@pytest.mark.parametrize("mode", ["fwd", "rev", "lin"])
def test_wrong_derivatives_do_not(mode: str) -> None:
    @mj.custom_jvp
    def doubled(x: Any) -> Any:
        return 2 * x

    doubled.defjvp(lambda primals, tangents: (2 * primals[0], 3 * tangents[0]))
    with pytest.raises(AssertionError, match=f"order 1: {WHAT[mode]}"):
        check_grads(doubled, (mnp.ones(3),), 1, modes=[mode])


def test_the_step_is_that_of_jax() -> None:
    near = mnp.array([1e-3, 0.5])  # the distance to the kink is more than 1e-4 along the direction, and less than 1e-2
    check_grads(mnp.abs, (near,), 1)
    with pytest.raises(AssertionError, match="JVP tangent"):
        check_grads(mnp.abs, (near,), 1, eps=1e-2)


@pytest.mark.parametrize("dtype", [np.float16, mnp.bfloat16])
def test_numbers_of_16_bits_take_a_step_that_they_can(dtype: Any) -> None:
    check_grads(mnp.sin, (mnp.arange(1, 4).astype(dtype),), 1)


def test_numbers_and_modes() -> None:
    check_grads(mnp.sin, (1.0,), 2)
    check_grads(mnp.sin, (1.0,), 1, modes="lin")
    with pytest.raises(ValueError, match=r"check_grads: 'backward' is no mode\n  fix: of \"fwd\", \"rev\" and \"lin\""):
        check_grads(mnp.sin, (1.0,), 1, modes=["backward"])
