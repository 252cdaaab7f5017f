"""Operators outside of any trace, again and again: nothing is different for it when C++ runs them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.numpy.quick import numbers
from meshjit.numpy.quick.calls import Kind
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device


def on(spec: P, count: int = 4) -> NamedSharding:
    return NamedSharding(Mesh(np.array(mj.devices()[:count]), ("x",)), spec)


def same(a: Any, b: Any) -> None:
    assert a._key is b._key
    np.testing.assert_array_equal(np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8))


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was handed to C++."""
    found: list[Any] = []
    original = Kind._way

    def way(*args: Any) -> Any:
        found.append(original(*args))
        return found[-1]

    monkeypatch.setattr(Kind, "_way", way)
    return found


@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16"])
def test_numbers(dtype: str) -> None:
    x = mj.device_put(mnp.arange(-3, 7).astype(dtype), on(P("x")))
    for apply in (operator.add, operator.truediv, operator.pow):
        for number in (1, 0.1, -0.0, True, 257):
            for first in (False, True):
                pair = (number, x) if first else (x, number)
                try:
                    expected = apply(*pair)
                except (TypeError, OverflowError, ValueError) as error:
                    for _ in range(6):
                        with pytest.raises(type(error)):
                            apply(*pair)
                    continue
                for _ in range(6):
                    same(apply(*pair), expected)


def test_arrays_and_placements(planned: list[Any]) -> None:
    x = mj.device_put(np.arange(10, dtype=np.float32), on(P("x")))
    others = [x, mj.device_put(x, on(P())), mnp.ones(10), mnp.asarray(2.0), mj.device_put(np.ones((3, 10), np.float32), on(P(None, "x")))]
    for other in others:
        for apply in (operator.add, operator.truediv, operator.eq):
            expected = apply(x, other)
            for _ in range(5):
                same(apply(x, other), expected)
    assert sum(how is not None for how in planned) > 5


def test_it_is_quick_after_some_calls(planned: list[Any]) -> None:
    x = mj.device_put(np.arange(11, dtype=np.float32), on(P("x")))
    for _ in range(10):
        np.testing.assert_array_equal(x + 1.5, np.arange(11, dtype=np.float32) + 1.5)
    assert [how is not None for how in planned] == [True]


@pytest.mark.parametrize("shape", [(), (64,), (64, 1)], ids=str)
def test_a_quotient_stays_the_same_to_the_bit(shape: tuple[int, ...]) -> None:
    """XLA makes a product of it where it sees that one divisor is for many elements."""
    rng = np.random.default_rng(0)
    x, y = (mnp.asarray(rng.normal(size=s).astype(np.float32)) for s in ((64, 64), shape))
    for divisor in (y, 3):
        expected = np.asarray(x / divisor)
        np.testing.assert_array_equal(expected, np.asarray(x) / np.asarray(divisor, np.float32))
        for _ in range(8):
            np.testing.assert_array_equal(x / divisor, expected)


def test_errors_are_the_usual_ones() -> None:
    x, y = mnp.ones(3), mnp.ones(4)
    for _ in range(6):
        with pytest.raises((TypeError, ValueError), match="3.*4"):
            x + y
        with pytest.raises(TypeError):
            x + "text"  # pyright: ignore[reportOperatorIssue]
    z = mnp.ones(3)
    for _ in range(6):
        x + z, x + 2.5
    z.delete()
    with pytest.raises(RuntimeError, match="has been deleted by its delete"):
        x + z


def test_traced_and_checked() -> None:
    x = mnp.ones(3)
    for _ in range(6):
        x / x, x + 1, x * 0.0
    program = mj.jit(lambda y: y + x + (x + 1)).lower(x).as_text("meshjit")
    assert program.count("add") == 3 and program.count("constant") >= 1
    zero = x * 0.0
    for _ in range(6):
        zero / zero
    with mj.config.using(debug_nans=True), pytest.raises(FloatingPointError):
        zero / zero
    np.testing.assert_array_equal(mj.grad(lambda y: (y * 3.0 + 1).sum())(x)[0], 3)


def test_options_and_caches() -> None:
    x = mnp.arange(3)
    for _ in range(6):
        assert (x / 2).dtype == np.float32 and (x + 1).dtype == np.int32
    with mj.config.using(enable_x64=True):
        for _ in range(6):
            assert (x / 2).dtype == (mnp.asarray(np.arange(3, dtype=np.int32)) / 2).dtype
    mj.clear_caches()
    assert not numbers._numbers
    for _ in range(6):
        assert (x + 1).dtype == np.int32
