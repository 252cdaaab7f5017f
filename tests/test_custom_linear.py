"""Transposes, solutions with implicit derivatives, closures as arguments and custom_gradient, as JAX documents them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.custom_derivatives import closure_convert, linear_call, linear_transpose

pytestmark = pytest.mark.device
A, B = np.array([[2.0, 1.0], [0.5, 3.0]], np.float32), np.array([1.0, 2.0], np.float32)


def close(result: Any, expected: Any, rtol: float = 1e-5) -> None:
    for a, b in zip(mj.tree.leaves(result), mj.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=1e-6)


# -- linear_transpose, linear_call


def test_transposes() -> None:
    scalar = mj.ShapeDtypeStruct((), np.dtype(np.float32))
    close(linear_transpose(lambda x, y: 0.5 * x - 0.5 * y, scalar, scalar)(1.0), (0.5, -0.5))
    matrix = mj.linear_transpose(lambda tree: {"y": A @ tree["x"]}, {"x": B})
    close(matrix({"y": B}), ({"x": A.T @ B},))
    close(mj.jit(lambda a, ct: mj.linear_transpose(lambda x: a @ x, B)(ct))(A, B), (A.T @ B,))
    close(mj.linear_transpose(lambda x: 3 * x, np.int32(1))(np.int32(5)), (15,))
    close(mj.linear_transpose(lambda x: lax.scan(lambda c, _: (2 * c, None), x, None, length=3)[0], 1.0)(1.0), (8.0,))
    close(mj.linear_transpose(mj.jit(lambda x: x[::-1] * A[0]), B)(B), ((A[0] * B)[::-1],))


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda: linear_transpose(lambda x: x.astype(mnp.int32), 1.0), "but got float32 -> int32."),
        (lambda: linear_transpose(lambda x: (x, x), 1.0)(1.0), "cotangent tree does not match function output"),
        (lambda: linear_transpose(lambda x: x, 1.0)(mnp.ones(2)), "cotangent type does not match function output, expected f32[] but got f32[2]"),
        (lambda: mj.grad(lambda x: linear_call(lambda r, x: x, lambda r, ct: (ct, ct), (), x))(1.0), "transpose output pytree structure must match"),
    ],
)
def test_errors(use: Callable[[], Any], words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        use()


def transposed(f: Any) -> Any:
    return lambda y: linear_transpose(f, 1.0)(y)[0]


def test_a_transpose_of_the_users() -> None:
    def divided(x: Any, d: Any) -> Any:
        return x + linear_call(lambda r, x: x / r, lambda r, ct: ct / r, d, x)

    close(divided(9.0, 3.0), 12.0)
    close(transposed(lambda x: divided(x, 3.0))(18.0), 24.0)
    close(mj.jit(mj.grad(divided, (0, 1)))(1.0, 2.0), (1.5, -0.25))
    close(mj.vmap(mj.grad(divided), (None, 0))(1.0, mnp.array([1.0, 2.0])), np.array([2.0, 1.5]))
    close(mj.grad(lambda x: mj.vmap(divided, (None, 0))(x, mnp.array([1.0, 2.0])).sum())(1.0), 3.5)
    close(mj.jvp(divided, (1.0, 2.0), (1.0, 0.0)), (1.5, 1.5))

    def seven(x: Any) -> Any:
        return linear_call(lambda _, x: x, lambda _, ct: 7.0, (), x)

    functions = [seven, transposed(seven), transposed(transposed(seven)), transposed(transposed(transposed(seven)))]
    close([f(1.0) for f in functions], [1.0, 7.0, 1.0, 7.0])


# -- custom_linear_solve, custom_root


def dense(matvec: Any, b: Any) -> Any:
    return mnp.linalg.solve(mj.jacobian(matvec)(b), b)


def solution(a: Any, b: Any, **settings: Any) -> Any:
    return lax.custom_linear_solve(lambda x: a @ x, b, dense, **(settings or {"transpose_solve": dense}))


DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "value": lambda f: f(A, B),
    "grad": lambda f: mj.grad(lambda a, b: f(a, b).sum(), (0, 1))(A, B),
    "jit of grad": lambda f: mj.jit(mj.grad(lambda a, b: f(a, b).sum(), (0, 1)))(A, B),
    "jvp": lambda f: mj.jvp(f, (A, B), (2 * A, B + 1)),
    "hessian": lambda f: mj.hessian(lambda a: f(a, B).sum())(A),
    "grad of grad": lambda f: mj.grad(lambda a: (mj.grad(lambda a: (f(a, B) ** 2).sum())(a) ** 2).sum())(A),
    "vmap": lambda f: mj.vmap(f)(np.stack([A, A + 1]), np.stack([B, B + 1])),
    "vmap of b": lambda f: mj.grad(lambda a: mj.vmap(f, (None, 0))(a, np.stack([B, B + 1])).sum())(A),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_a_linear_system(name: str) -> None:
    close(DERIVATIVES[name](solution), DERIVATIVES[name](mnp.linalg.solve), 1e-4)


def test_an_iterative_solver_with_aux() -> None:
    def solve(matvec: Any, b: Any) -> Any:
        def step(carry: Any) -> Any:
            x, n = carry
            return x + 0.2 * (b - matvec(x)), n + 1

        return lax.while_loop(lambda c: mnp.abs(b - matvec(c[0])).max() > 1e-5, step, (mnp.zeros_like(b), 0))

    def f(a: Any, b: Any) -> Any:
        return lax.custom_linear_solve(lambda x: (a + a.T) @ x, b, solve, symmetric=True, has_aux=True)

    def exact(a: Any, b: Any) -> Any:
        return mnp.linalg.solve(a + a.T, b)

    x, count = mj.jit(f)(A, B)
    assert 5 < int(count) < 100
    close(x, exact(A, B), 1e-3)
    value, slopes = mj.value_and_grad(lambda a, b: (f(a, b)[0] ** 2).sum(), (0, 1))(A, B)
    close(slopes, mj.grad(lambda a, b: (exact(a, b) ** 2).sum(), (0, 1))(A, B), 1e-3)


def test_what_a_linear_system_needs() -> None:
    one_way = partial(solution, symmetric=False)
    close(mj.jvp(one_way, (A, B), (A, B))[1], mj.jvp(mnp.linalg.solve, (A, B), (A, B))[1])
    with pytest.raises(TypeError, match="transpose_solve required for backwards mode"):
        mj.grad(lambda b: one_way(A, b).sum())(B)
    with pytest.raises(TypeError, match=re.escape("matvec() output pytree structure must match b")):
        lax.custom_linear_solve(lambda x: (x,), B, dense)
    with pytest.raises(ValueError, match=re.escape("solve() output shapes must match b")):
        lax.custom_linear_solve(lambda x: x, B, lambda f, b: b[:1])


def root(a: Any) -> Any:
    def newton(f: Any, x: Any) -> Any:
        return lax.while_loop(lambda x: mnp.abs(f(x)) > 1e-6, lambda x: x - f(x) / mj.grad(f)(x), x)

    return lax.custom_root(lambda x: x**2 - a, 1.0, newton, lambda g, y: y / g(1.0))


def test_a_root() -> None:
    close(root(2.0), np.sqrt(2))
    for f in (mj.grad(root), mj.jit(mj.grad(root)), mj.grad(mj.jit(root)), lambda a: mj.jvp(root, (a,), (1.0,))[1]):
        close(f(2.0), 0.5 / np.sqrt(2))
    close(mj.grad(mj.grad(root))(2.0), -0.25 * 2**-1.5)
    close(mj.vmap(mj.grad(root))(mnp.array([2.0, 3.0])), 0.5 / np.sqrt(np.array([2.0, 3.0])))


def test_a_root_of_a_tree_with_aux() -> None:
    def f(theta: Any, x: Any) -> Any:
        return {"p": x["p"] ** 3 - theta, "q": x["q"] - x["p"]}

    def solve(f: Any, guess: Any) -> Any:
        flat = mnp.stack([guess["p"], guess["q"]])
        residual = lambda v: mnp.stack(mj.tree.leaves(f({"p": v[0], "q": v[1]})))  # noqa: E731
        for _ in range(20):
            flat = flat - mnp.linalg.solve(mj.jacfwd(residual)(flat), residual(flat))
        return {"p": flat[0], "q": flat[1]}, 20

    def tangent(g: Any, y: Any) -> Any:
        matrix = mnp.stack([mnp.stack(mj.tree.leaves(g({"p": p, "q": 1.0 - p}))) for p in (1.0, 0.0)], axis=1)
        x = mnp.linalg.solve(matrix, mnp.stack(mj.tree.leaves(y)))
        return {"p": x[0], "q": x[1]}

    def solved(theta: Any) -> Any:
        return lax.custom_root(partial(f, theta), {"p": 1.0, "q": 1.0}, solve, tangent, has_aux=True)

    x, steps = mj.jit(solved)(8.0)
    close((x["p"], x["q"]), (2.0, 2.0))
    assert int(steps) == 20
    close(mj.grad(lambda t: solved(t)[0]["q"])(8.0), 1 / 12)


# -- closure_convert, custom_gradient


def test_a_closure_as_an_argument() -> None:
    def minimized(objective: Any, x0: Any) -> Any:
        converted, values = closure_convert(objective, x0)
        return minimum(converted, x0, *values)

    @partial(mj.custom_vjp, nondiff_argnums=(0,))
    def minimum(objective: Any, x0: Any, *args: Any) -> Any:
        for _ in range(20):
            x0 = x0 - mj.grad(objective)(x0, *args) / mj.grad(mj.grad(objective))(x0, *args)
        return x0

    def fwd(objective: Any, x0: Any, *args: Any) -> Any:
        x = minimum(objective, x0, *args)
        return x, (x, args)

    def bwd(objective: Any, residuals: Any, g: Any) -> Any:
        x, args = residuals
        curvature = mj.grad(mj.grad(objective))(x, *args)
        pulled = mj.vjp(lambda *args: mj.grad(objective)(x, *args), *args)[1](-g / curvature)
        return mnp.zeros_like(x), *pulled

    minimum.defvjp(fwd, bwd)

    def f(c: Any) -> Any:
        return minimized(lambda x: (x - c) ** 2 + mnp.exp(0.1 * x * c), 0.0)

    expected = (f(1.0 + 1e-2) - f(1.0 - 1e-2)) / 2e-2
    close(mj.grad(f)(1.0), expected, 1e-2)
    close(mj.jit(mj.grad(f))(1.0), expected, 1e-2)
    converted, values = closure_convert(lambda x: x + B[0], 1.0)
    assert values == [] and float(converted(2.0)) == 3.0
    with pytest.raises(TypeError, match="must have the same Pytree structure as the example arguments"):
        converted((1.0, 2.0))


def test_a_gradient_beside_the_value() -> None:
    @mj.custom_gradient
    def f(x: Any) -> Any:
        return x**2, lambda g: (g * x,)

    close((f(3.0), mj.grad(f)(3.0), mj.jit(mj.grad(f))(3.0)), (9.0, 3.0, 3.0))
    close(mj.vmap(mj.grad(f))(mnp.arange(3.0)), np.arange(3.0))

    @mj.custom_gradient
    def product(x: Any, y: Any) -> Any:
        z = mnp.sin(x)
        return {"z": z * y}, lambda g: (mnp.cos(x) * g["z"], z * g["z"])

    close(mj.grad(lambda x, y: product(x, y)["z"], (0, 1))(2.0, 3.0), (np.cos(2), np.sin(2)))
    bare = mj.custom_gradient(lambda x: (x, lambda g: 5 * g))
    close(mj.grad(bare)(1.0), 5.0)


def test_transposed_results_are_weak_where_arguments_and_cotangents_are() -> None:
    weak = mj.ShapeDtypeStruct((), np.float32, weak_type=True)
    for primal, is_weak in ((1.0, True), (weak, True), (np.float32(1), False), (mj.ShapeDtypeStruct((), np.float32), False)):
        for cotangent, also in ((1.0, True), (np.float32(1), False)):
            for transposed in (linear_transpose(lambda x: 2 * x, primal), mj.jit(linear_transpose(lambda x: 2 * x, primal))):
                (result,) = transposed(cotangent)
                assert result.weak_type is (is_weak and also)
                assert result == 2


def test_what_was_converted_on_the_way_is_converted_back() -> None:
    """A weak argument of a strong result: JAX gives it a weak cotangent whatever the result's is."""
    ones = np.ones(3, np.float32)
    first, second = linear_transpose(lambda x, y: 2 * x + y, 1.0, ones)(ones)
    assert (first.weak_type, second.weak_type) == (True, False) and first == 6
    (converted,) = linear_transpose(lambda x: x * np.float32(2), 1.0)(np.float32(1))
    (spread,) = linear_transpose(lambda x: mnp.broadcast_to(x, (3,)), 1.0)(ones)
    assert converted.weak_type and not spread.weak_type


