"""None among the shardings: the compiler's choice, but replicated in pjit within `with mesh:`. Recorded from jax 0.10.2."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
from sharding.spec import ShardingError

pytestmark = pytest.mark.device

X, Y = np.arange(16, dtype=np.float32), np.ones(16, np.float32)


def mesh(*shape: int, names: str = "xy") -> Mesh:
    return Mesh(np.array(mj.devices()[: int(np.prod(shape))]).reshape(shape), tuple(names[: len(shape)]))


def within(how: str) -> contextlib.AbstractContextManager[Any]:
    if how == "nothing":
        return contextlib.nullcontext()
    return mesh(4) if how == "with" else mj.set_mesh(mesh(4))


def on(*entries: Any) -> NamedSharding:
    return NamedSharding(mesh(4), P(*entries))


def double(a):
    return a * 2


def two(a, b):
    return a * 2, b + 1


def tree(d):
    return {"u": d["p"] * 2, "v": d["q"] + 1}


R, S = on(), on("x")
# name: (function, shardings, arguments, what results are replicated if None means so, what else they are)
CALLS: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]], tuple[Any, ...], list[Any], list[Any]]] = {
    "out": (double, lambda: {"in_shardings": S, "out_shardings": None}, (X,), [R], [S]),
    "leaf of out": (two, lambda: {"in_shardings": S, "out_shardings": (S, None)}, (X, Y), [S, R], [S, S]),
    "leaves of out": (two, lambda: {"in_shardings": S, "out_shardings": (None, None)}, (X, Y), [R, R], [S, S]),
    "prefix of out": (tree, lambda: {"in_shardings": (S,), "out_shardings": None}, ({"p": X, "q": Y},), [R, R], [S, S]),
    "leaves of dicts": (
        tree,
        lambda: {"in_shardings": ({"p": S, "q": None},), "out_shardings": {"u": None, "v": S}},
        ({"p": X, "q": Y},),
        [R, S],
        [S, S],
    ),
    "leaf of in": (two, lambda: {"in_shardings": (S, None)}, (X, Y), [S, R], [S, R]),
    "uneven": (double, lambda: {"in_shardings": S, "out_shardings": None}, (X[:7],), [R], [S]),
    "empty": (double, lambda: {"in_shardings": S, "out_shardings": None}, (X[:0],), [R], [R]),
    "not given": (double, lambda: {"in_shardings": S}, (X,), [S], [S]),
}


@pytest.mark.parametrize("how", ["with", "set_mesh", "nothing"])
@pytest.mark.parametrize("make", [mj.pjit, mj.jit], ids=["pjit", "jit"])
@pytest.mark.parametrize("name", CALLS)
def test_none_is_replicated_in_pjit_within_a_mesh_and_free_otherwise(name, make, how):
    function, shardings, args, replicated, free = CALLS[name]
    want = replicated if make is mj.pjit and how == "with" else free
    fun = make(function, **shardings())
    with within(how):
        compiled = fun.lower(*args).compile()
        results = [fun(*args), fun(*args), compiled(*args), mj.jit(lambda *args: fun(*args))(*args)]
    for result in results:
        found = [leaf.sharding for leaf in mj.tree.leaves(result)]
        assert all(a.is_equivalent_to(b, 1) for a, b in zip(found, want, strict=True)), found


def test_arguments_are_replicated_too_and_committed_ones_elsewhere_are_errors() -> None:
    fun = mj.pjit(double, in_shardings=None, out_shardings=S)
    x = mj.device_put(X, S)
    with mesh(4):
        (found,) = mj.tree.leaves(fun.lower(X).compile().input_shardings)
        assert found.is_equivalent_to(R, 1)
        for shardings in (None, (None,)):
            with pytest.raises(ShardingError, match=r'argument a f32\[16\] is committed to .*\'x\'.*, but in_shardings say P'):
                mj.pjit(double, in_shardings=shardings)(x)
        assert fun(mj.device_put(X, R)).sharding == S
        assert mj.jit(double, in_shardings=None)(x).sharding == S
        assert mj.pjit(double, in_shardings=None)(mj.device_put(X, mj.devices()[6])).sharding == R  # whole on each, here and there
    for context in (mj.set_mesh(mesh(4)), contextlib.nullcontext()):
        with context:
            assert fun(x).sharding == S and mj.pjit(double, in_shardings=None)(x).sharding == S


def test_the_mesh_of_the_call_counts_not_that_of_the_decoration() -> None:
    with mesh(4):
        made_within = mj.pjit(double, in_shardings=S, out_shardings=None)
    made_outside = mj.pjit(double, in_shardings=S, out_shardings=None)
    for fun in (made_within, made_outside):
        for _ in range(3):  # what was compiled for one context is not taken for the other
            assert fun(X).sharding == S
            with mesh(4):
                assert fun(X).sharding == R
            with mj.set_mesh(mesh(4)):
                assert fun(X).sharding == S
    with mesh(4):
        lowered = made_outside.lower(X)
    assert lowered.compile()(X).sharding == R


def test_set_mesh_inside_of_with_changes_nothing() -> None:
    with mesh(4), mj.set_mesh(mesh(4)):
        assert mj.pjit(double, in_shardings=S, out_shardings=None)(X).sharding == R
    with mj.set_mesh(mesh(4)), mesh(4):
        assert mj.pjit(double, in_shardings=S, out_shardings=None)(X).sharding == R


def test_another_mesh_of_the_same_devices() -> None:
    with mesh(2, 2, names="pq"):
        assert mj.pjit(double, in_shardings=S, out_shardings=None)(X).sharding.is_equivalent_to(R, 1)


def test_everything_none_runs_on_the_mesh() -> None:
    fun = mj.pjit(lambda a: (a, mnp.zeros(3)), in_shardings=None, out_shardings=None)
    with mesh(4):
        assert [leaf.sharding for leaf in fun(X)] == [R, R]
    assert [leaf.committed for leaf in fun(X)] == [False, False]
