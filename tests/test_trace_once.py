"""Functions are traced once for equal arguments, as often as JAX does or less; and again wherever they would give something else."""

from __future__ import annotations

import functools
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.attached import Attached, attached_to
from meshjit.sharding import NamedSharding, PartitionSpec as P
from tests.tools.trace_counts import CASES, runs

pytestmark = pytest.mark.device

# How often JAX 0.10.2 runs the functions of each case: `python -m tests.tools.trace_counts jax`
COUNTS = {
    "scan_twice": 1,
    "scan_twice_in_jit": 1,
    "scan_in_two_jits": 1,
    "scan_other_shapes": 2,
    "scan_other_length": 1,
    "scan_under_grad": 1,
    "scan_under_vmap": 1,
    "scan_weak_carry": 1,
    "scan_promoted_carry": 2,
    "scan_captures_array": 1,
    "scan_captures_tracer": 1,
    "scan_in_x64": 2,
    "scan_in_precision": 2,
    "while_twice": 2,
    "while_weak": 2,
    "while_under_jvp": 2,
    "fori_static": 1,
    "fori_dynamic": 1,
    "fori_other_bounds": 1,
    "cond_twice": 2,
    "cond_under_grad": 2,
    "cond_same_function": 1,
    "cond_no_operands": 2,
    "switch_twice": 3,
    "map_twice": 3,
    "map_batched": 3,
    "associative_scan_twice": 12,
    "associative_scan_in_jit": 12,
    "reduce_twice": 1,
    "reduce_window_twice": 1,
    "jit_in_jit": 1,
    "jit_then_nested": 1,
    "nested_then_jit": 1,
    "jit_under_grad": 1,
    "jit_under_vmap": 1,
    "jit_plain_grad_vmap": 1,
    "jit_of_grad": 1,
    "jit_of_vmap_nested": 1,
    "jit_twice_of_one_function": 1,
    "jit_trace_lower_call": 1,
    "jit_captures_tracer": 1,
    "jit_captures_array": 1,
    "make_jaxpr_twice": 1,
    "eval_shape_twice": 1,
    "scan_of_jit": 1,
    "remat_under_grad": 1,
    "remat_of_one_function": 1,
    "remat_in_jit": 1,
    "remat_captures": 1,
    "remat_eager": 1,
    "grad_twice": 3,
    "vmap_twice": 3,
    "vmap_in_jit_twice": 2,
    "custom_jvp_calls": 6,
    "custom_vjp_grads": 6,
    "custom_vjp_in_jit": 6,
    "custom_vjp_in_scan": 2,
    "linearize_of_jit": 1,
    "hessian_of_jit": 1,
    "shard_map_eager": 3,
    "shard_map_in_jit": 4,
    "shard_map_under_grad": 3,
    "shard_map_of_jit_eager": 1,
    "pmap_twice": 1,
    "pmap_in_jit": 2,
    "pmap_under_grad": 1,
}


@pytest.mark.parametrize("name", COUNTS)
def test_no_more_often_than_in_jax(name: str) -> None:
    assert runs(name, mj) <= COUNTS[name]


def test_every_case_is_recorded() -> None:
    assert list(COUNTS) == list(CASES)


def last(body: Callable[..., Any], start: Any = 1.0) -> float:
    """The carry after two iterations."""
    return float(lax.scan(body, mnp.float32(start), None, length=2)[0])


# -- what a body reads has changed


FACTOR = 2.0


def times_global(c: Any, _: Any) -> Any:
    return c * FACTOR, None


def times_other(c: Any, _: Any) -> Any:
    return c * other(), None


def other() -> float:
    return FACTOR


