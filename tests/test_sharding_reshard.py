"""Resharding: every walk, applied step by step to NumPy shards whose padding is NaN, ends with the right shards."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Iterator

import numpy as np
import pytest

from sharding import AbstractMesh, AxisRef, Placement, ShardingError, SubAxis, Topology, plan_reshard, search
from sharding.figures import DEVICES
from sharding.reshard import Walk, step_cost
from sharding.search import WalkSearch
from sharding.steps import AllGather, AllReduce, AllToAll, Permute, ReduceScatter, Slice, Step
from sharding.topology import topology_of

REDUCERS = {"sum": np.add.reduce, "max": np.maximum.reduce, "min": np.minimum.reduce, "prod": np.multiply.reduce}


# --- a small simulator, on the words of the steps' docstrings ---------------------------------------------------------


def pad(block: np.ndarray, dim: int, extent: int) -> np.ndarray:
    assert extent >= block.shape[dim]
    widths = [(0, extent - size if d == dim else 0) for d, size in enumerate(block.shape)]
    return np.pad(block, widths, constant_values=np.nan)


def take(block: np.ndarray, dim: int, start: int, count: int) -> np.ndarray:
    assert start + count <= block.shape[dim]
    return np.take(block, range(start, start + count), axis=dim)


def shards_of(value: np.ndarray, placement: Placement, mesh: AbstractMesh) -> list[np.ndarray]:
    """Every device's shard; of a partial value, addends that reduce to it."""
    local = placement.local_shape(value.shape, mesh)
    addends = addends_of(value, placement, mesh)
    addend = mesh.axes_index(placement.partial_axes)
    shards = []
    for device in range(mesh.device_count):
        block = addends[addend[device]]
        for dim, axes in enumerate(placement.dims):
            start = int(mesh.axes_index(axes)[device]) * local[dim]
            block = pad(block, dim, max(block.shape[dim], start + local[dim]))
            block = take(block, dim, start, local[dim])
        shards.append(block)
    return shards


def addends_of(value: np.ndarray, placement: Placement, mesh: AbstractMesh) -> list[np.ndarray]:
    count = mesh.axes_size(placement.partial_axes)
    if count == 1:
        return [value]
    draw = np.random.default_rng(0)
    others = [draw.integers(1, 9, value.shape).astype(float) for _ in range(count - 1)]
    if placement.partial_kind == "sum":
        return [value - sum(others), *others]
    assert placement.partial_kind == "max"
    return [value, *(value - other for other in others)][::-1]


def logical(shards: list[np.ndarray], shape: tuple[int, ...], placement: Placement, mesh: AbstractMesh) -> np.ndarray:
    """What the shards of a value that is not partial say; every device is asked, and padding never."""
    value = np.full(shape, np.nan)
    seen = np.zeros(shape, bool)
    for device, shard in enumerate(shards):
        assert shard.shape == placement.local_shape(shape, mesh)
        starts = [int(mesh.axes_index(axes)[device]) * n for axes, n in zip(placement.dims, shard.shape, strict=True)]
        where = tuple(slice(min(a, n), min(a + s, n)) for a, s, n in zip(starts, shard.shape, shape, strict=True))
        own = shard[tuple(slice(0, w.stop - w.start) for w in where)]
        assert not seen[where].any() or np.array_equal(value[where][seen[where]], own[seen[where]])
        value[where], seen[where] = own, True
    assert seen.all()
    return value


def apply(
    step: Step, shards: list[np.ndarray], shape: tuple[int, ...], after: Placement, mesh: AbstractMesh
) -> list[np.ndarray]:
    local = after.local_shape(shape, mesh)
    result = list(shards)
    if isinstance(step, Permute):
        for source, target in step.pairs(mesh):
            result[target] = shards[source]
        return result
    size, index = mesh.axes_size(step.axes), mesh.axes_index(step.axes)
    if isinstance(step, Slice):
        for device, block in enumerate(shards):
            padded = pad(block, step.dim, size * local[step.dim])
            result[device] = take(padded, step.dim, int(index[device]) * local[step.dim], local[step.dim])
        return result
    for group in mesh.replica_groups(step.axes).tolist():
        blocks = [shards[device] for device in group]
        for member, device in enumerate(group):
            if isinstance(step, AllGather):
                result[device] = take(np.concatenate(blocks, step.dim), step.dim, 0, local[step.dim])
            elif isinstance(step, AllToAll):
                extent = local[step.split_dim]
                parts = [pad(block, step.split_dim, size * extent) for block in blocks]
                mine = [take(part, step.split_dim, member * extent, extent) for part in parts]
                whole = np.concatenate(mine, step.concat_dim)
                result[device] = take(whole, step.concat_dim, 0, local[step.concat_dim])
            elif isinstance(step, AllReduce):
                result[device] = REDUCERS[step.kind](np.stack(blocks), axis=0)
            else:
                reduced = pad(REDUCERS[step.kind](np.stack(blocks), axis=0), step.dim, size * local[step.dim])
                result[device] = take(reduced, step.dim, member * local[step.dim], local[step.dim])
    return result


