"""Loops, branches and checkpoint: values against Python, derivatives against unrolled loops, placements, error texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.inspect.collectives import collective_rows
from meshjit.sharding import NamedSharding, PartitionSpec

P = PartitionSpec


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


def ramp(*shape: int) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 3) / 7


def same(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    for a, b in zip(mj.tree.leaves(got), mj.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


# -- sharded loops


@pytest.mark.parametrize("spec", [P("x", "y"), P(None, "y"), P("y"), P(("x", "y")), P()])
def test_a_condition_reads_a_sharded_carry_that_the_body_changes(spec):
    """The condition merges the carry's dims. What the body changes enters every iteration anew, however it is read."""
    mesh = mj.make_mesh((4, 2), ("x", "y"), axis_types=(mj.sharding.AxisType.Auto,) * 2)
    start = ramp(6, 10)

    def solve(b: Any) -> Any:
        def goes_on(carry: Any) -> Any:
            x, residual, count = carry
            return (mnp.vdot(residual, residual) > 1e-3) & (count < 12)

        def step(carry: Any) -> Any:
            x, residual, count = carry
            q = residual - 0.1 * (mnp.roll(residual, 1, 1) - residual)
            size = mnp.vdot(residual, residual) / mnp.vdot(residual, q)
            return x + size * residual, residual - size * q, count + 1

        return lax.while_loop(goes_on, step, (mnp.zeros_like(b), b, 0))

    with mj.disable_jit():
        want = solve(mnp.asarray(start))
    same(mj.jit(solve, in_shardings=NamedSharding(mesh, spec))(start), want)


# -- values


def step(carry: Any, x: Any) -> Any:
    total, count = carry["total"] + x[0] * x[1], carry["count"] + 1
    return {"total": total, "count": count}, (total, count)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [1, 2, True])
@pytest.mark.parametrize("jit", [False, True])
def test_scan_is_a_python_loop(reverse: bool, unroll: Any, jit: bool) -> None:
    xs, init = (ramp(5, 3), ramp(5)), {"total": ones(3), "count": 0}

    def run(init: Any, xs: Any) -> Any:
        return lax.scan(step, init, xs, reverse=reverse, unroll=unroll)

    carry, ys = (mj.jit(run) if jit else run)(init, xs)
    total, count, totals = ones(3), 0, [None] * 5
    for i in reversed(range(5)) if reverse else range(5):
        total, count = total + xs[0][i] * xs[1][i], count + 1
        totals[i] = total
    same((carry["total"], carry["count"], ys[0]), (total, count, np.stack(totals)))
    assert ys[1].shape == (5,) and ys[1].dtype == np.int32


def test_scan_without_xs_and_of_length_zero() -> None:
    assert int(lax.scan(lambda c, _: (c * 2, None), 1, None, length=5)[0]) == 32
    carry, ys = lax.scan(lambda c, x: (c + x, c), ones(2), ones(0, 2))
    same((carry, ys), (ones(2), ones(0, 2)))


def test_a_weak_carry_takes_the_dtype_that_comes_back() -> None:
    total, _ = lax.scan(lambda c, x: (c + x, None), 0, ramp(4))
    assert total.dtype == np.float32 and not total.weak_type
    assert lax.scan(lambda c, x: (c + 1, None), 0, ramp(4))[0].weak_type
    promoted, stacked = lax.scan(lambda c, x: (c * 1.5, c), 0, ramp(4))  # a weak int becomes a float, weak no longer
    assert promoted.dtype == stacked.dtype == np.float32 and not promoted.weak_type and not stacked.weak_type
    assert not lax.while_loop(lambda c: c < 5, lambda c: c + 1.5, 0).weak_type
    last, stacked = lax.scan(lambda c, x: (c * x, c), 1.0, ramp(4))  # weak in the body, which gives back the same dtype
    assert not last.weak_type and stacked.weak_type
    swapped = lax.scan(lambda c, x: ((c[1], c[0] * x), c), (1.0, 2.0), ramp(4))[0]
    assert [x.weak_type for x in swapped] == [True, False]
    for body in (lambda c, x: (2, c), lambda c, x: (mnp.int32(2), c)):  # a float does not become an integer
        with pytest.raises(TypeError, match=r"init is f32\[\] at first and i32\[\] after one iteration"):
            lax.scan(body, 1.0, ramp(4))


