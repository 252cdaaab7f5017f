"""Borders of sharded arrays, as codes with stencils fill them in every iteration: a few rows read whole, mirrors, ghosts. What is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import PartitionSpec as P
from sharding.mesh import AbstractMesh
from tests.tools.laws import check_law
from tests.tools.wire import moved, traced

ITERATIONS, COLUMNS = 12, 16
ROW = 4 * COLUMNS
devices_and_extents = pytest.mark.parametrize(("devices", "extent"), [(4, 64), (4, 61), (8, 64), (8, 61)])


def sent(step: Callable[[Any], Any], devices: int, extent: int) -> list[tuple[int, str, float]]:
    """Count, kind and bytes of each collective, for one iteration of a loop."""

    def loop(u: Any) -> Any:
        return lax.fori_loop(0, ITERATIONS, lambda i, v: step(v), u)

    lines = moved(loop, {f"f32[{extent}, {COLUMNS}]": P("x")}, [P("x")], AbstractMesh((devices,), ("x",)))
    parts = [line.replace("(", " ").split() for line in lines]
    return [(int(count), kind, int(nbytes) / ITERATIONS) for count, kind, *_, nbytes in parts]


# -- a few rows that are wanted whole

READERS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "reversed": (1, lambda u: u + u[:3][::-1].sum(0)),
    "cumulated": (1, lambda u: u + mnp.cumsum(u[7:10], 0)[1]),
    "sorted": (3, lambda u: u + mnp.sort(u[-3:], 0)[0]),
    "every second": (3, lambda u: u + mnp.sort(u[1:6:2], 0)[0]),
    "multiplied": (3, lambda u: u + (u[:3].T @ u[:3])[0]),
    "written elsewhere": (2, lambda u: 0.5 * u.at[:2].set(u[20:22][::-1])),
}


@devices_and_extents
@pytest.mark.parametrize("reader", READERS)
def test_a_few_rows_that_are_wanted_whole_are_one_sum(reader: str, devices: int, extent: int) -> None:
    """Each device got a row, by a permute per row, and then all were gathered."""
    rows, step = READERS[reader]
    assert sent(step, devices, extent) == [(ITERATIONS, "all_reduce", 2 * (devices - 1) / devices * rows * ROW)]


def test_many_rows_are_spread_as_before() -> None:
    """A part of an array stays sharded, and so does what is computed of it."""
    lines = moved(lambda u: mnp.tanh(u[:32]) * 2, {"f32[128, 16]": P("x")}, [P("x")], AbstractMesh((4,), ("x",)))
    assert "all_reduce" not in str(lines) and "all_gather" not in str(lines)


def test_a_few_flags_are_put_together_by_or() -> None:
    (line,) = moved(lambda u: mnp.sort(u[3:6], 0), {"bool[64, 16]": P("x")}, [P()], AbstractMesh((8,), ("x",)))
    assert line.startswith("1 all_reduce")


# -- mirrors


def mirrored(mode: str, width: int, dims: int) -> Callable[[Any], Any]:
    """A stencil over an array that is continued by its mirror, along rows or rows and columns."""

    def step(u: Any) -> Any:
        sides = ((width, width), (width, width) if dims == 2 else (0, 0))
        p = mnp.pad(u, sides, mode=mode)
        across = slice(width, -width) if dims == 2 else slice(None)
        total = p[2 * width :, across] + p[: -2 * width, across] - u
        return total + p[width:-width, 2 * width :] if dims == 2 else total

    return step


@devices_and_extents
@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("mode", ["reflect", "symmetric"])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_mirror_is_made_where_the_border_lies(mode: str, width: int, dims: int, devices: int, extent: int) -> None:
    """One permute per side at most, of no more than the border; fewer where several iterations exchange at once."""
    collectives = sent(mirrored(mode, width, dims), devices, extent)
    assert {kind for _, kind, _ in collectives} == {"collective_permute"}
    assert sum(count for count, _, _ in collectives) <= 2 * ITERATIONS
    assert sum(nbytes for _, _, nbytes in collectives) == 2 * width * ROW


@devices_and_extents
def test_mirrors_in_loops_within_loops(devices: int, extent: int) -> None:
    def sweeps(u: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, v: mirrored("reflect", 2, 2)(v) * 0.5, u) / mnp.max(u)

    (permutes, kind, _), (sums, kind_of_sums, _) = sent(sweeps, devices, extent)
    assert (kind, kind_of_sums, sums) == ("collective_permute", "all_reduce", ITERATIONS)
    assert permutes <= 2 * 3 * ITERATIONS


# -- ghosts: borders that are set to other places of the array


def heat(v: Any, width: int = 1) -> Any:
    inner = slice(width, -width)
    return v.at[inner].set(0.25 * (v[2 * width :] + v[: -2 * width]) + 0.5 * v[inner])


def periodic(v: Any, width: int) -> Any:
    return v.at[:width].set(v[-2 * width : -width]).at[-width:].set(v[width : 2 * width])


def walls(v: Any) -> Any:
    return v.at[0].set(v[1]).at[-1].set(v[-2])


@devices_and_extents
@pytest.mark.parametrize("width", [1, 2])
def test_ghosts_of_a_period_are_one_permute_per_side(width: int, devices: int, extent: int) -> None:
    """What the border needs went to all devices by a sum. Both sides are one permute where they are sent at the same time."""
    collectives = sent(lambda v: heat(periodic(v, width), width), devices, extent)
    assert {kind for _, kind, _ in collectives} == {"collective_permute"}
    assert sum(count for count, _, _ in collectives) == 3 * ITERATIONS
    assert sum(nbytes for _, _, nbytes in collectives) == 3 * width * ROW


@devices_and_extents
def test_ghosts_that_are_set_one_after_the_other(devices: int, extent: int) -> None:
    def step(v: Any) -> Any:
        v = heat(v)
        v = v.at[0].set(v[-2])
        return v.at[-1].set(v[1])

    collectives = sent(step, devices, extent)
    assert {kind for _, kind, _ in collectives} == {"collective_permute"}
    assert sum(nbytes for _, _, nbytes in collectives) <= 4 * ROW


def test_ghosts_of_columns() -> None:
    def step(v: Any) -> Any:
        return periodic(heat(v).T, 1).T

    def loop(u: Any) -> Any:
        return lax.fori_loop(0, ITERATIONS, lambda i, v: step(v), u)

    for extent in (64, 61):
        lines = moved(loop, {f"f32[32, {extent}]": P(None, "x")}, [P(None, "x")], AbstractMesh((8,), ("x",)))
        (sides,) = lines
        assert sides.startswith(f"{ITERATIONS} collective_permute"), lines


@devices_and_extents
def test_what_is_set_to_its_neighbours_is_sent_to_nobody(devices: int, extent: int) -> None:
    def mirrors(v: Any) -> Any:
        return v.at[:2].set(v[2:4][::-1]).at[-2:].set(v[-4:-2][::-1])

    assert sent(walls, devices, extent) == []
    assert sent(lambda v: heat(mirrors(v), 2), devices, extent) == [(2 * ITERATIONS, "collective_permute", 4 * ROW)]
    collectives = sent(lambda v: heat(walls(v)), devices, extent)
    assert {kind for _, kind, _ in collectives} == {"collective_permute"}
    assert sum(count for count, _, _ in collectives) < ITERATIONS  # several iterations at once


def test_what_is_put_at_a_border_otherwise_stays_as_it_is() -> None:
    """Constants, arguments, and places that are computed."""

    def step(v: Any, row: Any, place: Any) -> Any:
        return v.at[0].set(1.0).at[-1].set(row).at[place].set(2.0)

    assert moved(step, {"f32[64, 16]": P("x"), "f32[16]": P(), "i32[]": P()}, [P("x")], AbstractMesh((8,), ("x",))) == []


def test_derivatives_of_ghosts() -> None:
    program = traced(lambda x, ct: mj.vjp(lambda x: periodic(x, 2), x)[1](ct)[0], ["f32[32, 4]", "f32[32, 4]"])
    generator = np.random.default_rng(0)
    arrays = [generator.integers(0, 9, (32, 4)).astype(np.float32) for _ in range(2)]
    check_law(program, AbstractMesh((4,), ("x",)), [P("x"), P("x")], [P("x")], arrays)
