"""Programs that run outside of jit: what is kept of them."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.runtime import eager
from meshjit.runtime.executable import Executable
from meshjit.sharding import NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

X = np.arange(1, 5, dtype=np.float32)

WAYS = {
    "vmap": lambda k: mj.vmap(lambda q: q * k)(X),
    "vmap of a sum": lambda k: mj.vmap(lambda q: (q * k).sum())(X[:, None]),
    "grad": lambda k: mj.grad(lambda q: (q * k).sum())(X),
    "jvp": lambda k: mj.jvp(lambda q: q * k, (X,), (np.ones_like(X),))[1],
    "vmap of grad": lambda k: mj.vmap(mj.grad(lambda q: q * k))(X),
    "numpy's number": lambda k: mj.vmap(lambda q: q * np.float32(k))(X),
    "complex": lambda k: mj.vmap(lambda q: q * (1j * k))(X),
}


def alive() -> int:
    gc.collect()
    return sum(isinstance(x, Executable) for x in gc.get_objects())


@pytest.mark.parametrize("way", WAYS)
def test_a_new_number_is_no_new_program(way):
    run = WAYS[way]
    for k in (2.5, 3.5):
        run(k)
    before = alive()
    for k in range(20):
        result = run(k + 0.25)
        want = {"vmap": X * (k + 0.25), "grad": np.full(4, k + 0.25)}.get(way)
        if want is not None:
            np.testing.assert_allclose(result, want, rtol=1e-6)
    assert alive() == before


def test_numbers_are_what_they_were_in_the_program() -> None:
    def function(q):
        return lax.select(q > 2.5, q * 1.5 + 0.125, mnp.exp(q * 2.0)) + mnp.where(q == 3.0, 1e3, -1.0) + 1j * 0.5

    np.testing.assert_allclose(mj.vmap(function)(X), mj.jit(mj.vmap(function))(X), rtol=1e-6)
    assert mj.vmap(lambda q: (q, 2.5))(X)[1].tolist() == [2.5] * 4  # a number that is itself a result
    place = NamedSharding(mj.make_mesh((4,), ("x",)), P("x"))
    result = mj.vmap(lambda q: q * 2.5)(mj.device_put(np.arange(7.0, dtype=np.float32), place))
    assert result.sharding == place
    np.testing.assert_array_equal(result, np.arange(7) * 2.5)


def test_programs_that_were_not_used_for_longest_go_first(monkeypatch) -> None:
    monkeypatch.setattr(eager, "MOST_PROGRAMS", 3)
    monkeypatch.setattr(eager, "_programs", {})

    def run(n):
        return mj.vmap(lambda q: q * q)(np.arange(n))

    for n in (2, 3, 4, 2, 5, 6):
        np.testing.assert_array_equal(run(n), np.arange(n) ** 2)
    kept = [key[0] for key in eager._programs]
    assert len(kept) == 3 and all(any(f"[{n}]" in text for text in kept) for n in (2, 5, 6))
