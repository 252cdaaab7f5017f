"""Only what is differentiated or mapped has to be an array: other arguments, and aux, are what Python made of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.runtime import eager
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

X = np.arange(3, dtype=np.float32)


@dataclasses.dataclass
class Config:
    """No pytree, not hashable."""

    scale: float = 2.0
    square: bool = True
    activation: Callable[[Any], Any] = mnp.sin


@mj.tree_util.register_dataclass
@dataclasses.dataclass
class Batch:
    inputs: Any
    weights: Any
    name: str = dataclasses.field(default="train", metadata={"static": True})


def loss(x: Any, config: Any) -> Any:
    y = config.activation(x) * config.scale
    return (y**2).sum() if config.square else y.sum()


def slope(x: Any, config: Config) -> Any:
    inner = config.scale * np.sin(x)
    return 2 * inner * config.scale * np.cos(x) if config.square else config.scale * np.cos(x)


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)


# -- arguments that are not differentiated


@pytest.mark.parametrize("config", [Config(), Config(3.0, False)])
def test_a_config_object_passes_through_every_derivative(config: Config) -> None:
    want = slope(X, config)
    close(mj.grad(loss)(X, config), want)
    close(mj.grad(loss)(X, config=config), want)
    close(mj.value_and_grad(loss)(X, config)[1], want)
    close(mj.jacfwd(loss)(X, config), want)
    close(mj.jacrev(loss)(X, config=config), want)
    close(mj.grad(lambda config, x: loss(x, config), argnums=-1)(config, X), want)
    close(mj.grad(mj.checkpoint(loss, static_argnums=1))(X, config), want)
    close(mj.vmap(mj.grad(loss), (0, None))(np.stack([X, X]), config)[1], want)
    close(mj.jit(lambda x: mj.grad(loss)(x, config))(X), want)
    close(mj.hessian(loss)(X, config), mj.jacfwd(mj.grad(lambda x: loss(x, config)))(X))


def test_arguments_reach_the_function_as_they_are() -> None:
    seen: list[Any] = []

    def keep(x: Any, *rest: Any, **named: Any) -> Any:
        seen[:] = [*rest, *named.values()]
        return x.sum()

    given = (3, True, 2.5, "adam", None, np.ones(2), np.float32(3), mnp.ones(2), mnp, {"a": 1, 2: "b"}, Config())
    mj.grad(keep)(X, *given, mode="x")
    assert all(a is b for a, b in zip(seen, (*given, "x"), strict=True))
    mj.jit(lambda x: mj.grad(keep)(x, *given, mode="x"))(X)
    assert all(a is b for a, b in zip(seen, (*given, "x"), strict=True))
    mj.vmap(lambda x, *rest: keep(x, *rest), (0, *[None] * 8))(X, *given[:8])
    assert all(a is b for a, b in zip(seen, given[:8], strict=True))


def test_values_that_are_not_differentiated_are_known_to_python() -> None:
    close(mj.grad(lambda x, flag: x.sum() if flag else -x.sum())(X, mnp.array(False)), -np.ones(3))
    close(mj.grad(lambda x, n: sum((x * i).sum() for i in range(n)))(X, mnp.array(3)), np.full(3, 3))
    close(mj.grad(lambda x, n: lax.fori_loop(0, n, lambda i, c: c * 2, x).sum())(X, 3), np.full(3, 8))
    close(mj.grad(lambda x, s: (x * mnp.ones(s)).sum())(X, (2, 3)), np.full(3, 2))
    close(mj.grad(lambda x, b: x.sum() if b.mean() > 0.5 else -x.sum())(X, np.ones(3)), np.ones(3))


def test_traced_values_that_are_not_differentiated_stay_traced() -> None:
    def inner(x: Any, y: Any) -> Any:
        kinds.append(type(y).__name__)
        return (x * y).sum()

    kinds: list[str] = []
    close(mj.jit(lambda x, y: mj.grad(inner)(x, y))(X, X), X)
    close(mj.vmap(mj.grad(inner))(np.stack([X, X]), np.stack([X, 2 * X]))[1], 2 * X)
    close(mj.grad(lambda y: mj.grad(inner)(X, y).sum())(X), np.ones(3))
    assert set(kinds) == {"Tracer"}


def test_integers_have_no_derivative_and_are_known() -> None:
    value, pull = mj.vjp(lambda x, n: sum(x.sum() for _ in range(n)), X, 3)
    assert float(value) == 9 and pull(1.0)[1].dtype.names == ("float0",)
    close(pull(1.0)[0], np.full(3, 3))
    got = mj.grad(lambda p: p["x"].sum() if p["on"] else 0.0, allow_int=True)({"x": X, "on": True})
    close(got["x"], np.ones(3))
    assert got["on"].dtype.names == ("float0",)
    _, tangent = mj.jvp(lambda x, n: x.sum() if n else x[0], (X, True), (X, np.zeros((), mj.dtypes.float0)))
    close(tangent, X.sum())


def test_registered_dataclasses_and_keys() -> None:
    batch = Batch(np.stack([X, X]), mnp.array([1.0, 3.0]))
    close(mj.grad(lambda x, b: ((b.inputs * x).sum(1) * b.weights).sum() if b.name == "train" else 0.0)(X, batch), 4 * X)
    close(mj.grad(lambda b, x: (b.inputs * x).sum())(batch, X).weights, np.zeros(2))
    key = mj.random.key(0)
    close(mj.grad(lambda x, k: (x * mj.random.normal(k, (3,))).sum())(X, key), mj.random.normal(key, (3,)))


def test_arrays_that_are_not_differentiated_stay_where_they_are() -> None:
    mesh = Mesh(np.array(mj.devices()[:4]), ("a",))
    rows = NamedSharding(mesh, P("a"))
    data = mj.device_put(np.arange(24, dtype=np.float32).reshape(8, 3), rows)
    weights = mj.device_put(X, NamedSharding(mesh, P()))
    value, found = mj.value_and_grad(lambda w, d: (d @ w).sum())(weights, data)
    close(value, (np.asarray(data) @ X).sum())
    close(found, np.asarray(data).sum(0))
    assert found.sharding.device_set == set(mj.devices()[:4])


# -- vmap


def test_what_members_share_may_be_anything() -> None:
    close(mj.vmap(lambda f, x: f(x), (None, 0))(mnp.sin, X), np.sin(X))
    close(mj.vmap(lambda x, mode: x * 2 if mode == "double" else x, (0, None))(X, "double"), 2 * X)
    close(mj.vmap(lambda x, n: sum(x for _ in range(n)), (0, None))(X, 3), 3 * X)
    close(mj.vmap(lambda d: d["x"] * len(d["name"]), ({"x": 0, "name": None},))({"x": X, "name": "abc"}), 3 * X)
    close(mj.vmap(lambda x, flag: lax.psum(x, "i") if flag else x, (0, None), axis_name="i")(X, True), np.full(3, 3))
    close(mj.jit(lambda x, y: mj.vmap(lambda a, b: a * b, (0, None))(x, y))(X, 2.0), 2 * X)


# -- aux


class Opaque:
    pass


AUX = {"name": "step", "n": 3, "none": None, "object": Opaque(), "numpy": X, "array": mnp.ones(2), "nested": [1.5, (True,)]}


def aux_of(x: Any) -> Any:
    return {**AUX, "traced": x * 2}


def test_members_of_a_type_are_types() -> None:
    """A ShapeDtypeStruct has no elements: what it says of all members, it says without the dim to each."""
    seen = []

    def f(x: Any, like: Any) -> Any:
        seen.append(like)
        return mnp.broadcast_to(x, like.shape).astype(like.dtype)

    result = mj.vmap(f, in_axes=(0, -1))(np.arange(3.0), mj.ShapeDtypeStruct((2, 3), np.int32))
    assert (seen, result.tolist(), result.dtype) == ([mj.ShapeDtypeStruct((2,), np.int32)], [[0, 0], [1, 1], [2, 2]], np.int32)
    assert mj.vmap(lambda like: mnp.ones(like.shape))(mj.ShapeDtypeStruct((4, 2), np.int32)).shape == (4, 2)
    with pytest.raises(ValueError, match=r"vmap needs one batch extent, found \{'like': 4, 'x': 3\}"):
        mj.vmap(f)(np.arange(3.0), mj.ShapeDtypeStruct((4,), np.int32))
    with pytest.raises(TypeError, match="ShapeDtypeStruct"):
        mj.vmap(lambda x, like: x + like)(np.arange(3.0), mj.ShapeDtypeStruct((3,), np.int32))


@pytest.mark.parametrize("jitted", [False, True])
def test_aux_is_what_the_function_made_of_it(jitted: bool) -> None:
    found: list[Any] = []

    def run(x: Any) -> Any:
        both = lambda x: ((x**2).sum(), aux_of(x))  # noqa: E731
        rows = lambda x: (x * 2, aux_of(x))  # noqa: E731
        found[:] = [
            mj.grad(both, has_aux=True)(x)[1],
            mj.value_and_grad(both, has_aux=True)(x)[0][1],
            mj.vjp(both, x, has_aux=True)[2],
            mj.jvp(both, (x,), (x,), has_aux=True)[2],
            mj.linearize(both, x, has_aux=True)[2],
            mj.jacfwd(rows, has_aux=True)(x)[1],
            mj.jacrev(rows, has_aux=True)(x)[1],
            mj.hessian(both, has_aux=True)(x)[1],
        ]
        return [aux["traced"] for aux in found]

    for traced in mj.jit(run)(X) if jitted else run(X):
        close(traced, 2 * X)
    for aux in found:
        assert all(aux[name] is AUX[name] for name in ("name", "n", "none", "object", "numpy", "array"))
        assert aux["nested"] == [1.5, (True,)]


def test_aux_alone() -> None:
    assert mj.grad(lambda x: (x.sum(), None), has_aux=True)(X)[1] is None
    assert mj.grad(lambda x: [x.sum(), "text"], has_aux=True)(X)[1] == "text"
    close(mj.vmap(mj.grad(lambda x: ((x**2).sum(), {"x": x}), has_aux=True))(np.stack([X, X]))[1]["x"][1], X)
    close(mj.grad(lambda x: mj.grad(lambda y: ((y**3).sum(), "a"), has_aux=True)(x)[0].sum())(X), 6 * X)


# -- how often it compiles


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    real = eager.compiled
    monkeypatch.setattr(eager, "compiled", lambda program, *rest: names.append(program.name) or real(program, *rest))
    return names


def test_new_batches_compile_once(compiles: list[str]) -> None:
    def fit(params: Any, batch: Any, name: str) -> Any:
        assert name == "train"
        return ((batch["x"] @ params - batch["y"]) ** 2).mean()

    random = np.random.default_rng(0)
    for convert in (lambda a: a.astype(np.float32), mnp.asarray, lambda a: a):  # the last are float64
        del compiles[:]
        for i in range(5):
            x, y = random.normal(size=(8, 3)), random.normal(size=(8, 10))
            got = mj.value_and_grad(fit)(np.ones((3, 10), np.float32) * i, {"x": convert(x), "y": convert(y)}, "train")
            close(got[1], 2 * x.T @ (x @ np.ones((3, 10)) * i - y) / 80)
        assert compiles.count("fit") <= 1  # the second kind finds what the first compiled


@pytest.mark.parametrize("kind", [float, np.float32, lambda x: np.array(x, np.float32), lambda x: np.float64(x)])
def test_new_numbers_compile_no_more_than_twice(kind: Any, compiles: list[str]) -> None:
    def scaled(x: Any, rate: Any) -> Any:
        return (x * rate + mnp.full((3,), rate)).sum() * 0.5

    for i in range(6):
        close(mj.grad(scaled)(X, kind(i / 4)), np.full(3, i / 8))
    assert compiles.count("scaled") <= 2


def test_other_numbers_compile_no_more_than_twice_where_members_close_over_them(compiles: list[str]) -> None:
    for i in range(6):
        data = X + i

        def times(q: Any, i: int = i, data: Any = data) -> Any:
            return q * float(i) + mnp.sum(data) + 1.0

        close(mj.vmap(times)(X), X * i + data.sum() + 1)
    assert compiles.count("times") <= 2


def test_numbers_that_become_equal_and_differ_again(compiles: list[str]) -> None:
    def both(x: Any, a: float, b: float) -> Any:
        return (x * a + x**2 * b).sum()

    for a, b in [(1.0, 2.0), (1.0, 3.0), (4.0, 2.0), (1.0, 2.0), (0.0, 0.0), (-0.0, np.nan), (5.0, 6.0)]:
        close(mj.grad(both)(X, a, b), a + 2 * X * b)
    assert compiles.count("both") <= 3


def test_a_numpy_argument_in_a_loop_body_is_no_constant(compiles: list[str]) -> None:
    def looped(x: Any, data: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: c * data, x).sum()

    for i in range(4):
        data = X + i
        close(mj.grad(looped)(X, data), data**3)
    assert compiles.count("looped") == 1


# -- errors


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a string among what is differentiated": (
        lambda: mj.grad(lambda params: params["w"].sum())({"w": X, "name": "adam"}), TypeError,
        "argument params['name'] is not an array: str 'adam'\n"
        "  arguments and results of traced functions are arrays, Python numbers, and trees of them\n"
        "  fix: leave it out of what is differentiated (argnums=..., or close over it); what is not may be anything",
    ),
    "an integer among what is differentiated": (
        lambda: mj.grad(lambda params: params["w"].sum())({"w": X, "step": 3}), TypeError,
        "grad needs floating or complex arguments, but params['step'] is i32[]\n"
        "  fix: pass params['step'] as a float (x.astype(float)), leave it out of argnums, or set allow_int=True",
    ),
    "jacfwd of an integer": (
        lambda: mj.jacfwd(lambda x, n: x * n, argnums=1)(X, 3), TypeError,
        "jacfwd needs floating arguments and results, but argument n is i32[]",
    ),
    "jacrev of an integer": (
        lambda: mj.jacrev(lambda x, n: x * n["a"], argnums=1)(X, {"a": np.array(3)}), TypeError,
        "jacrev needs floating arguments and results, but argument n['a'] is i32[]",
    ),
    "a string that is mapped": (
        lambda: mj.vmap(lambda x, mode: x)(X, "double"), TypeError,
        "argument mode is not an array: str 'double'\n"
        "  arguments and results of traced functions are arrays, Python numbers, and trees of them\n"
        "  fix: in_axes=None for an argument that all members share; such arguments may be anything",
    ),
    "a string that is mapped by keyword": (
        lambda: mj.vmap(lambda x, mode: x)(X, mode="double"), TypeError,
        "fix: keyword arguments are mapped: pass it by position, with in_axes=None, or close over it",
    ),
    "a string as a mapped function's result": (
        lambda: mj.vmap(lambda x: (x, "a"))(X), TypeError, "lambda returned result[1], which is not an array: str 'a'",
    ),
    "a string as the value": (
        lambda: mj.grad(lambda x: "a")(X), TypeError, "lambda returned result, which is not an array: str 'a'",
    ),
    "None as the value": (
        lambda: mj.grad(lambda x: None)(X), TypeError, "gradient only defined for scalar-output functions; lambda returned no array",
    ),
    "a setting of checkpoint": (
        lambda: mj.checkpoint(lambda x, config: x)(X, Config()), TypeError,
        "fix: checkpoint(fun, static_argnums=...) for a positional argument that is a setting, or close over it",
    ),
    "three results with aux": (
        lambda: mj.vjp(lambda x: (x, 1, 2), X, has_aux=True), TypeError,
        "vjp with has_aux: lambda must return (value, aux), it returned a tuple of 3",
    ),
    "a dict with aux": (
        lambda: mj.jacrev(lambda x: {"x": x}, has_aux=True)(X), TypeError,
        "jacrev with has_aux: lambda must return (value, aux), it returned a dict with keys ['x']",
    ),
    "a value that is not known": (
        lambda: mj.jit(lambda x, flag: mj.grad(lambda y, f: y.sum() if f else 0.0)(x, flag))(X, True), TypeError,
        "the value: argument f",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ERRORS)
def test_errors(what: str) -> None:
    call, kind, text = ERRORS[what]
    with pytest.raises(kind) as error:
        call()
    assert text in str(error.value)


def test_checkpoint_traces_a_function_once_for_equal_layers() -> None:
    calls: list[int] = []

    def layer(x: Any, w: Any) -> Any:
        calls.append(1)
        return mnp.tanh(x * w)

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = mj.checkpoint(layer)(x, w)
        return mnp.sum(x)

    ws = [np.float32(0.5), np.float32(0.25), np.float32(2.0)]
    found = mj.jit(mj.grad(loss))(ws, np.ones(4, np.float32))
    assert len(calls) == 1

    def written_out(ws: Any, x: Any) -> Any:
        for w in ws:
            x = mnp.tanh(x * w)
        return mnp.sum(x)

    for own, other in zip(found, mj.jit(mj.grad(written_out))(ws, np.ones(4, np.float32)), strict=True):
        assert np.asarray(own) == np.asarray(other)


def test_checkpoint_traces_anew_what_closes_over_arrays() -> None:
    class Model:
        scale: Any = None

        def layer(self, x: Any) -> Any:
            return x * self.scale

    model = Model()

    def f(x: Any) -> Any:
        for factor in (x + 1.0, x + 2.0):
            model.scale = factor
            x = mj.checkpoint(model.layer)(x)
        return mnp.sum(x)

    assert float(mj.jit(f)(np.float32(1.0))) == 1.0 * 2.0 * 3.0


def test_argnums_may_be_a_number_of_numpys() -> None:
    def fun(a: Any, b: Any) -> Any:
        return a * b * b

    for transform, expected in ((mj.grad, 12.0), (mj.jacfwd, 12.0), (mj.jacrev, 12.0), (mj.hessian, 4.0)):
        assert float(transform(fun, argnums=np.int32(1))(2.0, 3.0)) == expected
    assert [float(x) for x in mj.value_and_grad(fun, np.int64(0))(2.0, 3.0)] == [18.0, 9.0]