def test_a_system_of_python_numbers_and_of_trees() -> None:
    def solved(b: Any) -> Any:
        return lax.custom_linear_solve(lambda x: {"a": 2 * x["a"] + x["b"], "b": 3 * x["b"]}, b, _solve, _transpose_solve)

    def _solve(matvec: Any, b: Any) -> Any:
        return {"a": (b["a"] - b["b"] / 3) / 2, "b": b["b"] / 3}

    def _transpose_solve(vecmat: Any, b: Any) -> Any:
        return {"a": b["a"] / 2, "b": (b["b"] - b["a"] / 2) / 3}

    close(solved({"a": 1.0, "b": np.float32(2)}), {"a": 1 / 6, "b": 2 / 3})
    close(mj.grad(lambda b: solved(b)["a"] + solved(b)["b"])({"a": 1.0, "b": 2.0}), {"a": 0.5, "b": 1 / 6})
    halved = lambda b: lax.custom_linear_solve(lambda x: 2 * x, b, lambda mv, b: b / 2)  # noqa: E731
    close((halved(2.0), mj.jvp(halved, (2.0,), (1.0,))), (1.0, (1.0, 0.5)))
    with pytest.raises(TypeError, match="transpose_solve required"):
        mj.grad(halved)(2.0)


@pytest.mark.parametrize("wrap", [lambda f: f, mj.jit, mj.checkpoint])
def test_aux_that_the_right_hand_side_decides_in_part(wrap: Callable[..., Any]) -> None:
    def solve(a: Any) -> Callable[..., Any]:
        return lambda mv, b: (mnp.linalg.solve(a, b), {"steps": mnp.int32(4), "norm": mnp.sum(b)})

    def f(a: Any, b: Any) -> Any:
        return lax.custom_linear_solve(lambda x: a @ x, b, solve(a), solve(a.T), has_aux=True)

    solution = np.linalg.solve(A, B)
    x, aux = wrap(f)(A, B)
    close((x, aux["steps"], aux["norm"]), (solution, 4, 3.0))
    by_b = np.linalg.solve(A.T, np.ones(2, np.float32))
    close(wrap(mj.grad(lambda a, b: f(a, b)[0].sum(), (0, 1)))(A, B), (-np.outer(by_b, solution), by_b), 1e-4)
    close(mj.grad(lambda a: wrap(f)(a, B)[0].sum())(A), -np.outer(by_b, solution), 1e-4)
    hessian = mj.hessian(lambda a: f(a, B)[0].sum())(A)
    plain = mj.hessian(lambda a: mnp.linalg.solve(a, B).sum())(A)
    close(hessian, plain, 1e-3)


