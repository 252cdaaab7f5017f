"""A distribution: its log density and other formulas at standard position (loc 0, scale 1), and what follows of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.numpy.promote import broadcast_all, promoted

Function = Callable[..., Any]


def floats(*xs: Any) -> list[Any]:
    return [mnp.asarray(x) for x in broadcast_all(promoted(*xs, inexact=True)[0])]


def within(outside: Any, log: Function, x: Any, inner: float) -> Any:
    """log(x), and -inf outside, where it is computed at `inner` instead, so that derivatives there are 0. nan is not outside."""
    return mnp.where(outside, -np.inf, log(mnp.where(outside, inner, x)))


def quantile(q: Any, inverse: Function) -> Any:
    """nan for q that is no probability."""
    return mnp.where((q < 0) | (q > 1), np.nan, inverse(q))


class Distribution:
    """The functions of a distribution as attributes, each with JAX's parameters: x (k of a discrete one, q of ppf and isf), the
    shape parameters, loc, and scale of a continuous one."""

    def __init__(
        self, name: str, parameters: str, functions: dict[str, Function], discrete: bool = False, moves: bool = True
    ) -> None:
        names = parameters.split()
        for key, function in functions.items():
            first = "q" if key in ("ppf", "isf") else "k" if discrete else "x"
            settings = (["loc"] if discrete else ["loc", "scale"]) if moves else []
            setattr(self, key, _function(f"{name}.{key}", key, [first, *names], settings, function))
        self.__name__ = name


def _function(name: str, key: str, required: Sequence[str], settings: Sequence[str], function: Function) -> Function:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = {"loc": 0, "scale": 1}
    parameters = [inspect.Parameter(n, kind) for n in required] + [
        inspect.Parameter(n, kind, default=defaults[n]) for n in settings
    ]
    signature = inspect.Signature(parameters)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        x, *rest = floats(*bound.arguments.values())
        shapes, position = rest[: len(required) - 1], rest[len(required) - 1 :]
        loc, scale = (*position, *(mnp.zeros_like(x), mnp.ones_like(x))[len(position) :])
        if key in ("ppf", "isf"):
            return loc + scale * function(x, *shapes)
        value = function((x - loc) / scale if "scale" in settings else x - loc, *shapes)
        if "scale" not in settings:
            return value
        return value - mnp.log(scale) if key == "logpdf" else value / scale if key == "pdf" else value

    call.__name__, call.__qualname__ = key, name
    call.__doc__ = f"`jax.scipy.stats.{name}`."
    vars(call)["__signature__"] = signature
    return call


def continuous(name: str, parameters: str, logpdf: Function, moves: bool = True, **functions: Function) -> Distribution:
    """With pdf from logpdf, and of cdf, sf, logcdf and logsf what the others give."""
    known = {"logpdf": logpdf, "pdf": lambda *a: mnp.exp(logpdf(*a)), **functions}
    if "cdf" in known:
        cdf = known["cdf"]
        known.setdefault("sf", lambda *a: 1 - cdf(*a))
        sf = known["sf"]
        known.setdefault("logcdf", lambda *a: mnp.log(cdf(*a)))
        known.setdefault("logsf", lambda *a: mnp.log(sf(*a)))
    return Distribution(name, parameters, known, moves=moves)


def discrete(name: str, parameters: str, logpmf: Function, moves: bool = True, **functions: Function) -> Distribution:
    known = {"logpmf": logpmf, "pmf": lambda *a: mnp.exp(logpmf(*a)), **functions}
    return Distribution(name, parameters, known, discrete=True, moves=moves)
