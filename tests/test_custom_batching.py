"""custom_vmap and sequential_vmap as JAX documents them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.custom_batching import custom_vmap, sequential_vmap

pytestmark = pytest.mark.device


def close(result: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-5)


def test_a_rule_instead_of_the_batch() -> None:
    seen: list[Any] = []

    @custom_vmap
    def f(x: Any, y: Any) -> Any:
        return x + y

    @f.def_vmap
    def rule(size: int, batched: Any, xs: Any, ys: Any) -> Any:
        seen.append((size, batched))
        return xs * ys, True

    xs, ys = mnp.arange(3), mnp.arange(1, 4)
    for mapped in (mj.vmap(f), mj.jit(mj.vmap(f)), mj.vmap(mj.jit(f))):
        close(mapped(xs, ys), [0, 2, 6])
    assert int(f(2, 3)) == 5 and int(mj.jit(f)(2, 3)) == 5
    close(mj.vmap(f, (0, None))(xs, 5), [0, 5, 10])
    assert seen[0] == (3, [True, True]) and seen[-1] == (3, [True, False])
    close(mj.vmap(lambda x: lax.scan(lambda c, _: (f(c, x), None), x, None, length=2)[0])(xs), [0, 1, 8])
    close(mj.vmap(lambda x: f(x, x), in_axes=1, out_axes=1)(mnp.ones((2, 3))), np.ones((2, 3)))


def test_results_that_are_not_batched_and_trees() -> None:
    @custom_vmap
    def f(tree: Any, y: Any = 1.0) -> Any:
        return {"a": tree["x"] + y, "b": y}

    @f.def_vmap
    def rule(size: int, batched: Any, tree: Any, y: Any) -> Any:
        assert batched == [{"x": True}, False]
        return {"a": 10 * tree["x"], "b": y}, {"a": True, "b": False}

    result = mj.vmap(f, out_axes={"a": 0, "b": None})({"x": mnp.arange(3.0)})
    close(result["a"], [0, 10, 20])
    assert result["b"].shape == ()


def test_forward_mode_goes_through_the_rule() -> None:
    @custom_vmap
    def f(x: Any, y: Any) -> Any:
        return x + y

    f.def_vmap(lambda size, batched, xs, ys: (xs * ys, True))
    xs, ys = mnp.arange(3.0), mnp.full(3, 2.0)
    close(mj.jvp(mj.vmap(f), (xs, ys), (mnp.ones(3), mnp.ones(3)))[1], np.arange(3) + 2)
    close(mj.vmap(lambda x, y: mj.jvp(f, (x, y), (1.0, y))[1])(xs, ys), 2 + 2 * np.arange(3.0))
    close(mj.jvp(f, (1.0, 2.0), (1.0, 1.0))[1], 2.0)
    close(mj.grad(f)(1.0, 2.0), 1.0)


def test_together_with_rules_for_derivatives() -> None:
    @mj.custom_vjp
    @custom_vmap
    def f(x: Any, y: Any) -> Any:
        return mnp.sin(x) * y

    f.fun.def_vmap(lambda size, batched, xs, ys: (mnp.cos(xs) * ys, True))  # pyright: ignore[reportFunctionMemberAccess]
    f.defvjp(lambda x, y: (f(x, y), (mnp.cos(x), mnp.sin(x), y)), lambda r, g: (r[0] * g * r[2], r[1] * g))
    close(mj.vmap(f)(mnp.zeros(3), mnp.ones(3)), np.ones(3))
    close(mj.grad(f)(0.0, 1.0), 1.0)


def test_one_member_after_the_other() -> None:
    calls: list[Any] = []

    @sequential_vmap
    def f(x: Any, y: Any = 1.0) -> Any:
        calls.append(x.shape)
        return x + y, mnp.sum(x)

    close(mj.vmap(f)(mnp.arange(3.0))[0], [1, 2, 3])
    assert set(calls) == {()}
    close(mj.vmap(mj.vmap(f))(mnp.ones((2, 3)), mnp.ones((2, 3)))[0], np.full((2, 3), 2.0))
    close(mj.grad(lambda x: mj.vmap(f)(x)[0].sum())(mnp.arange(3.0)), np.ones(3))
    text = str(mj.jit(mj.vmap(f)).trace(mnp.arange(3.0)).program)
    assert "scan" in text


def test_batches_of_batches_whose_members_have_numbers() -> None:
    """A rule that has loops of functions with rules reads no number of a member, though it could."""
    twice = sequential_vmap(lambda v: 2 * v)
    held = custom_vmap(lambda v: v)
    held.def_vmap(lambda size, batched, v: (mj.vmap(twice)(v) + mj.lax.map(twice, v), True))
    counted = sequential_vmap(lambda v: v + mj.lax.axis_index("i"))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for run in (lambda f: f, mj.jit):
        close(run(mj.vmap(mj.vmap(twice), axis_name="i"))(x), 2 * x)
        close(run(mj.vmap(lambda row: mj.lax.map(twice, row), axis_name="i"))(x), 2 * x)
        close(run(mj.vmap(mj.vmap(held), axis_name="i"))(x), 4 * x)
        close(mj.grad(lambda x, run=run: run(mj.vmap(mj.vmap(twice), axis_name="i"))(x).sum())(x), np.full((3, 2), 2.0))
    with pytest.raises(ValueError, match="says nothing of values that the function closes over"):
        mj.vmap(mj.vmap(counted), axis_name="i")(x)


@pytest.mark.parametrize(
    ("rule", "kind", "words"),
    [
        (None, AttributeError, "No batching rule defined for custom_vmap function lambda using def_vmap."),
        (lambda size, batched, x: x, TypeError, "must return (result, is_batched), it returned an array f32[3]"),
        (lambda size, batched, x: ((x,), True), ValueError, "do not match."),
        (lambda size, batched, x: ((x,), (True,)), ValueError, "does not match that of original custom-vmapped function"),
        (lambda size, batched, x: (x, False), ValueError, "that is not batched: expected f32[]"),
    ],
)
def test_errors(rule: Any, kind: type[Exception], words: str) -> None:
    f = custom_vmap(lambda x: x)
    if rule is not None:
        f.def_vmap(rule)
    with pytest.raises(kind, match=re.escape(words)):
        mj.vmap(f)(mnp.arange(3.0))


def test_values_that_the_function_closes_over_may_not_differ() -> None:
    def outer(x: Any) -> Any:
        f = custom_vmap(lambda y: x * y)
        f.def_vmap(lambda size, batched, ys: (x * ys, True))
        return f(2.0)

    close(mj.jit(outer)(3.0), 6.0)
    with pytest.raises(ValueError, match="says nothing of values that the function closes over"):
        mj.vmap(outer)(mnp.arange(3.0))


def test_without_a_batch_results_are_arrays() -> None:
    f = custom_vmap(lambda x, y: x + y)
    f.def_vmap(lambda size, batched, x, y: (x + y, True))
    result = f(1.0, 2)
    assert isinstance(result, mj.Array) and result.weak_type and result == 3.0


def test_in_code_for_single_devices_the_rule_knows_what_varies() -> None:
    """Once its arguments were taken to be the same on all devices, and the gradient summed over these."""
    seen = []

    @custom_vmap
    def f(x: Any) -> Any:
        return x * (1 + lax.axis_index("x"))

    @f.def_vmap
    def rule(size: int, batched: Any, x: Any) -> Any:
        seen.append(str(mj.typeof(x)))
        return x * (1 + lax.axis_index("x")), True

    mesh = mj.make_mesh((4,), ("x",), devices=mj.devices()[:4])
    x, factors = mnp.arange(8.0), np.repeat(np.arange(1.0, 5.0), 2)
    for wrap in (lambda g: g, mj.jit):
        mapped = wrap(mj.shard_map(mj.vmap(f), mesh=mesh, in_specs=mj.P("x"), out_specs=mj.P("x")))
        close(mapped(x), factors * np.arange(8.0))
        close(mj.grad(lambda x, mapped=mapped: mapped(x).sum())(x), factors)
        close(mj.jvp(mapped, (x,), (x,))[1], factors * np.arange(8.0))
    assert set(seen) == {"float32[2]{V:x}"}


def test_arguments_of_all_members_ask_no_rule() -> None:
    """Once the rule was asked where only the members' numbers differed, and a loop over nothing was made."""
    f = sequential_vmap(lambda x: 3 * x)
    asked = []
    g = custom_vmap(lambda x: 2 * x)

    @g.def_vmap
    def rule(size: int, batched: Any, x: Any) -> Any:
        asked.append((size, batched))
        return 20 * x, True

    for function, expected in ((f, 3), (g, 2)):
        by_name = mj.vmap(lambda i, x, function=function: function(x) + 0 * i, (0, None), axis_name="batch")
        close(mj.jit(by_name)(mnp.arange(2.0), 5.0), [5.0 * expected] * 2)
    assert not asked
    around = mj.vmap(lambda x: mj.vmap(lambda i: g(x) + 0 * i, axis_name="batch")(mnp.arange(2.0)))
    close(around(mnp.arange(3.0)), 20 * np.stack([np.arange(3.0)] * 2, 1))
    assert asked == [(3, [True])]