def test_what_is_not_linear_has_no_transpose() -> None:
    with pytest.raises(NotImplementedError, match="sine at .* is not linear in operands .*so it has no transpose"):
        linear_transpose(mnp.sin, B)(B)


def test_closures_take_arguments_like_the_examples() -> None:
    function, values = closure_convert(lambda x: 2 * x, 1.0)
    close(function(3.0, *values), 6.0)
    with pytest.raises(TypeError, match=r"argument 0 is f32\[2\] here, and was f32\[\] among the example arguments"):
        function(mnp.ones(2), *values)


def test_in_code_for_single_devices_the_way_back_knows_what_varies() -> None:
    seen = []

    def back(d: Any, cotangent: Any) -> Any:
        seen.append(str(mj.typeof(cotangent)))
        return d * cotangent * lax.axis_index("x")

    mesh = mj.make_mesh((4,), ("x",), devices=mj.devices()[:4])
    f = mj.shard_map(
        lambda d, x: linear_call(lambda d, x: d * x * lax.axis_index("x"), back, d, x),
        mesh=mesh, in_specs=(mj.P("x"), mj.P("x")), out_specs=mj.P("x"),
    )  # fmt: skip
    x = mnp.arange(4.0)
    slope = mj.grad(lambda y, d: (f(d, y) * (1 + x)).sum())
    close(slope(x, x), np.arange(4.0) ** 2 * (1 + np.arange(4.0)))
    close(mj.grad(lambda d: slope(x, d).sum())(x), np.arange(4.0) * (1 + np.arange(4.0)))
    assert set(seen) == {"float32[1]{V:x}"}


