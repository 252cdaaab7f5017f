"""Programs that XLA gets wrong in their plain form, and that meshjit writes in another: docs/xla.md, tests/tools/xla_faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

MESHES = {name: shape for name, shape in (("2", (2,)), ("8", (8,)), ("4x2", (4, 2)), ("2x2x2", (2, 2, 2)))}


def mesh_of(name: str) -> Mesh:
    shape = MESHES[name]
    return Mesh(np.array(mj.devices()[: int(np.prod(shape))]).reshape(shape), ("a", "b", "c")[: len(shape)])


def same(fun: Callable[..., Any], *args: Any, **how: Any) -> None:
    """Jitted as NumPy has it; integers, so that every sum is exact."""
    np.testing.assert_array_equal(np.asarray(mj.jit(fun, **how)(*args)), fun(*args, numpy=True))


# -- updates that read other places of what they update


def stencil(x: Any, numpy: bool) -> Any:
    """`y[1:-1] += y[2:] - y[:-2]` of y = 2 x."""
    y = x * 2
    if not numpy:
        return y.at[1:-1].add(y[2:] - y[:-2])
    y[1:-1] += (x * 2)[2:] - (x * 2)[:-2]
    return y


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.complex64, np.uint8])
@pytest.mark.parametrize("name", MESHES)
def test_a_stencil_update_of_sharded_columns_is_right_wherever_its_result_goes(name: str, dtype: Any) -> None:
    mesh, x = mesh_of(name), (np.arange(88).reshape(11, 8) % 13).astype(dtype)
    for out in (P(), P("a"), P(None, "a")):
        how = {"in_shardings": NamedSharding(mesh, P(None, "a")), "out_shardings": NamedSharding(mesh, out)}
        same(lambda x, numpy=False: stencil(x, numpy), x, **how)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(1, *x.shape),
    "trailing": lambda x: x.reshape(*x.shape, 1),
    "expand": lambda x: x[None],
    "merge": lambda x: x.reshape(-1),
    "transpose": lambda x: x.T,
    "twice": lambda x: x.T.reshape(1, -1),
    "view": lambda x: x.view(np.int32),
}


@pytest.mark.parametrize("view", VIEWS)
def test_views_before_and_behind_a_stencil_update_are_right_on_one_device(view: str) -> None:
    x = ((np.arange(88).reshape(11, 8) % 13) ** 2).astype(np.float32)
    same(lambda x, numpy=False: VIEWS[view](stencil(x, numpy)), x)
    same(lambda x, numpy=False: stencil(VIEWS[view](x).reshape(8, 11), numpy).reshape(2, 44), x)


@pytest.mark.parametrize("view", VIEWS)
def test_a_stencil_update_of_a_donated_argument_is_right(view: str) -> None:
    x = ((np.arange(88).reshape(11, 8) % 13) ** 2).astype(np.float32)

    def fun(x: Any) -> Any:
        y = x.at[1:-1].set(x[2:] - x[:-2])
        return y, VIEWS[view](y)

    want = x.copy()
    want[1:-1] = x[2:] - x[:-2]
    plain, seen = mj.jit(fun, donate_argnums=0)(mnp.array(x))
    np.testing.assert_array_equal(np.asarray(plain), want)
    np.testing.assert_array_equal(np.asarray(seen), VIEWS[view](want))


def test_stencil_updates_in_a_loop_are_right() -> None:
    x = (np.arange(88).reshape(11, 8) % 5).astype(np.float32)

    def steps(x: Any) -> Any:
        def one(i: Any, x: Any) -> Any:
            x = x.at[1:-1].set(x[2:] - x[:-2])
            return x.reshape(1, 88).at[:, 3:].set(x.reshape(1, 88)[:, :-3]).reshape(11, 8)

        return lax.fori_loop(0, 3, one, x)

    want = x.copy()
    for _ in range(3):
        want[1:-1] = want[2:] - want[:-2]
        want = want.reshape(1, 88)
        want[:, 3:] = want[:, :-3].copy()
        want = want.reshape(11, 8)
    np.testing.assert_array_equal(np.asarray(mj.jit(steps)(x)), want)


# -- slices of slices


@pytest.mark.parametrize("first", [-3, 0, 4, 7, 9])
@pytest.mark.parametrize("second", [-2, 0, 1, 3, 9])
def test_each_start_of_a_slice_of_a_slice_is_clamped(first: int, second: int) -> None:
    def fun(x: Any, first: Any, second: Any) -> Any:
        return lax.dynamic_slice(lax.dynamic_slice(x, (first,), (5,)), (second,), (2,))

    x = np.arange(10, dtype=np.int32)
    start = [n + size if n < 0 else n for n, size in ((first, 10), (second, 5))]  # before the beginning counts from the end
    want = x[min(start[0], 5) :][:5][min(start[1], 3) :][:2]
    np.testing.assert_array_equal(np.asarray(mj.jit(fun)(x, first, second)), want)
    np.testing.assert_array_equal(np.asarray(mj.jit(lambda x: fun(x, first, second))(x)), want)


# -- pieces of an all-to-all


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.bool_, np.complex64])
@pytest.mark.parametrize("extent", [1, 2, 3, 5])
def test_an_axis_moves_to_a_dim_of_fewer_elements_than_devices(extent: int, dtype: Any) -> None:
    x = (np.arange(4 * extent * 24).reshape(4, extent, 24) % 7).astype(dtype)
    for name in MESHES:
        mesh = mesh_of(name)
        before, after = (NamedSharding(mesh, spec) for spec in (P(None, None, "a"), P(None, "a", None)))
        fun = mj.jit(lambda x: mnp.transpose(x, (2, 1, 0)), in_shardings=before, out_shardings=after)
        np.testing.assert_array_equal(np.asarray(fun(x)), x.transpose(2, 1, 0))


# -- what XLA expands


def test_no_value_needs_a_sharding_of_xla() -> None:
    """The devices are replicas, so XLA's partitioner has nothing to do and nothing to lose."""
    x = mj.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh_of("8"), P("a")))
    text = mj.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: c + lax.erf(x).sum(), 0.0)).lower(x).as_text("stablehlo")
    assert "num_replicas = 8" in text and "sharding" not in text


