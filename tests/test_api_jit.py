"""jit as jax.jit documents it: placements, static and donated arguments, caching, trees, uneven and empty arrays."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

DTYPES = [np.bool_, np.int8, np.uint8, np.int32, np.float16, ml_dtypes.bfloat16, np.float32, np.complex64]


def mesh(*sizes: int) -> Mesh:
    count = int(np.prod(sizes))
    return Mesh(np.array(mj.devices()[:count]).reshape(sizes), ("x", "y", "z")[: len(sizes)])


def on(spec: P, *sizes: int) -> NamedSharding:
    return NamedSharding(mesh(*sizes), spec)


def floats(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def same(result: Any, expected: Any) -> None:
    np.testing.assert_array_equal(np.asarray(result), expected)


# --- placements


@pytest.mark.parametrize("sizes", [(1,), (8,), (2, 2, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("rows", [0, 1, 3, 8, 10])
def test_in_and_out_shardings_on_every_mesh(sizes: tuple[int, ...], rows: int) -> None:
    place, x = on(P("x"), *sizes), floats(rows, 4)
    result, total = mj.jit(lambda x: (x * 2, x.sum()), in_shardings=place, out_shardings=(place, None))(x)
    assert result.sharding == place
    same(result, 2 * x)
    same(total, x.sum())


def test_in_shardings_of_every_kind() -> None:
    place, x = on(P("x"), 4), floats(10)
    seen: list[Any] = []

    def run(**kwargs: Any) -> Any:
        function = mj.jit(lambda a, b: a + b, **kwargs)
        seen[:] = function.lower(x, x).compile().input_shardings[0]
        return function(x, x)

    same(run(in_shardings=place), x + x)  # one leaf for all
    assert seen == [place, place]
    same(run(in_shardings=(place, None)), x + x)  # None: the compiler's choice
    assert seen == [place, place]
    with mesh(4):
        same(run(in_shardings=(P("x"), None)), x + x)
        assert seen == [place, place]


def test_pytree_prefixes() -> None:
    place, whole = on(P("x"), 4), on(P(), 4)
    params = {"w": [floats(8), floats(3)], "b": floats(8)}
    prefix = ({"w": place, "b": whole},)
    double = mj.jit(lambda p: p, in_shardings=prefix, out_shardings={"w": [whole, place], "b": place})
    assert double.lower(params).compile().input_shardings[0] == ({"w": [place, place], "b": whole},)
    result = double(params)
    assert [x.sharding for x in (*result["w"], result["b"])] == [whole, place, place]
    same(result["w"][1], params["w"][1])


def test_constraint_of_an_uneven_intermediate() -> None:
    place = on(P("x"), 4)
    result = mj.jit(lambda x: mj.lax.with_sharding_constraint(x + 1, place))(floats(10))
    assert result.sharding == place
    assert [s.data.shape for s in result.addressable_shards] == [(3,), (3,), (3,), (1,)]
    same(result, floats(10) + 1)


def test_arguments_stay_where_they_are_committed() -> None:
    x = mj.device_put(floats(10, 4), on(P("x"), 4))
    result = mj.jit(lambda x: x + 1)(x)
    assert result.sharding.is_equivalent_to(x.sharding, 2)


def test_results_on_one_chosen_device_stay_committed_there() -> None:
    device = mj.devices()[3]
    x = mj.device_put(floats(4), device)
    twice = mj.jit(lambda x: x + 1)(mj.jit(lambda x: x + 1)(x))
    assert twice.devices() == {device} and twice.committed
    assert (x + 1 + 1).devices() == {device}
    assert not mj.jit(lambda x: x + 1)(floats(4)).committed


def test_a_device_and_a_mesh_of_that_device_go_together() -> None:
    a = mj.device_put(floats(4), mj.devices()[0])
    b = mj.device_put(floats(4), on(P("x"), 1))
    same(a + b, 2 * floats(4))
    same(mj.jit(lambda a, b: a + b)(b, a), 2 * floats(4))


# --- static arguments


def test_the_documented_example_of_static_argnames() -> None:
    @partial(mj.jit, static_argnames=["n"])
    def g(x: Any, n: int) -> Any:
        for _ in range(n):
            x = x**2
        return x

    assert g(mnp.arange(4), 3).tolist() == [0, 1, 256, 6561]
    assert g(mnp.arange(4), n=3).tolist() == [0, 1, 256, 6561]


@pytest.mark.parametrize("given", [{"static_argnums": 1}, {"static_argnums": -1}, {"static_argnames": "n"}])
def test_positions_and_names_of_static_arguments_imply_each_other(given: dict[str, Any]) -> None:
    repeat = mj.jit(lambda x, n: [x] * n, **given)
    assert len(repeat(1.0, 3)) == 3
    assert len(repeat(1.0, n=2)) == 2


def test_both_given_nothing_is_inferred() -> None:
    function = mj.jit(lambda x, n, m: x * n * m, static_argnums=1, static_argnames="m")
    assert float(function(2.0, 3, m=4)) == 24


def test_a_default_of_a_static_argument_is_static() -> None:
    assert len(mj.jit(lambda x, n=2: [x] * n, static_argnames="n")(1.0)) == 2


def test_methods() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        @partial(mj.jit, static_argnums=0)
        def apply(self, x: Any) -> Any:
            return x * self.by

    assert float(Scale(3.0).apply(2.0)) == 6
    assert Scale(3.0).apply.__name__ == "apply"


# --- donation


def test_a_donated_argument_is_deleted_and_says_by_whom() -> None:
    @partial(mj.jit, donate_argnames="x")
    def step(x: Any, y: Any) -> Any:
        return x + y

    x = mj.device_put(floats(10), on(P("x"), 4))
    same(step(x, 1.0), floats(10) + 1)
    assert x.is_deleted() and x.shape == (10,)
    message = (
        "Array f32[10] has been deleted: its memory was given to jit(step) (donated)\n"
        "  a donated argument is gone after the call, because its memory holds a result\n"
        "  fix: use the function's result instead, pass x.copy(), or do not donate it"
    )
    for use in (lambda: x + 1, lambda: np.asarray(x), lambda: x.block_until_ready()):
        with pytest.raises(RuntimeError) as error:
            use()
        assert str(error.value) == message
    with pytest.raises(RuntimeError) as error:
        mj.jit(lambda params: params["w"] + 1)({"w": x})
    assert str(error.value) == f"jit(lambda), argument params['w']: {message}"


def test_donation_by_position_of_trees_and_of_outputs_that_are_inputs() -> None:
    state = {"a": mj.device_put(floats(8), on(P("x"), 8)), "b": mj.device_put(floats(3), on(P("x"), 8))}
    place = {k: v.sharding for k, v in state.items()}
    result = mj.jit(lambda s: {"a": s["a"], "b": s["b"] * 2}, donate_argnums=(0,), out_shardings=place)(state)
    assert state["a"].is_deleted() and state["b"].is_deleted()
    same(result["a"], floats(8))
    same(result["b"], 2 * floats(3))


def test_a_copy_survives_the_donation() -> None:
    x = mj.device_put(floats(8), on(P("x"), 8))
    kept = x.copy()
    mj.jit(lambda x: x + 1, donate_argnums=0)(x)
    same(kept, floats(8))


def test_what_numpy_sees_of_a_donated_array_does_not_change() -> None:
    x = mj.device_put(floats(8), mj.devices()[0])
    seen = np.asarray(x)
    mj.jit(lambda x: x + 1, donate_argnums=0)(x).block_until_ready()
    same(seen, floats(8))


def test_unused_donations_are_warned_of() -> None:
    x = mj.device_put(floats(10), on(P("x"), 4))
    with pytest.warns(UserWarning) as warned:
        mj.jit(lambda p: p["w"].sum(), donate_argnums=0)({"w": x})
    assert str(warned[0].message) == (
        "jit(lambda): donated memory was not used: p['w'] f32[10] (no result has its type)\n"
        "  a result can take it if it has the same shape and dtype on every device\n"
        "  fix: do not donate it, or delete it yourself with x.delete()"
    )
    assert warned[0].filename == __file__
    assert x.is_deleted()


def test_an_array_donated_twice_or_also_used() -> None:
    x = mj.device_put(floats(8), on(P("x"), 8))
    add = lambda x, y: (x + y, y)  # noqa: E731
    with pytest.raises(ValueError) as error:
        mj.jit(add, donate_argnums=(0, 1))(x, x)
    assert str(error.value) == (
        "jit(lambda): argument x and argument y are the same array, and both are donated\n"
        "  the memory of a donated argument can hold a result, so nothing else may read it\n"
        "  fix: pass y.copy(), or do not donate x"
    )
    with pytest.raises(ValueError, match="argument y and argument x are the same array, and argument y is donated"):
        mj.jit(add, donate_argnums=1)(x, x)
    with pytest.raises(ValueError, match="argument y and captured array x are the same array"):
        mj.jit(lambda y: y + x, donate_argnums=0)(x)
    assert not x.is_deleted()
    same(mj.jit(add)(x, x)[0], 2 * floats(8))  # not donated: fine


# --- caching


def test_traced_once_per_kind_of_arguments() -> None:
    traces: list[Any] = []

    @partial(mj.jit, static_argnames="n")
    def f(x: Any, n: int = 1) -> Any:
        traces.append(n)
        return x * n

    def count(*args: Any, **kwargs: Any) -> int:
        f(*args, **kwargs)
        return len(traces)

    m = mesh(4)
    assert [count(floats(8, 2)), count(floats(8, 2) + 1)] == [1, 1]
    assert count(floats(8, 3)) == 2
    assert count(floats(8, 2).astype(np.int32)) == 3
    assert [count(floats(8, 2), n=2), count(floats(8, 2), n=2)] == [4, 4]
    for mesh_, spec in ((m, P("x")), (m, P("x", None)), (mesh(4), P("x")), (m, P(None, "x"))):  # where it lies is for planning
        assert count(mj.device_put(floats(8, 2), NamedSharding(mesh_, spec))) == 4
    assert [count(2), count(3)] == [5, 5]
    assert count(True) == 6  # a bool is no weak int
    assert count(floats(8, 2), n=1.0) == 7  # 1 and 1.0 are equal, but not the same static argument
    f.clear_cache()
    assert count(2) == 8


def test_a_cached_function_still_moves_arguments_that_lie_elsewhere() -> None:
    f = mj.jit(lambda x: x + 1, in_shardings=on(P("x"), 4))
    for x in (floats(10), mnp.asarray(floats(10)), mj.device_put(floats(10), on(P("x"), 4)), floats(10)):
        same(f(x), floats(10) + 1)


def test_x64_and_matmul_precision_are_part_of_the_key() -> None:
    f = mj.jit(lambda x: x + 1)
    assert f(np.float64(1)).dtype == np.float32
    with mj.config.using(enable_x64=True):
        assert f(np.float64(1)).dtype == np.float64
    assert f(np.float64(1)).dtype == np.float32


# --- functions and values


def test_nested_jit_places_what_its_shardings_say() -> None:
    place = on(P("x"), 4)
    inner = mj.jit(lambda x, n: x * n, static_argnums=1, in_shardings=place, out_shardings=place)
    result = mj.jit(lambda x: inner(x, 3))(floats(10))
    assert result.sharding == place
    same(result, 3 * floats(10))
    with pytest.raises(ValueError, match="in_shardings place positional arguments"):
        mj.jit(lambda x: inner(x=x, n=3))(floats(10))


def test_closures_over_arrays_follow_the_program() -> None:
    placed = mj.device_put(floats(10), on(P("x"), 4))
    loose, host = mnp.asarray(floats(10)), floats(10)
    f = mj.jit(lambda x: x + placed + loose + host)
    for _ in range(2):
        same(f(floats(10)), 4 * floats(10))
    host += 1  # traced by value
    same(f(floats(10)), 4 * floats(10))


class Pair(NamedTuple):
    first: Any
    second: Any


@partial(mj.tree_util.register_dataclass, data_fields=["value"], meta_fields=["name"])
@dataclasses.dataclass
class Named:
    value: Any
    name: str


def test_trees_in_and_out() -> None:
    value = {"p": Pair(floats(3), None), "n": Named(floats(2), "w"), "t": (1, [2.0, True])}
    result = mj.jit(lambda v, *, extra: {**v, "extra": extra})(value, extra=(floats(1),))
    assert isinstance(result["p"], Pair) and result["p"].second is None
    assert result["n"].name == "w"
    same(result["n"].value, floats(2))
    assert result["t"][0].dtype == np.int32 and result["t"][1][1].dtype == np.bool_
    same(result["extra"][0], floats(1))


def test_order_of_results_and_repeated_results() -> None:
    x = mj.device_put(floats(10), on(P("x"), 4))
    a, b, c, d = mj.jit(lambda x, y: (y, x, x + y, x))(x, 1.0)
    same(b, floats(10))
    same(c, floats(10) + 1)
    assert float(a) == 1
    b.delete()  # each result has memory of its own
    same(d, floats(10))
    same(x, floats(10))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_over_uneven_shards(dtype: Any) -> None:
    x = (np.arange(10) % 2).astype(dtype)
    place = on(P("x"), 4)
    result = mj.jit(lambda x: (x, mnp.flip(x)), in_shardings=place, out_shardings=place)(x)
    assert result[0].dtype == dtype
    same(result[0], x)
    same(result[1], x[::-1])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,)])
def test_scalars_and_empty_arrays(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    same(mj.jit(lambda x: x + 1)(x), x + 1)
    with mesh(8):
        same(mj.jit(lambda x: x + 1, in_shardings=None)(x), x + 1)


def test_gathering_an_empty_array() -> None:
    x = np.zeros((0, 3), np.float32)
    same(mj.jit(lambda x: x * 2, in_shardings=on(P("x"), 8), out_shardings=on(P(), 8))(x), x)


def test_functions_without_arguments_and_without_results() -> None:
    assert mj.jit(lambda: ())() == ()
    assert mj.jit(lambda x: None)(1.0) is None
    assert float(mj.jit(lambda: mnp.ones(()))()) == 1


def test_attributes_of_the_function_stay_readable_and_hide_nothing() -> None:
    class Model:
        trace = lower = "mine"

        def __init__(self) -> None:
            self.lower = "mine"

        def __call__(self, x: Any) -> Any:
            return x + 1

    assert float(mj.jit(Model()).lower(1.0).compile()(1.0)) == 2


def test_pjit_and_eval_shape() -> None:
    place = on(P("x"), 4)
    assert mj.pjit(lambda x: x, out_shardings=place)(floats(3)).sharding == place
    info = mj.eval_shape(lambda x: {"y": x[:2]}, mj.ShapeDtypeStruct((4, 3), np.float32))
    assert (info["y"].shape, info["y"].dtype) == ((2, 3), np.float32)


def test_a_jitted_function_inside_may_use_none_of_its_arguments() -> None:
    ones = mj.jit(lambda x, y: mnp.ones(2) * y)
    found = mj.jit(lambda x, y: ones(x, y))(mnp.zeros(7), 3.0)
    assert found.tolist() == [3, 3]
    assert mj.jit(lambda x: mj.jit(lambda x: mnp.ones(2))(x))(mnp.zeros(7)).tolist() == [1, 1]
