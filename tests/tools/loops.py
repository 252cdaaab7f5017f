"""Loops that several tests plan."""

from __future__ import annotations

from typing import Any

import meshjit.numpy as mnp
from meshjit import lax


def momentum(w: Any, xs: Any) -> Any:
    """Parameters and their momentum, both carried: gradients are read in every iteration."""

    def step(carry: Any, x: Any) -> Any:
        w, m = carry
        m = 0.9 * m + x.T @ (x @ w)
        return (w - m, m), None

    return lax.scan(step, (w, mnp.zeros_like(w)), xs)[0]
