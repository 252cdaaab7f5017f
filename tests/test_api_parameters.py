"""The parameters of jit, one by one, in the variations that the documentation of jax.jit promises."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import weakref
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.core.parser import parse_program
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from tests.tools.asserting import message

pytestmark = pytest.mark.device

X = np.arange(32, dtype=np.float32).reshape(8, 4)


def mesh(*sizes: int) -> Mesh:
    count = int(np.prod(sizes))
    return Mesh(np.array(mj.devices()[:count]).reshape(sizes), ("x", "y")[: len(sizes)])


def on(spec: P, *sizes: int) -> NamedSharding:
    return NamedSharding(mesh(*sizes), spec)


# --- as a function, a decorator, under partial


def test_ways_to_write_it() -> None:
    @mj.jit
    def plain(x: Any) -> Any:
        "doc"
        return x + 1

    @mj.jit(static_argnames="n")
    def called(x: Any, n: int = 2) -> Any:
        return x * n

    @partial(mj.jit, static_argnums=1)
    def partly(x: Any, n: int) -> Any:
        return x * n

    assert [float(f(3)) for f in (plain, called, partial(partly, n=3))] == [4, 6, 9]
    assert (plain.__name__, plain.__doc__, plain.__wrapped__(1)) == ("plain", "doc", 2)
    assert list(inspect.signature(called).parameters) == ["x", "n"]
    assert repr(plain).startswith("<PjitFunction of <function test_ways_to_write_it.<locals>.plain at ")
    assert float(mj.jit(plain)(1)) == 2  # jit of jit
    assert float(mj.jit(partial(lambda a, b: a - b, 5))(3)) == 2


def test_what_is_no_function() -> None:
    def generator() -> Any:
        yield 1

    async def coroutine() -> None: ...

    assert message(TypeError, lambda: mj.jit(None)) == "jit needs a function, was given NoneType: None"
    assert message(TypeError, lambda: mj.jit(generator)) == (
        "jit(generator): it is a generator function (it has a yield)\n"
        "  fix: jit the function that it calls at each step, and yield outside"
    )
    assert message(TypeError, lambda: mj.jit(coroutine)).startswith("jit(coroutine): it is a coroutine function (async def)")


# --- in_shardings, out_shardings


class Pair(NamedTuple):
    first: Any
    second: Any


@partial(mj.tree_util.register_dataclass, data_fields=["w", "b"], meta_fields=["name"])
@dataclasses.dataclass
class Layer:
    w: Any
    b: Any
    name: str = "layer"


@pytest.mark.parametrize(
    ("value", "prefix"),
    [
        (Pair(X, X), Pair(on(P("x"), 4), on(P(None, "x"), 4))),
        (Layer(X, X), Layer(on(P("x"), 4), on(P(None, "x"), 4))),
        ([X, X], [on(P("x"), 4), on(P(None, "x"), 4)]),
        ((X, X), (on(P("x"), 4), on(P(None, "x"), 4))),
        ({"a": X, "b": X}, {"a": on(P("x"), 4), "b": on(P(None, "x"), 4)}),
        ({"a": X, "b": (X, None)}, {"a": on(P("x"), 4), "b": on(P(None, "x"), 4)}),
        ({"a": X, "b": (X, None)}, {"a": on(P("x"), 4), "b": (on(P(None, "x"), 4), None)}),
    ],
    ids=["namedtuple", "dataclass", "list", "tuple", "dict", "over a None", "with a None"],
)
def test_prefixes_of_every_container(value: Any, prefix: Any) -> None:
    result = mj.jit(lambda v: v, in_shardings=(prefix,), out_shardings=prefix)(value)
    assert [x.sharding.spec for x in mj.tree.leaves(result)] == [P("x"), P(None, "x")]
    assert type(result) is type(value)


def test_a_list_of_shardings_stands_for_the_arguments() -> None:
    a, b = on(P("x"), 4), on(P(None, "x"), 4)
    compiled = mj.jit(lambda p, q: p + q, in_shardings=[a, b]).lower(X, X).compile()
    assert compiled.input_shardings[0] == (a, b)


@pytest.mark.parametrize("enter", [lambda m: m, mj.set_mesh, mj.sharding.use_mesh], ids=["with mesh", "set_mesh", "use_mesh"])
def test_specs_under_every_kind_of_mesh_context(enter: Any) -> None:
    f = mj.jit(lambda x: x * 2, in_shardings=P("x"), out_shardings=P(None, "x"))
    for size in (2, 4):  # the mesh is the one at the call, not at the decoration
        with enter(mesh(size)):
            assert f(X).sharding == on(P(None, "x"), size)


def test_none_for_arguments_and_results() -> None:
    placed = mj.device_put(X, on(P("x"), 4))
    same = mj.jit(lambda x: x, in_shardings=None, out_shardings=None)
    assert same(placed).sharding.spec == P("x")  # a committed argument stays where it is
    with mesh(4):
        assert same(placed).sharding.is_equivalent_to(placed.sharding, 2)
        assert same.lower(X).compile().input_shardings[0] == (on(P(), 4),)  # else the compiler's choice
        assert mj.jit(lambda x: mj.lax.with_sharding_constraint(x, P("x")), out_shardings=None)(X).sharding.spec == P("x")


def test_unspecified_and_auto_leave_it_to_the_arguments_and_the_compiler() -> None:
    placed = mj.device_put(X, on(P("x"), 4))
    for choice in (mj.sharding.AUTO, mj.sharding.AUTO(mesh(4))):
        assert mj.jit(lambda x: x + 1, in_shardings=choice, out_shardings=choice)(placed).sharding.spec == P("x")
    assert mj.jit(lambda x: x, in_shardings=mj.sharding.AUTO(mesh(4)))(X).sharding.mesh == mesh(4)  # it names the mesh
    compiled = mj.jit(lambda x, y: x + y, in_shardings=(on(P("x"), 4), None)).lower(X, X).compile()
    assert compiled.input_shardings[0][1].is_equivalent_to(on(P("x"), 4), 2)


def test_single_device_shardings() -> None:
    place = SingleDeviceSharding(mj.devices()[2])
    assert mj.jit(lambda x: x + 1, out_shardings=place)(X).devices() == {mj.devices()[2]}
    assert mj.jit(lambda x: x + 1, in_shardings=place)(X).devices() == {mj.devices()[2]}
    text = message(ValueError, lambda: mj.jit(lambda x: x, in_shardings=on(P("x"), 4), out_shardings=place)(X))
    assert text.startswith("jit(lambda): in_shardings for x is on Mesh('x': 4) of devices [0, 1, 2, 3], but out_shardings for")


def test_meshes_of_the_same_devices_go_together() -> None:
    """As in JAX: what counts are the devices in their order, not what the axes are called."""
    line = Mesh(np.array(mj.devices()), ("all",))
    a, b = mj.device_put(X, on(P("x"), 4, 2)), mj.device_put(X, NamedSharding(line, P("all")))
    for add in (mj.jit(lambda a, b: a + b), lambda a, b: a + b):
        np.testing.assert_array_equal(add(a, b), 2 * X)
        np.testing.assert_array_equal(add(b, a), 2 * X)
    compiled = mj.jit(lambda a, b: a + b).lower(a, b).compile()
    assert not compiled.needs_moving([a._key, b._key])
    renamed = NamedSharding(Mesh(np.array(mj.devices()).reshape(4, 2), ("p", "q")), P("p"))
    assert mj.jit(lambda x: x, in_shardings=renamed)(a).sharding.is_equivalent_to(renamed, 2)
    assert mj.jit(lambda x: x, in_shardings=renamed, out_shardings=b.sharding)(a).sharding.is_equivalent_to(b.sharding, 2)
    np.testing.assert_array_equal(mj.device_put(a, b.sharding), X)
    assert mj.device_put(mj.device_put(a, b.sharding), a.sharding).sharding == a.sharding
    odd = NamedSharding(Mesh(np.array(mj.devices()[:6]).reshape(3, 2), ("r", "s")), P("r"))
    even = NamedSharding(Mesh(np.array(mj.devices()[:6]).reshape(2, 3), ("r", "s")), P("s"))
    assert message(ValueError, lambda: mj.jit(lambda x: x, in_shardings=odd, out_shardings=even)(X)) == (
        "out_shardings for result: P('s',) on Mesh('r': 2, 's': 3) cannot be said with the axes of"
        " Mesh('r': 3, 's': 2)\n  fix: build every NamedSharding of one function on the same mesh"
    )
    moved = mj.jit(lambda x, y: x + y, in_shardings=(odd, None))(X, mj.device_put(X, even))
    np.testing.assert_array_equal(moved, 2 * X)


def test_uncommitted_arguments_are_moved() -> None:
    place = on(P("x"), 4)
    for x in (X, mnp.asarray(X), list(X)[0]):
        assert mj.jit(lambda x: x, in_shardings=place)(x).sharding == place


def test_unconstrained_dims() -> None:
    free = P.UNCONSTRAINED
    placed = mj.device_put(X, on(P("x", "y"), 4, 2))
    constrained = mj.jit(lambda x: mj.lax.with_sharding_constraint(x * 2, on(P(free, None), 4, 2)))
    assert constrained(placed).sharding.spec == P("x")
    result = mj.jit(lambda x: x * 2, out_shardings=on(P(free, None), 4, 2))(placed)
    assert result.sharding.spec[0] == "x"
    np.testing.assert_array_equal(result, 2 * X)


def test_shardings_and_static_arguments_go_together() -> None:
    place = on(P("x"), 4)
    f = mj.jit(lambda x, n, y: x * n + y, static_argnums=1, in_shardings=(place, None))
    assert f(X, 2, X).sharding == place
    assert float(mj.jit(lambda *a: a[0] * a[2], static_argnums=-1, in_shardings=on(P(), 4))(2.0, X, 3)) == 6


def test_positional_arguments_only() -> None:
    f = mj.jit(lambda x, y=2: x * y, in_shardings=on(P("x"), 4))
    assert f(X).sharding == on(P("x"), 4)  # a default is no argument of the call
    assert message(ValueError, lambda: f(X, y=3)) == (
        "jit(lambda): in_shardings place positional arguments, but this call passes y by keyword\n"
        "  fix: pass every argument by position"
    )


# --- static arguments


@pytest.mark.parametrize(
    ("f", "given", "args", "kwargs", "expected"),
    [
        (lambda x, n: x * n, {"static_argnums": (1,)}, (2.0, 3), {}, 6),
        (lambda x, n: x * n, {"static_argnums": np.int64(1)}, (2.0,), {"n": 3}, 6),
        (lambda x, n: x * n, {"static_argnums": -1}, (2.0, 3), {}, 6),
        (lambda x, /, n: x * n, {"static_argnames": "n"}, (2.0, 3), {}, 6),
        (lambda x, *, n=3: x * n, {"static_argnames": ("n",)}, (2.0,), {}, 6),
        (lambda x, *, n=3: x * n, {"static_argnames": ["n"]}, (2.0,), {"n": 4}, 8),
        (lambda *a: a[0] * a[2], {"static_argnums": 2}, (2.0, 0, 3), {}, 6),
        (lambda *a: a[0] * a[-1], {"static_argnums": -1}, (2.0, 0, 3), {}, 6),
        (lambda **k: k["x"] * k["n"], {"static_argnames": "n"}, (), {"x": 2.0, "n": 3}, 6),
        (lambda x, n=2: x * n, {"static_argnums": 1}, (2.0,), {}, 4),
        (lambda n, x: x * n, {"static_argnums": 0, "donate_argnums": 1}, (3, 2.0), {}, 6),
        (max, {"static_argnums": ()}, (2.0,), {"key": None}, None),
    ],
)  # fmt: skip
def test_static_arguments_of_every_kind(f: Any, given: Any, args: Any, kwargs: Any, expected: Any) -> None:
    if expected is None:
        assert mj.jit(f, **given).parameters.static_nums == ()
    else:
        assert float(mj.jit(f, **given)(*args, **kwargs)) == expected


def test_static_arguments_that_cannot_be() -> None:
    f = lambda x, n: x  # noqa: E731
    for value, kind in (([1], "list"), ({"a": 1}, "dict"), ({1}, "set"), (X, "ndarray"), (mnp.ones(2), "Array")):
        text = message(ValueError, lambda v=value: mj.jit(f, static_argnums=1)(X, v))
        assert text.startswith(f"jit(lambda): static argument 'n' is a {kind}, which is not hashable\n")
    assert message(TypeError, lambda: mj.jit(f, static_argnums=1.5)) == (
        "jit(lambda): static_argnums must be an int or several, got 1.5"
    )
    assert message(TypeError, lambda: mj.jit(f, static_argnames=1)) == (
        "jit(lambda): static_argnames must be a string or several, got 1\n  fix: static_argnums=1"
    )
    assert message(TypeError, lambda: mj.jit(f, static_argnums="n")) == (
        "jit(lambda): static_argnums must be an int or several, got 'n'\n  fix: static_argnames='n'"
    )
    text = message(TypeError, lambda: mj.jit(lambda x: mj.jit(f, static_argnums=1)(X, x))(3))
    assert text.startswith("jit(lambda): static argument 'n' is traced: Traced<i32[] weak>, argument x\n")

    class Bad:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("boom")

    g = mj.jit(f, static_argnums=1)
    g(X, Bad())
    assert message(ValueError, lambda: g(X, Bad())) == (
        "jit(lambda): static arguments must compare with ==, but comparing one of type Bad raised RuntimeError: boom\n"
        "  static values are part of the cache key\n"
        "  fix: give the class an __eq__ that returns True or False"
    )


# --- donation


def test_a_result_takes_the_place_of_the_donated_argument() -> None:
    """Left alone, propagation would put the result elsewhere, and the donated memory would be of no use."""
    state = mj.device_put(X, on(P("x"), 4))
    other = mj.device_put(X, on(P(None, "x"), 4))

    def step(s: Any, o: Any) -> Any:
        return s[0, 0] + o * 2

    lowered = mj.jit(step, donate_argnums=0).lower(state, other)
    assert lowered.lowering.aliases == {0: 0}
    assert lowered.compile().output_shardings.spec == P("x")
    result = mj.jit(step, donate_argnums=0)(state, other)
    np.testing.assert_array_equal(result, 2 * X)
    assert state.is_deleted()
    assert mj.jit(step).lower(other, other).compile().output_shardings.spec == P(None, "x")


def test_results_that_fit_already_are_left_alone() -> None:
    a, b = mj.device_put(X, on(P("x"), 4)), mj.device_put(X, on(P(None, "x"), 4))
    lowered = mj.jit(lambda a, b: (b + 1, a + 1), donate_argnums=(0, 1)).lower(a, b)
    assert lowered.lowering.aliases == {0: 1, 1: 0}


def test_why_donated_memory_is_of_no_use() -> None:
    def why(f: Any, *args: Any, **kwargs: Any) -> str:
        with pytest.warns(UserWarning) as warned:
            mj.jit(f, **kwargs)(*args)
        assert warned[0].filename == __file__
        return str(warned[0].message).split("\n")[0]

    a, b = (mj.device_put(X, on(P("x"), 4)) for _ in range(2))
    assert why(lambda a: a.sum(), a, donate_argnums=0) == (
        "jit(lambda): donated memory was not used: a f32[8,4] (no result has its type)"
    )
    a = b.copy()
    assert why(lambda a, b: {"s": a + b}, a, b.copy(), donate_argnums=(0, 1)) == (
        "jit(lambda): donated memory was not used: b f32[8,4] (result['s'] takes that of a)"
    )
    elsewhere = on(P(None, ("x", "y")), 4, 2)
    a = mj.device_put(X, on(P("x"), 4, 2))
    assert why(lambda a: a + 1, a, donate_argnums=0, out_shardings=elsewhere) == (
        'jit(lambda): donated memory was not used: a f32[8,4] (it is placed P("x"), result P(None, ("x", "y")))'
    )
    mj.jit(lambda a: a.sum(), donate_argnums=0)(X)  # nothing of a NumPy array is lost


def test_donated_but_not_used() -> None:
    x = mnp.asarray(X) + 0
    f = mj.jit(lambda p, y: y + 1, donate_argnums=0)
    with pytest.warns(UserWarning) as warned:
        f(x, X)
    assert str(warned[0].message) == (
        "jit(lambda): donated arguments are not used: p f32[8,4]\n"
        "  the results do not depend on them, so they are neither read nor deleted\n"
        "  fix: leave them out; keep_unused=True passes them nevertheless"
    )
    assert not x.is_deleted()
    mj.jit(lambda p, y: y + 1, donate_argnums=0, keep_unused=True)(x, X)
    assert x.is_deleted()


# --- keep_unused


def test_unused_arguments_stay_where_they_are() -> None:
    far = mj.device_put(X, on(P("x"), 4))
    compiled = mj.jit(lambda x, unused: x + 1).lower(far, far).compile()
    assert len(compiled.executable.lowering.local.inputs) == 1
    kept = mj.jit(lambda x, unused: x + 1, keep_unused=True).lower(far, far).compile()
    assert len(kept.executable.lowering.local.inputs) == 2
    assert kept.memory_analysis().argument_size_in_bytes == 2 * compiled.memory_analysis().argument_size_in_bytes
    np.testing.assert_array_equal(kept(far, far), compiled(far, far))


def test_arguments_that_only_dead_code_reads_are_unused() -> None:
    def f(x: Any, y: Any) -> Any:
        mnp.sin(y)
        return x

    assert mj.jit(f).lower(X, X).compile().input_shardings[0][1] is None
    closed = mnp.ones(3)
    compiled = mj.jit(lambda x: (closed + 1, x)[1]).lower(X).compile()
    np.testing.assert_array_equal(compiled(X), X)
    assert compiled.outer == []


# --- device and backend


def test_device_and_backend() -> None:
    device = mj.devices()[2]
    text = (
        "jit: device= and backend= are deprecated, as in JAX\n"
        "  fix: put the arguments there with meshjit.device_put(x, device), or name devices by in_shardings"
    )
    with pytest.warns(DeprecationWarning) as warned:
        f = mj.jit(lambda x: x + 1, device=device)
    assert str(warned[0].message) == text and warned[0].filename == __file__
    for x in (X, mj.device_put(X, mj.devices()[1]), mj.device_put(X, on(P("x"), 4))):
        assert f(x).devices() == {device} and f(x).committed
    with pytest.warns(DeprecationWarning):
        g = mj.jit(lambda x: x + 1, backend="cpu")
    assert g(X).devices() == {mj.devices()[0]} and g(X).committed
    assert mj.jit(lambda x: f(x))(X).devices() == {device}


def test_devices_that_cannot_be() -> None:
    f, device = (lambda x: x), mj.devices()[0]
    assert message(ValueError, lambda: mj.jit(f, device=device, backend="cpu")).endswith("fix: give one of them")
    assert message(ValueError, lambda: mj.jit(f, device=device, in_shardings=P())) == (
        "jit: device and in_shardings were both given\n  fix: leave device out; shardings name devices"
    )
    assert message(TypeError, lambda: mj.jit(f, device="cpu")) == (
        "jit: device must be one of meshjit.devices(), got 'cpu'\n  fix: device=meshjit.devices()[0]"
    )
    assert message(RuntimeError, lambda: mj.jit(f, backend="abacus")) == (
        "unknown backend 'abacus': expected cpu, cuda (or gpu) or tpu"
    )


# --- abstracted_axes


def test_names_of_dims_stand_in_the_program() -> None:
    f = mj.jit(lambda x, w: mnp.tanh(x @ w), abstracted_axes=({0: "n"}, None))
    traced = f.trace(X, X.T)
    text = traced.as_text()
    assert text.startswith("program lambda(%x: f32[n=8, 4], %w: f32[4, 8]) -> (f32[n=8, 8]) {")
    assert str(parse_program(text)) == text
    np.testing.assert_allclose(f(X[:3], X.T), np.tanh(X[:3] @ X.T), rtol=1e-5)
    placed = mj.jit(lambda x: x + 1, abstracted_axes=("n",), in_shardings=on(P("x"), 4)).trace(X).plan()
    assert "f32[n=8@x, 4]" in placed.as_text() and str(parse_program(placed.as_text())) == str(placed.program)
    assert "n=" not in mj.jit(lambda x: x + 1).trace(f(X, X.T)).as_text()  # names stay inside
    both = mj.make_jaxpr(lambda d: d["a"] + d["b"], abstracted_axes=({"a": {0: "n"}, "b": ("n", "m")},))({"a": X, "b": X})
    assert str(both.jaxpr.program).startswith("program lambda(%d_a: f32[n=8, 4], %d_b: f32[n=8, m=4])")


def test_each_size_is_compiled_once_and_explained_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    f = mj.jit(lambda x, y: x + y, abstracted_axes=("n",))
    with mj.explain_cache_misses():
        for size in (8, 3, 8, 3):
            f(X[:size], X[:size])
    assert f._cache_size() == 2
    (_, second) = [r.getMessage() for r in caplog.records]
    assert second.endswith("\n  axis n is 3, before 8")


def test_names_of_dims_that_cannot_be() -> None:
    f = lambda x, y: x  # noqa: E731
    assert message(ValueError, lambda: mj.jit(f, abstracted_axes=("n",))(X, X[:3])) == (
        "jit(lambda): the abstracted axis 'n' is 8 in dim 0 of x f32[8,4], but 3 in dim 0 of y f32[3,4]\n"
        "  fix: pass arrays that agree there, or give the dims different names"
    )
    assert message(ValueError, lambda: mj.jit(f, abstracted_axes=({2: "n"}, None))(X, X)) == (
        "jit(lambda): abstracted_axes call dim 2 of x 'n', but x is f32[8,4]\n  fix: dims of x go from 0 to 1"
    )
    assert message(TypeError, lambda: mj.jit(f, abstracted_axes=(3, None))) == (
        "jit(lambda): abstracted_axes[0] is 3\n"
        '  fix: use {0: "n"} or ("n", None): names of dims, for each argument or for all of them'
    )
    assert message(ValueError, lambda: mj.jit(f, abstracted_axes=({0: "n"},))(X, X)).startswith(
        "abstracted_axes does not fit: it is a tuple of 1, the value in its place is a tuple of 2"
    )


# --- caches, and who keeps what alive


def test_jit_of_one_function_twice_compiles_once() -> None:
    traces: list[int] = []

    def f(x: Any, n: int = 1) -> Any:
        traces.append(n)
        return x * n

    for _ in range(3):
        mj.jit(f)(X)
    assert len(traces) == 1
    mj.jit(f, static_argnums=1)(X)
    mj.jit(f, out_shardings={})  # not called
    mj.jit(f, out_shardings=on(P("x"), 4))(X)
    mj.jit(f, out_shardings=on(P("x"), 4))(X)
    mj.jit(f, in_shardings=[on(P("x"), 4)])(X)
    mj.jit(f, in_shardings=[on(P("x"), 4)])(X)
    assert len(traces) == 4
    assert mj.jit(f)._cache_size() == 1
    mj.jit(f).clear_cache()
    assert mj.jit(f)._cache_size() == 0
    mj.jit(f)(X)
    mj.clear_caches()
    mj.jit(f)(X)
    assert len(traces) == 6


def test_functions_that_cannot_be_known_weakly() -> None:
    class Slotted:
        __slots__ = ("by",)
        __hash__ = None  # pyright: ignore[reportAssignmentType]

        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, x: Any) -> Any:
            return x * self.by

    assert float(mj.jit(Slotted(2.0))(3.0)) == 6
    assert float(mj.jit(abs)(-3.0)) == 3


def test_a_jitted_function_and_what_it_closed_over_are_let_go() -> None:
    def make() -> tuple[Any, weakref.ref[Any], weakref.ref[Any]]:
        big = mnp.ones((4, 4))

        def f(x: Any) -> Any:
            return x @ big

        return mj.jit(f), weakref.ref(f), weakref.ref(big)

    gc.disable()  # at once, not with the next collection: arrays may be most of a device's memory
    try:
        for calls in (1, 5):
            f, function, array = make()
            for _ in range(calls):
                f(mnp.ones((4, 4)))
            assert function() is not None and array() is not None
            del f
            assert function() is None and array() is None
    finally:
        gc.enable()


def test_results_are_not_kept_alive() -> None:
    result = mj.jit(lambda x: x + 1)(X)
    known = weakref.ref(result)
    del result
    assert known() is None


def test_a_function_passes_its_attributes_on_but_hides_no_method() -> None:
    def function(x):
        return x

    function.some, function.lower, function.fun = 3, "mine", "mine"
    jitted: Any = mj.jit(function)
    assert jitted.some == 3 and jitted.__wrapped__ is function and jitted.fun is function
    assert callable(jitted.lower) and jitted.lower(X).compile()(X).shape == X.shape
    jitted.other = 4
    assert jitted.other == 4 and not hasattr(function, "other")
    for transformation in (mj.grad, mj.vmap, mj.checkpoint, mj.pjit):
        assert transformation(function).some == 3

    class Layer:
        def __init__(self) -> None:
            self.width = 4

        def __call__(self, x):
            return x * self.width

    assert mj.jit(Layer()).width == 4