def test_scan_closes_over_traced_and_concrete_values() -> None:
    w = mnp.asarray(ramp(3, 3))

    @mj.jit
    def run(x: Any, b: Any) -> Any:
        return lax.scan(lambda c, _: (mnp.tanh(c @ w + b), c.sum()), x, None, length=3)

    x = ramp(2, 3)
    sums = []
    for _ in range(3):
        sums.append(x.sum())
        x = np.tanh(x @ np.asarray(w) + 0.5)
    same(run(ramp(2, 3), 0.5), (x, np.stack(sums)))


def test_while_and_fori_loops() -> None:
    n, x = lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 3, c[1] * 2), (0, 1.0))
    assert (int(n), float(x)) == (12, 16.0)
    assert int(lax.fori_loop(2, 6, lambda i, v: v + i, 0)) == 14
    assert int(mj.jit(lambda n: lax.fori_loop(0, n, lambda i, v: v + i, 0))(6)) == 15
    assert int(lax.fori_loop(3, 1, lambda i, v: v + i, 7)) == 7
    same(lax.map(lambda x: {"a": x * 2}, ramp(5, 2)), {"a": ramp(5, 2) * 2})
    for size in (0, 2):  # 0, as in JAX: one by one
        same(lax.map(lambda x: x.sum(), ramp(5, 2), batch_size=size), ramp(5, 2).sum(1))


@pytest.mark.parametrize("jit", [False, True])
def test_cond_and_switch(jit: bool) -> None:
    wrap: Callable[..., Any] = mj.jit if jit else lambda f: f
    choose = wrap(lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x * 10, x))
    same(choose(True, ramp(3)), ramp(3) + 1)
    same(choose(False, ramp(3)), ramp(3) * 10)
    same(choose(0.0, ramp(3)), ramp(3) * 10)
    pick = wrap(lambda i, x: lax.switch(i, [lambda x: x, lambda x: x * 2, lambda x: -x], x))
    for index, factor in [(-5, 1), (0, 1), (1, 2), (2, -1), (9, -1)]:
        same(pick(index, ramp(3)), ramp(3) * factor)
    assert lax.cond(True, lambda: 1, lambda: 2.5).dtype == np.float32  # weak results adapt
    older = wrap(lambda p, x: lax.cond(p, (x, 3), lambda pair: pair[0] * pair[1], x, lambda x: -x))
    for p, factor in ((True, 3), (False, -1)):
        same(older(p, ramp(3)), ramp(3) * factor)


def test_disable_jit_runs_loops_in_python() -> None:
    seen: list[Any] = []
    with mj.config.using(disable_jit=True):
        carry, ys = lax.scan(lambda c, x: (seen.append(float(c)) or c + x, c), 0.0, ramp(3))
        assert lax.cond(True, lambda x: x, lambda x: 1 / 0, 3) == 3
        assert int(lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0)) == 3
    assert len(seen) == 3
    same((carry, ys), (ramp(3).sum(), np.cumsum(ramp(3)) - ramp(3)))


# -- derivatives


def loop_loss(w: Any, x: Any, loop: Any) -> Any:
    def body(c: Any, x: Any) -> Any:
        h = mnp.tanh(c @ w + x)
        return h, (h * x).sum()

    carry, ys = loop(body, mnp.zeros((2, 3)), x)
    return (carry**2).sum() + ys @ ys


def unrolled(body: Any, carry: Any, xs: Any) -> Any:
    ys = []
    for i in range(xs.shape[0]):
        carry, y = body(carry, xs[i])
        ys.append(y)
    return carry, mnp.stack(ys)


@pytest.mark.parametrize("wrap", [lambda f: f, mj.checkpoint], ids=["kept", "checkpoint"])
def test_derivatives_of_scan_are_those_of_the_unrolled_loop(wrap: Any) -> None:
    w, x = ramp(3, 3), ramp(4, 2, 3)

    def scanned(w: Any, x: Any) -> Any:
        return loop_loss(w, x, lambda body, c, xs: lax.scan(wrap(body), c, xs))

    def plain(w: Any, x: Any) -> Any:
        return loop_loss(w, x, unrolled)

    same(mj.grad(scanned, (0, 1))(w, x), mj.grad(plain, (0, 1))(w, x))
    same(mj.jvp(scanned, (w, x), (x[0, :1] + w, x)), mj.jvp(plain, (w, x), (x[0, :1] + w, x)))
    same(mj.hessian(scanned)(w, x), mj.hessian(plain)(w, x), 1e-4)
    batched = np.stack([w, w + 1])
    same(mj.vmap(mj.grad(scanned), (0, None))(batched, x), mj.vmap(mj.grad(plain), (0, None))(batched, x))
    value, pull = mj.vjp(scanned, w, x)
    same(pull(2.0), [2 * np.asarray(g) for g in mj.grad(plain, (0, 1))(w, x)])
    same(mj.jit(mj.grad(scanned))(w, x), mj.grad(plain)(w, x))


