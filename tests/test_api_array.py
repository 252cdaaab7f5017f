"""Array: what it says of itself, its shards, NumPy's protocols, and operators on sharded arrays outside of jit."""

from __future__ import annotations

import copy
import pickle
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


def test_what_an_array_says_of_itself() -> None:
    place = on(P("x"), 4, 2)
    x = mj.device_put(floats(10, 3), place)
    assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes, x.itemsize) == ((10, 3), np.float32, 2, 30, 120, 4)
    assert x.sharding == place and x.committed and not x.weak_type
    assert x.is_fully_addressable and not x.is_fully_replicated
    assert x.devices() == set(mj.devices()) and x.device == place
    assert isinstance(x, mj.Array) and len(x) == 10


def test_shards_of_uneven_extents_over_some_axes() -> None:
    x = mj.device_put(floats(10), on(P("x"), 4, 2))
    shards = x.addressable_shards
    assert [s.device.id for s in shards] == list(range(8))
    assert [s.replica_id for s in shards] == [0, 1] * 4
    assert [s.index for s in shards[::2]] == [(slice(0, 3),), (slice(3, 6),), (slice(6, 9),), (slice(9, 10),)]
    for s in shards:
        np.testing.assert_array_equal(s.data, floats(10)[s.index])
        assert s.data.devices() == {s.device}
    assert len(x.global_shards) == 8
    np.testing.assert_array_equal(x.addressable_data(2), [3, 4, 5])


def test_shards_beyond_the_extent_are_empty() -> None:
    x = mj.device_put(floats(3), on(P("x"), 8))
    assert [s.data.shape for s in x.addressable_shards] == [(1,)] * 3 + [(0,)] * 5


def test_numpy_sees_the_logical_array_read_only() -> None:
    x = mj.device_put(floats(10), on(P("x"), 4))
    seen = np.asarray(x)
    np.testing.assert_array_equal(seen, floats(10))
    assert seen is np.asarray(x) and not seen.flags.writeable
    assert np.array(x, dtype=np.int32).dtype == np.int32 and np.array(x).flags.writeable
    with pytest.raises(ValueError, match="a copy is needed to turn float32 into int32"):
        np.asarray(x, dtype=np.int32, copy=False)


def test_text() -> None:
    x = mj.device_put(np.array([1.5, 2], np.float32), on(P("x"), 4))
    assert repr(x) == """Array([1.5, 2. ], dtype=float32, P("x") on Mesh('x': 4))"""
    assert str(x) == "[1.5 2. ]"
    assert repr(mnp.asarray(2)) == "Array(2, dtype=int32, weak_type=True)"
    assert f"{mnp.asarray(np.float32(2)):.2f}" == "2.00"
    assert repr(mj.device_put(np.ones(2, ml_dtypes.bfloat16))) == "Array([1, 1], dtype=bfloat16)"
    assert repr(mj.device_put(np.ones(2, np.int8), mj.devices()[3])) == f"Array([1, 1], dtype=int8, on {mj.devices()[3]})"
    assert repr(mnp.zeros((0, 3))) == "Array([], shape=(0, 3), dtype=float32)"
    assert repr(mj.device_put(np.zeros(5000), on(P(), 2))).endswith("], dtype=float32, P() on Mesh('x': 2))")
    x.delete()
    assert repr(x) == "Array(shape=(2,), dtype=float32, deleted)"


def test_python_numbers() -> None:
    x = mj.device_put(np.int32(3), on(P(), 8))
    assert (int(x), float(x), complex(x), x.item(), [10, 11, 12, 13][x], bool(x)) == (3, 3.0, 3 + 0j, 3, 13, True)
    assert mj.device_put(floats(2, 2)).tolist() == [[0, 1], [2, 3]]
    assert mj.device_put(floats(2, 2)).item(1, 0) == 2


