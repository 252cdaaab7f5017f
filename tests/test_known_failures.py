"""What other partitioners got wrong, each with its report, on eight real CPU devices and against NumPy.

Every function is also verified on imaginary devices: all its values, not only its results, are those of one device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import NamedSharding
from sharding import AbstractMesh, PartitionSpec as P

pytestmark = pytest.mark.device

SPECS = [P("x"), P(("y", "x"))]


@pytest.fixture(scope="module")
def mesh():
    return mj.make_mesh((4, 2), ("x", "y"))


@pytest.fixture(scope="module")
def row():
    return mj.make_mesh((8,), ("x",))


def placed(fun, mesh, ins, out=None):
    """The function jitted with these specs; calling it verifies it, too, and gives NumPy arrays."""
    given = tuple(mj.NamedSharding(mesh, spec) for spec in ins)
    wanted = {} if out is None else {"out_shardings": mj.NamedSharding(mesh, out)}
    jitted = mj.jit(fun, in_shardings=given, **wanted)

    def call(*args):
        mj.verify(jitted, *args, simulate=True)
        return mj.tree.map(np.asarray, jitted(*args))

    return call


def run(fun, *args, mesh, ins, out=None):
    return placed(fun, mesh, ins, out)(*args)


def numbers(*shape, dtype=np.float32, seed=0):
    """Whole numbers, so that sums are exact in any order."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


# --- shifted assignment along a sharded dim (jax#18434) ---------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("extent", [16, 10, 5, 2])
def test_shifted_assignment(mesh, spec, extent):
    a = numbers(extent, 3)
    expected = a.copy()
    expected[:-1] = a[1:]
    np.testing.assert_array_equal(run(lambda a: a.at[:-1].set(a[1:]), a, mesh=mesh, ins=[spec], out=spec), expected)
    expected = a.copy()
    expected[1:] += a[:-1]
    np.testing.assert_array_equal(run(lambda a: a.at[1:].add(a[:-1]), a, mesh=mesh, ins=[spec], out=spec), expected)


@pytest.mark.parametrize("spec", [P("x"), P("x", "y"), P(None, "x")])
def test_stencil_inside_of_a_grid(mesh, spec):
    u = numbers(11, 9)

    def step(u):
        return u.at[1:-1, 1:-1].set(u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])

    expected = u.copy()
    expected[1:-1, 1:-1] = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    np.testing.assert_array_equal(run(step, u, mesh=mesh, ins=[spec], out=spec), expected)


# --- dynamic slices clamp by the global extent (xla#49118, xla#49122) -------------------------------------------------


@pytest.mark.parametrize(("extent", "size"), [(16, 4), (10, 3), (10, 10), (5, 1)])
def test_dynamic_slices_clamp_globally(row, extent, size):
    x, update = numbers(extent, 2), numbers(size, 2, seed=1)
    cut = placed(lambda x, i: lax.dynamic_slice_in_dim(x, i, size), row, [P("x"), P()])
    put = placed(lambda x, u, i: lax.dynamic_update_slice_in_dim(x, u, i, 0), row, [P("x"), P("x"), P()], P("x"))
    for start in (-3, 0, 1, 5, 8, 11, 100):
        at = int(np.clip(start + extent if start < 0 else start, 0, extent - size))
        np.testing.assert_array_equal(cut(x, np.int32(start)), x[at : at + size])
        expected = x.copy()
        expected[at : at + size] = update
        np.testing.assert_array_equal(put(x, update, np.int32(start)), expected)


# --- sums of padded concatenations (jax#39301) ------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("extents", [(8, 8), (3, 5), (1, 10), (7, 0)])
def test_sums_of_padded_concatenations(mesh, spec, extents):
    x, y = numbers(extents[0], 2), numbers(extents[1], 2, seed=1)

    def fun(x, y):
        both = mnp.concatenate([mnp.pad(x, ((1, 2), (0, 0))), y], 0)
        return both.sum(0), mnp.pad(both, ((2, 0), (0, 0)), constant_values=1).sum(0), both.max(0)

    both = np.concatenate([np.pad(x, ((1, 2), (0, 0))), y], 0)
    sums, padded, largest = run(fun, x, y, mesh=mesh, ins=[spec, spec])
    np.testing.assert_array_equal(sums, both.sum(0))
    np.testing.assert_array_equal(padded, both.sum(0) + 2)
    np.testing.assert_array_equal(largest, both.max(0))


