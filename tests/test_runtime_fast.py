"""Calls in C++: which calls look alike, what comes back to Python, and what the results are made of."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import tree
from meshjit.runtime import _jaxlib
from meshjit.runtime.fast import fast_call, fast_function
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device


def on(spec: P, count: int = 4) -> NamedSharding:
    return NamedSharding(Mesh(np.array(mj.devices()[:count]), ("x",)), spec)


class Caller:
    """A function that is compiled once per call that misses, and counts the misses."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun, self.misses = fun, 0
        self.fast = fast_function("test", self.miss)

    def miss(self, *args: Any, **kwargs: Any) -> Any:
        self.misses += 1
        compiled = mj.jit(self.fun).lower(*args, **kwargs).compile()
        leaves = tree.leaves((args, kwargs))
        result = compiled(*args, **kwargs)
        if not all(isinstance(x, mj.Array) for x in leaves):
            return result, None, False
        kept = [i in compiled.kept for i in range(len(leaves))]
        return result, fast_call(compiled.executable, compiled.out_tree, kept), False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fast(*args, **kwargs)


def floats(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: x + 1,
        lambda x: {"a": x + 1},
        lambda x: (x + 1, [x * 2, {"s": x.sum()}], None),
        lambda x: [],
        lambda x: (x.astype(mnp.int32), x[:0], x > 2),
    ],
    ids=["bare", "one in a dict", "nested", "nothing", "types"],
)
@pytest.mark.parametrize("shape", [(10,), (8, 3), (0, 2)], ids=str)
def test_results_are_those_of_the_first_call(fun: Callable[..., Any], shape: tuple[int, ...]) -> None:
    call, x = Caller(fun), mj.device_put(floats(*shape), on(P("x")))
    first, again = call(x), call(x)
    assert call.misses == 1
    assert tree.structure(first) == tree.structure(again)
    for one, other in zip(tree.leaves(first), tree.leaves(again), strict=True):
        assert one._key is other._key and one.sharding == other.sharding and one.weak_type == other.weak_type
        np.testing.assert_array_equal(one, other)


def test_arrays_from_c_plus_plus_are_like_any_other() -> None:
    call = Caller(lambda x: x * 2)
    call(mj.device_put(floats(10), on(P("x"))))
    x = call(mj.device_put(floats(10), on(P("x"))))
    assert call.misses == 1 and isinstance(x, mj.Array) and isinstance(x.sharding, NamedSharding) and x.committed
    np.testing.assert_array_equal(x, 2 * floats(10))
    assert repr(x).startswith("Array([ 0.,  2.,") and not x.is_deleted()
    for other in (copy.copy(x), copy.deepcopy(x), x.copy(), pickle.loads(pickle.dumps(x)), x + 0, call(x) / 2):
        np.testing.assert_array_equal(other, 2 * floats(10))
    assert weakref.ref(x)() is x
    x.delete()
    assert x.is_deleted() and "deleted" in repr(x)


def test_calls_look_alike_only_with_equal_keys() -> None:
    call, mesh = Caller(lambda x: x + 1), on(P())
    variants = [
        mj.device_put(floats(8), on(P("x"))),
        mj.device_put(floats(8), on(P())),
        mj.device_put(floats(8), on(P("x", None)[:1])),  # as the first
        mj.device_put(floats(7), on(P("x"))),
        mj.device_put(floats(8).astype(np.int32), on(P("x"))),
        mj.device_put(floats(8), mj.devices()[0]),
        mj.device_put(floats(8)),  # on the same device, but uncommitted
        mj.device_put(floats(8), mj.devices()[1]),
        mj.device_put(mnp.asarray(2.0), mesh),  # weak
        mj.device_put(mnp.asarray(np.float32(2)), mesh),
        mj.device_put(floats(8), on(P("x"), 8)),
    ]
    for _ in range(3):
        for x in variants:
            result = call(x)
            np.testing.assert_array_equal(result, np.asarray(x) + 1)
            assert result.weak_type == x.weak_type and result.devices() == x.devices()
    assert call.misses == len(variants) - 1


def test_padded_extents_with_equal_shards_do_not_look_alike() -> None:
    """9, 10, 11 and 12 over 4 devices all have shards of 3."""
    call = Caller(lambda x: x.sum())
    for n in (9, 10, 11, 12) * 2:
        assert float(call(mj.device_put(floats(n), on(P("x"))))) == n * (n - 1) / 2
    assert call.misses == 4


def test_trees_and_keywords_are_part_of_the_look() -> None:
    call, x = Caller(lambda *args, **kwargs: tree.leaves((args, kwargs))[0] + 1), mj.device_put(floats(8), on(P("x")))
    for _ in range(2):
        call(x), call((x,)), call([x]), call({"a": x}), call({"b": x}), call(a=x), call(x, None)
    assert call.misses == 7


