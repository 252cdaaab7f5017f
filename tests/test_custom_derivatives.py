"""custom_jvp and custom_vjp as JAX's tutorial shows them: values, which rule is asked and when, errors. Values as jax 0.10.2 gives them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.parser import parse_program
from meshjit.core.printer import print_program
from meshjit.custom_derivatives import CustomVJPPrimal, SymbolicZero, custom_vjp_primal_tree_values
from meshjit.errors import UnexpectedTracerError
from meshjit.trace import active_trace
from meshjit.trace.float0 import FLOAT0

pytestmark = pytest.mark.device


def close(result: Any, expected: Any) -> None:
    """Lists of `expected` are arrays."""
    for a, b in zip(mj.tree.leaves(result), mj.tree.leaves(expected, is_leaf=lambda x: isinstance(x, list)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)


# -- custom_jvp


@mj.custom_jvp
def log1pexp(x: Any) -> Any:
    return mnp.log(1.0 + mnp.exp(x))


@log1pexp.defjvp
def log1pexp_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (x_dot,) = primals, tangents
    return log1pexp(x), (1 - 1 / (1 + mnp.exp(x))) * x_dot


@mj.custom_jvp
def product(x: Any, y: Any) -> Any:
    """The function's own words."""
    return mnp.sin(x) * y


product.defjvps(lambda t, value, x, y: mnp.cos(x) * t * y * 10, lambda t, value, x, y: mnp.sin(x) * t)


def test_a_rule_instead_of_the_derivative_under_every_transformation() -> None:
    assert float(mj.grad(lambda x: mnp.log(1.0 + mnp.exp(x)))(100.0)) != 1.0  # what the rule mends
    for f in (mj.grad(log1pexp), mj.jit(mj.grad(log1pexp)), mj.grad(mj.jit(log1pexp)), mj.grad(mj.checkpoint(log1pexp))):
        close(f(100.0), 1.0)
        close(f(3.0), 0.95257413)
    close(mj.jvp(log1pexp, (3.0,), (2.0,)), (3.0485873, 2 * 0.95257413))
    close(mj.linearize(log1pexp, 3.0)[1](2.0), 2 * 0.95257413)
    close(mj.grad(mj.grad(log1pexp))(3.0), 0.04517666)
    close(mj.vmap(mj.jit(mj.grad(log1pexp)))(mnp.arange(3.0)), [0.5, 0.7310586, 0.880797])
    close(mj.jit(mj.grad(lambda x: mj.vmap(log1pexp)(x).sum()))(mnp.arange(3.0)), [0.5, 0.7310586, 0.880797])
    close(mj.hessian(lambda x: log1pexp(x).sum())(mnp.arange(2.0)), np.diag([0.25, 0.19661194]))


def test_one_rule_per_argument() -> None:
    close(mj.grad(product, (0, 1))(2.0, 3.0), (30 * np.cos(2), np.sin(2)))
    close(mj.jvp(product, (2.0, 3.0), (1.0, 1.0))[1], 30 * np.cos(2) + np.sin(2))
    half = mj.custom_jvp(lambda x, y: x * y)
    half.defjvps(lambda t, value, x, y: t * y, None)
    close(mj.grad(half, (0, 1))(2.0, 3.0), (3.0, 0.0))
    none = mj.custom_jvp(lambda x: x)
    none.defjvps(None)
    close(mj.grad(none)(2.0), 0.0)


@pytest.mark.parametrize("wrap", [lambda f: f, mj.jit, mj.checkpoint])
def test_loops_and_branches(wrap: Callable[..., Any]) -> None:
    def scanned(x: Any) -> Any:
        return lax.scan(lambda c, _: (product(c, 2.0), None), x, None, length=3)[0]

    def chosen(x: Any) -> Any:
        return lax.cond(x > 0, lambda x: product(x, 2.0), lambda x: x, x)

    def counted(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, product(c[1], 2.0)), (0, x))[1]

    one = [0.5, 2 * np.sin(0.5), 2 * np.sin(2 * np.sin(0.5))]
    slope = np.prod([20 * np.cos(x) for x in one])
    close(mj.grad(wrap(scanned))(0.5), slope)
    close(mj.jvp(wrap(scanned), (0.5,), (1.0,))[1], slope)
    close(mj.jvp(wrap(counted), (0.5,), (1.0,))[1], slope)
    close(mj.vmap(mj.grad(wrap(chosen)))(mnp.array([0.5, -0.5])), [20 * np.cos(0.5), 1.0])