def test_what_is_no_number_says_so() -> None:
    x = mj.device_put(floats(2), on(P("x"), 2))
    cases: list[tuple[Any, type[Exception], str]] = [
        (
            lambda: bool(x),
            ValueError,
            "the truth value of an array of 2 elements, f32[2], is ambiguous\n"
            "  fix: use x.any() or x.all(); x.size > 0 asks whether there are elements",
        ),
        (lambda: bool(mnp.zeros(0)), ValueError, "the truth value of an array of 0 elements, f32[0], is ambiguous"),
        (lambda: float(x), TypeError, "float() needs an array without dims, got f32[2]\n  fix: index it first, or use x.item()"),
        (lambda: int(x[:1]), TypeError, "int() needs an array without dims, got f32[1]"),
        (lambda: range(x[0]), TypeError, "only integer scalar arrays can be used as an index or size, got f32[]"),
        (lambda: len(x[0]), TypeError, "len() of f32[], an array without dims"),
        (lambda: hash(x), TypeError, "Arrays cannot be hashed"),
        (lambda: x.__setitem__(0, 1), TypeError, "arrays cannot be changed in place\n  at "),
    ]
    for use, kind, text in cases:
        with pytest.raises(kind) as error:
            use()
        assert str(error.value).startswith(text)


OPERATORS: list[Any] = [
    lambda x: x + 1, lambda x: 2 - x, lambda x: x * x, lambda x: x / 3, lambda x: x // 3, lambda x: x % 3, lambda x: x**2,
    lambda x: -x, lambda x: abs(x), lambda x: x > 5, lambda x: x == 3, lambda x: divmod(x, 3)[1],
]  # fmt: skip
METHODS: list[Any] = [
    lambda x: x.T @ x, lambda x: x.sum(), lambda x: x.max(0), lambda x: x[3], lambda x: x[1:7:2, ::-1],
    lambda x: x[-1, 2], lambda x: x.reshape(-1),
]  # fmt: skip


@pytest.mark.parametrize("cases", [OPERATORS, METHODS], ids=["operators", "methods"])
def test_eager_ops_on_sharded_arrays(cases: list[Any]) -> None:
    value, place = floats(10, 4) + 1, on(P("x", "y"), 4, 2)
    x = mj.device_put(value, place)
    for case in cases:
        np.testing.assert_allclose(np.asarray(case(x)), case(value), rtol=1e-6)
    assert (x + 1).sharding.is_equivalent_to(place, 2)


def test_updates_and_iteration() -> None:
    x = mj.device_put(floats(10), on(P("x"), 4))
    expected = floats(10)
    expected[3] = 7
    np.testing.assert_array_equal(x.at[3].set(7.0), expected)
    assert [float(e) for e in x] == list(range(10))
    with pytest.raises(TypeError, match="0 dims"):
        iter(x[0])


def test_numpy_on_the_left_and_weak_scalars() -> None:
    x = mj.device_put(np.ones(3, ml_dtypes.bfloat16), on(P("x"), 4))
    assert (np.float32(1) + x).dtype == np.float32
    assert isinstance(np.ones(3, np.float32) + x, mj.Array)
    assert (1.0 + x).dtype == x.dtype and (x * 2).dtype == x.dtype
    assert (mnp.asarray(1) + mnp.asarray(2)).weak_type
    assert (mj.jit(lambda a: a)(1) + np.int8(1)).dtype == np.int8


def test_mixing_meshes_names_both() -> None:
    a = mj.device_put(floats(8), on(P("x"), 8))
    b = mj.device_put(floats(8), on(P("x"), 4))
    with pytest.raises(ValueError) as error:
        a + b
    text = str(error.value)
    assert text.startswith("add at test_api_array.py:") and text.endswith(
        "arguments live on different devices\n"
        "  one operand f32[8] is on Mesh('x': 8), P('x',)\n"
        "  another f32[8] is on Mesh('x': 4), P('x',)\n"
        "  fix: move one to the other's place first: meshjit.device_put(x, y.sharding)"
    )


def test_mixing_orders_of_devices_says_so() -> None:
    devices = mj.devices()[:3]
    a, b = (mj.device_put(floats(8), NamedSharding(Mesh(np.array(row), ("x",)), P("x"))) for row in (devices, devices[::-1]))
    with pytest.raises(ValueError) as error:
        a + b
    assert str(error.value).endswith(
        "arguments live on devices in another order\n"
        "  one operand f32[8] is on Mesh('x': 3), P('x',) of devices [0, 1, 2]\n"
        "  another f32[8] is on Mesh('x': 3), P('x',) of devices [2, 1, 0]\n"
        "  fix: move one to the other's place first: meshjit.device_put(x, y.sharding)"
    )
    with pytest.raises(ValueError, match="one compiled function runs on its devices in one order"):
        mj.jit(lambda a, b: a + b)(a, b)
    assert np.asarray(a + mj.device_put(b, a.sharding)).tolist() == np.asarray(floats(8) * 2).tolist()