def simulate_walk(walk: Walk, value: np.ndarray, mesh: AbstractMesh) -> list[np.ndarray]:
    shards = shards_of(value, walk.placements[0], mesh)
    for step, before, after in zip(walk.steps, walk.placements, walk.placements[1:], strict=False):
        assert step.apply(before, mesh) == after, f"{step} on {before}"
        shards = apply(step, shards, value.shape, after, mesh)
    return shards


def check_walk(shape: tuple[int, ...], source: Placement, target: Placement, mesh: AbstractMesh) -> Walk:
    walk = plan_reshard(shape, 4, source, target, mesh)
    assert (walk.placements[0], walk.placements[-1]) == (source, target)
    value = np.arange(1.0, 1 + math.prod(shape)).reshape(shape)
    shards = simulate_walk(walk, value, mesh)
    if target.partial:
        shards = apply(AllReduce(target.partial_axes, "sum"), shards, shape, target.without_partial(), mesh)
    assert np.array_equal(logical(shards, shape, target.without_partial(), mesh), value), str(walk)
    return walk


def placements(axes: tuple[AxisRef, ...], rank: int) -> Iterator[Placement]:
    """Every way to put some of the axes on the dims."""
    for count in range(len(axes) + 1):
        for order in itertools.permutations(axes, count):
            for cuts in itertools.combinations_with_replacement(range(count + 1), rank - 1):
                bounds = (0, *cuts, count)
                yield Placement(tuple(order[a:b] for a, b in zip(bounds, bounds[1:], strict=False)))


def place(text: str) -> Placement:
    return Placement.parse(text)


# --- all pairs --------------------------------------------------------------------------------------------------------

MESHES = [((2, 2), "xy"), ((4, 2), "xy"), ((2, 3), "xy"), ((2, 2, 2), "xyz"), ((4, 2, 2), "xyz")]


@pytest.mark.parametrize("shape", [(16, 16), (10, 7), (5, 1), (0, 3), (16, 6, 8), (3, 10, 8)], ids=str)
@pytest.mark.parametrize("sizes, names", MESHES, ids=str)
def test_walks_end_with_the_right_shards(sizes: tuple[int, ...], names: str, shape: tuple[int, ...]) -> None:
    mesh = AbstractMesh(sizes, tuple(names))
    every = list(placements(tuple(names), len(shape)))
    pairs = list(itertools.product(every, every))
    for source, target in random.Random(str((sizes, shape))).sample(pairs, min(len(pairs), 20)):
        walk = check_walk(shape, source, target, mesh)
        if all(n % mesh.size == 0 for n in shape):
            ends = [math.prod(p.local_shape(shape, mesh)) * 4 for p in (source, target)]
            assert walk.peak_bytes == max(ends), str(walk)


@pytest.mark.parametrize("shape", [(8, 8), (10, 3), (1, 6), (5,)], ids=str)
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_partial_values(shape: tuple[int, ...], kind: str) -> None:
    mesh = AbstractMesh((4, 2, 2), ("x", "y", "z"))
    axes: tuple[AxisRef, ...] = ("x", "y", "z")
    draw = random.Random(str((shape, kind)))
    every = list(placements(axes, len(shape)))
    for _ in range(12):
        dims = draw.choice([p for p in every if len(p.axes()) < 3])
        axis = draw.choice([a for a in axes if a not in dims.axes()])
        source = Placement(dims.dims, ((axis, kind),))
        check_walk(shape, source, draw.choice(every), mesh)


def test_target_may_stay_partial() -> None:
    mesh = AbstractMesh((4, 2), ("x", "y"))
    walk = check_walk((8, 8), place("[-, -] partial sum(x, y)"), place("[y, -] partial sum(x)"), mesh)
    assert [str(step) for step in walk.steps] == ["reduce_scatter(0, y, sum)"]
    walk = check_walk((8, 8), place("[-, -] partial sum(x)"), place("[x:(1)2, -] partial sum(x:(2)2)"), mesh)
    assert [str(step) for step in walk.steps] == ["reduce_scatter(0, x:(1)2, sum)"]


