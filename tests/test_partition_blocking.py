"""Loops over stencils in blocks of iterations: fewer exchanges of wider borders, the very same numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import autodiff, lax
from meshjit.core.collective import collectives_in
from meshjit.core.types import TensorType
from meshjit.partition.partition import partition
from meshjit.plan.assign import Assigner
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft, first_draft
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import Mesh, NamedSharding
from meshjit.targets import target_of
from sharding.graph import Seed
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec as P, placement_of
from tests.tools.laws import check_law
from tests.tools.wire import check_function, traced

X4 = AbstractMesh((4,), ("x",))
X2 = AbstractMesh((2,), ("x",))
XY = AbstractMesh((2, 2), ("x", "y"))
ROWS = P("x")


def collectives(fun: Any, types: list[str], mesh: Any, inputs: Any, outputs: Any, target: Any = None) -> list[tuple[str, int]]:
    """Every collective with how often it runs."""
    plan = make_plan(traced(fun, types), mesh, Annotations(inputs, outputs), target)
    return [(each.kind, int(each.trips)) for each in collectives_in(partition(plan), mesh)]


def check(fun: Any, shapes: list[tuple[int, ...]], mesh: Any, inputs: Any, outputs: Any, starts: int, exact: bool = True) -> None:
    """The law, and how many collectives run."""
    generator = np.random.default_rng(11)
    arrays = [generator.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    types = [str(TensorType(a.shape, a.dtype)) for a in arrays]
    check_law(traced(fun, types), mesh, inputs, outputs, arrays, exact)
    assert sum(times for _, times in collectives(fun, types, mesh, inputs, outputs)) == starts


def steps(body: Callable[[Any], Any], length: int = 10) -> Callable[[Any], Any]:
    return lambda u: lax.fori_loop(0, length, lambda i, v: body(v), u)


def ring(u: Any) -> Any:
    return u + 0.125 * (mnp.roll(u, 1, 0) + mnp.roll(u, -1, 0) - 2 * u)


def interior(u: Any) -> Any:
    change = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
    return u.at[1:-1, 1:-1].set(u[1:-1, 1:-1] + 0.125 * change)


def zeros_around(u: Any) -> Any:
    p = mnp.pad(u, 1)
    return u + 0.125 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)


def ring_around(u: Any) -> Any:
    p = mnp.pad(u, 1, mode="wrap")
    return u + 0.125 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)


def insulated(u: Any) -> Any:
    u = u.at[1:-1].set(u[1:-1] + 0.125 * (u[2:] + u[:-2] - 2 * u[1:-1]))
    return u.at[0].set(u[1]).at[-1].set(2.0)


def upwind(u: Any) -> Any:
    return u - 0.25 * (u - mnp.roll(u, 2, 0))


def twice(u: Any) -> Any:
    flux = u[1:] - u[:-1]
    return u + 0.25 * (mnp.pad(flux, ((0, 1), (0, 0))) - mnp.pad(flux, ((1, 0), (0, 0))))


@pytest.mark.parametrize(
    "body, rows, blocked",
    [
        (ring, 64, 2), (ring, 32, 4), (ring, 30, None), (interior, 64, 2), (interior, 62, 2), (interior, 33, 4),
        (zeros_around, 64, 2), (zeros_around, 61, 2), (ring_around, 64, 2), (insulated, 64, 4), (insulated, 63, 4),
        (upwind, 96, 1), (twice, 64, 2), (twice, 50, 2),
    ],
)  # fmt: skip
def test_ten_steps_take_a_few_exchanges(body: Any, rows: int, blocked: int | None) -> None:
    check(steps(body), [(rows, 6)], X4, [ROWS], [ROWS], 20 if blocked is None else blocked)


@pytest.mark.parametrize("length, starts", [(1, 2), (2, 2), (7, 2), (9, 6), (11, 4), (16, 4), (17, 6)])
def test_iterations_that_are_left_are_a_block_of_their_own(length: int, starts: int) -> None:
    check(steps(zeros_around, length), [(32, 5)], X4, [ROWS], [ROWS], starts)


@pytest.mark.parametrize("rows, starts", [(8, 10), (4, 20), (5, 10), (3, 20)])
def test_borders_are_no_longer_than_shards(rows: int, starts: int) -> None:
    check(steps(zeros_around), [(rows, 5)], X4, [ROWS], [ROWS], starts)


def test_two_devices_pair_both_ways() -> None:
    check(steps(ring), [(32, 5)], X2, [ROWS], [ROWS], 1)  # to the other is both ways
    check(steps(interior), [(32, 5)], X2, [ROWS], [ROWS], 1)


@pytest.mark.parametrize("body", [interior, zeros_around, ring_around, insulated])
@pytest.mark.parametrize("shape", [(32, 32), (30, 34), (19, 31)])
def test_grids_that_are_cut_in_two_dims_exchange_corners_too(body: Any, shape: tuple[int, int]) -> None:
    spec = P("x", "y")
    fun = steps(body, 7)
    ordinary = 7 * 2
    arrays = [np.random.default_rng(2).integers(-4, 5, shape).astype(np.float32)]
    check_law(traced(fun, [f"f32[{shape[0]}, {shape[1]}]"]), XY, [spec], [spec], arrays)
    found = collectives(fun, [f"f32[{shape[0]}, {shape[1]}]"], XY, [spec], [spec])
    if body is not ring_around or shape == (32, 32):
        assert sum(times for _, times in found) <= ordinary // 2


def test_one_dim_over_both_axes() -> None:
    check(steps(ring), [(64, 5)], XY, [P(("x", "y"))], [P(("x", "y"))], 2)
    check(steps(interior), [(61, 5)], XY, [P(("y", "x"))], [P(("y", "x"))], 2)


def test_other_dims_may_be_cut_as_well() -> None:
    check(steps(ring), [(32, 6)], XY, [P("x", "y")], [P("x", "y")], 1)


def waves(state: Any) -> Any:
    now, before = state
    return 2 * now - before + 0.25 * (mnp.roll(now, 1, 0) + mnp.roll(now, -1, 0) - 2 * now), now


def test_several_carries_of_unlike_borders() -> None:
    def run(u: Any, v: Any) -> Any:
        return lax.fori_loop(0, 10, lambda i, state: waves(state), (u, v))

    check(run, [(64, 3), (64, 3)], X4, [ROWS, ROWS], [ROWS, ROWS], 2)


def test_one_value_for_two_carries() -> None:
    def run(u: Any, v: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            a, b = state
            new = a + mnp.roll(a, 1, 0) - mnp.roll(b, -1, 0)
            return new % 7, new % 7

        return lax.fori_loop(0, 5, step, (u, v))

    check(run, [(64, 3), (64, 3)], X4, [ROWS, ROWS], [ROWS, ROWS], 2)


@pytest.mark.parametrize("spec", [ROWS, P(None), P(None, "y")])
def test_coefficients_get_their_borders_before_the_loop(spec: P) -> None:
    def run(u: Any, c: Any, d: Any) -> Any:
        def step(i: Any, u: Any) -> Any:
            change = c[1:-1] * (u[2:] - u[1:-1]) - c[:-2] * (u[1:-1] - u[:-2])
            return u.at[1:-1].set(u[1:-1] + 0.125 * change) + d * i

        return lax.fori_loop(0, 10, step, u)

    mesh = AbstractMesh((4, 1), ("x", "y"))
    for rows in (64, 63):
        types = [f"f32[{rows}, 4]"] * 3
        generator = np.random.default_rng(0)
        arrays = [generator.integers(-2, 3, (rows, 4)).astype(np.float32) for _ in range(3)]
        check_law(traced(run, types), mesh, [ROWS, spec, ROWS], [ROWS], arrays)
        found = collectives(run, types, mesh, [ROWS, spec, ROWS], [ROWS])
        assert sum(times for _, times in found) <= 6


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [10, 11, 13])
@pytest.mark.parametrize("rows", [32, 30])
def test_slices_and_stacked_results(reverse: bool, length: int, rows: int) -> None:
    def run(u: Any, forces: Any, scales: Any) -> Any:
        def step(u: Any, x: Any) -> Any:
            force, scale = x
            u = zeros_around(u) + scale * (mnp.pad(force, ((1, 0), (0, 0)))[:-1])
            return u, (u[0, 1] * 0 + scale, 2 * u)

        return lax.scan(step, u, (forces, scales), reverse=reverse)

    def plain(u: Any, forces: Any, scales: Any) -> Any:
        def step(u: Any, x: Any) -> Any:
            force, scale = x
            u = zeros_around(u) + scale * (mnp.pad(force, ((1, 0), (0, 0)))[:-1])
            return u, (2 * u, scale)

        return lax.scan(step, u, (forces, scales), reverse=reverse)

    shapes: list[tuple[int, ...]] = [(rows, 4), (length, rows, 4), (length,)]
    generator = np.random.default_rng(11)
    arrays = [generator.integers(-2, 3, shape).astype(np.float32) for shape in shapes]
    types = [str(TensorType(a.shape, a.dtype)) for a in arrays]
    inputs, outputs = [ROWS, P(None, "x"), P()], [ROWS, P(None, "x"), P()]
    check_law(traced(plain, types), X4, inputs, outputs, arrays)
    found = collectives(plain, types, X4, inputs, outputs)
    assert sum(times for _, times in found) <= 8, found
    check_law(traced(run, types), X4, inputs, [ROWS, P(), P(None, "x")], arrays)  # a sum inside: as it was


def test_values_that_depend_on_the_place() -> None:
    table = np.arange(62, dtype=np.float32).reshape(31, 2) % 5

    def run(u: Any) -> Any:
        def step(i: Any, u: Any) -> Any:
            places = mnp.arange(31, dtype=mnp.float32)[:, None]
            shifted = mnp.concatenate([u[3:], u[:1] * 0, u[:2]])
            u = mnp.where(places % 2 == 0, u, shifted) + mnp.asarray(table)
            return mnp.where(mnp.cumsum(u, axis=1) > 3, u - i, u)

        return lax.fori_loop(0, 4, step, u)

    arrays = [np.random.default_rng(1).integers(-4, 5, (31, 2)).astype(np.float32)]
    check_law(traced(run, ["f32[31,2]"]), X4, [ROWS], [ROWS], arrays)
    check_law(traced(run, ["f32[31,2]"]), X2, [ROWS], [ROWS], arrays)


def test_contractions_of_other_dims() -> None:
    def run(u: Any, w: Any) -> Any:
        def step(i: Any, u: Any) -> Any:
            mixed = mnp.transpose(mnp.dot(u, w))
            return (mixed[:, 2:] - mixed[:, :-2]).T @ w * 0.25 + u[1:-1].sum(axis=1, keepdims=True)

        return lax.fori_loop(0, 6, lambda i, u: mnp.pad(step(i, u), ((1, 1), (0, 0))) % 7, u)

    check(run, [(32, 4), (4, 4)], X4, [ROWS, P()], [ROWS], 2)


def test_in_loops_and_backwards() -> None:
    def run(u: Any) -> Any:
        def outer(i: Any, u: Any) -> Any:
            return steps(interior, 4)(u) + mnp.sum(u) * 0.25

        return lax.fori_loop(0, 3, outer, u)

    check(run, [(32, 5)], X4, [ROWS], [ROWS], 9)

    def loss(u: Any) -> Any:
        return mnp.sum(steps(lambda u: ring(u) * ring(u), 6)(u) ** 2)

    arrays = [np.random.default_rng(1).uniform(-0.5, 0.5, (32, 3)).astype(np.float32)]
    check_law(traced(autodiff.grad(loss), ["f32[32,3]"]), X4, [ROWS], [ROWS], arrays, exact=False)
    found = collectives(autodiff.grad(loss), ["f32[32,3]"], X4, [ROWS], [ROWS])
    assert sum(times for _, times in found) <= 8, found


def test_sums_over_the_dim_and_large_grids_stay_as_they_are() -> None:
    check(steps(lambda u: ring(u) + mnp.sum(u) / 64), [(64, 4)], X4, [ROWS], [ROWS], 30, exact=False)
    found = collectives(steps(ring), ["f32[64,262144]"], X4, [ROWS], [ROWS])
    assert found == [("collective_permute", 10)] * 2
    found = collectives(steps(interior), ["f32[4096,65536]"], X4, [ROWS], [ROWS], target_of(X4, ("tpu",)))
    assert found == [("collective_permute", 10)] * 2


@pytest.mark.parametrize("width, starts", [(2000, 1), (5000, 1), (8000, 1), (20000, 8)])
def test_borders_of_any_size_are_sent_at_once_where_that_costs_less(width: int, starts: int) -> None:
    """8 devices take 2.0 ms in a block, and 2.6 without, for a width of 5,000; 6.9 and 5.5 for one of 20,000."""
    found = collectives(steps(lambda u: u + mnp.roll(u, 1, 0), 8), [f"f32[64, {width}]"], X4, [ROWS], [ROWS])
    assert found == [("collective_permute", starts)]


def test_updates_that_a_block_copies_count() -> None:
    """48 steps take 78 ms in blocks, and 35 without, on 8 devices; of a grid of a quarter of the side 7 and 13."""
    for size, starts in ((1024, 96), (256, 12)):
        found = collectives(steps(interior, 48), [f"f32[{size}, {size}]"], AbstractMesh((8,), ("x",)), [ROWS], [ROWS])
        assert sum(times for _, times in found) == starts


def test_what_borders_hold_has_to_fit() -> None:
    """A block of 8 holds half as much again: 16 rows of a device, and 8 of its neighbour."""
    plan = make_plan(traced(steps(lambda u: u + mnp.roll(u, 1, 0), 8), ["f32[64, 5000]"]), X4, Annotations([ROWS], [ROWS]))
    assert plan.equations[0].block == 8 and plan.cost is not None
    held = plan.cost.peak_bytes
    target = target_of(X4, ("cpu",))
    for memory, block in ((held, 8), (0.9 * held, 4), (0.7 * held, 0)):
        small = replace(target, topology=replace(target.topology, memory=memory))
        found = make_plan(plan.program, X4, Annotations([ROWS], [ROWS]), small)
        assert found.equations[0].block == block and found.cost is not None and found.cost.peak_bytes <= memory


def test_corners_are_sent_only_where_blocks_save_much_time() -> None:
    spec = P("x", "y")
    found = collectives(steps(ring_around), ["f32[512,512]"], XY, [spec], [spec])
    assert sum(times for _, times in found) == 10  # two iterations at once: 0.8 % more bytes for a fifth of the time
    found = collectives(steps(ring_around), ["f32[64,64]"], XY, [spec], [spec])
    assert sum(times for _, times in found) < 10


@pytest.mark.parametrize("body", [ring, interior, zeros_around, insulated, twice])
def test_on_xla_the_numbers_are_the_same(body: Any) -> None:
    mesh = Mesh(np.array(mj.devices()[:4]), ("x",))
    u = np.random.default_rng(4).normal(size=(64, 10)).astype(np.float32)
    got = mj.jit(steps(body, 13))(mj.device_put(u, NamedSharding(mesh, P("x"))))
    want = mj.jit(steps(body, 13))(u)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)


def random_body(generator: np.random.Generator, count: int, dims: int) -> Callable[..., list[Any]]:
    """Some moves, choices and sums of a few values: (fields, coefficients, slices) -> values of the same shape."""
    script = [(int(generator.integers(14)), *(int(n) for n in generator.integers(0, 97, 4))) for _ in range(7)]

    def body(i: Any, fields: list[Any], others: list[Any]) -> list[Any]:
        values = [*fields, *others]
        for kind, a, b, c, d in script:
            x, y, dim, amount = values[a % len(values)], values[b % len(values)], c % dims, d % 5 - 2
            n = x.shape[dim]
            inside = tuple(slice(1, -1) if k == dim else slice(None) for k in range(dims))
            if kind == 0:
                new = x + y
            elif kind == 1:
                new = mnp.where(x > y, x, -y)
            elif kind == 2:
                new = mnp.roll(x, amount, dim)
            elif kind == 3:
                new = mnp.pad(lax.slice_in_dim(x, 2, n, axis=dim), [(1, 1) if k == dim else (0, 0) for k in range(dims)])
            elif kind == 4:
                new = x.at[inside].set(y[inside] - 1)
            elif kind == 5:
                new = mnp.concatenate([lax.slice_in_dim(x, 1, n, axis=dim), lax.slice_in_dim(y, 0, 1, axis=dim)], axis=dim)
            elif kind == 6:
                new = mnp.where(lax.broadcasted_iota(mnp.int32, x.shape, dim) % 3 == 1, x, y * i)
            elif kind == 7:
                wide = mnp.pad(x, [(abs(amount), 1) if k == dim else (0, 0) for k in range(dims)], constant_values=3)
                new = lax.slice_in_dim(wide, 0, n, axis=dim) + lax.slice_in_dim(wide, 1, n + 1, axis=dim)
            elif kind == 8:
                edge = tuple((0 if amount < 0 else -1) if k == dim else slice(None) for k in range(dims))
                new = x.at[edge].set(4.0)
            elif kind == 9:
                new = mnp.cumsum(x, axis=dims - 1 - dim) if dims > 1 else x
            elif kind == 10:
                new = mnp.pad(lax.slice_in_dim(x, 0, n - 1, axis=dim) * lax.slice_in_dim(y, 1, n, axis=dim),
                              [(0, 1) if k == dim else (0, 0) for k in range(dims)])  # fmt: skip
            elif kind in (11, 12):
                window = tuple(3 - d % 2 if k == dim else 1 for k in range(dims))
                pads = [(2 - amount % 2, window[k] * 2 - 4 + amount % 2) if k == dim else (0, 0) for k in range(dims)]
                pads = [(low, high + 2 * (kind == 12)) if k == dim else (0, 0) for k, (low, high) in enumerate(pads)]
                holes = tuple(2 if k == dim else 1 for k in range(dims))
                new = lax.reduce_window(x, -np.inf, lax.max, window, (1,) * dims, pads, None, holes)
                new = lax.slice_in_dim(new, 0, n, axis=dim) if kind == 12 else new
                new = mnp.where(mnp.isinf(new), 0, new)
            else:
                new = 2 * x - y
            values.append(new % 9)
        return values[-count:]

    return body


def check_random(seed: int) -> str:
    """A random loop under random placements; says how often its collectives run."""
    generator = np.random.default_rng(seed)
    dims, count = int(generator.integers(1, 3)), int(generator.integers(1, 3))
    shape = tuple(int(n) for n in generator.choice([12, 16, 17, 23, 24, 32], dims))
    length, reverse = int(generator.integers(2, 14)), bool(generator.integers(2))
    body = random_body(generator, count + 1, dims)

    def run(fields: Any, coefficient: Any, forces: Any) -> Any:
        def step(carry: Any, force: Any) -> Any:
            i, fields = carry
            *fields, y = body(i, list(fields), [coefficient, force])
            return (i + 1, tuple(fields)), y

        return lax.scan(step, (0, tuple([fields] * count)), forces, reverse=reverse)

    mesh = [X4, X2, XY, AbstractMesh((2, 3), ("x", "y"))][int(generator.integers(4))]
    axes = [*mesh.axis_names, None]
    spec = [str(a) if (a := axes[int(generator.integers(len(axes)))]) else None for _ in range(dims)]
    if dims == 2 and spec[0] == spec[1]:
        spec[1] = None
    spec[0] = spec[0] or (None if "x" in spec else "x")
    whole = P(*spec)
    beside = whole if generator.integers(2) else P()
    arrays = [generator.integers(-3, 4, s).astype(np.float32) for s in (shape, shape, (length, *shape))]
    types = [str(TensorType(a.shape, a.dtype)) for a in arrays]
    outputs = [P(), *[whole] * count, P(None, *spec)]
    inputs = [whole, beside, P(None, *beside)]
    check_law(traced(run, types), mesh, inputs, outputs, arrays)
    plan = make_plan(traced(run, types), mesh, Annotations(inputs, outputs))
    return f"{sum(int(each.trips) for each in collectives_in(partition(plan), mesh))} in {length}"


@pytest.mark.parametrize("seed", range(8))
def test_random_loops(seed: int) -> None:
    check_random(seed)


def life(u: Any) -> Any:
    """Conway's game: neighbours counted by a convolution."""
    kernel = mnp.asarray([[1.0, 1, 1], [1, 0, 1], [1, 1, 1]])
    count = lax.conv(u[None, None], kernel[None, None], (1, 1), "SAME")[0, 0]
    return mnp.where((count == 3) | ((count == 2) & (u > 0)), 1.0, 0.0)