def test_scan_keeps_operands_and_invariants_once() -> None:
    """The derivative's second loop reads w and xs themselves; only what changes in the loop is stacked."""
    traced = mj.jit(mj.grad(lambda w, x: lax.scan(lambda c, x: (mnp.sin(c * mnp.cos(w)) * x, None), w, x)[0].sum()))
    text = traced.lower(ones(5), ones(7, 5)).as_text("meshjit")
    stacked = [line for line in text.splitlines() if " = scan(" in line]
    assert stacked[0].count("f32[7, 5]") <= 3, text


def test_derivatives_of_branches() -> None:
    def f(x: Any, y: Any) -> Any:
        return lax.switch(mnp.where(x > 1, 1, 0), [lambda a, b: a**3 * b, lambda a, b: mnp.sin(a) + b**2], x, y)

    for x in (0.5, 2.0):
        want = (3 * x**2 * 3, x**3) if x <= 1 else (np.cos(x), 6.0)
        same(mj.grad(f, (0, 1))(x, 3.0), want)
        same(mj.jvp(f, (x, 3.0), (1.0, 0.0))[1], want[0])
    xs = np.array([0.5, 2.0], np.float32)
    same(mj.vmap(mj.grad(f), (0, None))(xs, 3.0), np.array([3 * 0.25 * 3, np.cos(2.0)]))
    same(mj.jit(mj.grad(mj.grad(f)))(0.5, 3.0), 6 * 0.5 * 3)


def test_forward_mode_of_while_loops_and_vmap_over_their_lengths() -> None:
    def power(x: Any, n: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (0, 1.0 * x))[1]

    same(mj.jvp(lambda x: power(x, 3), (2.0,), (1.0,)), (16.0, 32.0))
    same(mj.vmap(power)(mnp.full(4, 2.0), mnp.arange(4)), 2.0 ** np.arange(1, 5))
    same(mj.grad(lambda x: lax.fori_loop(0, 3, lambda i, v: v * x, x))(2.0), 32.0)


def test_policies_say_what_checkpoint_keeps() -> None:
    def loss(w: Any, x: Any, policy: Any) -> Any:
        block = mj.checkpoint(lambda x: mnp.tanh(mj.ad_checkpoint.checkpoint_name(x @ w, "h")) * x, policy=policy)
        return block(block(x)).sum()

    policies = mj.checkpoint_policies
    counts = {}
    for label, policy in {
        "nothing": None, "dots": policies.dots_saveable, "all": policies.everything_saveable,
        "h": policies.save_only_these_names("h"), "other": policies.save_only_these_names("other"),
    }.items():  # fmt: skip
        compiled = mj.jit(mj.grad(lambda w, x, p=policy: loss(w, x, p)))
        counts[label] = compiled.lower(ramp(3, 3), ramp(2, 3)).as_text("meshjit").count("dot_general")
        same(compiled(ramp(3, 3), ramp(2, 3)), mj.grad(lambda w, x: loss(w, x, None))(ramp(3, 3), ramp(2, 3)))
    assert counts == {"nothing": 6, "dots": 5, "all": 5, "h": 5, "other": 6}


# -- placements