def test_a_function_passed_on_as_it_is() -> None:
    @partial(mj.custom_jvp, nondiff_argnums=(0,))
    def apply(f: Any, x: Any) -> Any:
        return f(x)

    @apply.defjvp
    def apply_jvp(f: Any, primals: Any, tangents: Any) -> Any:
        return f(*primals), 2.0 * tangents[0]

    close(mj.grad(apply, 1)(lambda x: x**3, 3.0), 2.0)
    close(mj.jit(lambda x, y: mj.grad(lambda x: apply(lambda v: v * y, x))(x))(5.0, 3.0), 2.0)
    close(mj.grad(lambda x, y: mj.jit(lambda x, y: apply(lambda v: v * y, x))(x, y))(5.0, 3.0), 2.0)

    @partial(mj.custom_jvp, nondiff_argnames=("f",))
    def named(x: Any, f: Any = mnp.sin) -> Any:
        return f(x)

    named.defjvp(lambda f, primals, tangents: (f(*primals), 3.0 * tangents[0]))
    close(mj.grad(named)(1.0), 3.0)
    close(mj.grad(lambda x: named(f=mnp.cos, x=x))(1.0), 3.0)
    with pytest.raises(TypeError, match="Can't use ``defjvps`` with ``nondiff_argnums``"):
        named.defjvps(None)


class Point(NamedTuple):
    x: Any
    y: Any


def test_trees_integers_and_keywords() -> None:
    seen: list[Any] = []

    @mj.custom_jvp
    def f(point: Point, n: Any, scale: Any = 2.0) -> Any:
        return {"a": point.x**2 * scale, "b": (mnp.sin(point.x), point.y, n + 1)}

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (point, n, scale), (point_dot, n_dot, _) = primals, tangents
        seen.append((n_dot.dtype, n_dot.shape))
        tangent = {"a": 3.0 * point_dot.x, "b": (mnp.cos(point.x) * point_dot.x, 5.0 * point_dot.y, n_dot)}
        return f(point, n, scale), tangent

    def loss(point: Point) -> Any:
        result = f(n=3, point=point)
        return result["a"] + result["b"][0] + result["b"][1]

    close(mj.jit(mj.grad(loss))(Point(1.0, 2.0)), Point(3 + np.cos(1), 5.0))
    assert seen[0] == (FLOAT0, ())
    value, tangent = mj.jvp(lambda p: f(p, 4), (Point(1.0, 2.0),), (Point(1.0, 1.0),))
    assert int(value["b"][2]) == 5
    close((tangent["a"], tangent["b"][:2]), (3.0, (np.cos(1), 5.0)))


def test_which_tangents_are_zero() -> None:
    seen: list[Any] = []

    @mj.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y, y

    @partial(f.defjvp, symbolic_zeros=True)
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        seen.append((type(dx) is SymbolicZero, type(dy) is SymbolicZero, dy.shape, dy.dtype))
        out = dx * y if type(dy) is SymbolicZero else dx * y + x * dy
        return (x * y, y), (out, dy)

    close(mj.jvp(lambda x: f(x, 3.0), (2.0,), (1.0,)), ((6.0, 3.0), (3.0, 0.0)))
    assert seen == [(False, True, (), np.float32)]
    close(mj.grad(lambda x: f(x, x)[0])(2.0), 4.0)


# -- custom_vjp


@mj.custom_vjp
def weighted(x: Any, y: Any) -> Any:
    return mnp.sin(x) * y


def weighted_fwd(x: Any, y: Any) -> Any:
    return weighted(x, y), (mnp.cos(x), mnp.sin(x), y)


def weighted_bwd(residuals: Any, g: Any) -> Any:
    cos_x, sin_x, y = residuals
    return (10 * cos_x * g * y, sin_x * g)


weighted.defvjp(weighted_fwd, weighted_bwd)


