"""Arrays between shardings of any devices, in one process and across several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from tests.tools.processes import needs_mpi, side_by_side, under_mpirun

pytestmark = pytest.mark.device


def on(spec: P, sizes: tuple[int, ...], order: Any = slice(None), names: str = "xyz") -> NamedSharding:
    devices = np.array(mj.devices()[:8])[order][: int(np.prod(sizes))].reshape(sizes)
    return NamedSharding(Mesh(devices, tuple(names[: len(sizes)])), spec)


def floats(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


BACK = slice(None, None, -1)
PLACES = {
    "x": on(P("x"), (8,)),
    "x backwards": on(P("x"), (8,), BACK),
    "columns backwards": on(P(None, "x"), (8,), BACK),
    "shuffled": on(P("y", "x"), (4, 2), [3, 1, 2, 0, 4, 7, 6, 5]),
    "two axes": on(P(("y", "x")), (2, 4)),
    "other names": on(P("b"), (4, 2), names="ab"),
    "half": on(P("x"), (4,)),
    "other half": on(P("x"), (4,), BACK),
    "three": on(P("x"), (3,)),
    "whole": on(P(), (8,)),
    "2 by 3": on(P("x", "y"), (2, 3)),
    "3 by 2": on(P("x", "y"), (3, 2)),
    "device 5": SingleDeviceSharding(mj.devices()[5]),
    "device 0": SingleDeviceSharding(mj.devices()[0]),
    "mesh of one": on(P("x"), (1,)),
}


@pytest.mark.parametrize("target", PLACES)
@pytest.mark.parametrize("source", PLACES)
def test_any_sharding_to_any_other(source: str, target: str) -> None:
    for value in (floats(5, 3), floats(0, 4)):
        x = mj.device_put(value, PLACES[source])
        moved = mj.device_put(x, PLACES[target])
        np.testing.assert_array_equal(moved, value)
        assert moved.sharding == PLACES[target] and moved.committed and not x.is_deleted()
        for shard in moved.addressable_shards:
            np.testing.assert_array_equal(shard.data, value[shard.index])
    np.testing.assert_array_equal(moved + 1, value + 1)


def test_scalars_and_weak_types_move() -> None:
    x = mj.device_put(2.0, on(P(), (8,)))
    for place in PLACES.values():
        if isinstance(place, SingleDeviceSharding):
            moved = mj.device_put(x, place)
            assert moved.weak_type and float(moved) == 2


def test_shards_that_stay_are_shared() -> None:
    x = mj.device_put(floats(8), on(P("x"), (4,)))
    y = mj.device_put(x, on(P("x"), (4,), [1, 0, 2, 3]))
    assert y.memory is x.memory
    mj.device_put(x, on(P("x"), (4,), BACK), donate=True)
    assert x.is_deleted()


def test_equal_specs_of_different_meshes_are_not_the_same_place() -> None:
    value, source, target = floats(6, 6), PLACES["2 by 3"], PLACES["3 by 2"]
    x = mj.device_put(value, source)
    result = mj.jit(lambda x: x * 2, out_shardings=target)(x)
    np.testing.assert_array_equal(result, value * 2)
    assert result.sharding == target
    with target.mesh:
        np.testing.assert_array_equal(mj.device_put(x, P("x", "y")), value)


TWO_PROCESSES = r"""
    import re
    import meshjit as mj
    from meshjit.sharding import Mesh, NamedSharding, SingleDeviceSharding, PartitionSpec as P

    devices = np.array(mj.devices())
    value = np.arange(15, dtype=np.float32).reshape(5, 3)

    def on(spec, sizes, order=slice(None)):
        return NamedSharding(Mesh(devices[order].reshape(sizes), ("x", "y")[: len(sizes)]), spec)

    places = [on(P("x"), (4,)), on(P("x"), (4,), slice(None, None, -1)), on(P("y", "x"), (2, 2), [0, 2, 1, 3]), on(P(), (4,)),
              on(P(None, "x"), (4,), [2, 0, 3, 1]), on(P("x"), (2,), slice(0, None, 2)),
              on(P("x"), (3,), [3, 0, 1]), on(P(None, "x"), (2,), slice(2)), on(P(), (2,), slice(2, 4))]
    wrong = 0
    for i, source in enumerate(places):
        for j, target in enumerate(places):
            if min(i, j) < 6 and (i + j) % 3:  # a third of them, and all between the last, which leave devices out
                continue
            moved = mj.device_put(mj.device_put(value, source), target)
            wrong += moved.sharding != target or len(moved.addressable_shards) != len(target.addressable_devices)
            wrong += sum(not np.array_equal(s.data, value[s.index]) for s in moved.addressable_shards)
    x = mj.device_put(value, places[0])
    mine = mj.device_put(x, mj.local_devices()[1])
    wrong += not np.array_equal(mine, value)

    made = mj.make_array_from_callback((5, 3), places[2], lambda index: value[index])
    total = mj.jit(lambda a: a.sum())(made)
    rows = value[:3] if rank == 0 else value[3:]  # local shards of 2, 2, 1 and no rows: 4 and 1
    rows = value[:4] if rank == 0 else value[4:]
    local = mj.make_array_from_process_local_data(places[0], rows, (5, 3))
    whole = mj.make_array_from_process_local_data(places[0], value, (5, 3))
    even = mj.make_array_from_process_local_data(places[0], np.full((4, 2), rank, np.float32))
    pieces = [mj.device_put(value[index], d) for d, index in places[4].addressable_devices_indices_map((5, 3)).items()]
    shards = mj.make_array_from_single_device_arrays((5, 3), places[4], pieces)
    for array in (made, local, whole, shards):
        wrong += not np.array_equal(mj.device_put(array, places[3]), value)
    say(wrong, float(total), even.shape, mj.device_put(even, places[3]).numpy()[:, 0].tolist())
    say(mj.process_indices(), [d.process_index for d in mj.local_devices(1)], repr(x)[:40])
    there = mj.device_put(x, mj.local_devices(1)[0])  # nothing of it is on process 0
    say(repr(there)[:12], there.is_fully_addressable, len(there.addressable_shards))
    first = places[7]  # a mesh that has no device of process 1
    ones = mj.make_array_from_callback((5, 3), first, lambda index: value[index], np.float32)
    say(mj.jit(lambda a: a.sum() + a)(ones).is_fully_addressable)
    try:
        say(float(ones[4, 2]))
    except RuntimeError as error:
        say(str(error).partition(" spans ")[2].splitlines()[0])
    try:
        mj.device_put(x, mj.devices()[2 + rank])
    except RuntimeError as error:
        say(re.sub(r"\[\d+(, \d+)*\]", "[…]", ";".join(str(error).splitlines()[:3])))
"""
SAID = [
    "0 105.0 (8, 2) [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]",
    "[0, 1] [1, 1] Array(shape=(5, 3), dtype=float32, P(\"x\"",
]
MIXED = (
    "device_put: the processes move different arrays, device ids are;"
    "  process 0: f32[5,3] from […] to […];  process 1: f32[5,3] from […] to […]"
)
FIRST = ["Array(shape= False 0", "True", "14.0", MIXED]
SECOND = ["Array([[ 0., True 1", "False", "processes [0]; this one holds nothing of it", MIXED]


@needs_mpi
def test_across_processes_under_mpirun(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, TWO_PROCESSES)
    assert ended.code == 0, ended.error
    assert ended.said == [*SAID, *FIRST, *SAID, *SECOND]


def test_across_processes_started_by_hand(tmp_path: Path) -> None:
    first, second = side_by_side(tmp_path, TWO_PROCESSES)
    assert (first.code, second.code) == (0, 0), first.error + second.error
    assert (first.said, second.said) == ([*SAID, *FIRST], [*SAID, *SECOND])