def test_accumulated_gradients_are_reduced_once_after_the_loop() -> None:
    mesh = mj.make_mesh((8,), ("data",))

    def step(w: Any, batches: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            return total + mj.grad(lambda w: (mnp.tanh(x @ w) ** 2).sum())(w), None

        return lax.scan(body, mnp.zeros_like(w), batches)[0]

    args = (ramp(4, 4), ramp(5, 8, 4))
    compiled = mj.jit(step, in_shardings=(NamedSharding(mesh, P()), NamedSharding(mesh, P(None, "data"))))
    rows = collective_rows(compiled.lower(*args).lowering.local, mesh)
    assert [(row.kind, row.count) for row in rows] == [("all_reduce", 1)], rows
    same(compiled(*args), step(*args), 1e-4)


def test_a_momentum_that_every_iteration_needs_is_not_reduced_after_the_loop_too() -> None:
    mesh = mj.make_mesh((8,), ("data",))

    def train(w: Any, m: Any, batches: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            w, m = c
            m = 0.9 * m + mj.grad(lambda w: (mnp.tanh(x @ w) ** 2).sum())(w)
            return (w - 0.1 * m, m), None

        return lax.scan(body, (w, m), batches)[0]

    args = (ramp(4, 4), ramp(4, 4), ramp(5, 8, 4) / 16)  # where tanh is 1 but for its last digits, gradients are rounding
    compiled = mj.jit(train, in_shardings=tuple(NamedSharding(mesh, spec) for spec in (P(), P(), P(None, "data"))))
    rows = collective_rows(compiled.lower(*args).lowering.local, mesh)
    assert [(row.kind, row.count) for row in rows] == [("all_reduce", 5)], rows
    for found, expected in zip(compiled(*args), train(*args), strict=True):
        same(found, expected, 1e-4)


def test_what_a_loop_of_nothing_stacks_is_cut_where_it_is_wanted_sharded() -> None:
    """Such a loop is no constant that could be made in any placement: it stacks whole results."""
    mesh = mj.make_mesh((2,), ("z",), devices=mj.devices()[:2])

    def fun(x: Any) -> Any:
        ones = lax.scan(lambda c, _: (c, mnp.ones(2)), None, None, length=3)[1]
        return mnp.sign(ones).T @ x

    compiled = mj.jit(fun, in_shardings=NamedSharding(mesh, P("z")))
    same(compiled(ramp(3, 4)), fun(ramp(3, 4)))


def test_what_never_changes_is_gathered_before_the_loop() -> None:
    mesh = mj.make_mesh((8,), ("data",))

    def run(w: Any, x: Any) -> Any:
        return lax.scan(lambda c, _: (mnp.tanh(c @ w), None), x, None, length=10)[0]

    args = (ramp(16, 16), ramp(8, 16))
    compiled = mj.jit(run, in_shardings=(NamedSharding(mesh, P("data")), NamedSharding(mesh, P("data"))))
    rows = collective_rows(compiled.lower(*args).lowering.local, mesh)
    assert [(row.kind, row.count) for row in rows] == [("all_gather", 1)], rows
    same(compiled(*args), run(*args), 1e-4)


def test_stacked_layers_are_gathered_one_at_a_time() -> None:
    mesh = mj.make_mesh((8,), ("data",))

    def run(ws: Any, x: Any) -> Any:
        return lax.scan(lambda c, w: (mnp.tanh(c @ w), None), x, ws)[0]

    args = (ramp(3, 16, 16) / 50, ramp(8, 16))
    compiled = mj.jit(run, in_shardings=(NamedSharding(mesh, P(None, "data")), NamedSharding(mesh, P("data"))))
    rows = collective_rows(compiled.lower(*args).lowering.local, mesh)
    assert [(row.kind, row.count) for row in rows] == [("all_gather", 3)], rows
    same(compiled(*args), run(*args), 1e-4)


def test_a_carry_sharded_only_in_the_loop() -> None:
    """10 rows over 4: uneven carries, a constraint inside of the body, a sum over the sharded dim as condition."""
    mesh = mj.make_mesh((4,), ("x",))
    placed = NamedSharding(mesh, P("x"))

    def run(x: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, lax.with_sharding_constraint(c[1] * 2, placed)

        return lax.while_loop(lambda c: c[1].sum() < 1000, body, (0, x))

    x = ramp(10, 3) + 1
    n, y = mj.jit(run)(x)
    want, count = x, 0
    while want.sum() < 1000:
        want, count = want * 2, count + 1
    assert int(n) == count
    same(y, want)


# -- errors


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: lax.scan(lambda c, x: c, 0.0, ones(3)), r"scan: lambda must return a pair \(carry, y\), it returned"),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0, (ones(3), ones(4))), r"leading extents differ: xs\[0\] has 3, xs\[1\] has 4"),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0, ones(3), length=4), "leading extents differ: xs has 3, length has 4"),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0, 1.0), r"xs is f32\[\], which has no leading dim"),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0), "there are neither xs nor a length"),
        (
            lambda: lax.scan(lambda c, x: ({"a": c["a"][:2]}, x), {"a": ones(3)}, ones(3)),
            r"the carry changes its type in lambda.*\n  init\['a'\] is f32\[3\] at first and f32\[2\] after one iteration",
        ),
        (lambda: lax.scan(lambda c, x: ((c, c), x), ones(3), ones(3)), "must give back a carry like the one it is given"),
        (lambda: lax.while_loop(lambda c: c, lambda c: c, ones(3)), r"must return a scalar bool, it returned f32\[3\]"),
        (lambda: lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] > 1, c[1]), (np.int32(1), 2)), r"carry\[0\] is i32\[\]"),
        (lambda: lax.cond(ones(3), lambda: 1, lambda: 2), r"pred must be a scalar, it is f32\[3\]"),
        (lambda: lax.cond(True, lambda x: x, lambda x: (x, x), ones(3)), "the branches return different structures"),
        (lambda: lax.cond(True, lambda x: x, lambda x: x[:2], ones(3)), r"result is f32\[2\] in lambda and f32\[3\] in lambda"),
        (lambda: lax.switch(1.5, [abs, abs], 1), r"index must be an integer scalar, it is f32\[\]"),
        (
            lambda: mj.grad(lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * x, x))(2.0),
            "reverse-mode differentiation does not work for while_loop",
        ),
        (lambda: mj.checkpoint(abs, policy="dots"), "policy must be one of meshjit.checkpoint_policies, got 'dots'"),
    ],
)
def test_mistakes_are_explained(call: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert re.search(text, str(caught.value)), str(caught.value)


def test_a_loop_gets_what_was_transposed_only_in_dims_of_one() -> None:
    """XLA makes a reshape of such a transposition, forgets its sharding, and then refused the loop."""
    mesh = mj.make_mesh((8,), ("x",))
    x = mj.device_put(ramp(8, 4), NamedSharding(mesh, P("x")))

    def run(x: Any) -> Any:
        y = mnp.transpose(x[None], (1, 0, 2))
        return lax.scan(lambda c, _: (mnp.sin(c * y), None), y * 2, None, length=2)[0]

    y = ramp(8, 4)[:, None]
    same(mj.jit(run)(x), np.sin(np.sin(y * 2 * y) * y))


def test_the_number_of_an_iteration_adapts_as_python_ints_do() -> None:
    dynamic = mj.jit(lambda last: lax.fori_loop(0, last, lambda i, s: s + i, mnp.zeros((), np.int8)))
    assert dynamic(3).dtype == np.int8 and int(dynamic(3)) == 3
    for last in (3, np.int32(3), mnp.asarray(3)):
        total = lax.fori_loop(0, last, lambda i, s: s + i, mnp.zeros(2, np.int8))
        assert total.dtype == np.int8 and np.asarray(total).tolist() == [3, 3]
    last = mnp.asarray(3)
    assert float(mj.grad(lambda x: lax.fori_loop(0, last, lambda i, s: s * x, 1.0))(2.0)) == 12


def test_a_bool_carry_is_not_weak() -> None:
    carry, stacked = lax.scan(lambda s, _: (s, s), True, None, length=2)
    assert not carry.weak_type and not stacked.weak_type
    with pytest.raises(TypeError, match=r"init is bool\[\] at first and i32\[\] after one iteration"):
        lax.scan(lambda s, _: (s + 1, s), True, None, length=2)


def test_code_for_each_platform() -> None:
    assert float(lax.platform_dependent(2.0, cpu=lambda x: x * 5, tpu=lambda x: x)) == 10
    assert float(mj.jit(lambda x: lax.platform_dependent(x, tpu=lambda x: x, default=lambda x: x + 1))(2.0)) == 3
    with pytest.raises(ValueError, match=r"there is no function for cpu, only for tpu\n.*\n  fix: cpu=, or default="):
        lax.platform_dependent(1.0, tpu=lambda x: x)
    assert lax.stage(3).dtype == np.int32


def test_a_result_of_one_dtype_is_weak_where_the_first_branchs_is() -> None:
    strong = mnp.float32(2)
    results = mj.jit(lambda k: lax.cond(k, lambda x: (x, strong), lambda x: (strong, x), 1.0))(True)
    assert [r.weak_type for r in results] == [False, True]  # false_fun is branch 0
    results = lax.switch(0, [lambda x: (x, strong, x), lambda x: (x, x, strong)], 1.0)
    assert [r.weak_type for r in results] == [True, False, True]


# -- what every branch, or a loop, gives back as it was given


def test_what_all_branches_give_back_stays_one_for_all_members():
    three, go = np.float32(3), np.array([True, False, True])

    def pick(p: Any, a: Any, b: Any) -> Any:
        return mj.lax.cond(p, lambda a, b: (a * 2, b), lambda a, b: (a, b), a, b)

    for wrap in (lambda f: f, mj.jit):
        a, b = wrap(mj.vmap(pick, in_axes=(0, 0, None), out_axes=(0, None)))(go, np.arange(3, dtype=np.float32), three)
        np.testing.assert_array_equal(a, [0, 1, 4])
        assert b.shape == () and b == 3
    branches = [lambda a, b: (a, b), lambda a, b: (b, a)]  # the same two values, the other way round
    with pytest.raises(ValueError, match=r"at vmap out_axes\[0\], got axis spec None but output was batched on axis 0"):
        mj.vmap(lambda i, a, b: mj.lax.switch(i, branches, a, b), (0, None, None), None)(np.arange(2), three, three)


@pytest.mark.parametrize("asked", [False, True])
def test_what_a_loop_gives_back_stays_one_for_all_members(asked: bool):
    """`asked`: the condition reads it, too."""

    def grow(x: Any, limit: Any, unread: Any) -> Any:
        def goes_on(state: Any) -> Any:
            return state[0] < (state[1] if asked else 5.0)

        return mj.lax.while_loop(goes_on, lambda s: (s[0] + s[1], s[1], s[2]), (x, limit, unread))

    out = mj.vmap(grow, in_axes=(0, None, None), out_axes=(0, None, None))(np.arange(4.0, dtype=np.float32), np.float32(2), np.int8(1))
    np.testing.assert_array_equal(out[0], [2, 3, 2, 3] if asked else [6, 5, 6, 5])
    assert [x.shape for x in out[1:]] == [(), ()] and [int(x) for x in out[1:]] == [2, 1] and out[2].dtype == np.int8
    value, tangent = mj.jvp(lambda x, w: grow(x, w, np.float32(1))[:2], (np.float32(0), np.float32(2)), (np.float32(1), np.float32(1)))
    assert [float(v) for v in (*value, *tangent)] == [2.0, 2.0, 2.0, 1.0] if asked else [6.0, 2.0, 4.0, 1.0]


def test_refs_and_placements_go_through_branches_that_leave_them_as_they_are():
    ref = mj.new_ref(np.arange(3.0, dtype=np.float32))

    def write(p: Any, x: Any) -> Any:
        def change(x: Any) -> Any:
            ref[...] = ref[...] + 1
            return x

        return mj.lax.cond(p, change, lambda x: x, x)

    for p, first in ((True, 1.0), (False, 1.0), (True, 2.0)):
        assert float(mj.jit(write)(p, np.float32(5))) == 5 and float(ref[0]) == first
    gradient = mj.grad(lambda x, p: mj.lax.cond(p, lambda x, y: (x, y * x), lambda x, y: (x, y), x, np.float32(3))[0] ** 2)
    assert float(gradient(np.float32(4), True)) == 8


def test_loops_in_python_hand_on_arrays() -> None:
    """Python's number came back, which has no dtype."""
    with mj.disable_jit():
        for start, end in ((0, 3), (5, 5)):
            value = lax.while_loop(lambda c: c < 3, lambda c: c + 1, start)
            assert (int(value), value.dtype, value.weak_type) == (end, np.int32, True)
        count, ones = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1]), (0, np.ones(2, np.float32)))
        assert count.dtype == np.int32 and ones.tolist() == [1, 1] and isinstance(ones, mj.Array)


def test_best_elements_come_in_a_list() -> None:
    """As in JAX, which matters to branches."""
    x = np.arange(4, dtype=np.float32)
    best = lax.cond(True, lambda x: lax.top_k(x, 2), lambda x: [x[:2], mnp.array([0, 1], np.int32)], x)
    assert [v.tolist() for v in best] == [[3, 2], [3, 2]]
    assert all(isinstance(f(x, 2), list) for f in (lax.top_k, lax.approx_max_k, lax.approx_min_k))


def test_a_bound_that_was_converted_is_no_python_number() -> None:
    """`i` has the dtype of the other bound, also where a carry takes it."""

    def run(last: Any) -> Any:
        return lax.fori_loop(0, last, lambda i, carry: (i, carry[1] + 1), (mnp.int8(0), 0))

    i, count = mj.jit(run)(mnp.int8(5))
    assert (int(i), int(count), i.dtype) == (4, 5, np.int8)