@pytest.mark.parametrize("wrap", [lambda f: f, mj.jit, mj.checkpoint, lambda f: mj.jit(mj.checkpoint(f))])
def test_rules_backwards(wrap: Callable[..., Any]) -> None:
    f = wrap(weighted)
    close(f(2.0, 3.0), 3 * np.sin(2))
    close(mj.grad(f, (0, 1))(2.0, 3.0), (30 * np.cos(2), np.sin(2)))
    value, pull = mj.vjp(f, 2.0, 3.0)
    close((value, pull(2.0)), (3 * np.sin(2), (60 * np.cos(2), 2 * np.sin(2))))
    close(mj.grad(mj.grad(f))(2.0, 3.0), -30 * np.sin(2))
    xs = mnp.arange(3.0)
    close(mj.vmap(mj.grad(f, (0, 1)), (0, None))(xs, 2.0), (20 * np.cos(np.arange(3)), np.sin(np.arange(3))))
    batched = mj.grad(lambda x, y: mj.vmap(f, (0, None))(x, y).sum(), (0, 1))
    close(batched(xs, 2.0), (20 * np.cos(np.arange(3)), np.sin(np.arange(3)).sum()))
    last = mj.grad(lambda x, y: mj.vmap(f, (1, 0), 1)(x, y).sum(), (0, 1))
    close(last(mnp.ones((2, 3)), mnp.ones((3, 2))), (10 * np.cos(1) * np.ones((2, 3)), np.sin(1) * np.ones((3, 2))))
    scanned = mj.grad(lambda x: lax.scan(lambda c, y: (f(c, y), c), x, mnp.array([2.0, 2.0]))[0])
    close(scanned(0.5), 20 * np.cos(0.5) * 20 * np.cos(2 * np.sin(0.5)))
    close(mj.jit(scanned)(0.5), scanned(0.5))


def test_forward_mode_is_an_error_unless_reverse_came_first() -> None:
    for use in (
        lambda: mj.jvp(weighted, (2.0, 3.0), (1.0, 1.0)),
        lambda: mj.jit(lambda x: mj.jvp(weighted, (x, 3.0), (1.0, 1.0)))(2.0),
        lambda: mj.linearize(weighted, 2.0, 3.0)[1](1.0, 1.0),
        lambda: mj.jacfwd(lambda x: lax.scan(lambda c, _: (weighted(c, 1.0), None), x, None, length=2)[0])(1.0),
    ):
        with pytest.raises(TypeError, match=re.escape("can't apply forward-mode autodiff (jvp) to a custom_vjp function.")):
            use()
    plain = mj.custom_vjp(lambda x: mnp.sin(x))
    plain.defvjp(lambda x: (mnp.sin(x), mnp.cos(x)), lambda c, g: (3 * c * g,))
    close(mj.jvp(mj.grad(plain), (2.0,), (1.0,)), (3 * np.cos(2), -3 * np.sin(2)))
    close(mj.hessian(plain)(2.0), -3 * np.sin(2))


def test_gradient_clipping_and_straight_through() -> None:
    @mj.custom_vjp
    def clip_gradient(low: Any, high: Any, x: Any) -> Any:
        return x

    clip_gradient.defvjp(
        lambda low, high, x: (x, (low, high)), lambda residuals, g: (None, None, mnp.clip(g, residuals[0], residuals[1]))
    )
    t = mnp.linspace(0.0, 10.0, 5)
    close(mj.vmap(mj.grad(lambda x: mnp.sin(x)))(t), np.cos(np.linspace(0, 10, 5)))
    clipped = mj.grad(lambda x: mnp.sin(clip_gradient(-0.75, 0.75, x)))
    close(mj.vmap(clipped)(t), np.clip(np.cos(np.linspace(0, 10, 5)), -0.75, 0.75))

    @mj.custom_vjp
    def rounded(x: Any) -> Any:
        return mnp.round(x)

    rounded.defvjp(lambda x: (mnp.round(x), None), lambda _, g: (g,))
    close(mj.grad(lambda x: (rounded(x) ** 2).sum())(mnp.array([0.4, 1.6])), [0.0, 4.0])


