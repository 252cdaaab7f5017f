"""A distribution: its log density and other formulas at standard position (loc 0, scale 1), and what follows of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.promotion import is_python_number
from meshjit.runtime.composed import as_one
from meshjit.scipy.operands import floats, reals, strong

Function = Callable[..., Any]
Support = tuple[float | None, float | None, float]
_BELOW = {"logpdf": -np.inf, "logpmf": -np.inf, "cdf": 0, "sf": 1, "logcdf": -np.inf, "logsf": 0}
_ABOVE = {"logpdf": -np.inf, "logpmf": -np.inf, "cdf": 1, "sf": 0, "logcdf": 0, "logsf": -np.inf}


def within(outside: Any, log: Function, x: Any, inner: float) -> Any:
    """log(x), and -inf outside, where it is computed at `inner` instead, so that derivatives there are 0. nan is not outside."""
    return mnp.where(outside, -np.inf, log(mnp.where(outside, inner, x)))


def quantile(q: Any, inverse: Function) -> Any:
    """nan for q that is no probability."""
    return mnp.where((q < 0) | (q > 1), np.nan, inverse(q))


class Distribution:
    """The functions of a distribution as attributes, each with JAX's parameters: x (k of a discrete one, q of ppf and isf), the
    shape parameters, loc, and scale of a continuous one.

    `support` is (from, to, a place inside) at standard position, for the functions that `bounded` names: their values outside are
    known, whatever the scale. `valid` tells of scale and shape parameters where there is a distribution, for all functions but
    the quantiles; elsewhere values are nan. `complex`: the functions that take complex numbers. `weak`: those of whose results
    Python numbers alone keep the dtype adaptable, also where the first operand is an array ("*": all). `even`: a negative scale
    is as the positive one. `default_float`: the functions whose results have the default dtype, whatever the operands'."""

    def __init__(
        self, name: str, parameters: str, functions: dict[str, Function], discrete: bool = False, moves: bool = True,
        support: Support = (None, None, 0), bounded: str = "logpdf logpmf", valid: Function | None = None, valid_of: str = "*",
        complex: str = "", weak: str = "", even: bool = False, default_float: str = "",  # noqa: A002
    ) -> None:  # fmt: skip
        names = parameters.split()
        for key, function in functions.items():
            first = "q" if key in ("ppf", "isf") else "k" if discrete else "x"
            settings = (["loc"] if discrete else ["loc", "scale"]) if moves else []
            rules = _Rules(
                support if key in bounded.split() else (None, None, 0),
                valid if _named(key, valid_of) and first != "q" else None,
                _named(key, complex),
                _named(key, weak),
                even,
                _named(key, default_float),
            )
            setattr(self, key, _function(f"{name}.{key}", key, [first, *names], settings, function, rules))
        self.__name__ = name


def _named(key: str, names: str) -> bool:
    return names == "*" or key in names.split()


class _Rules:
    """What holds of one function of a distribution."""

    def __init__(
        self, support: Support, valid: Function | None, is_complex: bool, stays_weak: bool, even: bool, default: bool
    ) -> None:
        self.support, self.valid, self.even, self.has_default_dtype = support, valid, even, default
        self.is_complex, self.stays_weak = is_complex, stays_weak


def _function(
    name: str, key: str, required: Sequence[str], settings: Sequence[str], function: Function, rules: _Rules
) -> Function:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = {"loc": 0, "scale": 1}
    parameters = [inspect.Parameter(n, kind) for n in required] + [
        inspect.Parameter(n, kind, default=defaults[n]) for n in settings
    ]
    signature = inspect.Signature(parameters)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments.values()
        x, *rest = floats(*given) if rules.is_complex else reals(name, *given, error=TypeError)
        shapes, position = rest[: len(required) - 1], rest[len(required) - 1 :]
        loc, scale = (*position, *(mnp.zeros_like(x), mnp.ones_like(x))[len(position) :])
        if key in ("ppf", "isf"):
            value = loc + scale * function(x, *shapes)
        else:
            value = _placed(key, function, rules, x, shapes, loc, scale, "scale" in settings)
        if rules.has_default_dtype:
            return mnp.asarray(value, float)
        adapts = rules.stays_weak or is_python_number(next(iter(given)))
        return value if adapts else strong(value)

    call.__name__, call.__qualname__ = key, name
    call.__doc__ = f"`jax.scipy.stats.{name}`."
    vars(call)["__signature__"] = signature
    return as_one(call)


def _placed(
    key: str, function: Function, rules: _Rules, x: Any, shapes: Sequence[Any], loc: Any, scale: Any, scales: bool
) -> Any:
    """A function of x in place of one at standard position."""
    low, high, inner = rules.support
    below = False if low is None else x < (loc + scale * low if low else loc)  # a scale that is nan moves no end at 0
    above = False if high is None else x > loc + scale * high
    y = (x - loc) / scale if scales else x - loc
    y = y if below is False and above is False else mnp.where(below | above, inner, y)
    value = function(y, *shapes)
    if scales and key == "logpdf":
        value = value - mnp.log(mnp.abs(scale) if rules.even else scale)
    value = value if below is False else mnp.where(below, _BELOW[key], value)
    value = value if above is False else mnp.where(above, _ABOVE[key], value)
    return value if rules.valid is None else mnp.where(rules.valid(scale, *shapes), value, np.nan)


def continuous(name: str, parameters: str, logpdf: Function, **rest: Any) -> Distribution:
    """With pdf from logpdf, and of cdf, sf, logcdf and logsf what the others give."""
    rules = {key: rest.pop(key) for key in list(rest) if key in inspect.signature(Distribution).parameters}
    known = {"logpdf": logpdf, **rest}
    if "cdf" in known:
        cdf = known["cdf"]
        known.setdefault("sf", lambda *a: 1 - cdf(*a))
        sf = known["sf"]
        known.setdefault("logcdf", lambda *a: mnp.log(cdf(*a)))
        known.setdefault("logsf", lambda *a: mnp.log(sf(*a)))
    made = Distribution(name, parameters, known, **rules)
    return with_density(made, "logpdf", "pdf")


def discrete(name: str, parameters: str, logpmf: Function, **rest: Any) -> Distribution:
    rules = {key: rest.pop(key) for key in list(rest) if key in inspect.signature(Distribution).parameters}
    made = Distribution(name, parameters, {"logpmf": logpmf, **rest}, discrete=True, **rules)
    return with_density(made, "logpmf", "pmf")


def with_density(made: Distribution, log: str, key: str) -> Distribution:
    """With the function whose logarithm is there."""
    logarithm = vars(made)[log]

    def density(*args: Any, **kwargs: Any) -> Any:
        return mnp.exp(logarithm(*args, **kwargs))

    density.__name__, density.__qualname__ = key, f"{made.__name__}.{key}"
    density.__doc__ = f"`jax.scipy.stats.{made.__name__}.{key}`."
    vars(density)["__signature__"] = inspect.signature(logarithm)
    setattr(made, key, density)
    return made
