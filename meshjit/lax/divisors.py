"""`jax.numpy.gcd` and `lcm`: Euclid's algorithm on all elements at once."""

from __future__ import annotations

from typing import Any

from meshjit import numpy as mnp
from meshjit.lax.loops import while_loop
from meshjit.numpy.promote import broadcast_all, promoted
from meshjit.trace import line_of, user_source


def _integers(name: str, *xs: Any) -> list[Any]:
    numbers = promoted(*xs)[0]
    if numbers[0].dtype.kind not in "iu":
        raise ValueError(f"{name} takes integers, got {numbers[0].dtype}\n  at {line_of(user_source())}\n  fix: x.astype(int)")
    return [mnp.asarray(x) for x in broadcast_all(numbers)]


def gcd(x1: Any, x2: Any) -> Any:
    """`numpy.gcd`: the greatest common divisor, elementwise; that of 0 and 0 is 0. ValueError for other than integers."""
    x, y = (mnp.abs(x) for x in _integers("gcd", x1, x2))
    return while_loop(lambda pair: mnp.any(pair[1] != 0), _reduced, (x, y))[0]


def _reduced(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    x, y = pair
    going = y != 0
    return mnp.where(going, y, x), mnp.where(going, x % mnp.where(going, y, 1), 0)


def lcm(x1: Any, x2: Any) -> Any:
    """`numpy.lcm`: the least common multiple, elementwise; 0 where one of them is 0. ValueError for other than integers."""
    x, y = (mnp.abs(x) for x in _integers("lcm", x1, x2))
    divisor = gcd(x, y)
    return mnp.where(divisor == 0, 0, x * (y // mnp.where(divisor == 0, 1, divisor)))
