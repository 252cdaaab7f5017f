"""Borders that several equations ask for are sent once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshjit.core.program import Builder, Program
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.ops.collective.collectives import collective_permute
from meshjit.ops.slicing.slices import slice_
from meshjit.simulate.devices import simulate
from meshjit.transform.share_halos import share_halos
from sharding.mesh import AbstractMesh

BACK = ((1, 0), (2, 1), (3, 2))
ON = ((0, 1), (1, 2), (2, 3))
Part = tuple[tuple[tuple[int, int], ...], tuple[int, int], tuple[int, int]]  # between whom, rows, columns


def sending(parts: Sequence[Part]) -> Program:
    with Builder() as builder:
        u = builder.input(TensorType.parse("f32[6,5]"))
        return builder.build(
            [
                collective_permute(slice_(u, start=(a, c), limit=(b, d), strides=(1, 1)), pairs=pairs)
                for pairs, (a, b), (c, d) in parts
            ]
        )


def sizes(parts: Sequence[Part]) -> list[int]:
    """Elements that each permute sends once borders are shared; and the meaning stays."""
    before = sending(parts)
    after = verify(share_halos(before))
    mesh = AbstractMesh((4,), ("x",))
    shards = [[np.arange(30, dtype=np.float32).reshape(6, 5) + 100 * i for i in range(4)]]
    for got, want in zip(simulate(after, mesh, shards), simulate(before, mesh, shards), strict=True):
        np.testing.assert_array_equal(got, want)
    return [eqn.inputs[0].type.size for eqn in after.eqns if eqn.op is collective_permute]


def test_a_border_within_another() -> None:
    assert sizes([(BACK, (0, 1), (0, 5)), (BACK, (0, 2), (0, 5))]) == [10]
    assert sizes([(BACK, (0, 3), (0, 5)), (BACK, (0, 1), (0, 5)), (BACK, (0, 3), (0, 5))]) == [15]


def test_overlapping_borders_are_one() -> None:
    assert sizes([(ON, (3, 5), (0, 5)), (ON, (4, 6), (0, 5))]) == [15]


def test_borders_apart_or_of_other_ways_stay() -> None:
    assert sizes([(BACK, (0, 1), (0, 5)), (BACK, (2, 3), (0, 5))]) == [5, 5]
    assert sizes([(BACK, (0, 1), (0, 5)), (ON, (0, 2), (0, 5))]) == [5, 10]
    assert sizes([(BACK, (0, 1), (0, 5)), (BACK, (0, 2), (0, 4))]) == [5, 8]
