"""Functions at the points where they have kinks, guards or poles, for the comparison of derivatives with JAX: with jax installed

    python -m tests.tools.kink_cases > tests/goldens/kinks.txt

writes what it gives; tests/test_autodiff_kinks.py holds ours against it. A case is `function @ arguments`. Arguments are a
line of points, two lines that are every pair of points, or arrays in brackets.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy

from tests.tools.numpy_cases import describe

inf, nan = numpy.inf, numpy.nan
_LINE = [-inf, -3.0, -2.0, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 6.0, inf, nan]
_SIDE = [-inf, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, inf, nan]
_COMPLEX = [0, 1, -1, 1j, -1j, 3 + 4j, complex(-0.0, -0.0), complex(-2, 0.0), complex(-2, -0.0)]

_UNARY = """
abs sign square sqrt cbrt exp expm1 log log1p log2 log10 exp2 sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh
arctanh sinc reciprocal floor ceil rint trunc round positive negative fabs deg2rad rad2deg nan_to_num real imag conj angle
"""
_LAX = "abs sign rsqrt sqrt cbrt logistic erf erfc erf_inv lgamma digamma square round floor ceil reciprocal tan asin acos acosh atanh"
_NN = """
relu relu6 leaky_relu elu celu selu softplus soft_sign silu mish hard_tanh hard_sigmoid hard_silu squareplus sparse_plus
sparse_sigmoid gelu log_sigmoid sigmoid log1mexp
"""
_BINARY = """
maximum minimum fmax fmin power float_power hypot arctan2 logaddexp logaddexp2 remainder mod fmod floor_divide divide copysign
heaviside add subtract multiply
"""
_ARRAYS = ("[1, 3, 3, 2]", "[3, 3, 3]", "[1, nan, 3]", "[0, 0]", "[-inf, -inf]", "[-inf, 1]", "[inf, 1]", "[inf, inf]", "[nan, nan]", "[2]")
_REDUCTIONS = """
sum prod max min mean var std median ptp cumsum cumprod sort nansum nanprod nanmax nanmin nanmean nanvar nanstd nanmedian
nancumsum nancumprod linalg.norm
"""


def cases() -> Iterator[str]:
    yield from (f"jnp.{name} @ line" for name in _UNARY.split())
    yield from (f"lax.{name} @ line" for name in _LAX.split())
    yield from (f"nn.{name} @ line" for name in _NN.split())
    yield from (f"jnp.{name} @ pairs" for name in _BINARY.split())
    yield from (f"lax.{name} @ pairs" for name in ("max", "min", "pow", "atan2", "rem", "div"))
    yield from (f"{f} @ line" for f in _lines())
    yield from (f"jnp.{name} @ complexes" for name in "abs sign angle real imag conj sqrt square log exp".split())
    yield from (f"jnp.{name} @ {array}" for name in _REDUCTIONS.split() for array in _ARRAYS)
    yield from _selections()
    yield from _products()
    yield from _windows()
    yield from _norms()
    yield from _matrices()
    yield from _members()
    for name in "jnp.sinc jnp.abs jnp.square jnp.log nn.softplus nn.silu nn.gelu".split():  # the second derivative
        yield f"lambda x: jax.grad(lambda y: {name}(y).sum())(x) @ line"
    yield "lambda x: jax.grad(lambda y: jax.grad(lambda z: jax.grad(lambda x: jnp.sinc(x).sum())(z).sum())(y).sum())(x) @ [0, 0.5]"


def _lines() -> Iterator[str]:
    for text in (
        "jnp.clip(x, -1, 2)", "jnp.clip(x, 0)", "jnp.clip(x, None, 0.5)", "lax.clamp(-1.0, x, 2.0)", "jnp.clip(x, 2, 1)",
        "jnp.clip(1.0, x, 2.0)", "jnp.clip(1.0, -1.0, x)",
        "jnp.power(x, 0)", "jnp.power(x, 0.0)", "jnp.power(x, 1.0)", "jnp.power(x, 0.5)", "jnp.power(x, 2.0)", "jnp.power(x, -1)",
        "jnp.power(x, 3)", "jnp.power(0.0, x)", "jnp.power(2.0, x)", "lax.integer_pow(x, 0)", "lax.integer_pow(x, 1)", "x ** 2",
        "jnp.where(x > 0, jnp.log(x), 0.0)", "jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), 0.0)", "jnp.sqrt(x * x)", "jnp.sqrt(x) ** 2",
        "jnp.maximum(x, 0)", "jnp.minimum(x, x)", "jnp.maximum(x, -x)", "jnp.abs(x) ** 0.5", "x / x", "x * jnp.log(x)", "jnp.remainder(x, 1)",
        "jnp.floor_divide(x, 2)", "jnp.fmod(x, 2)", "jnp.modf(x)[0]", "jnp.divmod(x, 2)[1]", "jnp.ldexp(x, 2)", "nn.leaky_relu(x, 0.0)",
        "nn.celu(x, 2.0)", "nn.elu(x, 0.5)", "nn.gelu(x, approximate=False)", "jnp.hypot(x, 0)", "jnp.arctan2(x, 0)", "jnp.arctan2(0.0, x)",
        "jnp.logaddexp(x, x)", "jnp.logaddexp(x, -jnp.inf)", "jnp.copysign(x, -1.0)", "jnp.interp(x, jnp.arange(3.0), jnp.arange(3.0) ** 2)",
        "jnp.select([x > 1, x > 0], [x, 2 * x], 3 * x)", "jnp.piecewise(x, [x < 0, x >= 0], [lambda x: -x, lambda x: x])",
        "lax.reduce_precision(x, 8, 10)", "lax.stop_gradient(x) * x", "jnp.heaviside(x, 0.5)", "jnp.float_power(x, 2)", "jnp.square(jnp.abs(x))",
        "lax.polygamma(1.0, x)", "lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)", "jnp.round(x, 1)",
    ):  # fmt: skip
        yield f"lambda x: {text}"


def _selections() -> Iterator[str]:
    for array in ("[[1, 3, 3], [3, 0, 3]]", "[[0, 0, 0], [0, 0, 0]]", "[[1, nan, 2], [nan, nan, 4]]"):
        for name in ("max", "min", "var", "std", "prod", "median", "nanmax", "nanvar", "nanstd", "sort"):
            yield from (f"lambda x: jnp.{name}(x, axis={axis}) @ {array}" for axis in (0, 1))
        yield from (f"lambda x: {f} @ {array}" for f in (
            "jnp.quantile(x, 0.5, axis=1)", "jnp.quantile(x, 0.3)", "jnp.percentile(x, 25.0, axis=0)", "jnp.nanquantile(x, 0.5)", "lax.cummax(x, 1)",
            "lax.cummin(x, 1)", "lax.cumlogsumexp(x, 1)", "lax.top_k(x, 2)[0]", "jnp.max(x, initial=3.0)", "jnp.max(x, where=x > 0, initial=0.0)",
            "lax.reduce_max(x, (0, 1))", "jnp.take_along_axis(x, jnp.argsort(x, axis=1), 1)", "lax.associative_scan(jnp.maximum, x, axis=1)",
            "jnp.var(x, ddof=6)", "jnp.std(x, axis=1, ddof=2)", "jnp.mean(x, where=x > 9)", "jnp.average(x, weights=x)", "jnp.corrcoef(x)", "jnp.cov(x)",
        ))  # fmt: skip
    yield from (f"lambda x: {f} @ {array}" for array in _ARRAYS for f in (
        "nn.logsumexp(x)", "nn.softmax(x)", "nn.log_softmax(x)", "nn.logmeanexp(x)", "nn.standardize(x)", "nn.logsumexp(x, where=x > 1)",
        "jnp.max(x) - jnp.min(x)", "nn.logsumexp(x, b=jnp.zeros_like(x))",
        "lax.reduce(x, -jnp.inf, lax.max, (0,))", "lax.reduce(x, 1.0, lax.mul, (0,))", "jnp.diff(x)", "jnp.nanquantile(x, 0.4)",
        "lax.sort((x, x), num_keys=1)[1]", "jnp.unique(x, size=2)", "jnp.linalg.norm(x) ** 2",
    ))  # fmt: skip


def _products() -> Iterator[str]:
    arrays = ("[0, 2, 3]", "[2, 0, 3]", "[0, 0, 3]", "[0, 0, 0]", "[2, 0, nan]", "[5]", "[0]")
    for array in arrays:
        for f in ("jnp.prod(x)", "jnp.cumprod(x)", "lax.cumprod(x, reverse=True)", "lax.reduce_prod(x, (0,))", "jnp.nanprod(x)",
                  "lax.associative_scan(lax.mul, x)", "jnp.prod(x, where=x > 0)", "jnp.prod(x, initial=0.0)"):  # fmt: skip
            yield f"lambda x: {f} @ {array}"


def _windows() -> Iterator[str]:
    for array in ("[1, 3, 3, 2, 2, 3]", "[0, 0, 0, 0]", "[1, nan, 2, 1]", "[-inf, -inf, 0, 1]"):
        yield from (f"lambda x: {f} @ {array}" for f in (
            "lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), 'VALID')", "lax.reduce_window(x, -jnp.inf, lax.max, (3,), (2,), 'SAME')",
            "lax.reduce_window(x, jnp.inf, lax.min, (2,), (2,), 'VALID')", "lax.reduce_window(x, 0.0, lax.add, (2,), (1,), 'VALID')",
        ))  # fmt: skip


def _norms() -> Iterator[str]:
    for array in ("[0, 0]", "[0, 3]", "[3, -3]", "[0]", "[inf, 1]"):
        for order in ("None", "0", "1", "2", "3", "0.5", "jnp.inf", "-jnp.inf", "-1", "4.0"):
            yield f"lambda x: jnp.linalg.norm(x, {order}) @ {array}"
    for array in ("[[0, 0], [0, 0]]", "[[1, 1], [1, 1]]", "[[1, -2], [2, 1]]"):
        for order in ("None", "'fro'", "1", "-1", "jnp.inf", "-jnp.inf", "'nuc'", "2", "-2"):
            yield f"lambda x: jnp.linalg.norm(x, {order}) @ {array}"
        yield f"lambda x: jnp.linalg.norm(x, axis=1) @ {array}"


def _matrices() -> Iterator[str]:
    for array in ("[[0]]", "[[2]]", "[[0, 0], [0, 0]]", "[[1, 2], [2, 4]]", "[[1, 0], [0, 0]]", "[[0, 1], [1, 0]]", "[[1, 2], [3, 4]]",
                  "[[0, 0, 0], [0, 0, 0], [0, 0, 0]]", "[[1, 2, 3], [2, 4, 6], [1, 1, 1]]", "[[1, 2, 3], [2, 4, 6], [3, 6, 9]]",
                  "[[1, 0, 0], [0, 1, 0], [0, 0, 0]]", "[[2, 1, 0], [1, 3, 1], [0, 1, 4]]",
                  "[[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]", "[[1, 2, 0, 1], [0, 1, 3, 1], [2, 0, 1, 1], [1, 1, 1, 2]]"):  # fmt: skip
        yield f"jnp.linalg.det @ {array}"
        yield f"lambda x: jnp.linalg.slogdet(x)[1] @ {array}"


def _members() -> Iterator[str]:
    """Members of a batch that take different branches, where the branch that one does not take has no finite derivative."""
    line, rows = "[0, 4, -1]", "[[0, 4, -1], [0, 0, 0]]"
    for f in ("guarded", "switched", "nested"):
        for order in ("jax.vmap({f})", "jax.jit(jax.vmap({f}))", "jax.vmap(jax.jit({f}))", "jax.vmap(jax.grad({f}))", "jax.checkpoint(jax.vmap({f}))",
                      "jax.vmap(jax.checkpoint({f}))", "jax.vmap(jax.grad(jax.grad({f})))", "jax.grad(lambda x: jax.vmap({f})(x).sum())",
                      "lambda x: jax.linearize(jax.vmap({f}), x)[1](x + 1)", "lambda x: lax.scan(lambda c, y: (c + jax.vmap({f})(y), None), x, x[None])[0]"):  # fmt: skip
            yield f"{order.format(f=f)} @ {line}"
        for order in ("jax.vmap(jax.vmap({f}))", "jax.vmap(jax.grad(lambda x: jax.vmap({f})(x).sum()))",
                      "jax.vmap(lambda y: lax.scan(lambda c, y: (c + {f}(y), None), 0.0, y)[0])"):  # fmt: skip
            yield f"{order.format(f=f)} @ {rows}"
    for f in ("weighted", "rooted", "scanned", "scanning"):
        for weight in ("0", "2"):
            yield f"jax.vmap({f}, (0, None)) @ {line} & {weight}"
            yield f"jax.vmap(jax.grad({f}, (0, 1)), (0, None)) @ {line} & {weight}"
            yield f"jax.vmap(jax.vmap({f}, (0, None)), (0, None)) @ {rows} & {weight}"
    yield "jax.vmap(layer, (0, None)) @ [[0, 1], [2, 3]] & [[1, 2], [0, 1]]"
    yield "jax.vmap(layer, (0, None)) @ [[0, 1], [0, 3]] & [[0, 0], [0, 0]]"


def branching(jnp: Any, lax: Any) -> dict[str, Any]:
    """Functions of one member with branches that are safe where they are taken."""

    def middle(x: Any) -> Any:
        return lax.cond(x < -0.5, lambda x: jnp.sqrt(-x), lambda x: x, x)

    return {
        "guarded": lambda x: lax.cond(x < 1e-3, lambda: 1e-3, lambda: jnp.sqrt(x)),
        "switched": lambda x: lax.switch(
            (x > 0).astype(int) + (x > 3), [lambda x: x * 2, lambda x: jnp.log(x), lambda x: 1 / jnp.sqrt(x)], x
        ),
        "nested": lambda x: lax.cond(
            x > 0, lambda x: lax.cond(x > 2, jnp.log, lambda x: x**2, x), lambda x: lax.cond(x < 0, middle, lambda x: x, x), x
        ),
        "weighted": lambda x, w: lax.cond(x > 0, lambda x: w * jnp.log(x) + jnp.sqrt(w) * 0, lambda x: x * w, x),
        "rooted": lambda x, w: lax.cond(x > 100, lambda x: x * jnp.sqrt(w), lambda x: x * w, x),
        "scanned": lambda x, w: lax.scan(
            lambda c, _: (lax.cond(c > 0, lambda c: jnp.sqrt(c) * w, lambda c: c - w, c), c), x, None, length=3
        )[0],
        "scanning": lambda x, w: lax.cond(
            x > 0, lambda x: lax.scan(lambda c, _: (jnp.sqrt(c) * w, c), x, None, length=2)[0], lambda x: x * w, x
        ),
        "layer": lambda v, w: lax.cond(v[0] > 0, lambda v: jnp.sqrt(jnp.log(v) @ w).sum(), lambda v: (v @ w).sum(), v),
    }


def arguments(text: str) -> list[numpy.ndarray[Any, Any]]:
    if text == "line":
        return [numpy.array(_LINE, numpy.float32)]
    if text == "complexes":
        return [numpy.array(_COMPLEX, numpy.complex64)]
    if text == "pairs":
        return [numpy.array(side, numpy.float32) for side in zip(*itertools.product(_SIDE, _SIDE), strict=True)]
    return [numpy.array(eval(part, {"inf": inf, "nan": nan}), numpy.float32) for part in text.split(" & ")]


def outcome(case: str, jax: ModuleType, names: dict[str, Any], wrap: Callable[[Any], Any] = lambda f: f) -> str:
    """The value, its derivative in one direction, and a cotangent for each argument, as text."""
    text, given = case.rsplit(" @ ", 1)
    args, function = arguments(given), eval(text, names)
    derived = wrap(lambda *xs: _derived(jax, function, xs))(*args)
    return describe(tuple(numpy.asarray(x) for x in jax.tree.leaves(derived)))


def _derived(jax: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    directions = tuple(_direction(x, 2 + i) for i, x in enumerate(args))
    value, tangent = jax.jvp(function, args, directions)
    _, pull = jax.vjp(function, *args)
    return value, tangent, pull(jax.tree.map(lambda leaf: _direction(leaf, 1), value))


def _direction(like: Any, factor: int) -> Any:
    """1, 2, 3, 1, 2, 3, … times the factor; complex ones lean."""
    numbers = factor * (1 + numpy.arange(numpy.prod(like.shape, dtype=int)) % 3).reshape(like.shape)
    return (numbers * (1 + 0.5j) if like.dtype.kind == "c" else numbers).astype(like.dtype)


def names_of(jax: Any, jnp: Any) -> dict[str, Any]:
    return {"jax": jax, "jnp": jnp, "lax": jax.lax, "nn": jax.nn, **branching(jnp, jax.lax)}


def main() -> None:
    """Write the goldens with JAX, of the cases that begin with an argument if there are any; what it refuses is left out."""
    import warnings

    import jax
    import jax.numpy as jnp

    warnings.simplefilter("ignore")
    for case in dict.fromkeys(cases()):
        if not case.startswith(tuple(sys.argv[1:]) or ""):
            continue
        try:
            print(f"{case}  ->  {outcome(case, jax, names_of(jax, jnp))}", flush=True)
        except Exception as error:  # noqa: BLE001
            print(f"{case}: {type(error).__name__} {str(error).splitlines()[0]}", file=sys.stderr)


if __name__ == "__main__":
    main()
