"""Derivatives of high order by power series, against derivatives of derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, nn, numpy as mnp
from meshjit.experimental.jet import jet, jet2
from meshjit.sharding import NamedSharding, PartitionSpec as P

X = np.array([0.3, 0.7, 1.2], np.float32)
SERIES = [np.array(v, np.float32) for v in ([1.0, 0.5, -0.3], [0.2, 0.1, 0.4], [-0.1, 0.3, 0.2])]
W = np.arange(9, dtype=np.float32).reshape(3, 3) / 10


def one_after_the_other(f: Callable[..., Any], primals: Sequence[Any], series: Sequence[Sequence[Any]]) -> list[Any]:
    """The value and its derivatives along the curve, each the jvp of the one before."""

    def along(t: Any) -> Any:
        powers = [[v * (t**k / math.factorial(k)) for k, v in enumerate(terms, 1)] for terms in series]
        return f(*(x + sum(p[1:], p[0]) for x, p in zip(primals, powers, strict=True)))

    results, g = [along(0.0)], along
    for _ in series[0]:
        g = (lambda h: lambda t: mj.jvp(h, (t,), (mnp.ones_like(t),))[1])(g)
        results.append(g(0.0))
    return results


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(mnp, name) for name in ("sin", "exp", "log", "tanh", "sqrt", "arctan", "cbrt", "sinh", "expm1", "abs")},
    **{name: getattr(lax, name) for name in ("logistic", "erf", "lgamma", "rsqrt")},
    "a power": lambda x: x**3, "a power of itself": lambda x: x**x, "a matrix": lambda x: W @ x, "a sum": lambda x: mnp.sum(x * x),
    "two layers": lambda x: mnp.tanh(W @ mnp.tanh(W @ x)), "softmax": nn.softmax, "gelu": nn.gelu,
    "a jitted function": mj.jit(lambda x: mnp.sin(x) * x), "a checkpoint": mj.checkpoint(lambda x: mnp.sin(x) * x),
    "elements": lambda x: x[mnp.array([2, 0])] * x[1], "a shape": lambda x: mnp.reshape(mnp.sin(x), (3, 1)) * x,
    "a solution": lambda x: mnp.linalg.solve(W + 2 * np.eye(3, dtype=np.float32), x), "sorted": lambda x: mnp.sort(mnp.cos(x)),
    "a transform": lambda x: mnp.abs(mnp.fft.fft(x)) ** 2, "a choice": lambda x: mnp.where(x > 0.5, mnp.sin(x), x),
    "a scan": lambda x: lax.scan(lambda c, _: (mnp.sin(c) * x, c), x, None, length=3)[0],
    "a branch": lambda x: lax.cond(x[0] > 0, mnp.sin, mnp.cos, x),
    "a loop of known length": lambda x: lax.fori_loop(0, 3, lambda i, c: mnp.sin(c), x),
    "a linear loop": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: c * 1.5, x),
    "its derivative": mj.grad(lambda x: mnp.sum(mnp.tanh(W @ x))),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_derivatives_are_those_of_derivatives(name: str) -> None:
    f = FUNCTIONS[name]
    with mj.enable_x64(True):
        x, series = X.astype(np.float64), [s.astype(np.float64) for s in SERIES]
        value, terms = jet(f, (x,), (series,))
        expected = one_after_the_other(f, (x,), (series,))
        assert len(terms) == 3
        for term, other in zip([value, *terms], expected, strict=True):
            np.testing.assert_allclose(term, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("f", [mnp.multiply, mnp.divide, mnp.power, mnp.maximum, mnp.dot, mnp.arctan2], ids=lambda f: f.__name__)
def test_two_arguments(f: Callable[..., Any]) -> None:
    with mj.enable_x64(True):
        primals = (X.astype(np.float64), X[::-1].astype(np.float64) + 1)
        series = ([s.astype(np.float64) for s in SERIES], [s.astype(np.float64) for s in SERIES[::-1]])
        value, terms = jet(f, primals, series)
        for term, other in zip([value, *terms], one_after_the_other(f, primals, series), strict=True):
            np.testing.assert_allclose(term, other, rtol=1e-9, atol=1e-9)


def test_the_sine_of_a_cube() -> None:
    value, (first, second) = jet(mnp.sin, (0.5**3,), ((3 * 0.5**2, 6 * 0.5),))
    np.testing.assert_allclose([value, first, second], [0.12467473, 0.74414825, 2.9064634], rtol=1e-5)


def test_coefficients_are_derivatives_over_factorials() -> None:
    scaled = jet(mnp.exp, (X,), (SERIES,))[1]
    plain = jet2(mnp.exp, (X,), ([s / math.factorial(k) for k, s in enumerate(SERIES, 1)],))[1]
    for k, (one, other) in enumerate(zip(scaled, plain, strict=True), 1):
        np.testing.assert_allclose(one, other * math.factorial(k), rtol=1e-5)


def test_many_orders_cost_little() -> None:
    with mj.enable_x64(True):
        program = mj.make_jaxpr(lambda x: jet(mnp.sin, (x,), ([1.0] + [0.0] * 11,)))(1.0)
        terms = jet(mnp.sin, (1.0,), ([1.0] + [0.0] * 11,))[1]
    assert len(program.eqns) < 4000
    np.testing.assert_allclose(terms[-4:], [np.sin(1 + k * np.pi / 2) for k in range(9, 13)], rtol=1e-9)


def test_in_other_transformations_and_on_devices() -> None:
    def f(x: Any) -> Any:
        return jet(lambda x: mnp.sum(mnp.tanh(W @ x)), (x,), (SERIES,))[1][1]

    expected = one_after_the_other(lambda x: mnp.sum(mnp.tanh(W @ x)), (X,), (SERIES,))[2]
    np.testing.assert_allclose(mj.jit(f)(X), expected, rtol=1e-4)
    np.testing.assert_allclose(mj.vmap(f)(np.stack([X, X])), [expected] * 2, rtol=1e-4)
    step = np.array([1e-2, 0, 0], np.float32)
    np.testing.assert_allclose(mj.grad(f)(X)[0], (f(X + step) - f(X - step)) / 2e-2, rtol=1e-2, atol=1e-4)
    mesh = mj.make_mesh((4,), ("i",))
    long = np.linspace(0, 1, 10, dtype=np.float32)
    sharded = mj.device_put(long[:8], NamedSharding(mesh, P("i")))
    one, many = (mj.jit(lambda x: jet(mnp.sin, (x,), ((x, x),))[1])(v) for v in (long[:8], sharded))
    np.testing.assert_allclose(one, many, rtol=1e-6)
    assert many[1].sharding.spec == P("i")


def test_trees_dtypes_and_what_does_not_move() -> None:
    value, terms = jet(lambda x: {"a": mnp.sin(x), "b": (x.astype(int), 3.0)}, (X,), (SERIES,))
    assert [t.dtype.name for t in terms["a"]] == ["float32"] * 3 and value["b"][1] == 3.0
    assert all(not np.asarray(t).any() for t in (*terms["b"][0], *terms["b"][1])) and len(terms["b"][0]) == 3
    half = jet(mnp.sin, (X.astype("bfloat16"),), (SERIES,))
    assert {x.dtype.name for x in (half[0], *half[1])} == {"bfloat16"}
    empty = jet(mnp.sin, (np.zeros((0, 3)),), ([np.zeros((0, 3))],))
    assert empty[1][0].shape == (0, 3)
    assert jet(mnp.sin, (X,), ([],))[1] == []


def test_terms_are_weak_where_all_that_they_are_made_of_is() -> None:
    one = np.float32(1)
    for primal, terms, weak in ((0.5, (1.0, 0.0), (True, True)), (0.5, (one, 0.0), (True, False)), (one, (1.0, 0.0), (False, False))):
        value, found = jet(lambda x: x**3, (primal,), (terms,))
        assert (value.weak_type, found[0].weak_type, found[1].weak_type) == (*weak, weak[1])
    assert (jet(mnp.sin, (0.5,), ((1.0,),))[1][0] + mnp.ones(1, mnp.bfloat16)).dtype == mnp.bfloat16


def test_bad_series() -> None:
    with pytest.raises(ValueError, match="jet terms have inconsistent lengths for different arguments: 2 primals, and series of 3, 1 terms"):
        jet(mnp.add, (X, X), (SERIES, SERIES[:1]))
    with pytest.raises(ValueError, match="primal value at position 0 is not an array"):
        jet(mnp.sin, ((X, X),), (SERIES,))
    with pytest.raises(ValueError, match="term 1 for argument 0 is not an array"):
        jet(mnp.sin, (X,), ([X, (X, X)],))
    with pytest.raises(ValueError, match=r"jet: a term for argument 0 has shape \(2,\), its primal \(3,\)\n  fix: numpy.broadcast_to"):
        jet(mnp.sin, (X,), ([X[:2]],))
