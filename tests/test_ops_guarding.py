"""Branches that differ between the members of a batch: values and derivatives are those of each member alone, and what members
share stays shared. (Derivatives at poles: tests/test_autodiff_kinks.py.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(10, 6)).astype(np.float32)
W = GENERATOR.normal(size=(6, 4)).astype(np.float32)
X[3], X[7, 0] = 0, -1


def member(v: Any, w: Any) -> Any:
    """Not differentiable in the branch that a member does not take, in its own operand or in the shared one."""

    def rooted(v: Any) -> Any:
        return mnp.sqrt(mnp.abs(v @ w)).sum() + mnp.log(v[0])

    def scaled(v: Any) -> Any:
        return (v[:4] * w[1]).sum() * mnp.square(w).sum()

    return lax.cond(v[0] > 0, rooted, scaled, v)


def total(xs: Any, w: Any) -> Any:
    return mj.vmap(member, (0, None))(xs, w).sum()


@pytest.fixture(scope="module")
def alone() -> tuple[Any, Any]:
    """The derivatives of `total` without a batch: each member runs its own branch."""
    derivative = mj.jit(mj.grad(member, (0, 1)))
    found = [derivative(x, W) for x in X]
    return np.stack([np.asarray(a) for a, _ in found]), sum(np.asarray(b) for _, b in found)


def test_derivatives_are_those_of_the_members_alone(alone: tuple[Any, Any]) -> None:
    for mine, wanted in zip(mj.jit(mj.grad(total, (0, 1)))(X, W), alone, strict=True):
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("specs", [(P("x"), P()), (P("x"), P("y")), (P(None, "y"), P("y")), (P(("x", "y")), P(None, "x"))])
def test_so_they_are_on_a_mesh(specs: tuple[P, P], alone: tuple[Any, Any]) -> None:
    """10 members over 4 or 8 devices: uneven."""
    mesh = Mesh(np.array(mj.devices()[:8]).reshape(4, 2), ("x", "y"))
    xs, w = (mj.device_put(a, NamedSharding(mesh, s)) for a, s in zip((X, W), specs, strict=True))
    for mine, wanted in zip(mj.jit(mj.grad(total, (0, 1)))(xs, w), alone, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4)


def test_batched_branches_of_tangents_have_transposes() -> None:
    """As rules of custom_jvp have them. JAX 0.10.2 has none."""
    x = np.arange(4, dtype=np.float32)

    def chosen(t: Any) -> Any:
        branches = [lambda t: 2 * t, lambda t: t / np.float32(0), lambda t: 3 * t]
        return mj.vmap(lambda i, t: lax.switch(i, branches, t))(np.array([0, 2, 0, 2], np.int32), t)

    square = mj.custom_jvp(lambda x: x * x)
    square.defjvp(lambda values, tangents: (square(*values), chosen(*tangents)))
    factors = [2, 3, 2, 3]
    assert mj.linear_transpose(chosen, x)(x)[0].tolist() == (factors * x).tolist()
    for slope in (mj.grad(lambda x: square(x).sum()), mj.jit(mj.grad(lambda x: square(x).sum()))):
        assert slope(x).tolist() == factors
    assert mj.jacfwd(square)(x).tolist() == mj.jacrev(square)(x).tolist() == np.diag(factors).tolist()
    mesh = Mesh(np.array(mj.devices()[:3]), ("x",))
    placed = mj.device_put(x, NamedSharding(mesh, P("x")))
    assert mj.jit(mj.grad(lambda x: square(x).sum()))(placed).tolist() == factors
    piece = lambda t: mnp.piecewise(t, [mnp.array([True, False, True, False])], [lambda t: 2 * t, lambda t: 3 * t])  # noqa: E731
    assert mj.linear_transpose(piece, x)(x)[0].tolist() == (factors * x).tolist()


def test_a_tangent_that_is_stopped_has_no_cotangent() -> None:
    with pytest.raises(NotImplementedError) as error:
        mj.linear_transpose(lax.stop_gradient, X)(X)
    assert str(error.value) == (
        "stop_gradient has no transpose rule: its operand is a tangent, which would get no cotangent\n"
        "  fix: in a rule of custom_jvp, apply it to values, not to tangents"
    )


def test_no_members_and_one_branch_have_derivatives() -> None:
    assert mj.grad(total)(X[:0], W).shape == (0, 6)
    slope = mj.grad(lambda xs: mj.vmap(lambda x, i: lax.switch(i, [mnp.sin], x))(xs, np.zeros(3, np.int32)).sum())
    np.testing.assert_allclose(slope(X[:3, 0]), np.cos(X[:3, 0]), rtol=1e-6)


def test_shared_weights_are_multiplied_once_for_all_members() -> None:
    """Neither the product nor its derivatives have a copy of the weights for each member."""
    for function in (total, mj.grad(total, (0, 1))):
        program = mj.jit(function).trace(X, W).program
        products = [eqn for eqn in program.eqns if eqn.op.name == "dot_general"]
        assert products and all(eqn.params["batch"] == ((), ()) for eqn in products)
        assert all(v.shape != (10, 6, 4) for eqn in products for v in (*eqn.inputs, *eqn.outputs))


def test_without_derivatives_the_guard_of_own_values_leaves_no_trace() -> None:
    def chosen(x: Any) -> Any:
        return lax.cond(x > 0, mnp.sin, mnp.cos, x)

    text = mj.jit(mj.vmap(chosen)).lower(X[0]).as_text("meshjit")
    assert text.count("select(") == 1 and "stop_gradient" not in text


def test_integers_and_whole_results_pass_through_branches() -> None:
    def pick(i: Any, x: Any, n: Any) -> Any:
        return lax.switch(i, [lambda x, n: (x, n), lambda x, n: (x * n, n + 1), lambda x, n: (-x, n * n)], x, n)

    indices, xs = np.array([0, 1, 2, 5, -1], np.int32), np.arange(1, 6, dtype=np.float32)
    values, numbers = mj.vmap(pick, (0, 0, None))(indices, xs, 3)
    assert np.asarray(values).tolist() == [1, 6, -3, -4, 5] and np.asarray(numbers).tolist() == [3, 4, 9, 9, 3]
    slope = mj.grad(lambda xs: mj.vmap(pick, (0, 0, None))(indices, xs, 3)[0].sum())(xs)
    assert np.asarray(slope).tolist() == [1, 3, -1, -1, 1]