def test_an_implicit_derivative() -> None:
    @partial(mj.custom_vjp, nondiff_argnums=(0,))
    def fixed_point(f: Any, a: Any, guess: Any) -> Any:
        def step(carry: Any) -> Any:
            _, x = carry
            return x, f(a, x)

        return lax.while_loop(lambda c: mnp.abs(c[0] - c[1]) > 1e-6, step, (guess, f(a, guess)))[1]

    def fwd(f: Any, a: Any, x: Any) -> Any:
        star = fixed_point(f, a, x)
        return star, (a, star)

    def bwd(f: Any, residuals: Any, star_bar: Any) -> Any:
        a, star = residuals
        pull_a = mj.vjp(lambda a: f(a, star), a)[1]
        (a_bar,) = pull_a(fixed_point(partial(rev_iter, f), (a, star, star_bar), star_bar))
        return a_bar, mnp.zeros_like(star)

    def rev_iter(f: Any, packed: Any, u: Any) -> Any:
        a, star, star_bar = packed
        return star_bar + mj.vjp(lambda x: f(a, x), star)[1](u)[0]

    fixed_point.defvjp(fwd, bwd)

    def root(a: Any) -> Any:
        return fixed_point(lambda a, x: 0.5 * (x + a / x), a, a)

    close(root(2.0), np.sqrt(2))
    close(mj.grad(root)(2.0), 0.5 / np.sqrt(2))
    close(mj.jit(mj.grad(root))(2.0), 0.5 / np.sqrt(2))
    close(mj.grad(mj.grad(root))(2.0), -0.25 * 2**-1.5)


def test_which_arguments_are_differentiated_and_which_cotangents_are_zero() -> None:
    seen: list[Any] = []

    @mj.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y, x + y

    def fwd(x: Any, y: Any) -> Any:
        assert isinstance(x, CustomVJPPrimal)
        seen.append((x.perturbed, y.perturbed))
        return (x.value * y.value, x.value + y.value), custom_vjp_primal_tree_values((x, y))

    def bwd(residuals: Any, g: Any) -> Any:
        seen.append(tuple(type(ct) is SymbolicZero for ct in g))
        return residuals[1], SymbolicZero(residuals[1].aval)

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    close(mj.grad(lambda x: f(x, 3.0)[0])(2.0), 3.0)
    assert seen == [(True, False), (False, True)]
    close(mj.grad(lambda x: f(x, x)[1])(2.0), 2.0)
    assert seen[2:] == [(True, True), (True, False)]
    with pytest.raises(NotImplementedError, match="does not support symbolic zeros"):
        f.defvjp(fwd, bwd, symbolic_zeros=True, optimize_remat=True)


def test_integers_none_and_trees_backwards() -> None:
    seen: list[Any] = []

    @mj.custom_vjp
    def f(params: Any, n: Any) -> Any:
        return {"y": params["w"] * params["b"][0], "n": n}

    def bwd(residuals: Any, g: Any) -> Any:
        seen.append((g["n"].dtype, g["n"].shape))
        return {"w": 7.0 * g["y"], "b": None}, None

    f.defvjp(lambda params, n: (f(params, n), None), bwd)
    params = {"w": mnp.ones(2), "b": [mnp.ones(2), mnp.ones(())]}
    close(mj.grad(lambda p: f(p, mnp.arange(3))["y"].sum())(params), {"w": [7.0, 7.0], "b": ([0.0, 0.0], 0.0)})
    assert seen == [(FLOAT0, (3,))]


# -- rules are asked late, and of what is needed


def test_rules_are_traced_only_for_a_derivative() -> None:
    calls: list[str] = []

    @mj.custom_vjp
    def f(x: Any) -> Any:
        calls.append("f")
        return x * 2

    def fwd(x: Any) -> Any:
        calls.append("fwd")
        return x * 2, None

    def bwd(_: Any, g: Any) -> Any:
        calls.append("bwd")
        return (g * 2,)

    f.defvjp(fwd, bwd)
    mj.jit(f)(1.0)
    mj.vmap(f)(mnp.arange(3.0))
    mj.jit(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2))(1.0)
    assert set(calls) == {"f"}
    calls.clear()
    mj.jit(mj.grad(f))(1.0)
    assert calls == ["fwd", "bwd"]  # f was traced before
    calls.clear()
    mj.grad(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0])(1.0)
    assert calls.count("fwd") == calls.count("bwd") == 1
    assert float(f(3.0)) == 6.0

    @mj.custom_jvp
    def broken(x: Any) -> Any:
        return x

    @broken.defjvp
    def broken_jvp(primals: Any, tangents: Any) -> Any:
        raise ZeroDivisionError("nobody asked")

    assert float(mj.jit(broken)(1.0)) == 1.0
    with pytest.raises(ZeroDivisionError, match="nobody asked"):
        mj.grad(broken)(1.0)


