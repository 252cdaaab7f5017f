"""Arrays of devices: numbers that do not fit, slices, coordinates."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import meshjit as mj
from meshjit.experimental.mesh_utils import create_device_mesh, create_hybrid_device_mesh


def test_devices_without_coordinates_keep_their_order() -> None:
    assert create_device_mesh((4, 2)).tolist() == np.array(mj.devices()).reshape(4, 2).tolist()


def test_devices_with_coordinates_follow_their_torus() -> None:
    torus = [SimpleNamespace(id=i, coords=(i % 2, i // 2, 0), core_on_chip=0) for i in (3, 1, 0, 2)]
    assert [d.id for d in create_device_mesh((2, 2), torus).ravel()] == [0, 1, 2, 3]


def test_slices_are_the_major_part_of_each_axis() -> None:
    devices = [SimpleNamespace(id=i, slice_index=i // 4) for i in range(8)]
    mesh = create_hybrid_device_mesh((2, 2), (2, 1), devices)
    assert [[d.id for d in row] for row in mesh] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    mesh = create_hybrid_device_mesh((2, 2), (1, 2), devices)
    assert [[d.id for d in row] for row in mesh] == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_says_which_numbers_differ() -> None:
    with pytest.raises(ValueError, match=r"a mesh of shape \(3, 2\) has 6 devices, 8 were given"):
        create_device_mesh((3, 2))
    with pytest.raises(ValueError, match=r"has no slice_index\n  fix: process_is_granule=True"):
        create_hybrid_device_mesh((4, 2), (1, 1), [SimpleNamespace(id=0)])
    with pytest.raises(ValueError, match=r"dcn_mesh_shape \(2,\) does not have the 1 slices of the devices"):
        create_hybrid_device_mesh((8,), (2,), process_is_granule=True)
