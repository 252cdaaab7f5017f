"""DLPack with NumPy, both ways: what is shared, what is copied, what cannot be handed over."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.runtime import _jaxlib, capsules
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

TYPES = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32", "complex64"]


def aligned(*shape: int, dtype: Any = np.float32, offset: int = 0) -> np.ndarray:
    """A NumPy array that begins `offset` bytes after a multiple of 64."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.zeros(count + 128, np.uint8)
    start = -buffer.ctypes.data % 64 + offset
    array = buffer[start : start + count].view(dtype).reshape(shape)
    array[...] = np.arange(array.size).reshape(shape)
    return array


def sharded() -> mj.Array:
    return mj.device_put(np.ones(8, np.float32), NamedSharding(Mesh(np.array(mj.devices()[:4]), ("x",)), P("x")))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 3), (2, 1, 4)], ids=str)
def test_numpy_reads_our_memory(shape: tuple[int, ...], dtype: str) -> None:
    x = mj.device_put(np.arange(np.prod(shape)).reshape(shape).astype(dtype))
    seen = np.from_dlpack(x)
    np.testing.assert_array_equal(seen, x)
    assert seen.dtype == x.dtype and seen.shape == shape and not seen.flags.writeable
    assert seen.size == 0 or seen.ctypes.data == x.unsafe_buffer_pointer()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(5,), (2, 3), (0, 3), (1,)], ids=str)
def test_we_read_numpys_memory(shape: tuple[int, ...], dtype: str) -> None:
    array = aligned(*shape, dtype=np.dtype(dtype))
    x = mj.dlpack.from_dlpack(array, copy=False)
    np.testing.assert_array_equal(x, array)
    assert x.dtype == array.dtype and x.committed and x.devices() == {mj.local_devices()[0]} and not x.weak_type
    assert array.size == 0 or x.unsafe_buffer_pointer() == array.ctypes.data


def test_memory_outlives_whoever_made_it() -> None:
    seen = np.from_dlpack(mj.device_put(np.arange(4.0)))
    x = mj.dlpack.from_dlpack(aligned(1000))
    junk = [np.full(1000, 7, np.float32) for _ in range(50)]
    assert seen.tolist() == [0, 1, 2, 3] and float(x[999]) == 999 and len(junk) == 50


def test_results_of_computations_and_back_again() -> None:
    x = mj.jit(lambda x: x * 2)(mnp.arange(64.0))
    again = mj.dlpack.from_dlpack(np.from_dlpack(x, copy=True))
    np.testing.assert_array_equal(again, x)
    own = mj.dlpack.from_dlpack(x)
    assert own.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    np.testing.assert_array_equal(mj.jit(lambda a, b: a + b)(own, x), 2 * np.asarray(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda: aligned(3, 4).T,
        lambda: aligned(3, 4)[:, ::2],
        lambda: aligned(3, 4)[::-1],
        lambda: aligned(16, offset=4),
        lambda: np.broadcast_to(aligned(4), (3, 4)),
        lambda: aligned(4).astype(">f4"),
        lambda: aligned(4, dtype=np.int64),
        lambda: aligned(4, dtype=np.float64),
    ],
    ids=["transposed", "steps", "backwards", "unaligned", "read-only", "byte order", "int64", "float64"],
)
def test_what_cannot_be_shared_is_copied_or_refused(make: Any) -> None:
    array = make()
    x = mj.dlpack.from_dlpack(array)
    np.testing.assert_array_equal(x, array)
    np.testing.assert_array_equal(x + 1, np.asarray(array) + 1)
    with pytest.raises(BufferError, match="from_dlpack"):
        mj.dlpack.from_dlpack(array, copy=False)
    np.testing.assert_array_equal(mj.dlpack.from_dlpack(array, copy=True), array)


def test_copies_are_copies() -> None:
    array = aligned(100)
    x = mj.dlpack.from_dlpack(array, copy=True)
    array[:] = -1
    assert float(x[99]) == 99
    capsule_of_copy = Foreign(np.from_dlpack(x, copy=True).copy())
    assert mj.dlpack.from_dlpack(capsule_of_copy).unsafe_buffer_pointer() != x.unsafe_buffer_pointer()


def test_donating_shared_memory_leaves_the_owners_alone() -> None:
    array = aligned(256)
    x = mj.dlpack.from_dlpack(array, copy=False)
    y = mj.jit(lambda x: x + 1, donate_argnums=0)(x)
    y.block_until_ready()
    assert x.is_deleted()
    np.testing.assert_array_equal(y, np.arange(256) + 1)
    np.testing.assert_array_equal(array, np.arange(256))


def test_places() -> None:
    device, array = mj.devices()[2], aligned(4)
    place = NamedSharding(Mesh(np.array(mj.devices()[:2]), ("x",)), P("x"))
    assert mj.dlpack.from_dlpack(array, device=device).devices() == {device}
    assert mj.dlpack.from_dlpack(array, device=place).sharding == place
    with pytest.raises(BufferError, match="a copy is needed to bring"):
        mj.dlpack.from_dlpack(array, device=device, copy=False)


def test_x64() -> None:
    with mj.config.using(enable_x64=True):
        array = aligned(4, dtype=np.int64)
        x = mj.dlpack.from_dlpack(array, copy=False)
        assert x.dtype == np.int64 and x.unsafe_buffer_pointer() == array.ctypes.data
        assert np.from_dlpack(x).dtype == np.int64