def test_outside_of_transformations_python_sees_values() -> None:
    @mj.custom_jvp
    def f(x: Any) -> Any:
        return x if x > 0 else -x

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    assert float(f(-3.0)) == 3.0


# -- closures


def masked(x: Any) -> Callable[..., Any]:
    mask = x > 0

    @mj.custom_vjp
    def f(y: Any) -> Any:
        return mnp.where(mask, y, 0)

    f.defvjp(lambda y: (f(y), None), lambda _, g: (mnp.where(mask, 2 * g, 0),))
    return f


def test_rules_may_use_what_the_function_around_them_computed() -> None:
    def loss(w: Any, x: Any) -> Any:
        return masked(x)(w * x).sum()

    x = mnp.array([-1.0, 2.0])
    for f in (mj.grad(loss), mj.jit(mj.grad(loss)), mj.grad(mj.jit(loss)), mj.grad(mj.checkpoint(loss))):
        close(f(x, x), [0.0, 4.0])
    close(mj.vmap(mj.grad(loss))(x, x), [0.0, 4.0])
    close(mj.grad(lambda w: lax.scan(lambda c, x: (c + loss(w, x), None), 0.0, mnp.stack([x, 2 * x]))[0])(x), [0.0, 12.0])


WEIGHTS = mnp.arange(4.0) + 1


def test_arrays_that_only_rules_use_are_inputs() -> None:
    own = mnp.arange(4.0) + 2
    f, g = mj.custom_vjp(lambda x: mnp.sin(x)), mj.custom_jvp(lambda x: mnp.sin(x))
    f.defvjp(lambda x: (mnp.sin(x), None), lambda _, ct: (ct * own * WEIGHTS,))
    g.defjvp(lambda primals, tangents: (mnp.sin(primals[0]), tangents[0] * own * WEIGHTS))
    loop = lambda x: lax.scan(lambda c, _: (g(f(c)), None), x, None, 2)[0]  # noqa: E731
    x, expected = mnp.ones(4), np.asarray(own * WEIGHTS)
    for fun, power in ((f, 1), (g, 1), (loop, 4)):
        slope = mj.grad(lambda x, fun=fun: fun(x).sum())
        close(slope(x), (expected**power).tolist())
        traced = mj.jit(slope).trace(x)
        held = {id(value) for value in traced.jaxpr.consts}
        assert held >= {id(own), id(WEIGHTS)} and "2.0, 3.0" not in traced.as_text()
        assert list(mj.jit(fun).lower(x).kept) == [0]  # forwards nobody needs them


def test_a_derivative_of_what_a_function_closes_over_is_an_error() -> None:
    def around_vjp(x: Any) -> Any:
        f = mj.custom_vjp(lambda y: x * y)
        f.defvjp(lambda y: (x * y, None), lambda _, g: (g,))
        return f(2.0)

    def around_jvp(x: Any) -> Any:
        f = mj.custom_jvp(lambda y: x * y)
        f.defjvp(lambda primals, tangents: (x * primals[0], tangents[0]))
        return f(2.0)

    for f in (mj.grad(around_vjp), mj.grad(mj.jit(around_vjp)), mj.jit(mj.grad(around_vjp))):
        with pytest.raises(Exception, match="Detected differentiation of a custom_vjp function, lambda, with respect to a closed-over"):
            f(3.0)
    for f in (mj.grad(around_jvp), mj.grad(mj.jit(around_jvp))):
        with pytest.raises(UnexpectedTracerError, match="with respect to a closed-over value"):
            f(3.0)
    close(mj.jit(around_vjp)(3.0), 6.0)


# -- programs


def test_programs_print_and_parse_and_cost_nothing() -> None:
    traced = mj.jit(lambda x: weighted(x, 2.0)).trace(mnp.ones(4))
    text = print_program(traced.program, sources=False)
    assert "fwd=rule('weighted_fwd')" in text
    assert print_program(parse_program(text), sources=False) == text
    names = [eqn.op.name for eqn in traced.plan().plan.program.eqns]
    assert "custom_vjp" not in names and "sine" in names


