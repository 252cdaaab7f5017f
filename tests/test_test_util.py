"""`meshjit.test_util`: right derivatives pass, wrong ones do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.test_util import check_grads

pytestmark = pytest.mark.device


@pytest.mark.parametrize("modes", [("fwd",), ("rev",), ("fwd", "rev")])
def test_right_derivatives_pass(modes: tuple[str, ...]) -> None:
    check_grads(lambda x, y: mnp.sin(x) * y, (mnp.arange(3.0), mnp.ones(3)), order=2, modes=modes)
    check_grads(lambda p: mnp.sum(p["a"] ** 3), ({"a": np.arange(1, 4, dtype=np.float32)},), order=2, modes=modes)


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_wrong_derivatives_do_not(mode: str) -> None:
    @mj.custom_jvp
    def doubled(x: Any) -> Any:
        return 2 * x

    doubled.defjvp(lambda primals, tangents: (2 * primals[0], 3 * tangents[0]))
    with pytest.raises(AssertionError, match="order 1: JVP tangent" if mode == "fwd" else "order 1: VJP cotangent projection"):
        check_grads(doubled, (mnp.ones(3),), 1, modes=[mode])
