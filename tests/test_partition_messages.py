"""Values that move between meshes of different devices: the messages, applied by the simulator, and that nothing is sent twice."""

from __future__ import annotations

import random

import numpy as np
import pytest

from meshjit.core.simulate import simulate
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.partition.messages import program_of_rounds
from sharding.mesh import Mesh
from sharding.messages import Box, plan_rounds, receivers
from sharding.placement import shard_bounds

DEVICES = 6
PROCESS = [0, 0, 1, 1, 2, 2]


def drawn_boxes(shape: tuple[int, ...], random: random.Random) -> tuple[dict[int, Box], tuple[int, ...]]:
    """Some of the devices in some order, over the dims as a mesh of two axes spreads them: (who has what, the local shape)."""
    sizes = random.choice([(1, 1), (2, 1), (3, 1), (5, 1), (6, 1), (2, 2), (2, 3), (3, 2)])
    positions = random.sample(range(DEVICES), sizes[0] * sizes[1])
    cuts = [1] * len(shape)
    coordinates: list[list[int]] = [[0] * len(shape) for _ in positions]
    for axis, size in enumerate(sizes):
        dim = random.choice([None, *range(len(shape))])
        if dim is not None and cuts[dim] == 1:
            cuts[dim] = size
            for i in range(len(positions)):
                coordinates[i][dim] = i // sizes[1] if axis == 0 else i % sizes[1]
    boxes = {
        p: tuple(shard_bounds(n, cut, at) for n, cut, at in zip(shape, cuts, coordinates[i], strict=True))
        for i, p in enumerate(positions)
    }
    return boxes, tuple(-(-n // cut) for n, cut in zip(shape, cuts, strict=True))


def block(value: np.ndarray, box: Box, local: tuple[int, ...]) -> np.ndarray:
    """A shard; its padding is NaN, so that whoever sends it is found out."""
    shard = np.full(local, np.nan, value.dtype)
    part = value[tuple(slice(*bounds) for bounds in box)]
    shard[tuple(slice(n) for n in part.shape)] = part
    return shard


@pytest.mark.parametrize("seed", range(60))
def test_every_device_gets_its_shard(seed: int) -> None:
    draw = random.Random(seed)
    shape = tuple(draw.choice([0, 1, 2, 5, 6, 9]) for _ in range(draw.choice([0, 1, 2, 3])))
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1
    source, from_local = drawn_boxes(shape, draw)
    target, to_local = drawn_boxes(shape, draw)
    first = receivers(target, source, PROCESS)
    rounds = plan_rounds(source, {p: target[p] for p in sorted(set(first.values()))}, PROCESS)
    types = [TensorType(local, np.dtype(np.float32)) for local in (from_local, to_local)]
    program = verify(program_of_rounds("move", rounds, *types, ("x",), DEVICES), "move")
    nothing = np.full(from_local, np.nan, np.float32)
    shards = [block(value, source[p], from_local) if p in source else nothing for p in range(DEVICES)]
    (made,) = simulate(program, Mesh(np.arange(DEVICES), ("x",)), [shards])
    for p, box in target.items():
        part = made[first[p]][tuple(slice(b - a) for a, b in box)]
        np.testing.assert_array_equal(part, value[tuple(slice(*bounds) for bounds in box)])

    sent = sum(np.prod(m.shape) for turn in rounds for m in turn.messages if m.sender != m.receiver)
    needed = {(PROCESS[p], box): np.prod([b - a for a, b in box]) for p, box in target.items()}
    assert sent <= sum(needed.values())  # no process gets anything twice
    for turn in rounds:
        assert len({a for a, _ in turn.pairs}) == len({b for _, b in turn.pairs}) == len(turn.pairs)


def test_what_is_there_stays_and_copies_come_from_the_same_process() -> None:
    source = {0: ((0, 4),), 1: ((4, 8),), 2: ((0, 4),), 3: ((4, 8),)}
    target = {2: ((0, 4),), 3: ((0, 8),)}
    pairs = sorted(pair for turn in plan_rounds(source, target, PROCESS) for pair in turn.pairs)
    assert pairs == [(2, 2), (2, 3), (3, 3)]


def test_a_line_of_devices_moves_in_one_round() -> None:
    source = {i: ((2 * i, 2 * i + 2),) for i in range(3)}
    target = {3 + i: ((2 * i, 2 * i + 2),) for i in range(3)}
    (turn,) = plan_rounds(source, target, PROCESS)
    assert turn.pairs == ((0, 3), (1, 4), (2, 5)) and turn.shape == (2,)
