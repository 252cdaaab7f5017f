"""meshjit and jax in one process, whose arrays are of one class: each kind has all that it has alone.

    python tests/tools/beside_jax.py before|after      (where jax is installed: whether it is imported before meshjit, or after)
"""

# ruff: noqa: E402
from __future__ import annotations

import collections.abc
import copy
import importlib
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import numpy as np

if sys.argv[1] == "before":
    importlib.import_module("jax")

import meshjit as mj
import meshjit.numpy as mnp

PLACE = mj.NamedSharding(mj.make_mesh((4,), ("x",)), mj.P("x"))
double = mj.jit(lambda x: x * 2)


def arrays() -> list[Any]:
    """From device_put, from Python and from C++."""
    x = mj.device_put(np.arange(10, dtype=np.float32), PLACE)
    return [x, double(x), double(x), double(x)]


early = arrays()
jax: Any = importlib.import_module("jax")
jnp: Any = importlib.import_module("jax.numpy")


def raises(kind: type[Exception], words: str, use: Callable[[], Any]) -> None:
    try:
        use()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def check_ours(x: Any) -> None:
    whole = x.numpy()
    assert isinstance(x, mj.Array) and x.committed and not x.weak_type
    assert (x.shape, x.dtype, x.ndim, x.size, len(x), str(x.aval)) == ((10,), np.float32, 1, 10, 10, "float32[10]")
    assert x.sharding == PLACE and len(x.addressable_shards) == 4 and x.addressable_shards[3].data.shape == (1,)
    assert repr(x).startswith("Array([") and repr(x).endswith("on Mesh('x': 4))")
    assert float(x.sum()) == whole.sum() and float(x[3]) == whole[3] and float(x.at[3].set(7.0)[3]) == 7
    for found, wanted in [(x + x, whole + whole), (1 - x, 1 - whole), (x.T, whole), (-x, -whole), (x[2:4], whole[2:4])]:
        assert isinstance(found, mj.Array)
        np.testing.assert_array_equal(found, wanted)
    for same in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone(), x.block_until_ready()):
        assert isinstance(same, mj.Array)
        np.testing.assert_array_equal(same, whole)
    assert [float(v) for v in x] == whole.tolist() == [float(v) for v in reversed(x)][::-1] and whole[3] in x
    assert x.is_ready() and x.platform() == "cpu" and x.on_device_size_in_bytes() == 48
    again = [double(x) for _ in range(3)][-1]
    assert isinstance(again, mj.Array) and again.sharding == PLACE
    step, given = mj.jit(lambda x: x + 1, donate_argnums=0), x.copy()
    step(given)
    raises(RuntimeError, "jit(lambda) (donated)", lambda: given + 1)
    gone = x.copy()
    gone.delete()
    raises(RuntimeError, "delete()", lambda: gone + 1)
    raises(TypeError, "hash", lambda: hash(x))
    assert not hasattr(x, "nonsense")


def check_theirs() -> None:
    x = jnp.arange(3)
    assert isinstance(x, jax.Array) and not isinstance(x, mj.Array)
    assert not any(hasattr(x, name) for name in ("numpy", "type", "memory", "_key", "__jax_array__"))
    assert x.shape == (3,) and isinstance(x.aval, jax.core.ShapedArray) and x.sharding.device_set == x.devices()
    assert repr(x) == "Array([0, 1, 2], dtype=int32)" and not isinstance(x, collections.abc.Hashable)
    assert float((x + 1).sum()) == 6 and int(x[2]) == 2 and int(x.at[0].set(4)[0]) == 4 and x.T.shape == (3,)
    assert [int(v) for v in x] == [0, 1, 2] == [int(v) for v in reversed(x)][::-1] and 2 in x
    triple = jax.jit(lambda x: x * 3)
    same = [copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone(), x.block_until_ready(), x.copy()]
    for found, wanted in [(triple(x), 3 * np.arange(3)), (triple(x), 3 * np.arange(3)), *((y, np.arange(3)) for y in same)]:
        assert not isinstance(found, mj.Array)
        np.testing.assert_array_equal(found, wanted)
    assert jax.grad(lambda x: (x * x).sum())(jnp.arange(3.0)).tolist() == [0, 2, 4]
    assert x.is_ready() and x.platform() == "cpu" and x.on_device_size_in_bytes() == 12 and x.unsafe_buffer_pointer()
    np.testing.assert_array_equal(np.from_dlpack(x), np.arange(3))
    gone = [x.copy(), x.copy()]
    jax.jit(lambda x: x + 1, donate_argnums=0)(gone[0])
    gone[1].delete()
    assert all(y.is_deleted() for y in gone)
    raises(RuntimeError, "deleted", lambda: gone[1] + 1)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    split = jax.device_put(np.arange(8.0), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
    assert float(jax.jit(jnp.sum)(split)) == 28 and len(split.addressable_shards) == 4


def check_together(ours: Any) -> None:
    """What is given to the other one is copied, or refused in words."""
    theirs, whole = jnp.arange(10, dtype=jnp.float32), np.arange(10)
    for found in (jnp.asarray(ours), jnp.array(ours), theirs + ours - theirs):
        assert isinstance(found, jax.Array) and not isinstance(found, mj.Array)
        np.testing.assert_array_equal(found, whole)
    for found in (mj.device_put(theirs, PLACE), mnp.asarray(theirs), *(double(theirs) / 2 for _ in range(3))):
        assert isinstance(found, mj.Array)
        np.testing.assert_array_equal(found, whole)
    np.testing.assert_array_equal(jax.device_get(ours), whole)
    assert jax.block_until_ready(ours) is ours and jax.tree.leaves({"a": ours})[0] is ours
    refused = "a meshjit Array cannot be an argument of jax's transformations"
    for use in (jnp.sin, jax.jit(lambda x: x), jax.grad(lambda x: x.sum()), jax.device_put, jax.typeof):
        raises(AttributeError, refused, lambda use=use: use(ours))
    raises(TypeError, "one operand is a meshjit Array, the other one jax's", lambda: ours + theirs)
    assert all(isinstance(x, mj.Array) for x in mj.live_arrays()) and any(x is ours for x in mj.live_arrays())
    assert not any(isinstance(x, mj.Array) for x in jax.live_arrays())


for x in [*early, *arrays()]:
    check_ours(x)
check_theirs()
check_together(early[0])
print("both whole")