def eroded(u: Any) -> Any:
    lowest = lax.reduce_window(u, np.inf, lax.min, (3, 2), (1, 1), ((2, 0), (1, 0)))
    return lowest + 1


def dilated(u: Any) -> Any:
    wide = lax.reduce_window(u, -np.inf, lax.max, (2, 1), (1, 1), ((1, 2), (0, 0)), None, (3, 1))
    return u - 2 * wide % 5


@pytest.mark.parametrize("body", [life, eroded, dilated])
@pytest.mark.parametrize("rows", [64, 61])
def test_windows_that_slide_by_one(body: Any, rows: int) -> None:
    fun, spec = steps(lambda u: body(u) % 7), P("x", "y")
    arrays = [np.random.default_rng(7).integers(0, 2, (rows, 24)).astype(np.float32)]
    types = [f"f32[{rows}, 24]"]
    for mesh, specs in ((X4, [ROWS]), (XY, [spec]), (X2, [ROWS])):
        check_law(traced(fun, types), mesh, specs, specs, arrays)
    assert sum(times for _, times in collectives(fun, types, X4, [ROWS], [ROWS])) <= 6


def test_windows_in_a_ring_and_large_strides_stay_as_they_are() -> None:
    def mixed(u: Any) -> Any:
        return dilated(ring(u)) % 7

    arrays = [np.random.default_rng(7).integers(0, 5, (64, 6)).astype(np.float32)]
    check_law(traced(steps(mixed), ["f32[64, 6]"]), X4, [ROWS], [ROWS], arrays)
    assert sum(times for _, times in collectives(steps(mixed), ["f32[64, 6]"], X4, [ROWS], [ROWS])) >= 20


