"""Meshes, sub-axes and replica groups."""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, strategies as st

from sharding import AbstractMesh, AxisType, Mesh, SubAxis, canonical, current_mesh, make_mesh, set_mesh, use_mesh
from sharding.axes import canonical_axes, common_prefix, is_prefix, overlap, parse_ref, without_prefix
from tests.tools.fake_devices import Client, Device, devices


def test_a_mesh_says_what_it_is() -> None:
    mesh = Mesh(devices(4, 2), ("data", "model"))
    assert str(mesh) == "Mesh('data': 4, 'model': 2)"
    assert repr(mesh) == "Mesh(axis_sizes=(4, 2), axis_names=('data', 'model'), axis_types=(Auto, Auto))"
    assert (mesh.axis_names, mesh.axis_sizes, mesh.size) == (("data", "model"), (4, 2), 8)
    assert list(mesh.shape.items()) == [("data", 4), ("model", 2)]
    assert mesh.device_ids.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert mesh.abstract_mesh == AbstractMesh((4, 2), ("data", "model"))
    assert not mesh.empty and Mesh(np.array(Device(0), dtype=object), ()).empty
    assert Mesh([Device(0), Device(1)], "x").shape == {"x": 2}
    explicit = AbstractMesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    assert repr(explicit) == str(explicit) == "AbstractMesh('x': 2, axis_types=(Explicit,))"
    assert repr(mesh.abstract_mesh).startswith("AbstractMesh('data': 4, 'model': 2, axis_types=(Auto, Auto)")
    assert make_mesh((2, 2), ("x", "y"), [Device(i) for i in range(5)]).device_ids.tolist() == [[0, 1], [2, 3]]


def test_meshes_compare_by_devices_and_names() -> None:
    a, b = Mesh(devices(4, 2), ("x", "y")), Mesh(devices(4, 2), ("x", "y"))
    assert a == b and hash(a) == hash(b)
    assert a != Mesh(devices(4, 2), ("x", "z")) and a != Mesh(devices(4, 2)[::-1], ("x", "y"))
    assert a != Mesh(devices(4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))