def test_sub_axes_and_parts_that_fit_no_grid() -> None:
    mesh = AbstractMesh((6, 2), ("x", "y"))
    refs: list[tuple[AxisRef, ...]] = [("x",), (SubAxis("x", 1, 2),), (SubAxis("x", 1, 3),), (SubAxis("x", 2, 3), "y")]
    for source, target in itertools.product(refs, refs):
        check_walk((12, 7), Placement((source, ())), Placement(((), target)), mesh)
        check_walk((12, 7), Placement((source, ())), Placement((target, ())), mesh)


# --- named walks ------------------------------------------------------------------------------------------------------


def steps(shape: tuple[int, ...], source: str, target: str, **axes: int) -> list[str]:
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes))
    return [str(step) for step in check_walk(shape, place(source), place(target), mesh).steps]


@pytest.mark.parametrize("x, y", [(4, 2), (2, 4)])
def test_merging_two_sharded_dims_never_gathers(x: int, y: int) -> None:
    assert steps((8, 16, 8), "[y, -, x]", "[-, x*y, -]", x=x, y=y) == [
        "all_to_all(split 1, concat 2, x)",
        "all_to_all(split 1, concat 0, y)",
    ]


def test_named_walks() -> None:
    assert steps((8, 8), "[x, -]", "[x, -]", x=4) == []
    assert steps((8, 8), "[-, -]", "[y, x]", x=4, y=2) == ["slice(0, y)", "slice(1, x)"]
    assert steps((8, 8), "[x*y, -]", "[x, -]", x=4, y=2) == ["all_gather(0, y)"]
    assert steps((8, 8), "[x, -]", "[-, x]", x=4) == ["all_to_all(split 1, concat 0, x)"]
    assert steps((64, 64), "[x, y]", "[y, x]", x=2, y=2) == ["permute([x, y] -> [y, x])"]
    assert steps((8, 8), "[x, -] partial sum(y)", "[x, -]", x=4, y=2) == ["all_reduce(y, sum)"]
    assert steps((64, 64), "[x, y]", "[y, x]", x=4, y=2) == [
        "all_to_all(split 1, concat 0, x:(2)2)",
        "permute([x:(1)2, y*x:(2)2] -> [y, x])",
    ]


def test_uneven_boundaries_that_do_not_nest_are_not_crossed() -> None:
    """10 over 4 * 2 is 2 each, over 4 it is 3: the dim comes together first, and another takes the axes meanwhile."""
    assert steps((10, 8), "[x*y, -]", "[x, -]", x=4, y=2) == [
        "all_to_all(split 1, concat 0, x*y)",
        "all_gather(1, y)",
        "all_to_all(split 0, concat 1, x)",
    ]
    assert steps((10,), "[x*y]", "[x]", x=4, y=2) == ["all_gather(0, x*y)", "slice(0, x)"]
    assert steps((16,), "[x*y]", "[x]", x=4, y=2) == ["all_gather(0, y)"]


def test_axes_of_size_one_are_ignored() -> None:
    mesh = AbstractMesh((1, 4), ("x", "y"))
    assert plan_reshard((8,), 4, place("[x*y]"), place("[y]"), mesh).steps == ()
    assert plan_reshard((8,), 4, place("[-] partial sum(x)"), place("[x]"), mesh).steps == ()


def test_a_slow_axis_is_used_after_slicing_over_a_fast_one() -> None:
    mesh = AbstractMesh((2, 8), ("dcn", "ici"))
    topology = topology_of(DEVICES["v5e"], mesh, ("dcn",))
    walk = plan_reshard((4096, 4096), 4, place("[-, -] partial sum(dcn)"), place("[-, -]"), mesh, topology)
    assert [step.collective for step in walk.steps] == [None, "all_reduce", "all_gather"]


def test_errors() -> None:
    mesh = AbstractMesh((4, 2), ("x", "y"))
    with pytest.raises(ShardingError, match="the value is not partial sum over x, and cannot become so"):
        plan_reshard((8,), 4, place("[-]"), place("[-] partial sum(x)"), mesh)
    with pytest.raises(ShardingError, match="has 1 dims, the shape .* has 2"):
        plan_reshard((8, 8), 4, place("[-]"), place("[-]"), mesh)
    with pytest.raises(ShardingError, match="y is not among the minor-most of the axes y\\*x"):
        AllGather(0, ("y",)).apply(place("[y*x]"))
    with pytest.raises(ShardingError, match="not partial sum over x"):
        ReduceScatter(0, ("x",), "sum").apply(place("[-]"))