@pytest.mark.parametrize("body", [times_global, times_other])
def test_a_global_that_is_assigned_again(body: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert last(body) == 4
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert last(body) == 9


def test_a_variable_that_is_assigned_again() -> None:
    def both(w: Any) -> Any:
        factor = w

        def body(c: Any, _: Any) -> Any:
            return c * factor, None

        first = lax.scan(body, mnp.float32(1), None, length=2)[0]
        factor = w + 1
        return first, lax.scan(body, mnp.float32(1), None, length=2)[0]

    assert [float(x) for x in both(2.0)] == [4, 9]
    assert [float(x) for x in both(mnp.float32(2))] == [4, 9]
    assert [float(x) for x in mj.jit(both)(2.0)] == [4, 9]
    assert [float(x) for x in mj.jvp(both, (2.0,), (1.0,))[1]] == [4, 6]


@pytest.mark.parametrize("wrap", [mj.checkpoint, mj.jit])
def test_of_a_call_that_is_assigned_again(wrap: Callable[..., Any]) -> None:
    def both(w: Any) -> Any:
        factor = w
        inner = wrap(lambda x: x * factor)
        first = inner(mnp.float32(1))
        factor = w + 1
        return first + 10 * inner(mnp.float32(1))

    assert float(mj.jit(both)(2.0)) == 32
    assert float(mj.grad(both)(2.0)) == 11


def test_each_of_several_layers() -> None:
    def layers(x: Any, ws: Any) -> Any:
        for w in ws:  # noqa: B007 - the body closes over it
            x = lax.cond(True, lambda x: x * w, lambda x: x, x)  # noqa: B023

        def branch(x: Any) -> Any:
            return x + w

        for w in ws:  # noqa: B007
            x = lax.cond(x > 0, branch, branch, x)
        return x

    assert float(mj.jit(layers)(1.0, [2.0, 3.0])) == 11
    assert float(layers(1.0, [2.0, 3.0])) == 11


class Layer:
    def __init__(self, w: float) -> None:
        self.w = w

    def __call__(self, c: Any, _: Any) -> Any:
        return c * self.w, None

    def step(self, c: Any, _: Any) -> Any:
        return c * self.w, None


@pytest.mark.parametrize("body", [lambda m: m, lambda m: m.step, lambda m: lambda c, x: m(c, x), lambda m: functools.partial(m)])
def test_an_attribute_that_is_assigned_again(body: Callable[..., Any]) -> None:
    model = Layer(2.0)
    step = body(model)
    assert last(step) == 4
    model.w = 3.0
    assert last(step) == 9
    assert float(mj.jit(lambda: lax.scan(step, mnp.float32(1), None, length=2)[0])()) == 9


@pytest.mark.parametrize("size", [3, 1 << 19])
def test_elements_of_a_numpy_array_that_are_assigned(size: int) -> None:
    w = np.arange(size, dtype=np.float32)

    def body(c: Any, _: Any) -> Any:
        return c + w, None

    def inside(c: Any, _: Any) -> Any:
        return lax.scan(body, c, None, length=1)[0], None

    for step in (body, inside):
        w[:] = np.arange(size)
        assert float(lax.scan(step, mnp.zeros(size), None, length=2)[0][2]) == 4
        w[2] = 5
        assert float(lax.scan(step, mnp.zeros(size), None, length=2)[0][2]) == 10


def test_what_is_changed_while_tracing_does_not_count() -> None:
    count = 0

    def body(c: Any, _: Any) -> Any:
        nonlocal count
        count += 1
        return c * 2, None

    assert [last(body), last(body, 3.0), count] == [4, 12, 1]


# -- the context has changed


def test_options() -> None:
    def body(c: Any, _: Any) -> Any:
        return c, mnp.arange(3).sum() + mnp.ones(2, float).sum()

    def dtype() -> Any:
        return lax.scan(body, mnp.float32(0), None, length=2)[1].dtype

    assert dtype() == np.float32
    with mj.enable_x64(True):
        assert dtype() == np.float64
    assert dtype() == np.float32


def test_precision() -> None:
    def body(c: Any, _: Any) -> Any:
        return c @ c, None

    def text() -> str:
        f = mj.jit(lambda x: lax.scan(body, x, None, length=2)[0])
        return f.lower(mnp.ones((4, 4))).as_text("meshjit")

    before = text()
    with mj.default_matmul_precision("highest"):
        assert text() != before
    assert text() == before


def test_the_mesh_of_the_context() -> None:
    def body(c: Any, _: Any) -> Any:
        return lax.with_sharding_constraint(c * 2, P("x")), None

    def placed() -> Any:
        return mj.jit(lambda x: lax.scan(body, x, None, length=2)[0])(mnp.ones(8)).sharding

    for axes in ((2, 1), (4, 2)):
        with mj.make_mesh(axes, ("x", "y")) as mesh:
            assert placed() == NamedSharding(mesh, P("x"))


def test_members_and_devices_around() -> None:
    def body(c: Any, _: Any) -> Any:
        return c + lax.psum(c, "i") + lax.axis_index("i"), None

    def after(x: Any) -> Any:
        return lax.scan(body, x, None, length=1)[0]

    batch = mj.vmap(after, axis_name="i")
    np.testing.assert_array_equal(batch(mnp.ones(3)), [4, 5, 6])
    np.testing.assert_array_equal(batch(mnp.ones(3)), [4, 5, 6])
    np.testing.assert_array_equal(batch(mnp.ones(2)), [3, 4])
    mesh = mj.make_mesh((4,), ("i",))
    shards = mj.shard_map(after, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    np.testing.assert_array_equal(shards(mnp.ones(4)), [5, 6, 7, 8])
    np.testing.assert_array_equal(mj.jit(shards)(mnp.ones(8)), [5, 5, 6, 6, 7, 7, 8, 8])
    nested = mj.vmap(lambda x: mj.vmap(after, axis_name="i")(x) + lax.axis_index("i"), axis_name="i")
    np.testing.assert_array_equal(nested(mnp.ones((2, 2))), [[3, 4], [4, 5]])


def test_values_that_python_asked_for() -> None:
    @mj.checkpoint
    def f(x: Any) -> Any:
        return x * 2 if x > 0 else x * 3

    assert [float(mj.grad(f)(x)) for x in (1.0, -1.0, 1.0)] == [2, 3, 2]


def test_static_arguments() -> None:
    f = mj.checkpoint(lambda x, n: x * n, static_argnums=1)
    assert [float(mj.grad(f)(1.0, n)) for n in (2, 3, 2)] == [2, 3, 2]
    g = mj.jit(mj.checkpoint(lambda x, n: (x * n).astype(type(n)), static_argnums=1), static_argnums=1)
    assert [g(1.0, n).dtype for n in (2, 2.0)] == [np.int32, np.float32]


def test_a_body_that_loops_and_branches_share() -> None:
    def f(x: Any) -> Any:
        return x * 2

    def g(x: Any) -> Any:
        y = lax.while_loop(lambda x: x < 5, f, x)
        z = lax.cond(y > 0, f, f, y)
        return lax.fori_loop(0, 2, lambda i, x: f(x), z) + mj.checkpoint(f)(x) + mj.jit(f)(x)

    assert float(mj.jit(g)(1.0)) == 8 * 2 * 4 + 4
    assert float(mj.jit(mj.vmap(g))(mnp.array([1.0, 4.0]))[1]) == 8 * 2 * 4 + 16


def test_one_body_for_carries_placed_otherwise() -> None:
    mesh = mj.make_mesh((4, 2), ("x", "y"))
    a, b = (mj.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, spec)) for spec in (P("x"), P(None, "y")))

    def body(c: Any, _: Any) -> Any:
        return mnp.sin(c) * 2, None

    def f(a: Any, b: Any) -> Any:
        return [lax.scan(body, c, None, length=3)[0] for c in (a, b)]

    first, second = mj.jit(f)(a, b)
    assert (first.sharding.spec, second.sharding.spec) == (P("x"), P(None, "y"))
    np.testing.assert_array_equal(first, second)