# --- arange in 64 bits, sharded (jax#35896) ---------------------------------------------------------------------------


@pytest.mark.parametrize("extent", [16, 13, 3])
def test_arange_in_64_bits(row, extent):
    sharding = mj.NamedSharding(row, P("x"))
    with mj.config.using(enable_x64=True):
        out = mj.jit(lambda: mnp.arange(extent), out_shardings=sharding)()
        assert out.dtype == np.int64 and out.sharding.spec == P("x")
        np.testing.assert_array_equal(np.asarray(out), np.arange(extent))
        out = mj.jit(lambda x: x + mnp.arange(extent, dtype=np.float64), out_shardings=sharding)(np.float64(0.5))
        np.testing.assert_array_equal(np.asarray(out), np.arange(extent) + 0.5)


# --- scatter: duplicates, indices out of range ------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [P("x"), P("x", "y"), P(("x", "y"))])
@pytest.mark.parametrize("indices", [P(), P("x")])
def test_scatter_adds_every_duplicate_and_drops_what_is_outside(mesh, spec, indices):
    table, rows = numbers(10, 4), np.array([3, 3, 9, -1, 10, 0, 3, 99, -11], np.int32)
    updates = numbers(len(rows), 4, seed=2)
    expected = table.copy()
    for r, u in zip(rows, updates, strict=True):
        if -10 <= r < 10:
            expected[r] += u
    got = run(
        lambda t, r, u: t.at[r].add(u, mode="drop"), table, rows, updates, mesh=mesh, ins=[spec, indices, indices], out=spec
    )
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("spec", [P("x"), P(None, "y"), P(("x", "y"))])
@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_scatter_max_with_duplicates(mesh, spec, mode):
    table, rows = numbers(10, 4), np.array([3, 3, 12, 0, 9, 3], np.int32)
    updates = numbers(len(rows), 4, seed=2)
    expected = table.copy()
    for r, u in zip(rows, updates, strict=True):
        if mode == "clip" or r < 10:
            expected[min(r, 9)] = np.maximum(expected[min(r, 9)], u)
    got = run(
        lambda t, r, u: t.at[r].max(u, mode=mode), table, rows, updates, mesh=mesh, ins=[spec, P("x"), P("x")], out=spec
    )
    np.testing.assert_array_equal(got, expected)


def test_setting_duplicates_leaves_one_of_them_everywhere(mesh):
    rows = np.array([2, 5, 2, 2, 5], np.int32)
    updates = numbers(5, 4, seed=3)
    got = run(lambda t, r, u: t.at[r].set(u), numbers(8, 4), rows, updates, mesh=mesh, ins=[P("x"), P(), P()], out=P("x"))
    assert any(np.array_equal(got[2], updates[i]) for i in (0, 2, 3))
    assert any(np.array_equal(got[5], updates[i]) for i in (1, 4))


@pytest.mark.parametrize("spec", SPECS)
def test_gather_fills_or_clips_what_is_outside(mesh, spec):
    table, rows = numbers(10, 2), np.array([0, 9, 10, -1, -10, -11, 40], np.int32)
    wrapped = np.where(rows < 0, rows + 10, rows)
    filled = np.where(((wrapped >= 0) & (wrapped < 10))[:, None], table[np.clip(wrapped, 0, 9)], np.nan)
    got = run(lambda t, r: mnp.take(t, r, axis=0, mode="fill"), table, rows, mesh=mesh, ins=[spec, P()])
    np.testing.assert_array_equal(got, filled)
    got = run(lambda t, r: mnp.take(t, r, axis=0, mode="clip"), table, rows, mesh=mesh, ins=[spec, P("x")])
    np.testing.assert_array_equal(got, table[np.clip(rows, 0, 9)])


# --- order along a sharded dim: stability, ties, nan ------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("extent", [16, 10, 3])
def test_sorting_is_stable(mesh, spec, extent):
    keys, values = np.random.default_rng(0).integers(0, 3, extent).astype(np.int32), np.arange(extent, dtype=np.int32)
    order = np.argsort(keys, kind="stable")
    sorted_keys, moved = run(lambda k, v: lax.sort((k, v), num_keys=1), keys, values, mesh=mesh, ins=[spec, spec])
    np.testing.assert_array_equal(sorted_keys, keys[order])
    np.testing.assert_array_equal(moved, order)
    np.testing.assert_array_equal(run(lambda k: mnp.argsort(k), keys, mesh=mesh, ins=[spec]), order)