def test_walk_prints_and_prices() -> None:
    mesh = AbstractMesh((4, 2), ("x", "y"))
    walk = plan_reshard((8, 8), 4, place("[x, -]"), place("[-, y]"), mesh)
    assert str(walk) == ("[x, -]\n  slice(1, y)  ->  [x, y]\n  all_gather(0, x)  ->  [-, y]")
    assert walk.bytes == 3 * 32.0
    topology = Topology.cpu(mesh)
    costs = [step_cost(s, p, (8, 8), 4, mesh, topology) for s, p in zip(walk.steps, walk.placements, strict=False)]
    assert walk.seconds == sum(seconds for seconds, _ in costs)


def test_small_sums_take_no_detour_over_free_axes_on_tpus() -> None:
    """The compiler puts off work for the gather at the end of one: it has to gain more than estimates are off."""
    mesh = AbstractMesh((4, 4), ("data", "model"))
    tpu = topology_of(DEVICES["v5e"], mesh)
    free = dataclasses.replace(tpu, detour=0.0)
    partial, whole, sharded = Placement(((), ()), (("data", "sum"),)), Placement(((), ())), Placement((("model",), ()))

    def kinds(shape: tuple[int, int], target: Placement, topology: Topology) -> list[type[Step]]:
        return [type(step) for step in plan_reshard(shape, 2, partial, target, mesh, topology).steps]

    assert kinds((768, 768), whole, tpu) == [AllReduce]
    assert kinds((768, 768), whole, free) == [Slice, ReduceScatter, AllGather]
    assert kinds((8192, 8192), whole, tpu) == [Slice, ReduceScatter, AllGather]
    assert kinds((768, 768), sharded, tpu) == kinds((768, 768), sharded, free) == [Slice, AllReduce]


# --- large spaces -----------------------------------------------------------------------------------------------------

LARGE_SPACES = [
    ((32, 128, 4096), 2, "[model, -, data]", "[-, -, model]", {"data": 512, "model": 8}, "cpu"),
    ((2048, 2048, 4096), 2, "[-, -, data] partial sum(model)", "[data, -, -]", {"data": 512, "model": 8}, "cpu"),
    ((128256, 4096), 4, "[-, model] partial sum(data)", "[model, data]", {"data": 512, "model": 8}, "cpu"),
    ((48, 32, 14336), 4, "[-, -, x] partial sum(w, z)", "[-, y, w]", {"x": 4, "y": 2, "z": 2, "w": 2}, "h100"),
    ((14336, 32, 130), 1, "[-, y, -]", "[x*y, -, -]", {"x": 6, "y": 4}, "cpu"),
    ((128, 48, 2048), 4, "[-, w, -] partial sum(x, y, z)", "[-, y, -]", {"x": 4, "y": 2, "z": 2, "w": 2}, "b200"),
]


@pytest.mark.parametrize("shape, itemsize, source, target, mesh, device", LARGE_SPACES)
def test_long_searches_find_the_same_walks_as_without_a_close_bound(
    shape: tuple[int, ...], itemsize: float, source: str, target: str, mesh: dict[str, int], device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    axes = AbstractMesh(tuple(mesh.values()), tuple(mesh))
    here, there = Placement.parse(source), Placement.parse(target)
    ends = shape, itemsize, here, there, axes, topology_of(DEVICES[device], axes)
    bounded = WalkSearch(*ends)
    walk = bounded.walk()
    monkeypatch.setattr(search, "LARGE", math.inf)
    assert WalkSearch(*ends).walk() == walk
    assert bounded.outlines is not None
    seconds = [bounded.seen[state].seconds for state in (bounded.source, bounded.target)]
    assert seconds[0] == 0.0 and bounded.outlines.seconds(bounded._outline(bounded.source)) <= seconds[1]


def test_the_pairs_of_a_permute_are_made_and_hashed_once() -> None:
    step, mesh = Permute(Placement.parse("[x, y]"), Placement.parse("[y, x]")), AbstractMesh((2, 2), ("x", "y"))
    pairs = step.pairs(mesh)
    assert pairs == ((0, 0), (2, 1), (1, 2), (3, 3)) and hash(pairs) == hash(tuple(pairs))
    assert step.pairs(AbstractMesh((2, 2), ("x", "y"))) is pairs