def test_bfloat16_goes_through_the_protocol() -> None:
    x = mj.device_put(np.arange(4).astype(ml_dtypes.bfloat16))
    assert x.__dlpack_device__() == (1, 0)
    back = mj.dlpack.from_dlpack(x)
    assert back.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(back, x)


def test_what_cannot_be_handed_over() -> None:
    x = sharded()
    for use in (lambda: x.__dlpack__(), lambda: x.__dlpack_device__(), lambda: np.from_dlpack(x)):
        with pytest.raises(BufferError) as error:
            use()
        assert str(error.value) == (
            "Array f32[8] lies on 4 devices, DLPack knows arrays on one\n"
            "  fix: numpy.asarray(x), x.addressable_shards[i].data, or meshjit.device_put(x, device) first"
        )
    np.testing.assert_array_equal(np.from_dlpack(x.addressable_shards[1].data), [1, 1])
    y = mnp.ones(3)
    assert y.__dlpack__(max_version=(1, 0), dl_device=(1, 0)) is not None
    with pytest.raises(BufferError, match=r"lies on DLPack's device \(1, 0\), it was asked for on \(2, 0\)"):
        y.__dlpack__(dl_device=(2, 0))
    y.delete()
    with pytest.raises(RuntimeError, match="has been deleted"):
        np.from_dlpack(y)


def test_what_is_no_array() -> None:
    for value in ([1, 2], 3, mnp.ones(2).__dlpack__()):
        with pytest.raises(TypeError, match="from_dlpack takes an array with __dlpack__ and __dlpack_device__, not"):
            mj.dlpack.from_dlpack(value)


class Foreign:
    """Another library's array: it speaks the protocol's first form and nothing else."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_what_lies_in_another_order_is_read_as_it_lies(order: tuple[int, ...]) -> None:
    array = aligned(2, 3, 4).transpose(order)
    capsule = array.__dlpack__()
    held = capsules.read(capsule)
    assert (held.address, held.shape, held.dtype) == (array.ctypes.data, array.shape, np.float32)
    assert held.order() == tuple(np.argsort(order))
    with capsules.in_order(capsule, held, held.order()) as shape:
        handle = _jaxlib.from_dlpack(capsule, mj.devices()[0], None, (shape, held.dtype))
    assert _jaxlib.buffer_address(handle) == array.ctypes.data
    np.testing.assert_array_equal(_jaxlib.fetch(handle)[0][1].transpose(order), array)


def test_orders_that_there_are_not() -> None:
    array = aligned(4, 6)
    for other in (array[:, ::2], array[::-1], array[1:, 1:], np.lib.stride_tricks.as_strided(array, (2, 6), (0, 4))):
        assert capsules.read(other.__dlpack__()).order() is None
    for same in (array[:1, :], array[:, :0], array[:0, ::2], array[:1, :1], aligned()):
        assert capsules.read(same.__dlpack__()).order() == tuple(range(same.ndim))


class OnGPU:
    """What numbers on a GPU look like to who asks them: no NumPy array can be made of them."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.__cuda_array_interface__ = array, {"shape": array.shape}

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_arrays_of_other_libraries_on_gpus_are_arrays() -> None:
    array = aligned(3, 4)
    for x in (mnp.asarray(OnGPU(array)), mnp.array(OnGPU(array)), mnp.sin(OnGPU(array)) * 0 + array):
        assert isinstance(x, mj.Array)
        np.testing.assert_array_equal(x, array)
    assert mnp.asarray(OnGPU(aligned(3, dtype=np.int64))).dtype == np.int32
    assert mnp.asarray(OnGPU(array), dtype=np.float16).dtype == np.float16
    assert mnp.asarray(OnGPU(array)).unsafe_buffer_pointer() == array.ctypes.data
    assert mnp.array(OnGPU(array)).unsafe_buffer_pointer() != array.ctypes.data


def test_other_libraries() -> None:
    array = aligned(6)
    assert mj.dlpack.from_dlpack(Foreign(array)).unsafe_buffer_pointer() == array.ctypes.data
    np.testing.assert_array_equal(mj.dlpack.from_dlpack(Foreign(aligned(3, 4).T)), aligned(3, 4).T)
    np.testing.assert_array_equal(mj.dlpack.from_dlpack(Foreign(aligned(12)[::3])), aligned(12)[::3])
    with pytest.raises(BufferError, match="device type 12 cannot be read"):
        mj.dlpack.from_dlpack(Foreign(array, (12, 0)))


@pytest.mark.skipif(mj.default_backend() != "cpu", reason="there is an accelerator")
def test_memory_of_an_absent_accelerator() -> None:
    with pytest.raises(RuntimeError, match="(?s)no cuda devices: .*fix: pip install"):
        mj.dlpack.from_dlpack(Foreign(aligned(3), (2, 0)))


def test_dtypes_that_can_be_handed_over() -> None:
    names = ("float32", "bfloat16", "bool", "complex64", "uint64", "float8_e4m3fn", "float4_e2m1fn")
    assert [mj.dlpack.is_supported_dtype(mj.numpy.dtype(n)) for n in names] == [True] * 5 + [False] * 2
    assert not mj.dlpack.is_supported_dtype(np.dtype("O")) and mj.dlpack.is_supported_dtype(mj.numpy.float32)
    with pytest.raises(TypeError):
        mj.dlpack.is_supported_dtype("nonsense")