@pytest.mark.parametrize("spec", SPECS)
def test_nan_sorts_last_and_zeros_are_equal(mesh, spec):
    x = np.array([1.0, np.nan, -0.0, 0.0, -np.inf, np.inf, np.nan, -2.0, 0.0, -0.0], np.float32)
    np.testing.assert_array_equal(run(lambda x: mnp.sort(x), x, mesh=mesh, ins=[spec], out=spec), np.sort(x))
    order = run(lambda x: mnp.argsort(x), x, mesh=mesh, ins=[spec])
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("extent", [16, 10, 3])
def test_the_first_of_equal_maxima(mesh, spec, extent):
    x = np.random.default_rng(1).integers(0, 2, (extent, 3)).astype(np.float32)
    places = placed(lambda x: (mnp.argmax(x, axis=0), mnp.argmin(x, axis=0)), mesh, [spec])
    for place in (None, *range(0, extent, 3)):
        if place is not None:
            x[place, 1] = np.nan
        largest, smallest = places(x)
        np.testing.assert_array_equal(largest, np.argmax(x, axis=0))
        np.testing.assert_array_equal(smallest, np.argmin(x, axis=0))


@pytest.mark.parametrize("spec", SPECS)
def test_top_k_gives_the_first_of_equals(mesh, spec):
    x = np.random.default_rng(2).integers(0, 3, 13).astype(np.float32)
    values, places = run(lambda x: lax.top_k(x, 5), x, mesh=mesh, ins=[spec])
    order = np.argsort(-x, kind="stable")[:5]
    np.testing.assert_array_equal(values, x[order])
    np.testing.assert_array_equal(places, order)


# --- partial sums in loops --------------------------------------------------------------------------------------------


def test_partial_sums_that_a_loop_carries_are_reduced(mesh):
    ws, x = numbers(3, 6, 6), numbers(10, 6, seed=1)

    def fun(ws, x):
        def body(total, w):
            return total + (x @ w).T @ x, (x @ w).sum(0)

        return lax.scan(body, mnp.zeros((6, 6), np.float32), ws)

    total, sums = run(fun, ws, x, mesh=mesh, ins=[P(), P("x")])
    np.testing.assert_array_equal(total, sum((x @ w).T @ x for w in ws))
    np.testing.assert_array_equal(sums, np.stack([(x @ w).sum(0) for w in ws]))


def test_partial_values_decide_a_while_loop(row):
    x = np.ones(10, np.float32)

    def fun(x):
        return lax.while_loop(lambda s: s[0].sum() < 100, lambda s: (s[0] * 2, s[1] + 1), (x, 0))

    doubled, count = run(fun, x, mesh=row, ins=[P("x")])
    assert count == 4
    np.testing.assert_array_equal(doubled, x * 16)


def test_gradient_through_a_loop_over_sharded_rows(mesh):
    ws, x = numbers(2, 4, 4), numbers(10, 4, seed=1)

    def loss(ws, x):
        return lax.scan(lambda h, w: (h @ w, None), x, ws)[0].sum()

    ones = np.ones((10, 4), np.float32)
    got = run(mj.grad(loss), ws, x, mesh=mesh, ins=[P(None, None, "y"), P("x")])
    np.testing.assert_array_equal(got, np.stack([x.T @ (ones @ ws[1].T), (x @ ws[0]).T @ ones]))


# --- extents that do not divide, everywhere ---------------------------------------------------------------------------

EXTENTS = [10, 3, 1, 0, 13]


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("spec", SPECS)
def test_uneven_inputs_outputs_and_constraints(mesh, spec, extent):
    x = numbers(extent, 5)

    def fun(x):
        held = lax.with_sharding_constraint(x * 2, mj.NamedSharding(mesh, P(None, "x")))
        return held + 1, held.sum(0), held.T

    given = mj.device_put(x, mj.NamedSharding(mesh, spec))
    assert given.shape == (extent, 5)
    out, sums, turned = mj.jit(fun, out_shardings=mj.NamedSharding(mesh, P("y")))(given)
    assert (out.shape, out.sharding.spec, turned.shape) == ((extent, 5), P("y"), (5, extent))
    np.testing.assert_array_equal(np.asarray(out), x * 2 + 1)
    np.testing.assert_array_equal(np.asarray(sums), (x * 2).sum(0))
    np.testing.assert_array_equal(np.asarray(turned), (x * 2).T)


