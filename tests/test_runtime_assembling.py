"""Global arrays from callbacks, from a process's own data and from shards; the arrays that are alive; lists of devices."""

from __future__ import annotations

import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

pytestmark = pytest.mark.device


def on(spec: P, *sizes: int) -> NamedSharding:
    devices = np.array(mj.devices()[: int(np.prod(sizes))]).reshape(sizes)
    return NamedSharding(Mesh(devices, ("x", "y", "z")[: len(sizes)]), spec)


def floats(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


SHAPES = [(8, 4), (10, 3), (3, 2), (1, 1), (0, 4)]
PLACES = [on(P("x"), 4), on(P(), 4), on(P("x", "y"), 4, 2), on(P("y"), 4, 2), on(P(("y", "x")), 2, 4), on(P(None, "x"), 8)]
IDS = [f"{place.mesh.devices.shape}{place.spec}" for place in PLACES]


# --- from a callback


@pytest.mark.parametrize("place", PLACES, ids=IDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_callbacks(shape: tuple[int, ...], place: NamedSharding) -> None:
    value, asked = floats(*shape), []

    def part(index: Any) -> np.ndarray:
        asked.append(tuple((s.start, s.stop) for s in index))
        return value[index]

    x = mj.make_array_from_callback(shape, place, part)
    np.testing.assert_array_equal(x, value)
    assert x.sharding == place and x.committed and x.dtype == np.float32 and len(set(asked)) == len(asked)
    np.testing.assert_array_equal(mj.jit(lambda x: x + x.sum())(x), value + value.sum())
    assert [s.data.shape for s in x.addressable_shards] == [value[s.index].shape for s in x.addressable_shards]


def test_callbacks_may_give_any_kind_of_array() -> None:
    place = on(P("x"), 4)
    for convert in (list, lambda v: v.astype(ml_dtypes.bfloat16), mnp.asarray, lambda v: v.astype(np.float64), lambda v: v > 3):
        x = mj.make_array_from_callback((8,), place, lambda index, convert=convert: convert(floats(8)[index]))
        np.testing.assert_array_equal(np.asarray(x, np.float32), np.asarray(convert(floats(8)), np.float32))
    assert mj.make_array_from_callback((), on(P(), 4), lambda index: 3).dtype == np.int32
    one = mj.make_array_from_callback((2,), SingleDeviceSharding(mj.devices()[3]), lambda index: floats(2)[index])
    assert one.devices() == {mj.devices()[3]}


def test_empty_slices_are_not_asked_for() -> None:
    asked: list[Any] = []

    def part(index: Any) -> np.ndarray:
        asked.append(index)
        return floats(3)[index]

    np.testing.assert_array_equal(mj.make_array_from_callback([3], on(P("x"), 8), part), floats(3))
    assert asked == [(slice(0, 1),), (slice(1, 2),), (slice(2, 3),)]
    del asked[:]
    assert mj.make_array_from_callback((0,), on(P("x"), 8), part, dtype=np.int8).dtype == np.int8 and not asked


@pytest.mark.parametrize(
    ("part", "dtype", "text"),
    [
        (lambda i: floats(3), None, r"the slice \[0:2\] has shape \(2,\), was given one of shape \(3,\)"),
        (lambda i: floats(2) if i[0].start == 0 else np.ones(2, np.int32), None, r"\[2:4\] has dtype int32, expected float32"),
        (lambda i: floats(2), np.int32, r"\[0:2\] has dtype float32, expected int32\n  fix: convert it with .astype\(int32\)"),
    ],
)
def test_callbacks_that_do_not_fit(part: Any, dtype: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"make_array_from_callback: the slice {text}" if text[0] == "[" else text):
        mj.make_array_from_callback((8,), on(P("x"), 4), part, dtype)


def test_callbacks_and_specs_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="make_array_from_callback"):
        mj.make_array_from_callback((8,), on(P("x", "y"), 4, 2), lambda i: floats(8)[i])
    with pytest.raises(TypeError, match="make_array_from_callback: expected a sharding, got None"):
        mj.make_array_from_callback((8,), None, lambda i: floats(8)[i])
    with pytest.raises(TypeError, match="dtype object"):
        mj.make_array_from_callback((2,), on(P(), 1), lambda i: np.array([{}, {}]))


# --- from this process's data


@pytest.mark.parametrize("place", PLACES, ids=IDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("told", [True, False])
def test_one_process_has_everything(shape: tuple[int, ...], place: NamedSharding, told: bool) -> None:
    x = mj.make_array_from_process_local_data(place, floats(*shape), shape if told else None)
    np.testing.assert_array_equal(x, floats(*shape))
    assert x.sharding == place and x.shape == shape


def test_trees_of_local_data() -> None:
    data = {"a": floats(8), "b": [floats(3, 2), None, 2.0]}
    place, whole = on(P("x"), 4), on(P(), 4)
    made = mj.make_array_from_process_local_data({"a": place, "b": whole}, data)
    assert made["a"].sharding == place and made["b"][0].sharding == whole and made["b"][1] is None
    assert made["b"][2].weak_type
    made = mj.make_array_from_process_local_data(whole, data, {"a": (8,), "b": [(None, 2), None, ()]})
    np.testing.assert_array_equal(made["b"][0], floats(3, 2))


def test_specs_and_devices_for_local_data() -> None:
    place = on(P("x"), 2)
    with mj.set_mesh(place.mesh):
        assert mj.make_array_from_process_local_data(P("x"), floats(4), (4,)).sharding == place
        made = mj.make_array_from_process_local_data({"a": P("x"), "b": mj.devices()[1]}, {"a": floats(4), "b": floats(2)})
        assert made["a"].sharding == place and made["b"].sharding == SingleDeviceSharding(mj.devices()[1])
        with pytest.raises(mj.errors.ShardingError, match='local_data: axis "y" in P."y". is not in the mesh'):
            mj.make_array_from_process_local_data(P("y"), floats(4))
    with pytest.raises(mj.errors.ShardingError, match="local_data: P.'x',. needs a mesh\n  fix: write NamedSharding"):
        mj.make_array_from_process_local_data(P("x"), floats(4))
    with pytest.raises(TypeError, match="local_data: expected a sharding, got None"):
        mj.make_array_from_process_local_data(None, floats(4))


def test_local_data_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match="dim 0 of local_data has extent 7; the global extent is 8, and this process holds 8 of it"):
        mj.make_array_from_process_local_data(on(P("x"), 4), floats(7), (8,))
    with pytest.raises(ValueError, match=r"global_shape \(8, 2\) has 2 dims, local_data \(8,\) has 1"):
        mj.make_array_from_process_local_data(on(P("x"), 4), floats(8), (8, 2))


# --- from shards


@pytest.mark.parametrize("place", PLACES, ids=IDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shards(shape: tuple[int, ...], place: NamedSharding) -> None:
    value = floats(*shape)
    parts = [mj.device_put(value[i], device) for device, i in place.devices_indices_map(shape).items()]
    for arrays in (parts, parts[::-1]):
        x = mj.make_array_from_single_device_arrays(shape, place, arrays)
        np.testing.assert_array_equal(x, value)
        np.testing.assert_array_equal(mj.jit(lambda x: x * 2)(x), value * 2)
        assert x.sharding == place and x.committed


def test_shards_of_an_array_make_it_again() -> None:
    x = mj.device_put(floats(10, 3), on(P("x"), 4, 2))
    again = mj.make_array_from_single_device_arrays(x.shape, x.sharding, [s.data for s in x.addressable_shards])
    np.testing.assert_array_equal(again, x)


def test_shards_share_memory() -> None:
    place = on(P("x"), 4)
    parts = [mj.device_put(floats(2), device) for device in mj.devices()[:4]]
    x = mj.make_array_from_single_device_arrays((8,), place, parts)
    pointers = [p.unsafe_buffer_pointer() for p in parts]
    assert len(set(pointers)) == 4
    parts[0].delete()
    assert x.is_deleted()


def test_shards_that_do_not_fit() -> None:
    place, make = on(P("x"), 2), mj.make_array_from_single_device_arrays
    a, b = (mj.device_put(floats(2), d) for d in mj.devices()[:2])
    cases: list[tuple[Any, type[Exception], str]] = [
        ([a], ValueError, r"arrays on devices \[0\] were given, .* has devices \[0, 1\] here\n  fix: give one array for each"),
        ([a, a], ValueError, "two arrays are on device 0"),
        ([a, floats(2)], TypeError, r"arrays\[1\] must be an Array on one device, it is a ndarray"),
        ([a, mj.device_put(floats(2), place)], TypeError, r"arrays\[1\] must be an Array on one device, it is on 2 devices"),
        ([a, b[:1]], ValueError, r"the slice \[2:4\] has shape \(2,\), was given one of shape \(1,\)"),
        ([a, mj.device_put(np.ones(2, np.int32), mj.devices()[1])], ValueError, "dtype int32, expected float32"),
    ]
    for arrays, kind, text in cases:
        with pytest.raises(kind, match=text):
            make((4,), place, arrays)


# --- what is alive


def test_live_arrays() -> None:
    x = mj.device_put(np.full(10, 3, np.float32), on(P("x"), 4))
    y = mj.jit(lambda x: x + 1)(x)
    live = mj.live_arrays()
    assert {id(x.memory), id(y.memory)} <= {id(a.memory) for a in live}
    found = next(a for a in live if a.memory is x.memory)
    assert found.sharding == x.sharding and found.type == x.type
    np.testing.assert_array_equal(found, x)
    found.delete()
    assert x.is_deleted() and not y.is_deleted()
    memory = x.memory
    del x, live, found
    gc.collect()
    assert all(a.memory is not memory for a in mj.live_arrays("cpu"))


# --- devices and processes


def test_devices_and_processes() -> None:
    assert mj.local_devices() == mj.local_devices(0) == mj.local_devices(process_index=0, backend="cpu") == mj.devices()
    assert mj.local_devices(host_id=0) == mj.devices("cpu")
    assert (mj.process_index(), mj.process_count(), mj.process_indices()) == (0, 1, [0])
    assert mj.device_count() == mj.local_device_count() == len(mj.devices())
    with pytest.raises(ValueError, match=r"there is no process 3; there are \[0\]"):
        mj.local_devices(3)
    with pytest.raises(TypeError, match="process_index must be a number, got 'cpu'\n  fix: backend='cpu'"):
        mj.local_devices("cpu")


@pytest.mark.skipif(mj.default_backend() != "cpu", reason="there is an accelerator")
@pytest.mark.parametrize("name", ["gpu", "cuda", "tpu"])
def test_absent_accelerators_are_named(name: str) -> None:
    platform = {"gpu": "cuda"}.get(name, name)
    for use in (mj.devices, mj.device_count, mj.process_count, lambda n: mj.local_devices(backend=n), mj.live_arrays):
        with pytest.raises(RuntimeError) as error:
            use(name)
        assert str(error.value) == (
            f'no {platform} devices: no PJRT plugin for "{platform}" is installed\n'
            f'  fix: pip install "meshjit[{platform}]", or use "cpu"'
        )


# --- trees


def test_waiting_and_getting_trees() -> None:
    tree = {"a": mj.device_put(floats(10), on(P("x"), 4)), "b": (mnp.ones(2), None, 3, "text", 2.5)}
    assert mj.block_until_ready(tree) is tree and mj.copy_to_host_async(tree) is tree
    got = mj.device_get(tree)
    np.testing.assert_array_equal(got["a"], floats(10))
    assert type(got["a"]) is np.ndarray and got["b"][1:] == (None, 3, "text", 2.5)
    assert mj.device_get(3) == 3 and mj.device_get(np.float32(2)).dtype == np.float32
    tree["a"].delete()
    for use in (mj.block_until_ready, mj.copy_to_host_async, mj.device_get):
        with pytest.raises(RuntimeError, match="has been deleted"):
            use(tree)


def test_device_put_may_alias() -> None:
    buffer = np.zeros(1024 + 16, np.float32)
    array = buffer[(-buffer.ctypes.data % 64) // 4 :][:1024]
    x = mj.device_put(array, mj.devices()[0], may_alias=True)
    assert x.unsafe_buffer_pointer() == array.ctypes.data
    for may_alias in (False, None):
        y = mj.device_put(array, mj.devices()[0], may_alias=may_alias, src=None)
        assert y.unsafe_buffer_pointer() != array.ctypes.data


def test_memory_of_one_device_is_read_in_place() -> None:
    """`memoryview` read the results of operations alone, not what was made of values of the host."""
    host, one, other = floats(6), mj.devices()[0], SingleDeviceSharding(mj.devices()[1])
    parts = mj.device_put(host, on(P("x"), 2))
    arrays = [
        mnp.array([0.0, 1, 2, 3, 4, 5]), mnp.asarray(host), mj.device_put(host), mj.device_put(host, other),
        mj.device_put(mnp.asarray(host), other), mj.device_put(parts, other), mj.device_put(host, on(P("x"), 1)),
        mj.make_array_from_callback((6,), other, lambda index: host[index]), mnp.asarray(host).copy(), mnp.asarray(host) + 0,
        mj.make_array_from_single_device_arrays((6,), other, [mj.device_put(host, other)]), mj.device_put(host, one, may_alias=True),
    ]  # fmt: skip
    for array in arrays:
        assert np.frombuffer(memoryview(array), np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.frombuffer(memoryview(parts.addressable_shards[1].data), np.float32).tolist() == [3, 4, 5]
    with pytest.raises(BufferError, match="single shard"):
        memoryview(parts)
