"""Callbacks of programs on several devices that raise, or call programs on several devices: errors, where JAX waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.experimental import io_callback
from meshjit.sharding import Mesh, NamedSharding
from sharding.spec import P

pytestmark = pytest.mark.device
EIGHT = mj.ShapeDtypeStruct((8,), np.float32)


def spread(values: Any, devices: slice = slice(8)) -> Any:
    mesh = Mesh(np.array(mj.devices()[devices]), ("x",))
    return mj.device_put(np.asarray(values, np.float32), NamedSharding(mesh, P("x")))


def fail(*_: Any) -> Any:
    raise ValueError("negative pressure")


CALLS: dict[str, Callable[[Any], Any]] = {
    "pure": lambda x: mj.pure_callback(fail, EIGHT, x) + 1,
    "pure, then a sum": lambda x: x * mj.pure_callback(fail, EIGHT, x).sum(),
    "in a loop": lambda x: mj.lax.fori_loop(0, 3, lambda i, c: mj.pure_callback(fail, EIGHT, c), x),
    "io": lambda x: io_callback(fail, EIGHT, x),
    "io in order": lambda x: (io_callback(fail, None, x, ordered=True), x.sum())[1],
    "of every device": lambda x: mj.shard_map(
        lambda a: mj.pure_callback(fail, mj.ShapeDtypeStruct((1,), np.float32), a), in_specs=P("x"), out_specs=P("x"),
        mesh=Mesh(np.array(mj.devices()), ("x",)))(x),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_what_a_callback_raises_reaches_the_caller(name: str) -> None:
    function = mj.jit(CALLS[name])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="(?s)in fail.*ValueError: negative pressure"):
            np.asarray(function(spread(range(8))))
    np.testing.assert_array_equal(mj.jit(lambda x: x + x.sum())(spread(np.ones(8))), 9)


def test_what_a_debugging_callback_raises_reaches_who_waits_for_effects() -> None:
    total = mj.jit(lambda x: (mj.debug.callback(fail, x), x.sum())[1])(spread(range(8)))
    assert float(total) == 28
    with pytest.raises(RuntimeError, match="negative pressure"):
        mj.effects_barrier()
    mj.effects_barrier()


def calling(inner: Callable[[Any], Any], place: slice) -> Any:
    """A program on eight devices, whose callback runs `inner` where the slice says."""

    def callback(x: Any) -> Any:
        return np.asarray(inner(spread(x, place)))

    return mj.jit(lambda x: mj.pure_callback(callback, EIGHT, x) + 1)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("place", [slice(8), slice(2, 4)], ids=["the same devices", "others"])
def test_a_program_on_several_devices_inside_of_a_callback_is_refused(warm: bool, place: slice) -> None:
    """They run one after another, so each would wait for the other."""
    double = mj.jit(lambda x: x * 2)
    if warm:
        double(spread(range(8), place)), double(spread(range(8), place))
    with pytest.raises(RuntimeError, match=r"runs on (8|2) devices, and was called inside of a callback of a program that"):
        np.asarray(calling(double, place)(spread(range(8))))


def test_a_program_on_one_device_inside_of_a_callback() -> None:
    f = calling(mj.jit(lambda x: mnp.cumsum(x)), slice(3, 4))
    np.testing.assert_array_equal(f(spread(range(8))), np.cumsum(np.arange(8)) + 1)


def test_a_program_on_several_devices_inside_of_a_callback_of_one_device() -> None:
    double = mj.jit(lambda x: x * 2)
    f = mj.jit(lambda x: mj.pure_callback(lambda v: np.asarray(double(spread(v))), EIGHT, x) + 1)
    np.testing.assert_array_equal(f(np.arange(8, dtype=np.float32)), 2 * np.arange(8) + 1)
