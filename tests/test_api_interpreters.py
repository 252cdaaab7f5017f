"""Interpreters of the user's for what a function was traced to, as JAX's documentation writes them: `eqn.primitive.bind`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core import jaxpr_as_fun, primitives
from meshjit.core.op import REGISTRY
from meshjit.sharding import NamedSharding, PartitionSpec as P
from tests.tools.op_harness import samples

pytestmark = pytest.mark.device

V = np.array([1.0, 2.0, 3.0], np.float32)
W = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
TWO = np.float32(2)


def interpreted(closed: Any, *args: Any) -> list[Any]:
    """The interpreter of "Writing custom Jaxpr interpreters"."""
    env: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, mj.core.Literal) else env[atom]

    jaxpr = closed.jaxpr
    env.update(zip([*jaxpr.invars, *jaxpr.constvars], [*args, *closed.consts], strict=True))
    for eqn in jaxpr.eqns:
        results = eqn.primitive.bind(*map(read, eqn.invars), **eqn.primitive.get_bind_params(eqn.params))
        if not eqn.primitive.multiple_results:
            results = [results]
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "network": (lambda x: mj.nn.softmax(mnp.tanh(x @ W) @ W.T), (np.ones((2, 3), np.float32),)),
    "scan": (lambda x: lax.scan(lambda c, y: (c * y, c), x, V), (TWO,)),
    "while_loop": (lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * 2, x), (TWO,)),
    "cond": (lambda x: lax.cond(x > 0, lambda x: x * 2, lambda x: x, x), (TWO,)),
    "switch": (lambda i: lax.switch(i, [lambda: 1.0, lambda: 2.0, lambda: 3.0]), (np.int32(2),)),
    "jit": (lambda x: mj.jit(lambda x: mnp.sin(x) * x)(x) + 1, (TWO,)),
    "checkpoint": (mj.grad(mj.checkpoint(lambda x: mnp.sin(x) * x)), (TWO,)),
    "indexing": (
        lambda x, i: (x[i], x.at[i].set(2.0), x.at[1:].add(x[:-1]), mnp.sort(x), mnp.argmax(x), lax.top_k(x, 2)),
        (V, np.array([2, 1])),
    ),
    "slices": (lambda x, i: (lax.dynamic_slice(x, (i,), (2,)), mnp.cumsum(x), mnp.pad(x, 1), mnp.concatenate([x, x * 0 + 1])),
               (V, np.int32(1))),
    "comparing": (lambda x: (x > 2, mnp.where(x > 1, x, 0.0), mnp.clip(x, 1.5, 2.5), mnp.round(x), lax.round(x)), (V,)),
    "matrices": (lambda x: (mnp.linalg.inv(x + 5 * mnp.eye(3)), mnp.linalg.qr(x)[1], mnp.fft.fft(x).real), (W[:, :3],)),
    "convolution": (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"),
                    (np.ones((1, 2, 5, 5), np.float32), np.ones((3, 2, 3, 3), np.float32))),
    "random": (lambda k: mj.random.normal(mj.random.wrap_key_data(k), (3,)), (np.array([0, 1], np.uint32),)),
    "empty": (lambda x: (x * 2, x.sum(), x.astype(int)), (np.ones((0, 3), np.float32),)),
    "bfloat16": (lambda x: (x.astype(mnp.bfloat16) * 2 + 1).sum(), (V,)),
    "constants": (lambda x: (mnp.ones(3), 2.0, x, mnp.arange(3) * x), (V,)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gives_what_the_function_gives(name: str) -> None:
    function, args = FUNCTIONS[name]
    closed = mj.make_jaxpr(function)(*args)
    args = tuple(map(mnp.asarray, args))
    expected = mj.tree.leaves(function(*args))
    for run in (interpreted, lambda c, *xs: mj.jit(lambda *xs: interpreted(c, *xs))(*xs), lambda c, *xs: jaxpr_as_fun(c)(*xs)):
        for x, y in zip(run(closed, *args), expected, strict=True):
            assert (mnp.shape(x), mnp.result_type(x)) == (mnp.shape(y), mnp.result_type(y))
            np.testing.assert_allclose(np.asarray(x, np.float32), np.asarray(y, np.float32), rtol=1e-5, atol=1e-6)


def test_the_inverse_of_the_documentation() -> None:
    rules = {lax.exp_p: mnp.log, lax.tanh_p: mnp.arctanh}

    def inverse(function: Callable[..., Any]) -> Callable[..., Any]:
        def inverted(y: Any) -> Any:
            jaxpr = mj.make_jaxpr(function)(y).jaxpr
            env = {jaxpr.outvars[0]: y}
            for eqn in reversed(jaxpr.eqns):
                env[eqn.invars[0]] = rules[eqn.primitive](env[eqn.outvars[0]])
            return env[jaxpr.invars[0]]

        return inverted

    def f(x: Any) -> Any:
        return mnp.exp(mnp.tanh(x))

    assert abs(float(inverse(f)(f(1.0))) - 1) < 1e-6
    slopes = mj.jit(mj.vmap(mj.grad(inverse(f))))((mnp.arange(5) + 1.0) / 5)
    np.testing.assert_allclose(slopes, [-3.1440797, 15.584931, 2.2551253, 1.3155028, 1.0], rtol=1e-5)  # JAX 0.10.2


def test_custom_rules_go_along() -> None:
    f = mj.custom_jvp(lambda x: x * x)
    f.defjvp(lambda p, t: (f(*p), 7 * t[0]))
    g = mj.custom_vjp(lambda x: x * x)
    g.defvjp(lambda x: (x * x, x), lambda r, ct: (5 * ct,))
    for function, slope in ((f, 7), (g, 5)):
        closed = mj.make_jaxpr(function)(1.0)
        assert float(mj.grad(lambda x, closed=closed: interpreted(closed, x)[0])(3.0)) == slope
        assert float(interpreted(closed, 3.0)[0]) == 9
        (eqn,) = closed.eqns
        assert [e.primitive.name for e in eqn.params["call_jaxpr"].eqns] == ["mul"] and eqn.params["num_consts"] == 0


def test_batches_and_placed_values() -> None:
    closed = mj.make_jaxpr(lambda x: lax.scan(lambda c, y: (c + y, c * 2), 0.0, mnp.sin(x)))(V)
    batch = mj.vmap(lambda x: interpreted(closed, x)[0])(np.stack([V, 2 * V]))
    np.testing.assert_allclose(batch, [np.sin(V).sum(), np.sin(2 * V).sum()], rtol=1e-5)
    mesh = mj.make_mesh((4,), ("x",))
    x = mj.device_put(np.arange(10, dtype=np.float32), NamedSharding(mesh, P("x")))
    closed = mj.make_jaxpr(lambda x: x * 2)(x)
    np.testing.assert_array_equal(mj.jit(lambda x: interpreted(closed, x)[0])(x), 2 * np.arange(10))


def test_bind_of_primitives_by_name() -> None:
    assert float(lax.mul_p.bind(3.0, 2.0)) == 6
    assert mj.jit(lambda x: lax.add_p.bind(x, x))(V).tolist() == [2, 4, 6]
    assert int(lax.argmax_p.bind(V, axes=(0,), index_dtype=np.dtype(np.int32))) == 2
    assert lax.bitcast_convert_type_p.bind(V, new_dtype=np.dtype(np.int32)).tolist() == V.view(np.int32).tolist()
    (ordered,) = lax.sort_p.bind(V[::-1], dimension=0, is_stable=True, num_keys=1)
    assert ordered.tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="add"):
        lax.add_p.bind(V, W)
    with pytest.raises(NotImplementedError, match="the primitive nothing is no op of meshjit's"):
        primitives.primitive("nothing").bind(1.0)


def test_bind_of_primitives_that_are_several_ops() -> None:
    """Extremes of complex numbers, by real, then imaginary part, and conjugates of real ones, as JAX has them."""
    z, w = np.complex64([1 + 2j, 2 - 1j, 1 + 3j]), np.complex64([1 + 3j, 2 - 1j, 0])
    assert lax.max_p.bind(z, w).tolist() == [1 + 3j, 2 - 1j, 1 + 3j]
    assert mj.jit(lax.min_p.bind)(z, w).tolist() == [1 + 2j, 2 - 1j, 0]
    assert complex(lax.reduce_max_p.bind(z, axes=(0,), out_sharding=None)) == 2 - 1j
    assert complex(lax.reduce_min_p.bind(z, axes=(0,), out_sharding=None)) == 1 + 2j
    for x in (V, z):
        found = lax.conj_p.bind(x, input_dtype=x.dtype)
        assert found.dtype == np.complex64 and found.tolist() == np.conj(x).tolist()
    with pytest.raises(TypeError, match="conj: complex numbers, f32 and f64 have conjugates, not int32"):
        lax.conj_p.bind(np.arange(3), input_dtype=np.int32)


def test_multiple_results_are_what_ops_have() -> None:
    for op in REGISTRY.values():
        if op.regions is None:
            counts = {len(op.type_rule(tuple(s.types), s.params)) for s in samples(op)}
            if counts - {1}:
                assert primitives.NAMES.get(op.name, op.name) in primitives.MULTIPLE_RESULTS, op.name


def test_types_can_be_made() -> None:
    made = mj.core.ShapedArray((2, 3), mnp.bfloat16)
    assert made == mj.typeof(mnp.ones((2, 3), mnp.bfloat16))
    assert (made.shape, made.ndim, made.size, made.weak_type, str(made)) == ((2, 3), 2, 6, False, "bfloat16[2,3]")
    assert str(made.update(shape=(4,), dtype=np.float32)) == "float32[4]"
    assert made.update(weak_type=True).weak_type


def swapped(jaxpr: Any) -> Any:
    """sin is cos, also in nested programs."""
    eqns = []
    for eqn in jaxpr.eqns:
        params = {k: v.replace(jaxpr=swapped(v.jaxpr)) if isinstance(v, mj.core.ClosedJaxpr) else v for k, v in eqn.params.items()}
        primitive = lax.cos_p if eqn.primitive is lax.sin_p else eqn.primitive
        eqns.append(eqn.replace(params=params, primitive=primitive))
    return jaxpr.replace(eqns=eqns)


def test_interpreters_that_rewrite() -> None:
    closed = mj.make_jaxpr(lambda x: lax.scan(lambda c, a: (c * mnp.sin(a) + 1.5, c), mnp.sin(x[0]) * 2, x))(V)
    new = closed.replace(jaxpr=swapped(closed.jaxpr))
    assert [e.primitive.name for e in closed.eqns].count("sin") == 1 and " = sin " not in str(new.jaxpr)
    c, expected = 2 * np.cos(V[0]), []
    for a in V:
        expected.append(c)
        c = c * np.cos(a) + 1.5
    for run in (jaxpr_as_fun(new), mj.jit(jaxpr_as_fun(new))):
        last, all_of_them = run(V)
        np.testing.assert_allclose(last, c, rtol=1e-6)
        np.testing.assert_allclose(all_of_them, expected, rtol=1e-6)
    assert float(mj.grad(lambda x: mj.core.eval_jaxpr(new.jaxpr, new.consts, x)[1].sum())(V)[1]) != 0


def test_parts_of_a_jaxpr() -> None:
    jaxpr = mj.make_jaxpr(lambda x: mnp.sin(x) * mnp.exp(x) + 2.0)(1.0).jaxpr
    first = jaxpr.eqns[0]
    assert float(mj.core.eval_jaxpr(jaxpr.replace(eqns=[first], outvars=first.outvars), [], 2.0)[0]) == pytest.approx(np.sin(2))
    ten = mj.core.Literal(np.float32(10), first.outvars[0].aval)
    doubled = [e.replace(invars=[ten if isinstance(a, mj.core.Literal) else a for a in e.invars]) for e in jaxpr.eqns]
    changed = jaxpr.replace(eqns=doubled, outvars=[*jaxpr.outvars, ten])
    assert [float(x) for x in mj.core.eval_jaxpr(changed, [], 0.0)] == [10, 10]
    with pytest.raises(TypeError, match=r"JaxprEqn.replace: eq gives \(bool\[\]\) here, and the outvars"):
        jaxpr.eqns[2].replace(primitive=primitives.primitive("eq"), params={})
    with pytest.raises(TypeError, match="Jaxpr.replace: there is no invar"):
        jaxpr.replace(invar=[])


def test_keys_are_keys() -> None:
    key = mj.random.key(0)
    closed = mj.make_jaxpr(lambda k, x: (mj.random.split(k), mj.random.normal(k) + x))(key, 1.0)
    assert [str(a) for a in closed.in_avals] == ["key<fry>[]", "~float32[]"]
    assert [str(a) for a in closed.out_avals] == ["key<fry>[2]", "float32[]"]
    assert re.search(r"lambda ; \w+:key<fry>\[\] \w+:f32\[\]\. let", str(closed))
    keys, number = mj.core.eval_jaxpr(closed.jaxpr, closed.consts, key, mnp.float32(1))
    assert keys.dtype == key.dtype and keys.shape == (2,) and float(number) == pytest.approx(float(mj.random.normal(key)) + 1)
    rbg = mj.make_jaxpr(lambda k: mj.vmap(mj.random.key_data)(k))(mj.random.split(mj.random.key(0, impl="rbg"), 3))
    assert str(rbg.in_avals) == "[ShapedArray(key<rbg>[3])]"


def test_params_have_jax_names() -> None:
    def f(x: Any) -> Any:
        return lax.argmin(x, 0, np.int32), lax.bitcast_convert_type(x, np.int32)

    least, bits = mj.make_jaxpr(f)(V).jaxpr.eqns
    assert least.params["axes"] == (0,) and "axis" not in least.params
    assert bits.params == {"new_dtype": np.dtype(np.int32)}
    assert [int(eqn.primitive.bind(V, **eqn.params)[0]) if eqn is bits else int(eqn.primitive.bind(V, **eqn.params))
            for eqn in (least, bits)] == [0, int(V.view(np.int32)[0])]  # fmt: skip
