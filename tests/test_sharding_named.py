"""NamedSharding and SingleDeviceSharding: shard shapes and where shards lie."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from sharding import (
    AUTO,
    UNSPECIFIED,
    AbstractMesh,
    Mesh,
    NamedSharding,
    P,
    Placement,
    ShardingError,
    SingleDeviceSharding,
    is_auto,
)
from tests.tools.fake_devices import Device, devices

MESH = Mesh(devices(4, 2), ("data", "model"))


def test_named_sharding() -> None:
    sharding = NamedSharding(MESH, P("data"))
    assert repr(sharding) == (
        "NamedSharding(mesh=Mesh('data': 4, 'model': 2, axis_types=(Auto, Auto)), spec=P('data',), memory_kind=device)"
    )
    assert repr(NamedSharding(MESH.abstract_mesh, P("data"))).endswith(", spec=P('data',))")  # no devices, no memory
    assert sharding == NamedSharding(MESH, P("data")) and hash(sharding) == hash(NamedSharding(MESH, P("data")))
    assert sharding != NamedSharding(MESH, P("data", None)) and sharding != NamedSharding(
        MESH, P("data"), "pinned_host"
    )
    assert sharding.is_equivalent_to(NamedSharding(MESH, P("data", None)), 2)
    assert not sharding.is_equivalent_to(NamedSharding(MESH, P(None, "data")), 2)
    assert not sharding.is_equivalent_to(sharding.with_memory_kind("pinned_host"), 2)
    assert sharding.shard_shape((8, 3)) == (2, 3) and sharding.shard_shape((10, 3)) == (3, 3)
    assert sharding.placement(2) == Placement((("data",), ()))
    assert sharding.with_spec(P(None, "model")).spec == P(None, "model")
    assert sharding.num_devices == 8 and len(sharding.device_set) == len(sharding.addressable_devices) == 8
    assert sharding.is_fully_addressable and not sharding.is_fully_replicated
    assert NamedSharding(MESH, P()).is_fully_replicated and NamedSharding(MESH, P(None)).is_fully_replicated


def test_shards_of_uneven_extents_are_shorter_or_empty() -> None:
    sharding = NamedSharding(MESH, P("data", None))
    indices = sharding.devices_indices_map((10, 3))
    assert [indices[Device(i)] for i in (0, 1, 4, 6)] == [
        (slice(0, 3), slice(None)),
        (slice(0, 3), slice(None)),
        (slice(6, 9), slice(None)),
        (slice(9, 10), slice(None)),
    ]
    assert sharding.devices_indices_map((2, 3))[Device(7)][0] == slice(2, 2)
    assert sharding.addressable_devices_indices_map((10, 3)) == indices


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=2), st.sampled_from(["data,model", "model,data", "both,", ",both"])
)
def test_slices_cover_the_array(shape: list[int], spec: str) -> None:
    entries = [("model", "data") if name == "both" else name or None for name in spec.split(",")]
    sharding = NamedSharding(MESH, P(*entries))
    seen = np.zeros(shape, int)
    for index in sharding.devices_indices_map(shape).values():
        block = seen[index]
        assert all(a <= b for a, b in zip(block.shape, sharding.shard_shape(shape), strict=True))
        block += 1
    assert (seen == 1).all()


def test_equivalence_is_about_devices_not_names() -> None:
    other = Mesh(devices(8), ("x",))
    assert NamedSharding(other, P("x")).is_equivalent_to(NamedSharding(MESH, P(("data", "model"))), 1)
    assert not NamedSharding(other, P("x")).is_equivalent_to(NamedSharding(MESH, P(("model", "data"))), 1)
    one = Mesh(devices(1), ("x",))
    assert NamedSharding(one, P("x")).is_equivalent_to(SingleDeviceSharding(Device(0)), 1)
    assert not NamedSharding(one, P("x")).is_equivalent_to(SingleDeviceSharding(Device(1)), 1)


def test_single_device() -> None:
    sharding = SingleDeviceSharding(Device(3))
    assert sharding.device_set == {Device(3)} and sharding.is_fully_replicated
    assert sharding.shard_shape((3, 4)) == (3, 4) and sharding.placement(1) == Placement.replicated(1)
    assert sharding.devices_indices_map((3, 4)) == {Device(3): (slice(None), slice(None))}
    assert sharding == SingleDeviceSharding(Device(3)) and hash(sharding) == hash(SingleDeviceSharding(Device(3)))
    assert repr(sharding).startswith("SingleDeviceSharding(device=Device(id=3")


@pytest.mark.parametrize("what", [0, "cpu", (), None, 1.5])
def test_a_single_device_sharding_of_what_is_no_device_is_an_error(what) -> None:
    with pytest.raises(TypeError, match="is neither a device nor a sharding\n  fix: use one of meshjit.devices()"):
        SingleDeviceSharding(what)


def test_errors_come_at_once() -> None:
    with pytest.raises(
        ShardingError, match='axis "x" in P\\("x"\\) is not in the mesh, whose axes are "data": 4, "model": 2'
    ):
        NamedSharding(MESH, P("x"))
    with pytest.raises(ShardingError, match='axis "data" of size 4 is used twice'):
        NamedSharding(MESH, P("data", "data"))
    with pytest.raises(TypeError, match="spec must be a PartitionSpec, got 'data'"):
        NamedSharding(MESH, "data")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="mesh must be a Mesh"):
        NamedSharding("x", P())  # type: ignore[arg-type]
    with pytest.raises(ShardingError, match=r'has 2 entries but the array has 1 dims \(3,\)\n  fix: P\("data"\)'):
        NamedSharding(MESH, P("data", None)).shard_shape((3,))
    abstract = NamedSharding(AbstractMesh((2,), ("x",)), P("x"))
    assert abstract.shard_shape((5,)) == (3,) and abstract.num_devices == 2
    with pytest.raises(ShardingError, match="its mesh is abstract"):
        _ = abstract.device_set


def test_markers() -> None:
    assert is_auto(AUTO) and is_auto(AUTO(MESH)) and not is_auto(UNSPECIFIED) and not is_auto(None)
    assert repr(UNSPECIFIED) == "UNSPECIFIED" and pickle.loads(pickle.dumps(UNSPECIFIED)) is UNSPECIFIED
    assert math.prod(MESH.axis_sizes) == 8
