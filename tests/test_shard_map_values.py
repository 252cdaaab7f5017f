"""Code for single devices outside of jit: Python is told what all devices have in common, and nothing that differs among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.errors import TracerArrayConversionError, TracerBoolConversionError
from meshjit.sharding import AxisType
from sharding.spec import P

pytestmark = pytest.mark.device

LINE = mj.make_mesh((4,), ("x",), axis_types=AxisType.Auto)
GRID = mj.make_mesh((2, 2), ("x", "y"), axis_types=AxisType.Auto)
X = np.arange(8, dtype=np.float32)


def mapped(f: Any, *in_specs: P, mesh: Any = LINE, **settings: Any) -> Any:
    return mj.shard_map(f, mesh=mesh, in_specs=in_specs or (P("x"),), out_specs=P("x"), **settings)


def doubled_if_positive(x: Any) -> Any:
    return x * 2 if lax.psum(x.sum(), "x") > 0 else x


def test_a_choice_by_a_sum_over_all_devices() -> None:
    f = mapped(doubled_if_positive)
    for sign in (1, -1, 1):  # what was traced for one value is not taken for another
        np.testing.assert_array_equal(f(sign * X), sign * X * (2 if sign > 0 else 1))
    with mj.set_mesh(LINE):
        np.testing.assert_array_equal(mj.shard_map(doubled_if_positive, in_specs=P("x"), out_specs=P("x"))(X), 2 * X)


def test_a_loop_until_devices_agree() -> None:
    def halved(x: Any) -> Any:
        count = 0
        while lax.pmax(mnp.abs(x).max(), "x") > 1:
            x, count = x / 2, count + 1
        return x + count

    np.testing.assert_array_equal(mapped(halved)(X), X / 8 + 3)


@pytest.mark.parametrize(
    ("f", "second", "expected"),
    [
        (lambda x, n: [x, x * 2, x * 3][n], 2, X * 3),
        (lambda x, c: x * 2 if c.size == 0 and not c.sum() else x, np.zeros(0, np.float32), X * 2),
        (lambda x, n: x + np.asarray(n).sum(), np.arange(3), X + 3),
        (lambda x, n: x + mnp.nonzero(n)[0], np.array([0, 1, 0, 1], np.int8), X + np.array([1, 3] * 4)),
        (lambda x, c: x * float(c), mnp.asarray(3, mnp.bfloat16), X * 3),
        (lambda x, c: mj.grad(lambda y: (y * y).sum() if c > 0 else y.sum())(x), 1.0, X * 2),
        (lambda x, c: mj.grad(lambda y: (y * c).sum() if lax.psum(y.sum(), "x") > 0 else y.sum())(x), 3.0, [3] * 8),
        (lambda x, c: mj.jvp(lambda y: y * y if lax.pmax(y.max(), "x") * c > 6 else y, (x,), (x,))[1], 1.0, X * X * 2),
    ],
)
def test_what_all_devices_are_given(f: Any, second: Any, expected: Any) -> None:
    np.testing.assert_array_equal(mapped(f, P("x"), P())(X, second), expected)


def test_what_is_traced_inside_for_a_value_is_not_kept_for_another() -> None:
    member = mj.checkpoint(lambda v: mj.grad(lambda u: (doubled_if_positive(u) * 2).sum())(v))
    f = mapped(lambda x: member(x))
    for sign in (1, -1, 1):
        np.testing.assert_array_equal(f(sign * X), [4 if sign > 0 else 2] * 8)


def test_what_is_closed_over_and_trees() -> None:
    k = mj.device_put(np.float32(1), mj.NamedSharding(LINE, P()))
    np.testing.assert_array_equal(mapped(lambda x: x * 2 if k > 0 else x)(X), 2 * X)
    f = mj.shard_map(lambda a: a["x"] if a["c"].sum() > 1 else -a["x"], mesh=LINE, in_specs=({"x": P("x"), "c": P()},), out_specs=P("x"))
    np.testing.assert_array_equal(f({"x": X, "c": np.zeros(2)}), -X)


def test_derivatives_outside() -> None:
    f = mapped(doubled_if_positive)
    np.testing.assert_array_equal(mj.grad(lambda x: f(x).sum())(X), [2] * 8)
    np.testing.assert_array_equal(mj.grad(lambda x: f(x - 9).sum())(X), [1] * 8)
    np.testing.assert_array_equal(mj.jvp(f, (-X,), (X,))[1], X)
    value, back = mj.vjp(f, X)
    np.testing.assert_array_equal(back(value)[0], 4 * X)


def test_several_axes_and_axes_left_to_the_compiler() -> None:
    f = mj.shard_map(
        lambda x: x * 2 if lax.psum(x.sum(), ("x", "y")) > 3 else x, mesh=GRID, in_specs=P("x", "y"), out_specs=P("x", "y")
    )
    np.testing.assert_array_equal(f(X.reshape(2, 4)), 2 * X.reshape(2, 4))
    np.testing.assert_array_equal(mapped(doubled_if_positive, mesh=GRID, axis_names={"x"})(X), 2 * X)


@pytest.mark.parametrize(
    "f",
    [
        mapped(lambda x: x if x.sum() > 0 else -x),
        mapped(lambda x: x if lax.axis_index("x") > 0 else -x),
        mapped(doubled_if_positive, check_vma=False),
        mj.jit(mapped(doubled_if_positive)),
        lambda x: mj.vmap(mapped(doubled_if_positive))(x[None]),
        mapped(lambda x: lax.scan(lambda c, _: (doubled_if_positive(c), None), x, None, 2)[0]),
    ],
)
def test_what_differs_or_is_traced_has_no_value(f: Any) -> None:
    with pytest.raises(TracerBoolConversionError, match="has no value while"):
        f(X)


def test_a_derivative_is_not_lost_in_numpy() -> None:
    f = mapped(lambda x, c: x * float(np.asarray(c)), P("x"), P())
    np.testing.assert_array_equal(f(X, 2.0), 2 * X)
    with pytest.raises(TracerArrayConversionError, match="is differentiated"):
        mj.grad(lambda c: f(X, c).sum())(2.0)


def test_effects_happen_once() -> None:
    seen: list[float] = []

    def f(x: Any, c: Any) -> Any:
        mj.debug.callback(lambda v: seen.append(float(v)), c)
        return x * 2 if c > 0 else x

    np.testing.assert_array_equal(mapped(f, P("x"), P())(X, 1.0), 2 * X)
    mj.effects_barrier()
    assert len(seen) in (1, 4)