# -- errors


def rules(fun: Any, fwd: Any, bwd: Any) -> Any:
    f = mj.custom_vjp(fun)
    f.defvjp(fwd, bwd)
    return f


def with_jvp(rule: Any) -> Any:
    f = mj.custom_jvp(lambda x: x)
    f.defjvp(rule)
    return f


@pytest.mark.parametrize(
    ("use", "kind", "words"),
    [
        (lambda: mj.custom_jvp(lambda x: x)(1.0), AttributeError, "No JVP defined for custom_jvp function lambda using defjvp."),
        (lambda: mj.custom_vjp(lambda x: x)(1.0), AttributeError, "No VJP defined for custom_vjp function lambda using defvjp."),
        (lambda: log1pexp(1.0, 2.0), TypeError, "could not be resolved to positional-only arguments"),
        (lambda: mj.grad(with_jvp(lambda p, t: p[0]))(1.0), TypeError, "must produce a pair"),
        (lambda: mj.grad(with_jvp(lambda p, t: (p[0], (t[0],))))(1.0), TypeError, "equal container (pytree) structures"),
        (lambda: mj.grad(with_jvp(lambda p, t: ((p[0],), (t[0],))))(1.0), TypeError, "of the same container/pytree structure"),
        (lambda: mj.grad(with_jvp(lambda p, t: (p[0], mnp.ones(3))))(1.0), TypeError, "Expected f32[] (tangent type of f32[]) but got f32[3]"),
        (lambda: mj.grad(with_jvp(lambda p, t: (mnp.ones(3), mnp.ones(3))))(1.0), TypeError, "with leaves of the same shape/dtype"),
        (lambda: mj.grad(rules(lambda x: x, lambda x: x, None))(1.0), AttributeError, "No VJP defined"),
        (lambda: mj.grad(rules(lambda x: x, lambda x: x, lambda r, g: (g,)))(1.0), TypeError, "instead of a pair it produced an array f32[]"),
        (lambda: mj.grad(rules(lambda x: x, lambda x: ((x,), x), lambda r, g: (g,)))(1.0), TypeError, "of the same container/pytree structure"),
        (lambda: mj.grad(rules(lambda x: x, lambda x: (x, x), lambda r, g: g))(1.0), TypeError, "a tuple of length equal to the number of arguments"),
        (lambda: mj.grad(rules(lambda x: x, lambda x: (x, x), lambda r, g: (g, g)))(1.0), TypeError, "a tuple of length equal"),
        (lambda: mj.grad(rules(lambda x: x, lambda x: (x, x), lambda r, g: ((g, g),)))(1.0), TypeError, "same container (pytree) structure"),
        (lambda: mj.grad(rules(lambda x: x, lambda x: (x, x), lambda r, g: (mnp.ones(2),)))(1.0), ValueError, "of type f32[2] corresponding to an input of type f32[]"),
        (lambda: mj.jit(lambda x: vjp_of_static(x, 1.0))(1.0), UnexpectedTracerError, "Found a JAX Tracer object passed as an argument"),
    ],
)
def test_errors(use: Callable[[], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        use()


@partial(mj.custom_vjp, nondiff_argnums=(0,))
def vjp_of_static(n: Any, x: Any) -> Any:
    return n * x


vjp_of_static.defvjp(lambda n, x: (n * x, None), lambda n, _, g: (n * g,))


def test_a_static_argument_of_a_vjp() -> None:
    close(mj.grad(vjp_of_static, 1)(3, 2.0), 3.0)
    close(mj.jit(mj.grad(lambda x: vjp_of_static(n=3, x=x)))(2.0), 3.0)


def test_the_function_itself_is_to_be_seen() -> None:
    assert product.__name__ == "product" and product.__doc__ == "The function's own words."

    class Layer:
        scale = 3.0

        @partial(mj.custom_vjp, nondiff_argnums=(0,))
        def __call__(self, x: Any) -> Any:
            return self.scale * x

        def fwd(self, x: Any) -> Any:
            return self(x), None

        def bwd(self, _: Any, g: Any) -> Any:
            return (100.0 * g,)

        __call__.defvjp(fwd, bwd)

    close(mj.grad(Layer())(2.0), 100.0)


def test_what_a_function_reaches_of_a_trace_that_has_ended_is_no_operand() -> None:
    """A library's function may keep what it was traced with, such as a Tracer in a cache, and never look at it again."""
    kept: list[Any] = []
    mj.jit(lambda x: kept.append(x))(1.0)

    @mj.custom_jvp
    def f(x: Any) -> Any:
        return mnp.sin(x) if kept else x

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * mnp.cos(primals[0])))
    np.testing.assert_allclose(mj.jit(mj.grad(f))(0.5), np.cos(0.5), rtol=1e-6)