def test_copies_have_memory_of_their_own() -> None:
    for place in (on(P("x"), 4), SingleDeviceSharding(mj.devices()[2]), None):
        x = mj.device_put(floats(10), place)
        copies = [x.copy(), copy.copy(x), copy.deepcopy(x)]
        x.delete()
        for c in copies:
            assert c.sharding == x.sharding and c.committed == x.committed
            np.testing.assert_array_equal(c, floats(10))


def test_pickles_hold_the_elements() -> None:
    x = mj.device_put((floats(10)).astype(ml_dtypes.bfloat16), on(P("x"), 4))
    back = pickle.loads(pickle.dumps(x))
    np.testing.assert_array_equal(back, np.asarray(x))
    assert back.dtype == x.dtype and not back.committed
    assert pickle.loads(pickle.dumps(mnp.asarray(2))).weak_type


def test_deleting_and_waiting() -> None:
    x = mj.device_put(floats(10), on(P("x"), 4))
    assert x.block_until_ready() is x and x.is_ready() and not x.is_deleted()
    np.asarray(x)
    x.delete()
    x.delete()
    assert x.is_deleted()
    for use in (lambda: np.asarray(x), lambda: x.block_until_ready(), lambda: x + 1):
        with pytest.raises(RuntimeError) as error:
            use()
        assert str(error.value) == "Array f32[10] has been deleted by its delete()\n  fix: delete it after its last use"


# --- device_put


SPECS = [P(), P("x"), P(("x", "y")), P(("y", "x")), P(None, "x"), P("y", "x")]


@pytest.mark.parametrize("target", SPECS, ids=str)
@pytest.mark.parametrize("source", SPECS, ids=str)
def test_every_sharding_to_every_other(source: P, target: P) -> None:
    x = mj.device_put(floats(5, 3), on(source, 4, 2))
    moved = mj.device_put(x, on(target, 4, 2))
    assert moved.sharding == on(target, 4, 2) and moved.committed
    np.testing.assert_array_equal(moved, floats(5, 3))
    for shard in moved.addressable_shards:
        np.testing.assert_array_equal(shard.data, floats(5, 3)[shard.index])


def test_other_devices_and_other_meshes() -> None:
    x = mj.device_put(floats(10), on(P("x"), 8))
    devices = mj.devices()
    targets = [on(P("x"), 4), on(P("y"), 2, 2, 2), SingleDeviceSharding(devices[5]), NamedSharding(Mesh(devices[4:], "x"), P("x"))]
    for target in targets:
        np.testing.assert_array_equal(mj.device_put(x, target), floats(10))
    assert mj.device_put(x, devices[3]).devices() == {devices[3]}
    assert not mj.device_put(floats(2)).committed


def test_trees_prefixes_specs_and_donation() -> None:
    place, whole = on(P("x"), 4), on(P(), 4)
    tree = {"a": floats(10), "b": (floats(3), None, 2.0)}
    put = mj.device_put(tree, {"a": place, "b": whole})
    assert put["a"].sharding == place and put["b"][0].sharding == whole and put["b"][1] is None
    assert put["b"][2].weak_type
    with place.mesh:
        assert mj.device_put(floats(10), P("x")).sharding == place
    mj.device_put(put["a"], whole, donate=True)
    assert put["a"].is_deleted()
    mj.device_put(put["b"][0], whole, donate=True)
    assert not put["b"][0].is_deleted()  # nothing moved


def test_donate_is_a_prefix_tree_and_deletes_what_it_names() -> None:
    def put(place, donate, **kwargs):
        arrays = [mnp.arange(10.0) + i for i in range(3)]
        tree = {"a": (arrays[0], arrays[1]), "b": arrays[2], "c": floats(10)}
        results = mj.device_put(tree, place, donate=donate, **kwargs)
        np.testing.assert_array_equal(results["a"][1], np.arange(10) + 1)
        return [x.is_deleted() for x in arrays]

    for place in (on(P("x"), 4), mj.devices()[1], on(P("x"), 3)):
        assert put(place, {"a": (True, False), "b": False, "c": True}) == [True, False, False]
        assert put(place, {"a": (False, True), "b": None, "c": False}) == [False, True, False]
        assert put(place, {"a": True, "b": False, "c": False}) == [True, True, False]
        assert put({"a": place, "b": None, "c": None}, {"a": False, "b": True, "c": False}) == [False, False, False]  # unmoved
        assert put(place, True) == [True] * 3 and put(place, False) == [False] * 3
        assert put(place, {"a": (True, False), "b": True, "c": False}, may_alias={"a": (False, True), "b": False, "c": True}) == [
            True, False, True,
        ]  # fmt: skip