# -- what is kept, and for how long


def test_traces_go_with_their_function() -> None:
    def body_of(w: Any) -> Callable[..., Any]:
        return lambda c, _: (c + w.sum(), None)

    w = mnp.ones(3)
    body = body_of(w)
    last(body)
    gone = weakref.ref(body), weakref.ref(w)
    gc.disable()
    try:
        del body, w
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["callback", "rule", "itself"])
def test_functions_that_hold_themselves_go_with_the_next_collection(how: str) -> None:
    def made() -> weakref.ref[Any]:
        held: list[Any] = []

        def f(x: Any) -> Any:
            if how == "callback":
                mj.debug.callback(lambda _: held.append(1), x)
            if how == "rule":
                g = mj.custom_jvp(lambda x: x * 2)
                g.defjvp(lambda p, t: (g(*p), t[0] * len(held)))
                x = g(x)
            return x * len(held)

        held.append(f)
        float(mj.jit(f)(1.0))
        lax.scan(lambda c, _: (f(c), None), 1.0, None, length=2)
        lax.scan(functools.partial(lambda f, c, _: (f(c), None), f), mnp.float32(1.0), None, length=2)
        mj.effects_barrier()
        return weakref.ref(f)

    gone = made()
    mj.clear_caches() if how == "callback" else None  # what ran outside of jit is kept, by its text
    gc.collect()
    assert gone() is None


def test_traces_of_values_end_with_them() -> None:
    kept: list[Any] = []

    def body(c: Any, _: Any) -> Any:
        return c + kept[-1], None

    def f(x: Any) -> Any:
        kept.append(x * 2)
        return lax.scan(body, x, None, length=2)[0]

    assert [float(mj.jit(f)(x)) for x in (1.0, 2.0)] == [5, 10]
    assert [float(mj.grad(f)(x)) for x in (1.0, 2.0)] == [5, 5]
    own = attached_to(body)
    assert own is not None and not own.get("traced")


def test_attributes_that_wrappers_copy_are_not_theirs() -> None:
    def f(c: Any, x: Any) -> Any:
        return c * 2, None

    last(f)

    @functools.wraps(f)
    def g(c: Any, x: Any) -> Any:
        return c * 3, None

    assert last(g) == 9
    assert last(f) == 4
    assert pickle.loads(pickle.dumps(Attached(f))).kept == {}


def test_clear_caches_forgets_traces() -> None:
    count = 0

    def body(c: Any, _: Any) -> Any:
        nonlocal count
        count += 1
        return c, None

    last(body)
    mj.clear_caches()
    last(body)
    assert count == 2