@pytest.mark.parametrize("wrap", [lambda g: g, mj.jit, lambda g: mj.vmap(g, in_axes=0), lambda g: mj.jit(mj.vmap(g))])
def test_numbers_among_residuals_are_known_to_bwd(wrap: Callable[..., Any]) -> None:
    """As with JAX 0.10.2: what fwd keeps that is a Python number is one in bwd, under jit and vmap, too."""

    @mj.custom_vjp
    def f(x: Any, double: bool) -> Any:
        return x * 2

    def bwd(residuals: Any, g: Any) -> Any:
        x, (count, flags) = residuals
        return (g * (count if flags["double"] else x), None)

    f.defvjp(lambda x, double: (f(x, double), (x, (3, {"double": True}))), bwd)
    np.testing.assert_array_equal(wrap(mj.grad(lambda x: f(x, True).sum()))(mnp.ones((2, 2))), np.full((2, 2), 3.0))
    np.testing.assert_array_equal(mj.grad(lambda x: lax.scan(lambda c, _: (f(c, True), None), x, None, 2)[0])(1.0), 9.0)


def test_a_symbolic_zero_may_be_of_what_typeof_says() -> None:
    @mj.custom_jvp
    def f(x: Any, n: Any) -> Any:
        return x * 2, n + 1, x

    def jvp(primals: Any, tangents: Any) -> Any:
        outs = f(*primals)
        zeros = [SymbolicZero(mj.typeof(out).to_tangent_aval()) for out in outs]
        return outs, (tangents[0] * 3, zeros[1], zeros[2])

    f.defjvp(jvp, symbolic_zeros=True)
    for wrap in (lambda g: g, mj.jit):
        assert wrap(mj.grad(lambda x: f(x, 2)[0] + f(x, 2)[2]))(1.0) == 3.0
    assert str(mj.typeof(np.arange(3)).to_tangent_aval()) == "float0[3]"


def test_zeros_of_values() -> None:
    zero = mj.custom_derivatives.zero_from_primal
    np.testing.assert_array_equal(zero(mnp.ones(2)), np.zeros(2, np.float32))
    assert zero(mnp.arange(2)).dtype == mj.float0 and zero(mnp.arange(2)).shape == (2,)
    symbolic = zero(mnp.ones(3), symbolic_zeros=True)
    assert isinstance(symbolic, mj.custom_derivatives.SymbolicZero) and symbolic.shape == (3,)
    assert symbolic.aval == mj.typeof(np.ones(3, np.float32)) and str(symbolic) == "SymbolicZero(float32[3])"


def test_defjvps_has_a_function_for_every_argument() -> None:
    f = mj.custom_jvp(lambda x, y: x * y)
    f.defjvps(lambda t, value, x, y: t * y)
    with pytest.raises(ValueError, match="was given 1 functions, and the function 2 arguments"):
        mj.grad(f, (0, 1))(2.0, 3.0)


def test_the_symbolic_tangent_of_an_integer_is_float0() -> None:
    seen = []
    f = mj.custom_jvp(lambda x, n: x * n)

    def jvp(primals: Any, tangents: Any) -> Any:
        seen.append((tangents[1].dtype, tangents[1].shape))
        return f(*primals), tangents[0] * primals[1]

    f.defjvp(jvp, symbolic_zeros=True)
    assert mj.grad(f)(2.0, 3) == 3.0 and seen == [(FLOAT0, ())]