@pytest.mark.parametrize("shape", [(12, 5), (10, 3), (7, 6)], ids=str)
def test_a_body_that_merges_the_dim_is_left_alone(shape):
    """The dim is a run of elements before the reshape, and another one after it. Forwards, backwards, evenly or not."""

    def step(c, _):
        flat = mnp.reshape(c, (shape[0] * shape[1],))
        c = mnp.reshape(flat + mnp.roll(flat, 1) * 0.5, shape)
        return c + mnp.concatenate([c[1:], c[:1]]) * 0.25, None

    def loss(x):
        return mnp.sum(lax.scan(step, x, None, length=7)[0] ** 2)

    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for mesh in (AbstractMesh((4,), ("x",)), AbstractMesh((2, 3), ("x", "y"))):
        check_function(mj.grad(loss), [x], mesh, [P("x")], [P("x")], exact=False)


@pytest.mark.parametrize("mesh", [X2, X4], ids=["2", "4"])
def test_a_roll_by_half_of_a_ring_goes_one_way_in_all_iterations(mesh: AbstractMesh) -> None:
    """Both ways are as far. The first iteration of a block went the one, for borders were there already, and the next the other."""
    for rows in (4, 8, 12) if mesh is X4 else (2, 4, 6):
        arrays = [np.random.default_rng(3).integers(-4, 5, (rows, 3)).astype(np.float32)]
        for shift in range(-rows, rows + 1):
            body = steps(lambda u, shift=shift: u + 0.125 * (mnp.roll(u, shift, 0) - u), 6)
            check_law(traced(body, [f"f32[{rows}, 3]"]), mesh, [ROWS], [ROWS], arrays)


def test_no_blocks_where_the_loop_lies_elsewhere_by_then() -> None:
    """What is proposed after blocks of iterations may place the carry so that neighbours have no borders, or too few."""
    program = traced(lambda u: steps(ring, 8)(2 * u), ["f32[16, 16]"])
    annotations, machine = Annotations([None], [None]), Machine(X4, target_of(X4))
    draft = first_draft(program, annotations, Assigner(machine))
    carry, loop = draft.flat.numbers[program.outputs[0]], program.eqns[-1]

    def placed(draft: Draft, *entries: Any) -> Draft:
        return draft.with_seeds({carry: Seed(placement_of(P(*entries), 2))}, None)

    rows = placed(draft, "x").with_blocks({loop: 4}, None)
    assert rows.plan.equations[-1].block == 4
    assert placed(rows, None, "x").plan.equations[-1].block == 0
    assert placed(placed(rows, None, "x"), "x").plan.equations[-1].block == 4
    assert placed(draft, "x").with_blocks({loop: 5}, None).plan.equations[-1].block == 0
