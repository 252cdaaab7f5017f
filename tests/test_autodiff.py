"""grad, vjp, jvp, vmap and their nestings against finite differences, NumPy and one another; the texts of their errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp

pytestmark = pytest.mark.device

X = np.array([0.3, -0.7, 1.1])
W = np.array([[0.5, -0.2, 0.1], [0.3, 0.8, -0.6]])


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    before = mj.config.enable_x64
    mj.config.update("enable_x64", True)
    yield
    mj.config.update("enable_x64", before)


def differences(fun: Callable[[Any], Any], x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """The Jacobian by central differences: result dims, then the dims of x."""
    x = np.asarray(x, np.float64)
    columns = []
    for i in range(x.size):
        e = np.zeros(x.size)
        e[i] = step
        e = e.reshape(x.shape)
        columns.append((np.asarray(fun(x + e)) - np.asarray(fun(x - e))) / (2 * step))
    return np.stack(columns, -1).reshape(*columns[0].shape, *x.shape)


def close(got: Any, want: Any, tolerance: float = 1e-7) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=tolerance, atol=tolerance)


def quartic(x: Any) -> Any:
    return mnp.sum(x**4) + mnp.sum(mnp.sin(x)) * mnp.prod(x)


def layer(x: Any) -> Any:
    return mnp.tanh(mnp.dot(W, x))


SCALARS: dict[str, Callable[[Any], Any]] = {
    "quartic": quartic,
    "layer": lambda x: mnp.sum(layer(x) ** 2),
    "softmax": lambda x: mj.nn.softmax(x)[1],
    "logsumexp": lambda x: mj.nn.logsumexp(x * 3),
    "norm": lambda x: mnp.sqrt(mnp.mean(x * x)),
    "gather": lambda x: mnp.sum(x[np.array([0, 2, 2])] * np.array([1.0, 2.0, 3.0])),
    "cumsum": lambda x: mnp.sum(mnp.cumsum(x) ** 2),
    "sorted": lambda x: mnp.dot(mnp.sort(x), np.array([1.0, 2.0, 4.0])),
    "reshape": lambda x: mnp.sum(mnp.reshape(mnp.outer(x, x), (9,)) ** 2),
    "where": lambda x: mnp.sum(mnp.where(x > 0, x**2, -x)),
}


@pytest.mark.parametrize("name", SCALARS)
def test_grad_is_the_difference_quotient(name: str) -> None:
    fun = SCALARS[name]
    close(mj.grad(fun)(X), differences(fun, X))


@pytest.mark.parametrize("name", SCALARS)
def test_jvp_agrees_with_grad(name: str) -> None:
    fun, direction = SCALARS[name], np.array([1.0, -2.0, 0.5])
    value, slope = mj.jvp(fun, (X,), (direction,))
    close(value, fun(X))
    close(slope, np.dot(np.asarray(mj.grad(fun)(X)), direction))


@pytest.mark.parametrize("name", SCALARS)
def test_grad_under_jit_is_grad(name: str) -> None:
    close(mj.jit(mj.grad(SCALARS[name]))(X), mj.grad(SCALARS[name])(X), 1e-12)


# -- nesting


@pytest.mark.parametrize("name", ["quartic", "layer", "softmax", "logsumexp", "norm", "reshape"])
def test_hessian(name: str) -> None:
    fun = SCALARS[name]
    want = differences(lambda x: mj.grad(fun)(x), X)
    close(mj.hessian(fun)(X), want, 1e-6)
    close(mj.jacrev(mj.jacfwd(fun))(X), want, 1e-6)
    close(mj.jacrev(mj.jacrev(fun))(X), want, 1e-6)


def test_hessian_of_a_quadratic_form_is_its_matrix() -> None:
    a = np.array([[2.0, 1.0], [0.0, -3.0]])
    close(mj.hessian(lambda x: mnp.dot(x, mnp.dot(a, x)))(np.array([0.3, 0.4])), a + a.T, 1e-14)


def test_grad_of_grad_of_grad() -> None:
    third = mj.grad(mj.grad(mj.grad(lambda x: mnp.sin(x) * x)))
    close(third(0.7), -3 * np.sin(0.7) - 0.7 * np.cos(0.7))


def test_jvp_of_grad() -> None:
    direction = np.array([0.2, 0.1, -0.4])
    _, slope = mj.jvp(mj.grad(quartic), (X,), (direction,))
    close(slope, np.asarray(mj.hessian(quartic)(X)) @ direction, 1e-12)


def test_grad_of_jvp() -> None:
    direction = np.array([0.2, 0.1, -0.4])
    found = mj.grad(lambda x: mj.jvp(quartic, (x,), (direction,))[1])(X)
    close(found, np.asarray(mj.hessian(quartic)(X)) @ direction, 1e-12)


def test_vmap_of_grad_is_grad_of_each() -> None:
    xs = np.stack([X, 2 * X, -X])
    close(mj.vmap(mj.grad(quartic))(xs), [mj.grad(quartic)(x) for x in xs], 1e-12)


def test_grad_of_vmap() -> None:
    xs = np.stack([X, 2 * X])
    close(mj.grad(lambda v: mnp.sum(mj.vmap(layer)(v) ** 3))(xs), differences(lambda v: np.sum(np.tanh(v @ W.T) ** 3), xs))


def test_vmap_of_vmap_in_other_dims() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    product = mj.vmap(mj.vmap(mnp.dot, in_axes=(None, 1)), in_axes=(0, None))
    close(product(a, b), a @ b)


def test_jacobians_have_result_dims_then_argument_dims() -> None:
    want = differences(lambda x: np.tanh(W @ x), X)
    assert want.shape == (2, 3)
    close(mj.jacfwd(layer)(X), want)
    close(mj.jacrev(layer)(X), want)


def test_a_gradient_closes_over_values_of_the_function_around_it() -> None:
    """d/dx of x * (d/dy of x*y at y=x) = d/dx of x*x."""
    close(mj.grad(lambda x: x * mj.grad(lambda y: x * y)(x))(3.0), 6.0)
    close(mj.jit(mj.grad(lambda x: x * mj.grad(lambda y: x * y * y)(x)))(3.0), 2 * 3 * 3.0**2)


def test_no_confusion_of_perturbations() -> None:
    """d/dx of x * (d/dy of (x + y) at 1) at 1 is 1, not 2."""
    close(mj.jvp(lambda x: x * mj.jvp(lambda y: x + y, (1.0,), (1.0,))[1], (1.0,), (1.0,))[1], 1.0)


# -- arguments and results


def test_argnums_as_a_tuple_and_negative() -> None:
    def fun(a: Any, b: Any, c: Any) -> Any:
        return a * b**2 + c

    both = mj.grad(fun, argnums=(0, 1))(2.0, 3.0, 4.0)
    assert isinstance(both, tuple)
    close(both, (9.0, 12.0))
    close(mj.grad(fun, argnums=-1)(2.0, 3.0, 4.0), 1.0)


def test_trees_and_keyword_arguments() -> None:
    def fun(params: Any, *, scale: Any) -> Any:
        return mnp.sum(params["w"] * scale) + params["b"][0] ** 2

    found = mj.grad(fun)({"w": X, "b": [np.array(3.0)]}, scale=np.array([1.0, 2.0, 3.0]))
    close(found["w"], [1, 2, 3])
    close(found["b"][0], 6.0)


def test_has_aux() -> None:
    def fun(x: Any) -> Any:
        return mnp.sum(x**2), {"count": x.shape[0], "twice": 2 * x, "places": mnp.argmax(x)}

    (value, aux), found = mj.value_and_grad(fun, has_aux=True)(X)
    close(value, np.sum(X**2))
    close(found, 2 * X)
    close(aux["twice"], 2 * X)
    assert int(aux["places"]) == 2
    assert int(aux["count"]) == 3
    found, aux = mj.grad(fun, has_aux=True)(X)
    close(found, 2 * X)


def test_aux_has_no_derivative_that_could_be_infinite() -> None:
    """A cotangent of 0 times an infinite derivative would be NaN."""

    def fun(x: Any) -> Any:
        total = mnp.sum(x * x)
        _, roots = mj.lax.scan(lambda c, y: (c + y, mnp.sqrt(y - y)), total, x)
        return total, (mnp.sqrt(total - total), roots)

    close(mj.grad(fun, has_aux=True)(X)[0], 2 * X)
    close(mj.vjp(fun, X, has_aux=True)[1](1.0)[0], 2 * X)
    close(mj.jacrev(fun, has_aux=True)(X)[0], 2 * X)
    program = mj.jit(mj.grad(fun, has_aux=True)).lower(X).as_text("meshjit")
    assert program.count("sqrt(") == 2, "only values, no derivative of them"
    assert "reverse=True" not in program



def test_unused_arguments_have_zero_gradients() -> None:
    found = mj.grad(lambda a, b: mnp.sum(a), argnums=(0, 1))(X, W)
    close(found[0], np.ones(3))
    close(found[1], np.zeros((2, 3)))


def test_a_result_that_depends_on_nothing() -> None:
    close(mj.grad(lambda x: mnp.sum(mnp.ones(3)))(X), np.zeros(3))
    close(mj.grad(lambda x: 2.0)(X), np.zeros(3))
    close(mj.jvp(lambda x: mnp.ones(2), (X,), (X,))[1], np.zeros(2))


def test_integer_arguments_are_passed_by() -> None:
    places = np.array([2, 0])
    close(mj.grad(lambda x, i: mnp.sum(x[i] * np.array([1.0, 5.0])))(X, places), [5, 0, 1])


def test_allow_int_gives_zeros_that_are_no_numbers() -> None:
    found, zeros = mj.grad(lambda x, i: mnp.sum(x * i), argnums=(0, 1), allow_int=True)(X, np.array([1, 2, 3]))
    close(found, [1, 2, 3])
    assert zeros.dtype == [("float0", "V")]
    assert zeros.shape == (3,)


def test_integers_inside_cut_the_gradient() -> None:
    close(mj.grad(lambda x: mnp.sum(mnp.floor(x).astype(mnp.int32) * x))(X), np.floor(X))


def test_stop_gradient() -> None:
    close(mj.grad(lambda x: mnp.sum(x * mj.lax.stop_gradient(x)))(X), X)


def test_vjp_pulls_back_and_may_be_used_again() -> None:
    value, pull = mj.vjp(layer, X)
    jacobian = np.asarray(mj.jacrev(layer)(X))
    close(value, np.tanh(W @ X))
    for cotangent in (np.array([1.0, 0.0]), np.array([0.3, -2.0])):
        close(pull(cotangent)[0], cotangent @ jacobian)
    value, pull, aux = mj.vjp(lambda x: (x * x, mnp.sum(x)), X, has_aux=True)
    close(aux, np.sum(X))
    close(pull(np.ones(3))[0], 2 * X)


def test_vjp_inside_jit() -> None:
    def fun(x: Any, cotangent: Any) -> Any:
        return mj.vjp(layer, x)[1](cotangent)[0]

    close(mj.jit(fun)(X, np.array([0.3, -2.0])), np.array([0.3, -2.0]) @ np.asarray(mj.jacfwd(layer)(X)))


def test_gradient_of_a_real_function_of_complex_numbers() -> None:
    """d/dx - i d/dy, as in JAX."""
    close(mj.grad(lambda z: mnp.sum(mnp.abs(z) ** 2))(np.array([1 + 2j])), [2 - 4j])


def test_residuals_are_kept_small() -> None:
    """Constants and broadcasts are made again by the backward part."""
    from meshjit.core.types import TensorType
    from meshjit.trace import Argument, trace_to_program
    from meshjit.transform.transpose import vjp

    x = TensorType.parse("f64[3]")
    traced = trace_to_program(
        lambda x: mnp.sin(x) * mnp.broadcast_to(mnp.sum(x), (3,)) * 2.0, [Argument(x)], mj.tree.structure(((0,), {}))
    )
    pulled = vjp(traced.program, [True])
    kept = [str(t) for t in pulled.forward.output_types[1:]]
    assert kept == ["f64[3]", "f64[]", "f64[3]"]  # cos(x), sum(x), sin(x)


def test_jacobians_of_trees() -> None:
    def fun(p: Any) -> Any:
        return {"sum": mnp.sum(p["a"] * p["b"]), "pair": (p["a"][:2] * p["b"],)}

    point = {"a": X, "b": np.array(2.0)}
    for mode in (mj.jacfwd, mj.jacrev):
        found = mode(fun)(point)
        close(found["sum"]["a"], np.full(3, 2.0))
        close(found["sum"]["b"], X.sum())
        close(found["pair"][0]["a"], 2 * np.eye(3)[:2])
        close(found["pair"][0]["b"], X[:2])
    several = mj.jacfwd(lambda a, b: a * b, argnums=(0, 1))(X, 2 * X)
    close(several[0], np.diag(2 * X))
    close(several[1], np.diag(X))
    found, aux = mj.jacrev(lambda x: (x * x, mnp.sum(x)), has_aux=True)(X)
    close(found, np.diag(2 * X))
    close(aux, X.sum())


def test_hessian_of_a_tree() -> None:
    found = mj.hessian(lambda p: mnp.sum(p["a"] * p["b"] ** 2))({"a": X, "b": np.array(3.0)})
    close(found["a"]["a"], np.zeros((3, 3)))
    close(found["a"]["b"], np.full(3, 6.0))
    close(found["b"]["a"], np.full(3, 6.0))
    close(found["b"]["b"], 2 * X.sum())


def test_linearize_is_linear() -> None:
    value, slope = mj.linearize(layer, X)
    close(value, layer(X))
    close(slope(X), mj.jvp(layer, (X,), (X,))[1])
    close(slope(2 * X), 2 * np.asarray(slope(X)))


def test_complex() -> None:
    z = np.array([1 + 2j, -0.5 + 0.3j])
    close(mj.grad(lambda z: mnp.sum(z**3), holomorphic=True)(z), 3 * z**2)
    close(mj.jvp(mnp.exp, (z,), (1j * z,))[1], 1j * z * np.exp(z))


def test_complex_inside_a_real_function() -> None:
    x = np.array([0.2, 0.4])
    found = mj.grad(lambda x: mnp.sum(mnp.abs(mnp.exp(1j * x) + 1) ** 2))(x)
    close(found, differences(lambda x: np.sum(np.abs(np.exp(1j * x) + 1) ** 2), x))


# -- vmap


def test_axes_of_arguments_and_results() -> None:
    a = np.arange(24.0).reshape(2, 3, 4)
    close(mj.vmap(lambda x: mnp.sum(x, axis=0), in_axes=1)(a), a.sum(0).T.T.reshape(3, 4))
    close(mj.vmap(lambda x: 2 * x, in_axes=-1, out_axes=1)(a), 2 * np.moveaxis(a, -1, 1))
    close(mj.vmap(lambda t: t["a"] * t["b"], in_axes=({"a": 0, "b": None},))({"a": X, "b": 2.0}), 2 * X)
    same = mj.vmap(lambda x, y: (x + y, y), in_axes=(0, None), out_axes=(0, None))(X, 1.0)
    close(same[0], X + 1)
    assert np.shape(same[1]) == ()


def test_members_see_their_own_shape() -> None:
    seen = []
    mj.vmap(lambda x: seen.append(x.shape) or x)(np.ones((5, 2)))
    assert seen == [(2,)]


def test_axis_size_without_batched_arguments() -> None:
    assert mj.vmap(lambda x: x, in_axes=None, axis_size=4)(X).shape == (4, 3)


# -- errors


def test_error_of_a_result_that_is_no_scalar() -> None:
    with pytest.raises(TypeError) as error:
        mj.grad(layer)(X)
    assert re.fullmatch(
        r"gradient only defined for scalar-output functions; layer returned f64\[2\]\n"
        r"  at test_autodiff\.py:\d+ \(test_error_of_a_result_that_is_no_scalar\)\n"
        r"  fix: reduce it \(mnp\.mean, mnp\.sum\), use has_aux=True for other results, or jacrev",
        str(error.value),
    )


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "integer argument": (
        lambda: mj.grad(lambda count: count * 2.0)(3),
        TypeError,
        "grad needs floating or complex arguments, but count is i64[]\n"
        "  fix: pass count as a float (x.astype(float)), leave it out of argnums, or set allow_int=True",
    ),
    "several results": (lambda: mj.grad(lambda x: (x, x))(1.0), TypeError, "lambda returned 2 arrays"),
    "integer result": (
        lambda: mj.grad(lambda x: mnp.argmax(x))(X), TypeError, "gradient needs a real floating result; lambda returned i",
    ),
    "complex result": (
        lambda: mj.grad(lambda z: z * z)(1j), TypeError,
        "gradient needs a real floating result; lambda returned c128[]\n"
        "  fix: return mnp.real or mnp.abs of it, or set holomorphic=True",
    ),
    "real argument of a holomorphic function": (
        lambda: mj.grad(lambda z: z * 1j, holomorphic=True)(1.0), TypeError,
        "grad of a real argument z f64[] with holomorphic=True, which needs complex arguments",
    ),
    "dtype of a tangent": (
        lambda: mj.jvp(lambda x: x, (X,), (np.array([1, 2, 3]),)), TypeError,
        "jvp: a tangent has dtype int64, its primal float64\n  fix: tangent.astype(float64)",
    ),
    "dtype of a cotangent": (
        lambda: mj.vjp(lambda x: x, X)[1](np.array([1, 2, 3])), ValueError,
        "vjp: a cotangent has dtype int64, the result float64\n  fix: cotangent.astype(float64)",
    ),
    "dtype of a number": (
        lambda: mj.vjp(lambda x: x, 1.0)[1](1), ValueError, "vjp: a cotangent has dtype int64, the result float64",
    ),
    "dtype of a direction of linearize": (
        lambda: mj.linearize(lambda x: x, 1.0)[1](1), ValueError, "linearize: a tangent has dtype int64, its primal float64",
    ),
    "vmap in_axes": (
        lambda: mj.vmap(lambda x: x, in_axes=(0, 0))(X), ValueError,
        "vmap: in_axes has 2 entries, but the function was called with 1 positional arguments",
    ),
    "vmap out_axes": (
        lambda: mj.vmap(lambda x: {"a": x}, out_axes=2)(X), ValueError, "vmap: out_axes is 2 for result['a'] f64[], which has 1",
    ),
    "jacobian of integers": (lambda: mj.jacrev(lambda x: mnp.argmax(x))(X), TypeError, "results, but result is i"),
    "argnums": (
        lambda: mj.grad(lambda x: x, argnums=1)(1.0), TypeError,
        "grad of lambda: argnums has 1, but it was called with 1 positional arguments",
    ),
    "no aux": (
        lambda: mj.grad(lambda x: x, has_aux=True)(1.0), TypeError,
        "grad with has_aux: lambda must return (value, aux), it returned an array f64[]\n  at test_autodiff.py:",
    ),
    "no function": (lambda: mj.grad(3), TypeError, "grad needs a function, was given int: 3"),
    "structure of tangents": (
        lambda: mj.jvp(lambda x: x, (1.0,), (1.0, 2.0)), TypeError, "jvp: primals and tangents differ in structure",
    ),
    "shape of a tangent": (
        lambda: mj.jvp(lambda x: x, (X,), (W,)), ValueError, "jvp: a tangent has shape (2, 3), its primal (3,)",
    ),
    "count of cotangents": (
        lambda: mj.vjp(lambda x: x, X)[1]((X, X)), ValueError,
        "vjp: the function returned 1 arrays, it was given 2 cotangents",
    ),
    "shape of a cotangent": (
        lambda: mj.vjp(lambda x: x, X)[1](W), ValueError, "vjp: a cotangent has shape (2, 3), the result (3,)",
    ),
    "vmap axis": (
        lambda: mj.vmap(lambda x: x, in_axes=2)(W), ValueError,
        "vmap: in_axes is 2 for x f64[2,3], which has 2 dims\n  fix: use None for arguments that all members share",
    ),
    "vmap extents": (
        lambda: mj.vmap(lambda x, y: x)(X, W), ValueError, "vmap needs one batch extent, found {'x': 3, 'y': 2}",
    ),
    "vmap of nothing": (
        lambda: mj.vmap(lambda x: x, in_axes=None)(X), ValueError, "vmap needs one batch extent, found none",
    ),
    "vmap out_axes None": (
        lambda: mj.vmap(lambda x: {"a": 1.0, "b": x}, out_axes=None)(X), ValueError,
        "at vmap out_axes['b'], got axis spec None but output was batched on axis 0: it differs between the 3 members, together"
        " it is f64[3]\n  fix: out_axes=0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ERRORS)
def test_errors(what: str) -> None:
    call, kind, text = ERRORS[what]
    with pytest.raises(kind) as error:
        call()
    assert text in str(error.value)
