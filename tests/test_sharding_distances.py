"""Shortest ways between all placements at once, against the walk of each pair."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest

from meshjit.targets import target_of
from sharding.distances import Distances
from sharding.mesh import AbstractDevice, AbstractMesh
from sharding.placement import Placement
from sharding.reshard import plan_reshard

EQUAL = 1 + 1e-9
CHIP, GPU = AbstractDevice("TPU v5p", None, "tpu"), AbstractDevice("NVIDIA H100", None, "gpu")
MESHES = [
    AbstractMesh((2, 2), ("x", "y")),
    AbstractMesh((4, 2), ("x", "y")),
    AbstractMesh((3, 1, 2), ("x", "one", "y")),
    AbstractMesh((8, 8, 8), ("x", "y", "z"), abstract_device=CHIP),
    AbstractMesh((2, 2, 8), ("x", "y", "z"), abstract_device=GPU),  # the last axis is quicker than the others
]


def placements(shape: Sequence[int], mesh: AbstractMesh) -> list[Placement]:
    """Over whole axes, in any order, where every device gets an element; with sums over some of the other axes."""
    names = [name for name, size in mesh.shape.items() if size > 1]
    every = list[Placement]()
    for rooms in itertools.product(range(-2, len(shape)), repeat=len(names)):
        held = [[name for name, room in zip(names, rooms, strict=True) if room == d] for d in range(len(shape))]
        partial = tuple([(name, "sum") for name, room in zip(names, rooms, strict=True) if room == -1])
        if all(mesh.axes_size(axes) <= extent for axes, extent in zip(held, shape, strict=True)):
            every += [Placement(dims, partial) for dims in itertools.product(*map(itertools.permutations, held))]
    return every


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("times", [(8, 4), (4,), (1, 1, 4), (2, 0, 1), (0, 0)], ids=str)
def test_no_walk_takes_less(mesh: AbstractMesh, times: tuple[int, ...]) -> None:
    """Where all shards are even, it takes as much. 0: an extent that they are not even along."""
    devices, topology = mesh.device_count, target_of(mesh).topology
    shape = tuple([n * devices if n else devices // 2 + 3 for n in times])
    homes = placements(shape, mesh)
    others = [p for p in homes if not p.partial]
    distances = Distances(mesh, topology)
    table = distances.seconds(shape, 4.0, homes, others)
    assert table is not None and table.shape == (len(homes), len(others))
    pairs = list(itertools.product(range(len(homes)), range(len(others))))
    for i, j in random.Random(0).sample(pairs, min(len(pairs), 60)):
        seconds = plan_reshard(shape, 4.0, homes[i], others[j], mesh, topology).seconds
        assert table[i, j] <= seconds * EQUAL
        if distances.is_even(shape):
            assert table[i, j] == pytest.approx(seconds)


@pytest.mark.parametrize("shape", [(8, 8), (3, 8), (8,)], ids=str)
def test_no_walk_takes_less_where_more_devices_start_later(shape: tuple[int, ...]) -> None:
    """Permutations over fewer axes are cheaper then, whichever axes these are."""
    mesh = AbstractMesh((2, 2, 2), ("x", "y", "z"))
    topology = dataclasses.replace(target_of(mesh).topology, latency=dict.fromkeys("xyz", 1e-6), latency_growth=1e-6)
    places = placements(shape, mesh)
    whole = [p for p in places if not p.partial]
    least = Distances(mesh, topology).seconds(shape, 4, places, whole)
    for i, source in enumerate(places):
        for j, target in enumerate(whole):
            assert least[i, j] <= plan_reshard(shape, 4, source, target, mesh, topology).seconds * EQUAL, (source, target)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("times", [(8, 4), (1, 0), (0, 1, 2)], ids=str)
def test_kinds_of_placements_are_as_near_as_the_nearest_of_them(mesh: AbstractMesh, times: tuple[int, ...]) -> None:
    """Kinds by how many devices share the dims, whichever these are."""
    devices, topology = mesh.device_count, target_of(mesh).topology
    shape = tuple([n * devices if n else devices // 2 + 3 for n in times])

    def shared(placement: Placement) -> tuple[object, ...]:
        return *sorted(mesh.axes_size(axes) for axes in placement.dims), bool(placement.partial)

    distances = Distances(mesh, topology)
    single, kinds = distances.every(shape, 4.0), distances.least(shape, 4.0, shared)
    if single is None:
        assert kinds is None
        return
    assert kinds is not None
    (ends, table), (numbers, least) = single, kinds
    members = {kind: [n for p, n in ends.items() if shared(p) == kind] for kind in numbers}
    assert len(least) == len(numbers) < len(table)
    for a, b in itertools.product(numbers, numbers):
        assert least[numbers[a], numbers[b]] == pytest.approx(table[np.ix_(members[a], members[b])].min())


def test_dims_of_one_element_are_nothing() -> None:
    mesh = MESHES[0]
    distances = Distances(mesh, target_of(mesh).topology)
    short = [Placement((("x",), ("y",))), Placement(((), ()))]
    long = [Placement((p.dims[0], (), p.dims[1])) for p in short]
    assert (distances.seconds((8, 1, 8), 4.0, long, long) == distances.seconds((8, 8), 4.0, short, short)).all()
    spread = [Placement(((), ("x",), ()))]
    assert np.isnan(distances.seconds((8, 1, 8), 4.0, spread, long)).all()


@pytest.mark.parametrize("shape", [(0, 8), (8, 0, 8), (0,), (0, 5), (7, 3, 0)], ids=str)
def test_walks_of_nothing_take_what_it_takes_to_start(shape: tuple[int, ...]) -> None:
    """An empty value's bound was that of the value without its empty dims, which has bytes; of uneven dims besides it was infinite."""
    for mesh in MESHES[:2]:
        topology = target_of(mesh).topology
        homes = placements([8 for _ in shape], mesh)
        others = [p for p in homes if not p.partial]
        table = Distances(mesh, topology).seconds(shape, 4.0, homes, others)
        assert table is not None
        for (i, home), (j, other) in itertools.product(enumerate(homes), enumerate(others)):
            assert table[i, j] <= plan_reshard(shape, 4.0, home, other, mesh, topology).seconds * EQUAL, (home, other)


def test_too_many_states_are_not_gone_through() -> None:
    mesh = AbstractMesh((8, 4), ("x", "y"))
    there = [Placement(((), ()))]
    assert Distances(mesh, target_of(mesh).topology).seconds((32, 64), 4.0, there, there) is None
