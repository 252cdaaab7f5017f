"""Python functions beside their arguments: called once for each call, with arrays as they lie."""

from __future__ import annotations

import re
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit.experimental.colocated_python import colocated_cpu_devices, colocated_python, colocated_python_class
from sharding.spec import PartitionSpec as P

ROWS = P("x")


def sharded(spec: P = ROWS, shape: tuple[int, ...] = (16,)) -> mj.Array:
    mesh = mj.make_mesh((4, 2), ("x", "y"))
    return mj.device_put(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), mj.NamedSharding(mesh, spec))


@colocated_python
def doubled(tree: Any) -> Any:
    """Twice as much."""
    return mj.tree.map(lambda x: mj.device_put(np.asarray(x) * 2, x.sharding), tree)


def test_runs_with_arrays_as_they_lie() -> None:
    x, empty = sharded(), sharded(P(None, "y"), (0, 4))
    result = doubled({"a": x, "b": [empty]})
    np.testing.assert_array_equal(result["a"], 2 * np.arange(16))
    assert result["a"].sharding == x.sharding
    assert result["b"][0].shape == (0, 4)
    assert (vars(doubled)["__name__"], doubled.__doc__) == ("doubled", "Twice as much.")


def test_runs_once_for_each_call() -> None:
    calls = []

    @colocated_python
    def note(x: Any, *, by: int = 1) -> Any:
        calls.append(by)
        return x

    note(sharded())
    note(sharded(), by=3)
    assert calls == [1, 3]


def test_without_arguments_devices_have_to_be_said() -> None:
    @colocated_python
    def zero() -> Any:
        return mj.numpy.zeros(3)

    text = (
        "No devices found. zero, a colocated_python function without input arguments, must be first specialized with devices\n"
        "  fix: zero.specialize(devices=meshjit.local_devices()[:1])()"
    )
    with pytest.raises(ValueError, match=re.escape(text)):
        zero()
    assert zero.specialize(devices=mj.local_devices()[:1])().shape == (3,)


def test_specialized_functions_hold_to_their_types() -> None:
    x = sharded()
    same = doubled.specialize(out_specs_fn=lambda x: x)
    np.testing.assert_array_equal(same(x), 2 * np.arange(16))
    narrow = doubled.specialize(in_specs=((mj.ShapeDtypeStruct((8,), np.float32),), {}), out_specs_fn=lambda x: x)
    with pytest.raises(ValueError, match=r"doubled was specialized for arguments .*shape=\(8,\).*, and has .*shape=\(16,\)"):
        narrow(x)
    with pytest.raises(ValueError, match=r"doubled was specialized for results .*int32.*, and has .*float32"):
        doubled.specialize(out_specs_fn=lambda x: mj.ShapeDtypeStruct(x.shape, np.int32))(x)


def test_refuses_a_trace() -> None:
    text = (
        "doubled, a colocated_python function, was called in a trace: it takes arrays, and runs once for each call\n"
        "  fix: call it outside of jit, or use meshjit.pure_callback"
    )
    with pytest.raises(TypeError, match=re.escape(text)):
        mj.jit(doubled)(sharded())


@colocated_python_class
class Counter:
    """Counts."""

    made = 0

    def __init__(self, start: int) -> None:
        type(self).made += 1
        self.count = start

    def add(self, x: Any) -> Any:
        self.count += 1
        return x + self.count


def test_objects_are_made_by_the_first_call_of_a_method() -> None:
    inner = Counter.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    counter, before = Counter(3), inner.made
    threads = [threading.Thread(target=counter.add, args=(sharded(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inner.made == before + 1
    np.testing.assert_array_equal(counter.add(sharded()), np.arange(16) + 8)
    assert Counter.__doc__ == "Counts."
    with pytest.raises(AttributeError, match="an object of the colocated class Counter has its methods alone, and made is none"):
        _ = counter.made
    with pytest.raises(AttributeError, match="sub"):
        _ = counter.sub


def test_cpu_devices_beside_others_keep_their_order() -> None:
    mesh = mj.make_mesh((4, 2), ("x", "y"))
    assert colocated_cpu_devices(mesh) == mesh
    cpus = mj.devices("cpu")
    others = [SimpleNamespace(platform="tpu", process_index=0, id=i) for i in range(len(cpus) + 1)]
    assert colocated_cpu_devices(others[:3]) == tuple(cpus[:3])
    with pytest.raises(ValueError, match=r"process 0 has no CPU device left for .*id=8.*\n  fix: MESHJIT_NUM_CPU_DEVICES=N"):
        colocated_cpu_devices(others)