def test_what_is_no_array_comes_to_python_every_time() -> None:
    call = Caller(lambda x: x + 1)
    for value in (1, 1.5, True, np.float32(2), floats(3)):
        for _ in range(2):
            np.testing.assert_array_equal(call(value), np.asarray(value) + np.float32(1))
    assert call.misses == 10
    with pytest.raises(TypeError):
        call("text")


def test_deleted_arrays_come_to_python() -> None:
    call, x = Caller(lambda x: x + 1), mj.device_put(floats(8), on(P("x")))
    call(x)
    x.delete()
    with pytest.raises(Exception, match="deleted"):
        call(x)
    call(mj.device_put(floats(8), on(P("x"))))


def test_arrays_that_share_memory_raise_when_it_is_gone() -> None:
    x = mj.device_put(floats(8), on(P("x")))
    twin = mj.device_put(x, on(P(("x",))))
    call = Caller(lambda x: x + 1)
    call(twin)
    x.delete()
    assert twin.is_deleted()
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        call(twin)


def test_one_meaning_spelt_in_two_ways_keeps_its_spelling() -> None:
    x = mj.device_put(floats(8, 2), on(P("x")))
    y = mj.device_put(x, on(P("x", None)))
    assert (x.sharding, y.sharding) == (on(P("x")), on(P("x", None)))
    call = Caller(lambda x: x + 1)
    assert call(x).sharding.is_equivalent_to(call(y).sharding, 2)
    assert call(y).sharding.is_equivalent_to(x.sharding, 2)


def test_arguments_are_counted() -> None:
    compiled = mj.jit(lambda x, y: x).lower(floats(2), floats(3)).compile()
    with pytest.raises(ValueError, match="the program takes 1 arguments, 2 of 2 are kept"):
        fast_call(compiled.executable, compiled.out_tree, [True, True])


def test_errors_of_the_miss_pass_through() -> None:
    def broken(args: Any, kwargs: Any) -> Any:
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        fast_function("broken", broken)((), {})


def test_threads_call_at_once() -> None:
    """On one device: XLA:CPU can hang when several threads start programs of several devices, under JAX, too."""
    call, x = Caller(lambda x: x + 1), mj.device_put(floats(8), mj.devices()[1])
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.extend(call(x) for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    for result in results:
        np.testing.assert_array_equal(result, floats(8) + 1)


def test_functions_and_results_are_let_go() -> None:
    call, x = Caller(lambda x: x + 1), mj.device_put(floats(8), on(P("x")))
    call(x)
    gone = [weakref.ref(call), weakref.ref(call(x)), weakref.ref(x)]
    del call, x
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3


def test_layouts_lead_back_to_keys() -> None:
    x = mj.device_put(floats(10), on(P("x")))
    assert x._sharding is x._key.layout and x._key.layout.key is x._key
    assert _jaxlib.Layout(tuple(mj.devices())) != _jaxlib.Layout(tuple(mj.devices()))


def test_the_class_of_arrays() -> None:
    """It is jaxlib's; `mj.Array` stands for those of its instances that are ours."""
    x = mj.device_put(floats(10), on(P("x")))
    assert issubclass(type(x), mj.Array) and not issubclass(np.ndarray, mj.Array) and not isinstance(1, mj.Array)
    assert str(type(x)) == "<class 'meshjit.Array'>"
    bare = _jaxlib.put([floats(2)], [mj.devices()[0]])
    assert type(bare) is type(x) and not isinstance(bare, mj.Array)
    with pytest.raises(TypeError, match="unsupported operand type.s. for .: 'Array' and 'str'"):
        x + "text"


def test_dispatch_on_the_class_of_arrays() -> None:
    @functools.singledispatch
    def kind(x: Any) -> str:
        return "other"

    kind.register(mj.Array, lambda x: "array")
    assert [kind(mj.device_put(1.0)), kind(1.0), kind(np.ones(2))] == ["array", "other", "other"]


def test_values_on_the_host_do_not_keep_arrays() -> None:
    """Without the garbage collector: elements are let go with the last reference."""
    gc.disable()
    try:
        for place in (mj.devices()[0], on(P("x")), on(P())):
            x = mj.device_put(floats(8), place)
            value, gone = x.numpy(), weakref.ref(x)
            del x
            assert gone() is None and value.tolist() == floats(8).tolist()
    finally:
        gc.enable()


def test_arrays_under_another_key_share_their_memory() -> None:
    x = mj.device_put(floats(8, 2), on(P("x")))
    y = mj.device_put(x, on(P("x", None)))
    assert y is not x and y.memory is x.memory and mj.device_put(y, on(P("x", None))) is y
    y.delete()
    assert x.is_deleted()
