"""Functions, methods and indices outside of any trace, again and again: nothing is different for it when C++ runs them."""

from __future__ import annotations

import inspect
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn, tree
from meshjit.numpy.quick import calls, numbers, programs
from meshjit.numpy.quick.calls import quickened
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
from tests.tools import numpy_cases

pytestmark = pytest.mark.device

TIMES = 7  # enough for numbers to be kept and programs to be made


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was handed to C++, which here is asked soon."""
    found: list[Any] = []
    monkeypatch.setattr(calls, "_ONE", 2)
    monkeypatch.setattr(calls, "_SEVERAL", 3)
    monkeypatch.setattr(programs, "of_one_op", noting(programs.of_one_op, found))
    monkeypatch.setattr(programs, "of_several_ops", noting(programs.of_several_ops, found))
    return found


def noting(way: Callable[..., Any], found: list[Any]) -> Callable[..., Any]:
    def noted(*args: Any) -> Any:
        result = way(*args)
        found.extend([] if result is None else [args[0].name])
        return result

    return noted


def on(spec: P, count: int = 4) -> NamedSharding:
    return NamedSharding(Mesh(np.array(mj.devices()[:count]), ("x",)), spec)


def floats(*shape: int) -> Any:
    return mnp.asarray(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def outcome(call: Callable[[], Any]) -> Any:
    """All that can be seen of a result, or of an error."""
    try:
        leaves, structure = tree.flatten(call())
    except Exception as error:  # noqa: BLE001
        return type(error), str(error)
    return structure, [x if not isinstance(x, mj.Array) else (x._key, x.committed, np.asarray(x).tobytes()) for x in leaves]


def stays(call: Callable[[], Any]) -> Any:
    """The first outcome, which the others have to be."""
    first, *others = [outcome(call) for _ in range(TIMES)]
    assert all(other == first for other in others)
    return first


CASES = list(numpy_cases.calls())


@pytest.mark.parametrize("call", CASES[::150])
def test_results_stay_as_they_are_to_the_bit(call: str) -> None:
    names = {**numpy_cases.operands(mnp.asarray), "np": mnp, "lax": lax}
    stays(lambda: eval(call, names))


@pytest.mark.parametrize("call", CASES[5::500])
def test_results_stay_as_they_are_on_uneven_shards(call: str) -> None:
    def sharded(x: Any) -> Any:
        return mj.device_put(x, on(P(*[None] * (x.ndim - 1), "x") if x.ndim else P()))

    names = {**numpy_cases.operands(sharded), "np": mnp, "lax": lax}
    stays(lambda: eval(call, names))


def test_what_users_call_in_loops_is_quick(made: list[Any]) -> None:
    x, y, b = floats(8, 8), floats(8, 8) + 1, floats(8, 8) > 0
    for call in (
        lambda: mnp.tanh(x), lambda: abs(x), lambda: -x, lambda: x.sum(), lambda: mnp.sum(x, axis=1, keepdims=True),
        lambda: x.mean(0),
        lambda: b.any(), lambda: x.argmax(), lambda: mnp.where(b, x, 1), lambda: mnp.clip(x, 0, 1), lambda: x.clip(max=0.5),
        lambda: mnp.maximum(x, 0), lambda: mnp.less(x, y), lambda: x.reshape(4, -1), lambda: x.T, lambda: x.astype(mnp.int32),
        lambda: x.astype("float16"), lambda: mnp.matmul(x, y), lambda: mnp.einsum("ij,jk->ik", x, y),
        lambda: mnp.concatenate([x, y], axis=1),
        lambda: mnp.stack((x, y)), lambda: mnp.linalg.norm(x), lambda: x.std(), lambda: mnp.log2(abs(x)), lambda: nn.softmax(x),
        lambda: nn.relu(x), lambda: nn.gelu(x), lambda: lax.tanh(x), lambda: x[1], lambda: x[2:4, -1], lambda: x.at[1].set(0.5),
        lambda: x.at[2, 3].add(y[0, 0]), lambda: mnp.take(x, 1, axis=0), lambda: mnp.split(x, 2), lambda: mnp.linalg.slogdet(x),
    ):  # fmt: skip
        made.clear()
        stays(call)
        assert made


@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16", "bool"])
def test_numbers(dtype: str) -> None:
    x = mnp.arange(-3, 7).astype(dtype)
    for n in (1, 0, -0.0, 0.1, 257, 2**24 + 1, 2**40, True, float("nan")):
        for call in (
            lambda n: mnp.minimum(n, x), lambda n: mnp.where(x > 0, x, n), lambda n: mnp.clip(x, n),
            lambda n: mnp.copysign(x, n), lambda n: mnp.power(x, n), lambda n: mnp.true_divide(x, n),
        ):  # fmt: skip
            stays(partial(call, n))


def test_zeros_keep_their_signs() -> None:
    x = mnp.asarray(np.array([0.0, -0.0, 1.0], np.float32))
    for zero in (0.0, -0.0, 0, 0.0):
        expected = np.copysign(np.asarray(x), np.float32(zero))
        for _ in range(TIMES):
            np.testing.assert_array_equal(np.signbit(mnp.copysign(x, zero)), np.signbit(expected))


def test_kinds_of_operands() -> None:
    vector, weak = floats(10), mnp.asarray(2.0)
    for x in (
        weak, mj.device_put(vector, mj.devices()[1]), mj.device_put(vector, on(P("x"))), vector.astype(np.float16), vector[:0],
    ):  # fmt: skip
        for call in (
            mnp.tanh, lambda x: x.mean(), lambda x: mnp.where(x > 0, x, vector), lambda x: mnp.maximum(x, weak), lambda x: x.max(),
            lambda x: mnp.sum(x, dtype=mnp.float32, where=x > 0), lambda x: mnp.stack([x, x]), lambda x: x[3], lambda x: x[2:5],
        ):  # fmt: skip
            stays(partial(call, x))


def test_settings_are_told_apart() -> None:
    x = floats(2, 3)
    for _ in range(TIMES):
        assert mnp.sum(x, 0).shape == (3,) and mnp.sum(x, (0,)).shape == (3,) and mnp.sum(x, axis=1).shape == (2,)
        assert mnp.sum(x, 1, None, None, True).shape == (2, 1) and mnp.reshape(x, (3, 2)).shape == (3, 2)
        assert x.astype(mnp.int32).dtype == np.int32 and x.astype(bool).dtype == np.bool_
        assert mnp.power(x, 2).shape == mnp.power(x, 3).shape and (mnp.power(x, 2) >= 0).all()
        for wrong in (lambda: mnp.reshape(x, (3.0, 2)), lambda: mnp.sum(x, 1.0), lambda: mnp.sum(x, 2), lambda: x.reshape(4)):
            with pytest.raises((TypeError, ValueError)):
                wrong()


INDICES: list[Any] = [
    1, -1, slice(1, 3), slice(-2, None), (0, 1), (slice(None), 0), (slice(1, 3), 0, slice(2, 4)), (Ellipsis, 1), (None, 1),
    (1, None, Ellipsis, None, slice(1, 3)), (Ellipsis, None), Ellipsis, slice(3, 1), slice(None, None, -2), 4, -9, (0, 0, 0, 0), True,
    "a", "b", (np.int32(1), "a"), (slice(None), "a", 2), (0, "a"), ("a", slice(0, 2)), (1, 2, 3),
]  # fmt: skip
ARRAYS = {"a": np.array([0, 2, -1], np.int32), "b": np.array([True, False, True, True])}


def index_of(parts: Any) -> Any:
    if isinstance(parts, tuple):
        return tuple(map(index_of, parts))
    return mnp.asarray(ARRAYS[parts]) if isinstance(parts, str) else parts


@pytest.mark.parametrize("parts", INDICES, ids=str)
def test_indices(parts: Any) -> None:
    x, index = floats(4, 5, 6), index_of(parts)
    stays(lambda: x[index])
    for call in (
        lambda: x.at[index].set(0.5), lambda: x.at[index].add(2), lambda: x.at[index].max(mnp.asarray(0.25)),
        lambda: x.at[index].set(-0.0), lambda: x.at[index].multiply(mnp.arange(6.0)),
    ):  # fmt: skip
        stays(call)


def test_each_place_is_its_own() -> None:
    x = np.arange(40, dtype=np.int32).reshape(10, 4)
    for y in (mnp.asarray(x), mj.device_put(x, mj.devices()[2]), mj.device_put(x, on(P("x")))):
        for i in [*range(10), *range(-10, 0), *range(10)]:
            np.testing.assert_array_equal(y[i], x[i])
            np.testing.assert_array_equal(y[i : i + 2], x[i : i + 2])
            changed = x.copy()
            changed[i, 1] = i
            np.testing.assert_array_equal(y.at[i, 1].set(i), changed)


def test_places_that_are_kept_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    mj.clear_caches()
    monkeypatch.setattr(numbers, "_MOST", 8)
    x = mnp.arange(100)
    for i in (*range(100), *range(100)):
        assert int(x[i]) == i
    assert sum(map(len, numbers._places_on.values())) <= 8 and len(numbers._originals) <= 16


def test_an_operand_that_is_the_result_stays_itself() -> None:
    x = floats(3)
    for _ in range(TIMES):
        assert x.astype(np.float32) is x and x.reshape(3) is x


def test_who_deleted_an_operand_is_said() -> None:
    x = floats(3)
    for _ in range(TIMES):
        mnp.tanh(x), x[0], mnp.maximum(x, 0)
    y = floats(3)
    y.delete()
    for call in (lambda: mnp.tanh(y), lambda: y[0], lambda: mnp.maximum(y, 0), lambda: y.at[0].set(1)):
        with pytest.raises(RuntimeError, match="has been deleted by its delete"):
            call()
    z = floats(3)
    mj.jit(lambda a: a + 1, donate_argnums=0)(z)
    with pytest.raises(RuntimeError, match="donated|deleted"):
        mnp.tanh(z)


def test_functions_that_warn_or_ask_go_the_usual_way(made: list[Any]) -> None:
    def warns(x: Any) -> Any:
        warnings.warn("once more", stacklevel=1)
        return mnp.sin(x) + 1

    def asks(x: Any) -> Any:
        return mnp.sin(x) if float(x[0]) > 0 else mnp.cos(x)

    def tells_numbers_apart(x: Any, n: Any) -> Any:
        return mnp.sin(x) + (1 if isinstance(n, int) else 2)

    x = floats(3)
    for function in (warns, asks):
        function = quickened(function)
        for _ in range(TIMES):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                np.testing.assert_array_equal(function(x), function.__wrapped__(x))
            assert len(said) == 2 * (function.__name__ == "warns")
    told = quickened(tells_numbers_apart, 2)
    for _ in range(TIMES):
        np.testing.assert_array_equal(told(x, 3), mnp.sin(x) + 1)
        np.testing.assert_array_equal(told(x, x), mnp.sin(x) + 2)
    assert "warns" not in made and "asks" not in made


def test_traced_functions_see_no_difference() -> None:
    x = floats(3)
    for _ in range(TIMES):
        mnp.tanh(x), mnp.where(x > 0, x, 1), x[1], x.at[1].set(2)
    text = mj.jit(lambda y: mnp.tanh(y) + mnp.tanh(x) + x[1] + y.at[1].set(2)).lower(x).as_text("meshjit")
    assert text.count("tanh") == 2
    np.testing.assert_array_equal(mj.grad(lambda y: mnp.where(y > 0, y, 1).sum())(x)[0], (x > 0).astype(np.float32)[0])
    np.testing.assert_array_equal(mj.vmap(lambda y: mnp.maximum(y, 0))(x), mnp.maximum(x, 0))


def test_options_meshes_and_caches() -> None:
    x = mnp.arange(3)
    for _ in range(TIMES):
        assert mnp.mean(x).dtype == np.float32 and x.astype(float).dtype == np.float32
    with mj.config.using(enable_x64=True):
        for _ in range(TIMES):
            assert x.astype(float).dtype == np.float64 and mnp.sum(x, dtype="float64").dtype == np.float64
    with mj.config.using(default_device=mj.devices()[1]):
        assert mnp.tanh(mnp.asarray(np.ones(3, np.float32))).devices() == {mj.devices()[1]}
    zero = mnp.zeros(3)
    for _ in range(TIMES):
        mnp.log(zero), mnp.true_divide(zero, zero)
    with mj.config.using(debug_nans=True), pytest.raises(FloatingPointError):
        mnp.true_divide(zero, zero)
    with Mesh(np.array(mj.devices()[:2]), ("y",)):
        stays(lambda: mnp.tanh(zero))
    mj.clear_caches()
    assert not numbers._numbers and not numbers._originals and not numbers._places_on
    stays(lambda: mnp.maximum(x, 1))


FUNCTIONS = [mnp.tanh, mnp.sum, mnp.where, mnp.any, mnp.linalg.norm, nn.relu, lax.add, mnp.einsum]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_functions_are_what_they_were(function: Any) -> None:
    usual = function.__wrapped__
    assert inspect.signature(function) == inspect.signature(usual)
    assert function.__name__ == usual.__name__ and function.__doc__ == usual.__doc__
    assert pickle.loads(pickle.dumps(function)) is function


def test_threads_call_at_once() -> None:
    x = floats(50)
    expected = [np.asarray(nn.softmax(x)), np.asarray(x[7]), np.asarray(mnp.clip(x, 0, 1))]

    def work(_: int) -> bool:
        results = [nn.softmax(x), x[7], mnp.clip(x, 0, 1)]
        return all(np.array_equal(a, b) for a, b in zip(results, expected, strict=True))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(200)))


def test_arrays_of_settings_alone() -> None:
    mesh = Mesh(np.array(mj.devices()[:2]), ("y",))
    for make in (
        lambda: mnp.arange(8), lambda: mnp.arange(0.0, 1.0, 0.25), lambda: mnp.zeros((3, 2)), lambda: mnp.ones(3, int),
        lambda: mnp.eye(3), lambda: mnp.full(2, -0.0), lambda: mnp.full(2, 0.0), lambda: mnp.full(2, True), lambda: mnp.linspace(0, 1, 7, retstep=True),
        lambda: mnp.zeros((3.0, 2)), lambda: mnp.zeros(-1),
    ):  # fmt: skip
        plain = stays(make)
        with mj.config.using(default_device=mj.devices()[1]):
            stays(make)
        with mj.config.using(enable_x64=True):
            stays(make)
        with mesh:
            stays(make)
        assert stays(make) == plain
    x = mnp.zeros(3)
    mj.jit(lambda a: a + 1, donate_argnums=0)(x)
    np.testing.assert_array_equal(mnp.zeros(3), np.zeros(3))