@pytest.mark.parametrize("extent", [3, 2, 5])
def test_fewer_elements_than_devices_stay_where_the_user_put_them(row, extent):
    x = mj.device_put(np.arange(extent, dtype=np.float32), mj.NamedSharding(row, P("x")))
    out = mj.jit(lambda x: mnp.tanh(x * 2))(x)
    assert out.sharding.spec == P("x")
    np.testing.assert_allclose(np.asarray(out), np.tanh(np.arange(extent, dtype=np.float32) * 2), rtol=1e-6)


@pytest.mark.parametrize("extent", [10, 3])
def test_statistics_never_see_padding(row, extent):
    x = numbers(extent, 4) + 20  # a zero, a nan or a copy of the last row would show in every one of these

    def fun(x):
        return x.min(0), x.max(0), x.prod(0), x.mean(0), mnp.var(x, axis=0), mnp.median(x, axis=0), mnp.cumsum(x, 0)[-1], (x > 0).all(0)

    results = run(fun, x, mesh=row, ins=[P("x")])
    wanted = [x.min(0), x.max(0), x.prod(0), x.mean(0), x.var(0), np.median(x, axis=0), x.sum(0), (x > 0).all(0)]
    for got, want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_reversing_rolling_and_reshaping_uneven_dims(row):
    x = numbers(10, 3)
    fun = lambda x: (x[::-1], mnp.roll(x, 3, 0), x.reshape(5, 6), x.reshape(30), mnp.flip(x, (0, 1)))  # noqa: E731
    wanted = (x[::-1], np.roll(x, 3, 0), x.reshape(5, 6), x.reshape(30), np.flip(x, (0, 1)))
    for got, want in zip(run(fun, x, mesh=row, ins=[P("x")]), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_vocabulary_of_50257_over_16_devices():
    """Lookup, logits and cross-entropy with the vocabulary sharded, on more devices than there are."""
    vocabulary, width = 50257, 2
    generator = np.random.default_rng(0)
    table = generator.normal(size=(vocabulary, width)).astype(np.float32)
    tokens = np.array([0, 50256, 3142, 47119, 25000, 50255], np.int32)

    def loss(table, tokens):
        logits = table[tokens] @ table.T
        picked = mnp.take_along_axis(mj.nn.log_softmax(logits), tokens[:, None], axis=1)
        return -picked.mean(), mnp.argmax(logits, axis=1)

    mesh = AbstractMesh((16,), ("x",))
    found = mj.verify(loss, table, tokens, in_shardings=(P("x"), P()), mesh=mesh)
    assert found.mesh.size == 16 and found.largest_error < 1e-4
    found = mj.verify(mj.grad(lambda t, i: loss(t, i)[0]), table, tokens, in_shardings=(P("x"), P()), mesh=mesh)
    assert found.largest_error < 1e-4


@pytest.mark.parametrize("dtype", [np.float32, mnp.bfloat16])
def test_nan_is_the_extreme_whichever_device_has_it(dtype: Any) -> None:
    """XLA's CPU collectives give the largest number instead."""
    mesh = mj.make_mesh((8,), ("x",))
    for place, sign in ((0, 1), (3, -1), (9, 1)):
        x = np.arange(10, dtype=np.float32) - 4
        x[place], x[5] = sign * np.nan, np.inf
        a = mj.device_put(mnp.asarray(x).astype(dtype), NamedSharding(mesh, P("x")))
        assert np.isnan(np.asarray(mj.jit(lambda a: mnp.stack([a.max(), a.min()]))(a)).astype(np.float32)).all()
    x = np.array([-0.0, -3, -np.inf, 2, 7, np.inf, -1, 4], np.float32)
    a = mj.device_put(mnp.asarray(x).astype(dtype), NamedSharding(mesh, P("x")))
    for part in (a[:2], a[2:5], a[1:2], a):
        got = np.asarray(mj.jit(lambda a: mnp.stack([a.max(), a.min()]))(part)).astype(np.float32)
        want = np.asarray(part).astype(np.float32)
        np.testing.assert_array_equal(got, [want.max(), want.min()])