def test_a_function_with_arguments_given_before_has_rules() -> None:
    fun = partial(lambda x, y, a: x + y * a, a=0.1)
    f = mj.custom_jvp(fun)
    f.defjvp(lambda primals, tangents: mj.jvp(fun, primals, tangents))
    close(mj.grad(lambda xs: f(*xs))((1.0, 2.0)), (1.0, 0.1))
    g = mj.custom_vjp(fun)
    g.defvjp(lambda x, y: (fun(x, y), y), lambda y, ct: (ct * y, ct))
    close(mj.jit(mj.grad(g, argnums=(0, 1)))(1.0, 2.0), (2.0, 1.0))
    with pytest.raises(TypeError, match="has no signature that could place a"):
        f(1.0, 2.0, a=3.0)


def test_bwd_gives_nodes_of_users_that_refuse_none() -> None:
    class Strict(list[Any]):
        pass

    def rebuilt(_: Any, children: Any) -> Strict:
        assert all(x is not None for x in children)
        return Strict(children)

    mj.tree_util.register_pytree_node(Strict, lambda x: (x, None), rebuilt)
    f = mj.custom_vjp(lambda x: x[0] * x[1])
    f.defvjp(lambda x: (x[0] * x[1], x), lambda x, g: (Strict([g * x[1], g * x[0]]),))
    close(tuple(mj.grad(f)(Strict([2.0, 3.0]))), (3.0, 2.0))


def test_functions_of_functions_with_rules_take_rules_of_either() -> None:
    vmapped = mj.custom_batching.custom_vmap(mj.custom_jvp(lambda x: mnp.sin(x)))
    vmapped.defjvp(lambda primals, tangents: (vmapped(*primals), 2.0 * tangents[0]))
    vmapped.def_vmap(lambda size, batched, x: (mnp.cos(x), batched[0]))
    close(mj.vmap(vmapped)(mnp.arange(3.0)), np.cos(np.arange(3.0)))
    close(mj.jvp(vmapped, (1.0,), (1.0,)), (np.sin(1.0), 2.0))
    backwards = mj.custom_vjp(mj.custom_batching.custom_vmap(lambda x: mnp.sin(x)))
    backwards.def_vmap(lambda size, batched, x: (mnp.cos(x), batched[0]))
    backwards.defvjp(lambda x: (backwards(x), None), lambda _, g: (3.0 * g,))
    close(mj.vmap(backwards)(mnp.arange(3.0)), np.cos(np.arange(3.0)))
    close(mj.grad(backwards)(1.0), 3.0)
    with pytest.raises(AttributeError, match="'custom_jvp' object has no attribute 'def_vmap'"):
        mj.custom_jvp(mnp.sin).def_vmap  # noqa: B018


class Scale:
    """A static argument that knows in which trace it was made, as objects of libraries do."""

    def __init__(self, value: Any) -> None:
        self.value, self.trace = value, active_trace()


def test_static_arguments_may_know_a_trace_that_runs_no_longer() -> None:
    @partial(mj.custom_vjp, nondiff_argnums=(1,))
    def f(x: Any, scale: Scale) -> Any:
        return mnp.sin(x) * scale.value

    def fwd(x: Any, scale: Scale) -> Any:
        return f(x, Scale(scale.value)), mnp.cos(x)

    f.defvjp(fwd, lambda scale, cos, g: (g * cos * scale.value,))
    gradient = mj.grad(lambda x: f(x, Scale(np.float32(2))))
    for fun in (gradient, mj.jit(gradient), lambda x: mj.vmap(gradient)(mnp.full(2, x))[1]):
        np.testing.assert_allclose(fun(np.float32(1)), 2 * np.cos(1), rtol=1e-6)


def test_parameters_without_a_position_take_their_defaults() -> None:
    """JAX passes by position what has one, and refuses what was given by name and has none."""

    @mj.custom_jvp
    def twice(x: Any, *, k: float = 2.0) -> Any:
        return x * k

    twice.defjvp(lambda primals, tangents: (twice(*primals), 20.0 * tangents[0]))
    assert float(twice(1.5)) == 3.0 and float(mj.grad(twice)(1.5)) == 20.0
    with pytest.raises(TypeError, match=r"could not be resolved to positional-only arguments.*\n.*positions: k"):
        twice(1.5, k=3.0)

    @mj.custom_vjp
    def thrice(x: Any, *, k: float = 3.0) -> Any:
        return x * k

    thrice.defvjp(lambda x: (x * 3.0, None), lambda _, g: (30.0 * g,))
    assert float(mj.jit(thrice)(1.5)) == 4.5 and float(mj.grad(thrice)(1.5)) == 30.0