def _any_member() -> Any:
    """Whether any element of any member is set: one value for all members."""
    any_member = custom_vmap(lambda xs: mnp.any(xs))
    any_member.def_vmap(lambda size, batched, xs: (any_member(xs), False))
    return any_member


def test_what_is_one_for_all_members_stays_so_in_loops_branches_and_custom_functions() -> None:
    def count(c: Any, row: Any) -> Any:
        return (c[0] + any_member(row), c[1] + row), None

    @mj.custom_jvp
    def custom(x: Any) -> Any:
        return any_member(x > 6), 2 * x

    custom.defjvp(lambda p, t: (custom(*p), (np.zeros((), mj.dtypes.float0), 2 * t[0])))
    any_member, xs = _any_member(), mnp.arange(8.0).reshape(4, 2)
    functions: list[Any] = [
        lambda x: (lax.scan(lambda c, y: (c + any_member(y > 5), None), 0, x)[0], x),
        lambda x: lax.fori_loop(0, 3, lambda i, c: (c[0] + any_member(c[1] > 8), c[1] + 1), (0, x)),
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + any_member(c[1] > 6), c[1]), (0, x)),
        lambda x: lax.cond(any_member(x > 6), lambda y: (1, y), lambda y: (0, y * 2), x),
        lambda x: lax.scan(lambda c, _: (lax.scan(count, c, mnp.stack([x > 6]))[0], None), (0, mnp.zeros(2)), None, 2)[0],
        mj.checkpoint(lambda x: (any_member(x > 6), x)),
        mj.jit(lambda x: (any_member(x > 6), x)),
        custom,
    ]
    for f, expected in zip(functions, (2, 1, 3, 1, 2, 1, 1, 1), strict=True):
        for g in (f, mj.jit(f)):
            once, each = mj.vmap(g, out_axes=(None, 0))(xs)
            assert once.shape == () and int(once) == expected
            assert each.shape == (4, 2)


def test_a_sum_over_members_is_one_for_all_in_a_loop() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, _: (c + lax.psum(x, "i"), None), mnp.float32(0), None, length=3)[0]

    assert float(mj.vmap(f, axis_name="i", out_axes=None)(mnp.arange(4.0))) == 18.0
    assert float(mj.vmap(mj.grad(f), axis_name="i")(mnp.arange(4.0))[0]) == 12.0
