"""`jax.scipy.integrate`."""

from __future__ import annotations

from typing import Any

from meshjit import numpy as mnp
from meshjit.missing import explain as _explain


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """`scipy.integrate.trapezoid`: the integral of y over the places x, or over equal steps dx, by the trapezoidal rule."""
    return mnp.trapezoid(y, x, dx, axis)


_explain(__name__)