def test_an_array_donated_and_put_twice_is_read_first_and_kept_where_a_result_shares_its_memory() -> None:
    place = on(P("x"), 4)
    x = mnp.arange(10.0)
    first, second = mj.device_put((x, x), place, donate=(True, False))
    assert x.is_deleted()
    for y in (first, second):
        np.testing.assert_array_equal(y, np.arange(10))
    x = mnp.arange(10.0)
    moved, same = mj.device_put((x, x), (place, x.device), donate=(True, False))
    assert not x.is_deleted()
    for y in (moved, same):
        np.testing.assert_array_equal(y, np.arange(10))


@pytest.mark.parametrize("what", ["donate", "may_alias"])
def test_flags_that_are_no_prefix_of_the_tree_say_so(what) -> None:
    x = floats(2)
    for flags, why in [((True,), "is a tuple of 1, the value in its place is a tuple of 2"), ({"a": True}, "is a dict with")]:
        with pytest.raises(ValueError, match=f"^device_put's {what} does not fit: it {why}"):
            mj.device_put((x, x), **{what: flags})


def test_inside_jit_it_is_a_constraint() -> None:
    place = on(P("x"), 4)
    result = mj.jit(lambda x: mj.device_put({"x": x + 1}, place))(floats(10))
    assert result["x"].sharding == place


def test_a_moved_array_keeps_weak_type() -> None:
    assert mj.device_put(mnp.asarray(2), on(P(), 4)).weak_type


# --- more of what users do with an Array


@pytest.mark.parametrize("place", [None, on(P("x"), 4), on(P(), 4), on(P("x", "y"), 2, 2)], ids=str)
def test_iteration_gives_rows_placed_alike(place: Any) -> None:
    value = floats(5, 3)
    x = mj.device_put(value, place)
    rows = list(x)
    assert len(rows) == 5 and len({r.sharding for r in rows}) == 1
    for row, expected in zip(rows, value, strict=True):
        np.testing.assert_array_equal(row, expected)
        assert row.sharding == x[0].sharding and row.committed == x[0].committed
    np.testing.assert_array_equal(list(reversed(x))[0], value[4])
    assert 7.0 in x and 99.0 not in x
    a, b, *rest = mnp.asarray(floats(4))
    assert (float(a), float(b), len(rest)) == (0, 1, 2)


def test_iteration_inside_a_trace_and_over_nothing() -> None:
    x = mj.device_put(floats(3), on(P("x"), 2))
    assert float(mj.jit(lambda y: sum(e * y for e in x))(2.0)) == 6
    assert float(mj.grad(lambda y: sum(e * e for e in y))(x)[2]) == 4
    assert list(mnp.zeros((0, 3))) == [] and list(mnp.asarray([1, 2]))[0].dtype == np.int32
    weak = mj.jit(lambda: mnp.asarray(1))()
    assert weak.weak_type == mnp.asarray(1).weak_type


def test_sizes_and_addresses() -> None:
    x = mj.device_put(floats(10), on(P("x"), 4, 2))
    assert (x.nbytes, x.on_device_size_in_bytes()) == (40, 8 * 3 * 4)  # padded shards of 3, each on two devices
    assert x.platform() == mj.default_backend()
    with pytest.raises(ValueError, match="f32.10. lies on 8 devices, each with memory of its own"):
        x.unsafe_buffer_pointer()
    y = x.addressable_data(0)
    assert y.unsafe_buffer_pointer() % 16 == 0 and y.on_device_size_in_bytes() == 12
    assert y.to_device(mj.devices()[3]).devices() == {mj.devices()[3]}
    with pytest.raises(NotImplementedError, match="streams cannot be chosen"):
        y.to_device(mj.devices()[3], stream=1)


def test_to_device_goes_where_device_put_does() -> None:
    x, place = mnp.ones(4), on(P("x"), 2)
    with mj.set_mesh(place.mesh):
        assert x.to_device(P("x")).sharding == place
    assert x.to_device(mj.memory.Space.Host).sharding.memory_kind == "pinned_host"
    with pytest.raises(mj.errors.ShardingError, match="P.'x',. needs a mesh"):
        x.to_device(P("x"))
    with pytest.raises(ValueError, match="'x' is neither a device nor a sharding"):
        x.to_device("x")


