"""What loops and branches hold: operands that bodies read count once, carries are where their operands were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.inspect.ahead import held_bytes

WIDTH = 256
SQUARE = 4 * WIDTH * WIDTH


def of(*shape: int) -> mj.ShapeDtypeStruct:
    return mj.ShapeDtypeStruct(shape, np.float32)


def invariant(x: Any, w: Any) -> Any:
    return lax.fori_loop(0, 10, lambda i, c: mnp.sin(c @ x), w)


def carried(c: Any, w: Any) -> Any:
    return lax.fori_loop(0, 10, lambda i, c: (c @ w) @ w, c)


def read_afterwards(c: Any, w: Any) -> Any:
    return lax.fori_loop(0, 10, lambda i, x: (x @ w) @ w, c) @ c


def stacked(c: Any, w: Any) -> Any:
    return lax.scan(lambda c, _: (c @ w, c), c, None, length=4)


def sliced(xs: Any, w: Any) -> Any:
    return lax.scan(lambda c, x: (mnp.sin(c @ x) @ x, None), w, xs)


def branches(p: Any, x: Any) -> Any:
    return lax.cond(p[0, 0] > 0, lambda x: x @ x, lambda x: mnp.sin(x) @ x, x)


def state(c: Any, w: Any) -> Any:
    return lax.while_loop(lambda s: mnp.sum(s[0]) < 1e9, lambda s: (s[0] @ w, s[1] + s[0]), (c, w))


def nested(x: Any, w: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(0, 3, lambda j, d: mnp.sin(d @ x), c), w)


BOTH = of(WIDTH, WIDTH), of(WIDTH, WIDTH)

# Squares held where nothing is donated, and where the first argument is.
CASES: list[tuple[Callable[..., Any], Any, int, int]] = [
    (invariant, BOTH, 4, 4),  # x; w, which the loop copies; in it %c and %c @ x, or the latter and its sine
    (carried, BOTH, 4, 3),
    (read_afterwards, BOTH, 4, 4),
    (stacked, BOTH, 8, 7),  # 4 slices from the start
    (sliced, (of(4, WIDTH, WIDTH), of(WIDTH, WIDTH)), 8, 8),
    (branches, BOTH, 4, 3),
    (state, BOTH, 6, 5),
    (nested, BOTH, 4, 4),
]


@pytest.mark.device
@pytest.mark.parametrize(("function", "arguments", "kept", "donated"), CASES, ids=[f.__name__ for f, *_ in CASES])
def test_what_is_predicted_is_held(function: Callable[..., Any], arguments: Any, kept: int, donated: int) -> None:
    """To a square, and never less than XLA takes. The rows of the table add up to the peak."""
    for squares, donor in ((kept, ()), (donated, 0)):
        lowered = mj.jit(function, donate_argnums=donor).lower(*arguments)
        cost, peak = lowered.plan.cost, lowered.report().memory
        assert cost is not None and cost.peak_bytes == peak.peak == sum(row.bytes for row in peak.held)
        assert round(cost.peak_bytes / SQUARE) == squares
        assert cost.peak_bytes >= held_bytes(lowered.compile()) - SQUARE / 8