def test_zeros_of_a_tree_of_values() -> None:
    zeros = mj.custom_derivatives.zero_from_primal({"a": mnp.ones(2), "b": (1, None)})
    assert zeros["a"].tolist() == [0.0, 0.0] and zeros["b"][0].dtype == mj.float0 and zeros["b"][1] is None
    symbolic = mj.custom_derivatives.zero_from_primal([mnp.ones(2)], symbolic_zeros=True)
    assert symbolic[0].shape == (2,)


@pytest.mark.parametrize("has_aux", [False, True])
def test_solvers_with_rules_of_their_own_inside_of_a_solver(has_aux: bool) -> None:
    """The rules of what is traced inside were searched for values that the outer one closes over, and its derivative refused."""
    from meshjit.scipy.sparse.linalg import cg, gmres

    right = np.array([1.0, 2.0, 3.0], np.float32)
    matrix = np.eye(3, dtype=np.float32) * 3 + 0.1
    expected = -np.outer(np.linalg.solve(matrix, np.ones(3)), np.linalg.solve(matrix, right))

    def by(method: Callable[..., Any]) -> Callable[[Any], Any]:
        def inner(map_: Any, b: Any) -> Any:
            x = method(map_, b)[0]
            return (x, b) if has_aux else x

        def solution(m: Any) -> Any:
            x = lax.custom_linear_solve(lambda v: m @ v, right, inner, inner, symmetric=method is cg, has_aux=has_aux)
            return mnp.sum(x[0] if has_aux else x)

        return solution

    def rooted(m: Any) -> Any:
        def inner(map_: Any, b: Any) -> Any:
            def newton(f: Any, x: Any) -> Any:
                return x - cg(lambda v: mj.jvp(f, (x,), (v,))[1], f(x))[0]

            return lax.custom_root(lambda x: map_(x) - b, mnp.zeros(3), newton, lambda g, y: cg(g, y)[0])

        return mnp.sum(lax.custom_linear_solve(lambda v: m @ v, right, inner, symmetric=True))

    for solution in (by(cg), by(gmres), *(() if has_aux else (rooted,))):
        close(mj.grad(solution)(matrix), expected, rtol=1e-4)
        close(mj.jit(mj.grad(solution))(matrix), expected, rtol=1e-4)
        close(mj.jvp(solution, (matrix,), (matrix,))[1], (expected * matrix).sum(), rtol=1e-4)
        close(mj.vmap(mj.grad(solution))(np.stack([matrix, 2 * matrix])), np.stack([expected, expected / 4]), rtol=1e-4)