@pytest.mark.parametrize(("spec", "text"), [("", "[1.5 2. ]"), (".1f", None)])
def test_formatting(spec: str, text: str | None) -> None:
    x = mj.device_put(np.array([1.5, 2], np.float32), on(P("x"), 2))
    if text is None:
        with pytest.raises(TypeError, match=r"the format '.1f' is for one number, not for f32\[2\]"):
            format(x, spec)
        assert format(x[0], spec) == "1.5" and f"{mnp.asarray(3):03d}" == "003"
    else:
        assert format(x, spec) == str(x) == text


def test_numpys_copy_semantics() -> None:
    x = mj.device_put(floats(6), on(P("x"), 2))
    assert np.array(x, copy=False) is np.asarray(x) or np.shares_memory(np.array(x, copy=False), np.asarray(x))
    own = np.array(x)
    own[0] = 99
    assert float(x[0]) == 0 and x.__array__(np.float32) is np.asarray(x)
    assert x.__array__(np.int8).dtype == np.int8 and x.__array__(copy=True).flags.writeable
    np.testing.assert_array_equal(np.add(x, 1), floats(6) + 1)
    np.testing.assert_array_equal(np.concatenate([x, x]), np.concatenate([floats(6)] * 2))
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        np.asarray(x)[0] = 1


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "complex64", "float8_e5m2"])
def test_every_kind_of_number_converts(dtype: str) -> None:
    x = mj.device_put(np.ones((), getattr(ml_dtypes, dtype, dtype)))
    assert complex(x) == 1 and bool(x) is True and x.item() == 1 and x.tolist() == 1
    if dtype == "complex64":
        with pytest.raises(TypeError):
            float(x)
    else:
        assert int(x) == 1 and float(x) == 1.0
    if dtype in ("int8", "uint32"):
        assert [5, 6][x] == 6
    else:
        with pytest.raises(TypeError, match="only integer scalar arrays"):
            [5, 6][x]  # noqa: B018
    assert pickle.loads(pickle.dumps(x)).dtype == x.dtype and copy.deepcopy([x])[0].item() == 1


def test_shards_say_who_they_are() -> None:
    x = mj.device_put(floats(4), on(P("x"), 2))
    shard = x.addressable_shards[1]
    assert shard == x.addressable_shards[1] != x.addressable_shards[0] and shard.data is shard.data
    assert repr(shard).startswith(f"Shard(device={mj.devices()[1]!r}, index=(slice(2, 4, None),), replica_id=0, data=[2. 3.]")
    x.delete()
    for use in (lambda: x.addressable_shards, lambda: x.global_shards, lambda: x.is_ready(), lambda: x.copy_to_host_async()):
        with pytest.raises(RuntimeError, match="has been deleted"):
            use()
    assert x.shape == (4,) and x.sharding == on(P("x"), 2) and x.is_deleted()


def test_bytes_views_and_namespace() -> None:
    x = mj.device_put(floats(6), on(P("x"), 4))
    assert x.tobytes() == floats(6).tobytes() and x.__array_namespace__() is mnp is x.__array_namespace__(api_version="2024.12")
    np.testing.assert_array_equal(x.view(np.int32), floats(6).view(np.int32))
    np.testing.assert_array_equal(mj.jit(lambda x: x.view("uint32").view(np.float32))(x), floats(6))
    assert x.view() is x and x.view(np.float32) is x
    np.testing.assert_array_equal(mnp.from_dlpack(floats(3)), floats(3))


def test_functions_of_numpy_call_our_methods() -> None:
    x = mj.device_put(np.arange(12, dtype=np.float32).reshape(4, 3) - 3)
    for f in (np.sum, np.prod, np.max, np.min, np.mean, np.var, np.std, np.all, np.any, np.argmax, np.argmin, np.cumsum, np.ptp):
        for options in ({}, {"axis": 0}):
            found, wanted = f(x, **options), f(np.asarray(x), **options)
            assert isinstance(found, mj.Array) or f is np.ptp
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_array_equal(np.sum(x, 1, None, None, True), np.sum(np.asarray(x), 1, None, None, True))
    assert isinstance(np.round(x, 1), mj.Array)
    with pytest.raises(NotImplementedError, match=r"sum: out= is not there, since arrays cannot be changed in place\n  fix: out = sum"):
        mnp.sum(x, out=np.zeros(()))
    with pytest.raises(NotImplementedError, match='take: mode="raise" is not there'):
        mnp.take(x, 1, mode="raise")