def test_processes() -> None:
    here = Client(1)
    mesh = Mesh([Device(i, process_index=i // 2, client=here) for i in range(4)], ("x",))
    assert mesh.is_multi_process and [d.id for d in mesh.local_devices] == [2, 3]
    assert not Mesh(devices(2), ("x",)).is_multi_process and len(Mesh(devices(2), ("x",)).local_devices) == 2


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: Mesh(devices(4, 2), ("x",)), ValueError, "devices have 2 dims .4, 2. but there are 1 axis names"),
        (lambda: Mesh(devices(4, 2), ("x", "x")), ValueError, "'x' appears twice"),
        (
            lambda: Mesh(devices(3)[np.array([[0, 1], [2, 1]])], ("x", "y")),
            ValueError,
            "stands at two places, x=0, y=1 and x=1, y=1; each device holds one shard",
        ),
        (lambda: Mesh(devices(4, 2), ("x", 3)), TypeError, "must be str, got 3 of type int"),  # type: ignore[arg-type]
        (lambda: Mesh(devices(2), ("a b",)), ValueError, "no usable mesh axis name"),
        (lambda: AbstractMesh((4, 2), ("x",)), ValueError, "needs 2 axis names"),
        (lambda: Mesh([], ("x",)), ValueError, "there are no devices, their shape is .0,. for axes .'x',."),
        (lambda: AbstractMesh((0,), ("x",)), ValueError, "1 or more"),
        (
            lambda: AbstractMesh((4,), ("x",)).axis_size("y"),
            ValueError,
            'axis "y" is not in the mesh, whose axes are x',
        ),
        (lambda: AbstractMesh((4,), ("x",)).axis_size(SubAxis("x", 3, 2)), ValueError, "is no part of axis"),
        (lambda: AbstractMesh((4,), ("x",)).replica_groups(("x", SubAxis("x", 1, 2))), ValueError, "which overlap"),
        (lambda: AbstractMesh((4,), ("x",), (AxisType.Auto,) * 2), ValueError, "axis_types must be 1 AxisType"),
        (lambda: make_mesh((4,), ("x",), [Device(0)]), ValueError, "needs 4 devices, there are 1"),
        (lambda: set_mesh("x"), TypeError, "expected a Mesh"),  # type: ignore[arg-type]
        (lambda: parse_ref("x:2"), ValueError, "not a mesh axis"),
    ],
)
def test_errors(make: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()  # type: ignore[operator]


def test_the_current_mesh() -> None:
    a, b = Mesh(devices(4), ("x",)), Mesh(devices(2, 2), ("x", "y"))
    assert current_mesh() is None
    with a:
        assert current_mesh() is a
        with b, a:
            assert current_mesh() is a
        with use_mesh(b):
            assert current_mesh() is b
        set_mesh(b)
        assert current_mesh() is b
        seen: list[object] = []
        thread = threading.Thread(target=lambda: seen.append(current_mesh()))
        thread.start()
        thread.join()
        assert seen == [None]
    assert current_mesh() is None
    with set_mesh(a) as mesh:
        assert mesh is a and current_mesh() is a
    assert current_mesh() is None


def test_replica_groups() -> None:
    mesh = AbstractMesh((2, 2), ("x", "y"))
    assert mesh.replica_groups(("y",)).tolist() == [[0, 1], [2, 3]]
    assert mesh.replica_groups(("x",)).tolist() == [[0, 2], [1, 3]]
    assert mesh.replica_groups(("y", "x")).tolist() == [[0, 2, 1, 3]]
    assert mesh.replica_groups(()).tolist() == [[0], [1], [2], [3]]
    eight = AbstractMesh((8,), ("x",))
    assert eight.replica_groups((SubAxis("x", 2, 2),)).tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert eight.replica_groups((SubAxis("x", 4, 2), SubAxis("x", 1, 2))).tolist() == [[0, 4, 1, 5], [2, 6, 3, 7]]
    assert eight.axes_index((SubAxis("x", 2, 2),)).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert mesh.axes_size(("x", "y")) == 4 and eight.axes_size((SubAxis("x", 1, 4),)) == 4
    assert AbstractMesh((), ()).replica_groups(()).tolist() == [[0]]


@given(st.permutations([("x", 2), ("y", 3), ("z", 4)]), st.data())
def test_groups_partition_the_mesh_and_index_the_axes(axes: list[tuple[str, int]], data: st.DataObject) -> None:
    mesh = AbstractMesh([n for _, n in axes], [name for name, _ in axes])
    refs = data.draw(st.permutations(["x", "y", SubAxis("z", 1, 2), SubAxis("z", 2, 2)]))
    refs = refs[: data.draw(st.integers(0, 4))]
    groups, index = mesh.replica_groups(refs), mesh.axes_index(refs)
    assert sorted(groups.ravel().tolist()) == list(range(24))
    assert groups[:, 0].tolist() == sorted(groups[:, 0].tolist())
    grid = np.indices(mesh.axis_sizes).reshape(3, -1)
    for device, position in itertools.product(range(24), [0]):
        for ref in refs:
            coordinate = int(grid[mesh.axis_names.index(ref if isinstance(ref, str) else ref.name), device])
            if isinstance(ref, SubAxis):
                coordinate = coordinate // (4 // (ref.pre * ref.size)) % ref.size
            position = position * mesh.axis_size(ref) + coordinate
        assert index[device] == position


def test_sub_axes() -> None:
    mesh = AbstractMesh((8, 2), ("x", "y"))
    assert str(SubAxis("x", 2, 2)) == "x:(2)2" and parse_ref("x:(2)2") == SubAxis("x", 2, 2)
    assert canonical(SubAxis("x", 1, 8), mesh) == "x" and canonical(SubAxis("x", 1, 4), mesh) == SubAxis("x", 1, 4)
    assert canonical_axes([SubAxis("x", 1, 2), SubAxis("x", 2, 4), "y"], mesh.shape) == ("x", "y")
    assert canonical_axes([SubAxis("x", 2, 4), SubAxis("x", 1, 2)], mesh.shape) == (
        SubAxis("x", 2, 4),
        SubAxis("x", 1, 2),
    )
    assert overlap("x", SubAxis("x", 2, 2)) and not overlap(SubAxis("x", 1, 2), SubAxis("x", 2, 2))
    assert mesh.overlap(SubAxis("x", 1, 4), SubAxis("x", 2, 4)) and not mesh.overlap("x", "y")


def test_prefixes() -> None:
    sizes = {"x": 8, "y": 2, "z": 6}
    assert common_prefix(("x", "y"), (SubAxis("x", 1, 2),), sizes) == (SubAxis("x", 1, 2),)
    assert is_prefix((SubAxis("x", 1, 2),), ("x",), sizes) and not is_prefix((SubAxis("x", 2, 2),), ("x",), sizes)
    assert without_prefix(("x", "y"), (SubAxis("x", 1, 2),), sizes) == (SubAxis("x", 2, 4), "y")
    assert common_prefix((SubAxis("z", 1, 2),), (SubAxis("z", 1, 3),), sizes) == ()  # no common grid


def test_equal_meshes_are_one_object() -> None:
    grid = devices(4, 2)
    mesh = Mesh(grid, ("x", "y"))
    assert mesh is Mesh(grid, ["x", "y"]) is Mesh(grid.tolist(), ("x", "y")) is copy.deepcopy(mesh)
    others = [Mesh(grid.T, ("x", "y")), Mesh(grid, ("x", "z")), Mesh(grid, ("x", "y"), AxisType.Explicit), Mesh(devices(4, 2), ("x", "y"))]
    assert all(other is not mesh for other in others)
    with pytest.raises(ValueError, match="stands at two places"):
        Mesh([grid[0, 0], grid[0, 0]], "x")


def test_a_mesh_decorates() -> None:
    mesh = Mesh(devices(4, 2), ("x", "y"))

    @mesh
    def inside(n: int) -> object:
        return inside(n - 1) if n else current_mesh()

    assert inside(2) is mesh and inside.__name__ == "inside" and current_mesh() is None


def test_the_room_imports_no_jaxlib() -> None:
    code = "import sharding, sys; print(sorted({'jax', 'jaxlib', 'meshjit', 'launch'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_block_of_this_process() -> None:
    here = Client(1)
    grid = np.array([Device(i, process_index=i % 4 // 2, client=here) for i in range(8)], object).reshape(2, 4)
    mesh = Mesh(grid, ("x", "y"), axis_types=(AxisType.Auto, AxisType.Explicit))
    local = mesh.local_mesh
    assert local.device_ids.tolist() == [[2, 3], [6, 7]] and local.axis_names == ("x", "y") and local.axis_types == mesh.axis_types
    alone = Mesh(devices(4, 2), ("x", "y"))
    assert alone.local_mesh is alone
    with pytest.raises(ValueError, match="4 devices of this process are no block of the mesh, of axes .*\n  fix: a mesh in which"):
        _ = Mesh(grid[:, [2, 0, 3, 1]], ("x", "y")).local_mesh
