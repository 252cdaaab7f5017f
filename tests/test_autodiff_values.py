"""Values outside of jit: what Python may ask of what is differentiated, what it costs, and where there are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, random
from meshjit.errors import ConcretizationTypeError, TracerArrayConversionError, TracerBoolConversionError
from meshjit.runtime import eager
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
from meshjit.trace import set_eager

pytestmark = pytest.mark.device

X = np.array([2.0, 1.0, 1.0, 3.0], np.float32)


def cube(x: Any) -> Any:
    return x**3 if x > 0 else -x


def halved(x: Any) -> Any:
    steps = 0
    while mnp.abs(x).max() > 1:
        x, steps = x / 2, steps + 1
    return x.sum() * steps


def newton(a: Any) -> Any:
    x = a
    for _ in range(20):
        step = (x**2 - a) / mj.grad(lambda y: y**2 - a)(x)
        x = x - step
        if abs(step) < 1e-6:
            break
    return x


def drawn(x: Any) -> Any:
    key = random.key(0)
    while True:
        key, sub = random.split(key)
        u = random.uniform(sub)
        if u > 0.5:
            return x * u


GRADIENTS: list[tuple[Callable[[Any], Any], Any, Any]] = [  # function, at, what JAX 0.10.2 gives
    (lambda x: x * x if x > 0 else -x, 3.0, 6.0),
    (lambda x: x * x if x > 0 else -x, -3.0, -1.0),
    (lambda x: x * int(x), 3.5, 3.0),
    (lambda x: x * x.item(), 3.0, 3.0),
    (lambda x: x * [10.0, 20.0, 30.0][x.astype(int)], 2.0, 30.0),
    (lambda x: sum(x * i for i in range(x.astype(int))), 3.0, 3.0),
    (lambda x: x * mnp.ones(x.astype(int)).sum(), 3.0, 3.0),
    (lambda x: mnp.sum(x * mnp.arange(x)), 3.0, 3.0),
    (lambda x: lax.fori_loop(0, x.astype(int), lambda i, c: c * x, 1.0), 3.0, 27.0),
    (lambda x: mnp.linspace(0, x, int(x)).sum(), 3.0, 1.5),
    (lambda x: x * max(x, 3.0), 4.0, 8.0),
    (lambda x: x[x > 1].sum(), X, [1, 0, 0, 1]),
    (lambda x: x[mnp.nonzero(x > 1)].sum(), X, [1, 0, 0, 1]),
    (lambda x: x[: x[0].astype(int)].sum(), X, [1, 1, 0, 0]),
    (lambda x: x.reshape(x[0].astype(int), -1)[0].sum(), X, [1, 1, 0, 0]),
    (lambda x: mnp.split(x, [x[0].astype(int)])[0].sum(), X, [1, 1, 0, 0]),
    (lambda x: mnp.repeat(x, np.array([1, 2, 0, 1]).astype(int)).sum(), X, [1, 2, 0, 1]),
    (lambda x: mnp.sum(x, axis=(x[0] * 0).astype(int)), X, [1, 1, 1, 1]),
    (lambda x: sum(v * v for v in x if v > 1), X, [4, 0, 0, 6]),
    (lambda x: mnp.stack(sorted(x))[0], X, [0, 1, 0, 0]),
    (lambda x: x * np.asarray(mnp.floor(x)), 3.5, 3.0),
    (lambda x: x * np.asarray(lax.stop_gradient(x)), 3.0, 3.0),
    (lambda x: x * math.sqrt(lax.stop_gradient(x)), 4.0, 2.0),
    (lambda x: x * int(mnp.arange(3).sum()), 4.0, 3.0),
    (lambda x: mj.vmap(lambda y: y * x if x + 1 > 0 else y)(mnp.ones(3)).sum(), 2.0, 3.0),
    (lambda x: lax.scan(lambda c, _: (c * x if bool(x) else c, None), x, None, length=3)[0], 2.0, 32.0),
    (lambda x: mj.checkpoint(cube)(x), 3.0, 27.0),
    (lambda x: mj.jvp(lambda y: x * y if x * y > 2 else y, (x,), (1.0,))[1], 3.0, 1.0),
    (mj.grad(cube), 3.0, 18.0),
    (halved, np.array([10.0, 3.0], np.float32), [0.25, 0.25]),
    (newton, 2.0, 0.35355338),
    (drawn, 2.0, 0.966439),
]


@pytest.mark.parametrize("case", range(len(GRADIENTS)))
def test_gradients_of_functions_that_look_at_values(case: int) -> None:
    function, at, expected = GRADIENTS[case]
    np.testing.assert_allclose(mj.grad(function)(at), expected, rtol=1e-5)
    value, pull = mj.vjp(function, at)
    np.testing.assert_allclose(pull(mnp.ones_like(value))[0], expected, rtol=1e-5)
    direction = mnp.ones_like(mnp.asarray(at))
    along = np.sum(expected)
    np.testing.assert_allclose(mj.jvp(function, (at,), (direction,))[1], along, rtol=1e-5)
    np.testing.assert_allclose(mj.linearize(function, at)[1](direction), along, rtol=1e-5)


def test_nested_and_whole_jacobians() -> None:
    assert float(mj.jvp(mj.grad(cube), (3.0,), (1.0,))[1]) == float(mj.grad(mj.grad(cube))(3.0)) == 18
    square = np.diag(np.full(2, 3.0))
    for jacobian in (mj.jacfwd, mj.jacrev):
        np.testing.assert_allclose(jacobian(lambda x: x**3 if x.sum() > 0 else -x)(mnp.ones(2)), square)
    np.testing.assert_allclose(mj.hessian(lambda x: (x**3).sum() if x.sum() > 0 else x.sum())(mnp.ones(2)), 2 * square)


def test_what_all_members_of_a_batch_share_has_values() -> None:
    ones = mnp.ones(3)
    np.testing.assert_array_equal(mj.vmap(lambda y, x: x * 3 if y * 2 > 1 else x, (None, 0))(mnp.float32(2), ones), 3 * ones)
    np.testing.assert_array_equal(mj.vmap(lambda f, x: f(x), (None, 0))(mnp.negative, ones), -ones)
    power = mj.vmap(lambda x, n: lax.fori_loop(0, n, lambda i, c: c * x, 1.0), (0, None))
    np.testing.assert_array_equal(mj.grad(lambda x: power(x, mnp.int32(2)).sum())(2 * ones), 4 * ones)
    with pytest.raises(TracerBoolConversionError, match=r"Traced<bool\[\]> has no value while cube is traced"):
        mj.vmap(cube)(ones)
    with pytest.raises(TracerBoolConversionError):
        mj.vmap(mj.grad(cube))(ones)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: mj.jit(mj.grad(cube))(3.0),
        lambda: mj.grad(mj.jit(cube))(3.0),
        lambda: mj.jit(lambda y: mj.grad(lambda x: x if mnp.ones(()) > 0 else -x)(y))(2.0),
        lambda: mj.grad(lambda x: lax.scan(lambda c, _: (c if x > 0 else -c, None), x, None, length=3)[0])(2.0),
    ],
)
def test_inside_jit_and_loops_there_are_none(wrong: Callable[[], Any]) -> None:
    with pytest.raises(TracerBoolConversionError, match="has no value while .* is traced: its truth value was asked for"):
        wrong()


def test_disable_jit_gives_values_to_all() -> None:
    with mj.disable_jit():
        assert float(mj.jit(mj.grad(mj.jit(cube)))(3.0)) == 27
        assert float(mj.grad(lambda x: lax.scan(lambda c, _: (c * x if x > 0 else c, None), x, None, length=3)[0])(2.0)) == 32
        loop = mj.grad(lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, x))[1])
        assert float(loop(3.0)) == 108
        assert float(mj.grad(lambda x: lax.cond(x > 0, lambda: x * 2 if x > 1 else x, lambda: x))(2.0)) == 2
        counts = mj.vmap(lambda n: lax.fori_loop(0, n, lambda i, c: c * 2, 1))(mnp.arange(3))
        np.testing.assert_array_equal(counts, [1, 2, 4])
        ends = mj.vmap(lambda x: lax.while_loop(lambda c: c < 5, lambda c: c + x, x))(mnp.arange(1, 4))
        np.testing.assert_array_equal(ends, [5, 6, 6])
        np.testing.assert_array_equal(mj.vmap(lambda x: lax.switch(x, [lambda: 1.0, lambda: 2.0]))(mnp.arange(2)), [1, 2])


def test_print_and_format_show_values(capsys: pytest.CaptureFixture[str]) -> None:
    def loss(x: Any) -> Any:
        print(x, [x[0] * 2], f"{x.sum():.2f}")
        return x.sum()

    mj.grad(loss)(mnp.asarray(X))
    assert capsys.readouterr().out == "Traced<f32[4]>([2. 1. 1. 3.]) [Traced<f32[]>(4.0)] 7.00\n"
    mj.vmap(lambda x: print(x) or x)(X)
    assert capsys.readouterr().out == "Traced<f32[]>\n"


@pytest.mark.parametrize(
    "use", [float, complex, math.sqrt, np.asarray, np.float32, lambda x: x.tolist(), lambda x: x.devices()]
)
def test_what_would_lose_the_derivative_is_refused(use: Callable[[Any], Any]) -> None:
    with pytest.raises(ConcretizationTypeError) as error:
        mj.grad(lambda x: x * use(x * 2))(3.0)
    first, *rest = str(error.value).split("\n")
    assert first.startswith("Traced<f32[] weak> is differentiated while lambda is traced: ")
    assert "test_autodiff_values.py" in first and rest == [
        rest[0],
        "  what Python or NumPy made of it would count as a constant: its derivative would be lost",
        "  fix: the function of the same name in meshjit.numpy; or lax.stop_gradient(x), which is read like any array",
    ]
    mj.grad(lambda x: x * (use(lax.stop_gradient(x)) is not None))(3.0)
    with pytest.raises(TracerArrayConversionError):
        mj.grad(lambda x: mj.grad(lambda y: y * np.asarray(x))(1.0))(3.0)


def test_values_of_sharded_arrays_and_constraints() -> None:
    mesh = Mesh(np.asarray(mj.devices()).reshape(8), ("x",))
    place = NamedSharding(mesh, P("x"))

    def loss(x: Any) -> Any:
        y = lax.with_sharding_constraint(x * 2, place)
        z = mj.jit(lambda v: v + 1, in_shardings=place)(y)
        return z.sum() if z.sum() > 3 and np.asarray(z > 0).all() else 0.0 * z.sum()

    gradient = mj.grad(loss)(mj.device_put(mnp.arange(16.0), place))
    np.testing.assert_array_equal(gradient, np.full(16, 2.0))


@pytest.fixture
def ran() -> Iterator[list[str]]:
    """The names of the ops that run one by one."""
    names: list[str] = []

    def run_op(op: Any, operands: Any, params: Any, weak: bool) -> Any:
        names.append(op.name)
        return eager.run_op(op, operands, params, weak)

    before = set_eager(run_op, eager.run_program)
    yield names
    set_eager(*before)


def test_nothing_runs_until_it_is_asked_for_and_then_once(ran: list[str]) -> None:
    def loss(x: Any, looks: int) -> Any:
        y = mnp.sin(x)
        unused = mnp.exp(y)
        for _ in range(looks):
            assert y > 0
            assert mnp.cos(y) > 0
        return y + 0 * unused

    x = mnp.float32(1.0)
    ran.clear()
    mj.grad(loss)(x, 0)
    assert ran == []
    mj.grad(loss)(x, 3)
    assert sorted(ran) == sorted(["sine", *["compare"] * 6, *["cosine"] * 3])


def test_checkpoint_traces_again_where_it_was_asked_for_values() -> None:
    signs: list[bool] = []

    @mj.checkpoint
    def layer(x: Any) -> Any:
        signs.append(bool(x > 0))
        return x * 2 if x > 0 else x * 3

    assert float(mj.grad(lambda x: layer(x) + layer(-x))(1.0)) == 2 - 3
    assert signs == [True, False]


def test_custom_rules_see_values() -> None:
    seen: list[float] = []

    @mj.custom_jvp
    def f(x: Any) -> Any:
        return x * 2 if x > 0 else x

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        seen.append(primals[0].item())
        return f(*primals), tangents[0] * (3 if primals[0] > 1 else 4)

    assert [float(mj.grad(f)(x)) for x in (2.0, 0.5)] == [3, 4] and seen == [2, 0.5]
    assert [float(mj.jvp(f, (x,), (1.0,))[1]) for x in (2.0, -1.0)] == [3, 4]
    layer = mj.checkpoint(f)  # traced for each value
    assert float(mj.grad(lambda x: layer(x) + layer(x - 2))(2.5)) == 7

    @mj.custom_vjp
    def g(x: Any) -> Any:
        return x

    g.defvjp(lambda x: (x * 2 if x > 1 else x, x if x > 1 else 5 * x), lambda x, ct: (ct * 3 * x,))
    assert [float(mj.grad(g)(x)) for x in (2.0, 0.5)] == [6, 7.5] and float(mj.vjp(g, 3.0)[0]) == 6
    for wrong in (mj.jit(mj.grad(f)), mj.grad(mj.jit(g)), lambda x: mj.vmap(mj.grad(f))(mnp.ones(2) * x)):
        with pytest.raises(TracerBoolConversionError):
            wrong(2.0)


def test_rules_backwards_see_values() -> None:
    seen: list[float] = []

    @mj.custom_vjp
    def f(x: Any) -> Any:
        return x * 2

    def bwd(x: Any, ct: Any) -> Any:
        seen.append(float(x) + 10 * float(ct))
        return (ct * (100 if ct > 5 else 3 if x > 1 else 1),)

    f.defvjp(lambda x: (x * 2, x), bwd)
    assert [float(mj.grad(f)(x)) for x in (2.0, 0.5)] == [3, 1] and seen == [12, 10.5]
    assert float(mj.grad(lambda x: f(f(x)) ** 2)(1.0)) == 80000  # 8, and 800 are more than 5
    pull = mj.vjp(f, 2.0)[1]
    assert [float(pull(ct)[0]) for ct in (1.0, 7.0)] == [3, 700]  # asked for each cotangent
    value, slope = mj.value_and_grad(lambda x, y: (f(x["a"]) + y, y), has_aux=True)({"a": 2.0}, 1.0)
    assert float(value[0]) == 5 and float(slope["a"]) == 3
    for wrong in (mj.jit(mj.grad(f)), mj.jacrev(f), mj.grad(mj.grad(lambda x: f(x) ** 3))):
        with pytest.raises(ConcretizationTypeError):
            wrong(2.0)


def test_tangents_have_values_in_jvp_alone() -> None:
    f = mj.custom_jvp(lambda x: x * 2)
    f.defjvp(lambda primals, tangents: (primals[0] * 2, tangents[0] * (5 if tangents[0] > 1 else 2)))
    assert [float(mj.jvp(f, (1.0,), (t,))[1]) for t in (1.0, 2.0)] == [2, 10]
    with pytest.raises(ConcretizationTypeError):
        mj.grad(f)(1.0)


def test_what_leaked_can_still_be_looked_at() -> None:
    kept: list[Any] = []
    mj.grad(lambda x: kept.append(x * 2) or x)(3.0)
    assert int(kept[0]) == 6 and "6.0" in repr(kept[0])