def test_a_checkpoint_of_a_loop_of_no_iterations_has_a_gradient() -> None:
    def loss(x: Any) -> Any:
        inner = mj.checkpoint(lambda q: mnp.sin(lax.fori_loop(0, 0, lambda i, c: x * 2, q)).sum())
        return mj.grad(inner)(x)

    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(np.asarray(mj.jit(loss)(x)), np.cos(x), rtol=1e-6)


def test_two_transposes_beside_a_branch() -> None:
    """XLA makes a reshape of them where an extent is 1, and that was no longer manual."""
    mesh = mesh_of("2x2x2")
    x, y = np.arange(3, dtype=np.float32).reshape(1, 3), np.arange(12, dtype=np.float32).reshape(4, 3)

    def fun(i: Any, x: Any, y: Any) -> Any:
        outer = mnp.einsum("ij,kj->ikj", x, y)
        weights = outer.sum(axis=1)
        branches = [lambda a: a * 2, lambda a: a + weights.sum(), lambda a: a + mnp.max(outer)]
        return lax.switch(i, branches, outer.T)

    outer = np.einsum("ij,kj->ikj", x, y)
    for i, want in enumerate((outer.T * 2, outer.T + outer.sum(), outer.T + outer.max())):
        placed = [mj.device_put(v, NamedSharding(mesh, spec)) for v, spec in ((x, P()), (y, P("b")))]
        np.testing.assert_array_equal(np.asarray(mj.jit(fun)(np.int32(i), *placed)), want)


def test_beam_search_in_a_scan() -> None:
    """Candidates of every step are kept by a branch that closes over what top_k and a switch gave."""
    mesh = mesh_of("4x2")
    scores = mj.device_put(np.random.default_rng(0).normal(size=(6, 8, 4)).astype(np.float32), NamedSharding(mesh, P(None, "a")))

    def step(carry: Any, scores: Any) -> Any:
        best, places = lax.top_k(carry + scores, 2)
        weights = mnp.einsum("ij,kj->ki", best, best).T
        chosen = lax.switch(places[0, 0], [lambda b: b + weights.sum(), lambda b: b * 2, lambda b: b - best], best)
        return mnp.concatenate([chosen, best], axis=1), places

    def search(scores: Any) -> Any:
        return lax.scan(step, mnp.zeros((8, 4)), scores)

    for got, want in zip(mj.tree.leaves(mj.jit(search)(scores)), mj.tree.leaves(mj.jit(search)(np.asarray(scores))), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5)


# -- pads that cut off elements of few bits, which end the process of XLA's compiler for GPUs


@pytest.mark.parametrize("dtype", ["int2", "int4", "uint2", "uint4"])
def test_pads_of_few_bits_are_written_in_bytes(dtype: str) -> None:
    def cut(x: Any) -> Any:
        return lax.pad(x, mnp.ones((), x.dtype), [(-1, 2, 1), (1, -1, 0)])

    x = np.arange(12).reshape(4, 3).astype(getattr(mnp, dtype)) % 2
    lowered = mj.jit(cut).lower(x)
    pads = [line for line in lowered.as_text().splitlines() if "stablehlo.pad" in line]
    assert pads and all("i8>" in line and dtype.replace("int", "i") + ">" not in line for line in pads)
    want = np.ones((8, 3), np.int8)
    want[1:6:2, 1:] = x.astype(np.int8)[1:, :2]
    np.testing.assert_array_equal(np.asarray(lowered.compile()(x)).astype(np.int8), want)
