"""Collectives over the members of a batch, against NumPy on the whole batch; derivatives through them; texts of errors.

What JAX gives for the same calls is in tests/tools/jax_scenarios.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
from sharding.spec import ShardingError

pytestmark = pytest.mark.device

X = np.arange(12, dtype=np.float32).reshape(4, 3) - 4
CUBE = np.arange(96, dtype=np.float32).reshape(4, 8, 3)


def members(f: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return mj.vmap(f, axis_name="i", **options)(*args)


def on(*entries: Any) -> NamedSharding:
    return NamedSharding(Mesh(np.array(mj.devices()[:8]).reshape(4, 2), ("x", "y")), P(*entries))


CASES: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "psum": (lambda a: lax.psum(a, "i"), X, np.broadcast_to(X.sum(0), X.shape)),
    "pmean": (lambda a: lax.pmean(a, "i"), X, np.broadcast_to(X.mean(0), X.shape)),
    "pmax": (lambda a: lax.pmax(a, "i"), X, np.broadcast_to(X.max(0), X.shape)),
    "pmin": (lambda a: lax.pmin(a, "i"), X, np.broadcast_to(X.min(0), X.shape)),
    "axis_index": (lambda a: a * lax.axis_index("i"), X, X * np.arange(4, dtype=np.float32)[:, None]),
    "axis_size": (lambda a: a * lax.axis_size("i"), X, X * 4),
    "all_gather": (lambda a: lax.all_gather(a, "i", axis=1), X, np.broadcast_to(X.T, (4, 3, 4))),
    "all_gather tiled": (lambda a: lax.all_gather(a, "i", tiled=True), X, np.broadcast_to(X.reshape(-1), (4, 12))),
    "psum_scatter": (lambda a: lax.psum_scatter(a, "i"), CUBE[:, :4], CUBE[:, :4].sum(0)),
    "psum_scatter tiled": (lambda a: lax.psum_scatter(a, "i", tiled=True), CUBE, CUBE.sum(0).reshape(4, 2, 3)),
    "all_to_all": (lambda a: lax.all_to_all(a, "i", 0, 0), CUBE[:, :4], CUBE[:, :4].swapaxes(0, 1)),
    "all_to_all tiled": (
        lambda a: lax.all_to_all(a, "i", 0, 1, tiled=True), CUBE, CUBE.reshape(4, 4, 2, 3).transpose(1, 2, 0, 3).reshape(4, 2, 12)
    ),
    "ppermute": (lambda a: lax.ppermute(a, "i", [(0, 1), (2, 0)]), X, np.stack([X[2], X[0], X[0] * 0, X[0] * 0])),
    "pshuffle": (lambda a: lax.pshuffle(a, "i", [2, 3, 1, 0]), X, X[[2, 3, 1, 0]]),
    "pbroadcast": (lambda a: lax.pbroadcast(a, "i", 2), X, np.broadcast_to(X[2], X.shape)),
    "pswapaxes": (lambda a: lax.pswapaxes(a, "i", 0), CUBE[:, :4], CUBE[:, :4].swapaxes(0, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_on_one_device_and_on_a_mesh(name: str) -> None:
    f, x, wanted = CASES[name]
    for result in (members(f, x), mj.jit(lambda x: members(f, x))(mj.device_put(x, on("x")))):
        np.testing.assert_allclose(result, wanted, rtol=1e-6)
        assert result.dtype == np.float32


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("pmax", "pmin")])
def test_derivatives_outside_of_the_batch(name: str) -> None:
    f, x, wanted = CASES[name]
    weights = np.arange(np.size(wanted), dtype=np.float32).reshape(np.shape(wanted))
    found = mj.grad(lambda x: mnp.vdot(members(f, x), weights))(x)
    pulled = members(lambda a, w: mj.vjp(f, a)[1](w)[0], x, weights)  # a member's own part of all of them
    tangent = np.sin(x)
    _, moved = mj.jvp(lambda x: members(f, x), (x,), (tangent,))
    np.testing.assert_allclose(moved, members(f, tangent), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.vdot(found, tangent), np.vdot(weights, moved), rtol=1e-4)
    np.testing.assert_allclose(pulled, found, rtol=1e-5)


def test_axes_of_nested_batches() -> None:
    def f(a: Any) -> Any:
        both, number = lax.psum(a, ("i", "j")), lax.axis_index(("i", "j"))
        return both, number, lax.all_gather(a, ("i", "j")), lax.psum(a, "i"), lax.psum(a, "j")

    total, number, everyone, columns, rows = members(mj.vmap(f, axis_name="j"), X)
    np.testing.assert_array_equal(total, np.full((4, 3), X.sum()))
    np.testing.assert_array_equal(number, np.arange(12).reshape(4, 3))
    np.testing.assert_array_equal(everyone[1, 2], X.reshape(-1))
    np.testing.assert_array_equal(columns[3], X.sum(0))
    np.testing.assert_array_equal(rows[:, 1], X.sum(1))
    inner = members(lambda a: members(lambda b: lax.psum(b, "i"), a), X)  # the inner axis hides the outer one
    np.testing.assert_array_equal(inner[:, 0], X.sum(1))


def test_inside_of_loops_and_branches() -> None:
    center = lambda a: a - lax.pmean(a, "i")  # noqa: E731
    wanted = X - X.mean(0)
    ways: list[Callable[[Any], Any]] = [
        mj.jit(center),
        mj.checkpoint(center),
        lambda a: lax.scan(lambda c, _: (center(c), None), a, None, length=3)[0],
        lambda a: lax.fori_loop(0, 2, lambda i, c: center(c), a),
        lambda a: lax.cond(lax.psum(a.sum(), "i") > 0, center, lambda a: a, a),
        lambda a: lax.while_loop(lambda c: lax.pmax(c.max(), "i") > 5, center, a),
        lambda a: mj.jvp(center, (a,), (a,))[1],
    ]
    for way in ways:
        np.testing.assert_allclose(members(way, X), wanted, rtol=1e-5)
    counted = members(lambda a: lax.scan(lambda c, _: (c + lax.axis_index("i"), None), 0, None, length=2)[0], X)
    np.testing.assert_array_equal(counted, [0, 2, 4, 6])


def test_a_checkpoint_whose_derivative_needs_little() -> None:
    f = mj.checkpoint(lambda a: lax.psum(mnp.sin(a), "i").sum())
    np.testing.assert_allclose(members(mj.grad(f), X), 4 * np.cos(X), rtol=1e-4)


def test_sizes_are_known_while_tracing_and_part_of_the_cache_key() -> None:
    f = mj.jit(lambda a: a * lax.axis_size("i"))
    for x in (X, X[:2], X[:1]):
        np.testing.assert_array_equal(members(f, x), x * len(x))


def test_dtypes() -> None:
    for dtype in ("int8", "bfloat16", "complex64", "uint16", "float16"):
        x = mnp.asarray(np.abs(X)).astype(dtype)
        assert members(lambda a: lax.psum(a, "i"), x).dtype == dtype
        assert members(lambda a: lax.all_gather(a, "i"), x).dtype == dtype
    counts = members(lambda a: lax.psum(a, "i"), X > 2)
    assert counts.dtype == np.int32
    np.testing.assert_array_equal(counts[0], (X > 2).sum(0))
    assert members(lambda a: lax.pmean(a, "i"), X.astype(np.int32)).dtype == np.float32
    assert members(lambda a: lax.pmax(a, "i"), X > 2).dtype == np.bool_
    seen: list[Any] = []
    members(lambda a: seen.append((lax.psum(1, "i"), lax.psum(2.5, "i"), lax.psum(True, "i"))) or a, X)
    assert seen == [(4, 10.0, 4)] and isinstance(seen[0][0], int)


def test_empty_batches() -> None:
    none = np.zeros((0, 3), np.float32)
    assert members(lambda a: lax.psum(a, "i"), none).shape == (0, 3)
    assert members(lambda a: lax.all_gather(a, "i"), none).shape == (0, 0, 3)


def test_results_that_all_members_share() -> None:
    np.testing.assert_array_equal(members(lambda a: lax.psum(a, "i"), X, out_axes=None), X.sum(0))
    np.testing.assert_array_equal(members(lambda a, b: lax.psum(b, "i"), X, 2.0, in_axes=(0, None)), [8] * 4)
    np.testing.assert_array_equal(mj.vmap(lambda: lax.axis_index("i"), axis_name="i", axis_size=3)(), [0, 1, 2])


def test_make_jaxpr_of_a_member() -> None:
    program, shape = mj.make_jaxpr(lambda a: lax.psum(a, "i"), axis_env=[("i", 4)], return_shape=True)(X[0])
    assert "gather_members" in str(program) and shape.shape == (3,)
    assert [str(t) for t in program.program.input_types] == ["f32[3]", "i32[]"]
    sized = [mj.make_jaxpr(lambda a: mnp.ones(lax.axis_size("i")), axis_env=[("i", n)], return_shape=True)(X)[1] for n in (2, 5)]
    assert [s.shape for s in sized] == [(2,), (5,)]


def test_spmd_axis_name() -> None:
    f = mj.jit(mj.vmap(lambda a: lax.with_sharding_constraint(a * 2, on("y")), spmd_axis_name="x"))
    assert f(CUBE[:, :4]).sharding.is_equivalent_to(on("x", "y"), 3)
    nested = mj.vmap(mj.vmap(lambda a: lax.with_sharding_constraint(a * 2, on()), spmd_axis_name="y"), spmd_axis_name="x")
    assert mj.jit(nested)(CUBE).sharding.is_equivalent_to(on("x", "y"), 3)
    loop = mj.vmap(
        lambda a: lax.scan(lambda c, _: (lax.with_sharding_constraint(c, on("y")), None), a, None, length=2)[0], spmd_axis_name="x"
    )
    assert mj.jit(loop)(CUBE).sharding.is_equivalent_to(on("x", "y"), 3)


def test_what_members_share_is_pinned_over_the_axis_that_they_are_spread_over() -> None:
    """Weights, as FSDP has them: no dim of theirs is a batch's."""
    x, w = CUBE[:, :4, 0] / 99, mnp.asarray(CUBE[:, :4, 1]) / 99

    def member(v: Any, w: Any) -> Any:
        return mnp.tanh(v @ lax.with_sharding_constraint(w, on("x")))

    def looped(v: Any, w: Any) -> Any:
        return lax.scan(lambda c, _: (lax.with_sharding_constraint(c, on("x")) * 2, None), w, None, length=2)[0][0] + v

    for f in (member, looped):
        batched = mj.vmap(f, (0, None), spmd_axis_name="x")
        alone = np.stack([np.asarray(f(v, w)) for v in x])
        for run in (batched, mj.jit(batched)):
            np.testing.assert_allclose(run(x, w), alone, rtol=1e-5)
    slope = mj.jit(mj.grad(lambda w: mj.vmap(member, (0, None), spmd_axis_name="x")(x, w).sum()))(w)
    np.testing.assert_allclose(slope, sum(np.asarray(mj.grad(lambda w, v=v: member(v, w).sum())(w)) for v in x), rtol=1e-5)


TOGETHER: dict[str, Callable[[Any], Any]] = {
    "psum": lambda v: lax.psum(v, "i"),
    "pmax": lambda v: lax.pmax(v, "i") + v,
    "all_gather": lambda v: lax.all_gather(v, "i")[1] + v,
    "ppermute": lambda v: lax.ppermute(v, "i", [(0, 2), (2, 1)]),
    "pswapaxes": lambda v: lax.pswapaxes(v, "i", 0),
    "all_to_all": lambda v: lax.all_to_all(v, "i", 0, 0, tiled=True),
    "in a loop": lambda v: lax.scan(lambda c, _: (lax.pmean(c, "i") + v, None), v, None, length=2)[0],
}


@pytest.mark.parametrize("name", TOGETHER)
def test_members_of_code_for_single_devices_are_brought_together(name: str) -> None:
    """Whether or not vmap is told to spread them: with one member on each device, these would be of that one alone."""
    x, f = CUBE[:, :4, :2] / 9, TOGETHER[name]
    mapped = mj.shard_map(f, mesh=on().mesh, in_specs=P(None, "y"), out_specs=P(None, "y"))
    expected = members(f, x)
    for spread in (None, "x"):
        run = mj.vmap(mapped, axis_name="i", spmd_axis_name=spread)
        np.testing.assert_allclose(run(x), expected, rtol=1e-6)
        np.testing.assert_allclose(mj.jit(run)(x), expected, rtol=1e-6)
        slopes = [mj.grad(lambda x, g=g: (g(x) ** 2).sum())(x) for g in (run, mj.vmap(f, axis_name="i"))]
        np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-5, atol=1e-6)


ERRORS: dict[str, tuple[type[Exception], Callable[[], Any], str]] = {
    "outside": (
        NameError,
        lambda: lax.psum(X, "i"),
        "psum: unbound axis name: 'i'; no vmap or shard_map around it has a named axis\n"
        "  fix: vmap(..., axis_name='i') of the function that calls psum",
    ),
    "another name": (
        NameError,
        lambda: members(lambda a: lax.all_gather(a, "j"), X),
        "all_gather: unbound axis name: 'j'; there are 'i' of size 4\n"
        "  fix: vmap(..., axis_name='j') of the function that calls all_gather",
    ),
    "an axis of the mesh": (
        NameError,
        lambda: _within(on().mesh, lambda: lax.psum(X, "x")),
        "psum: 'x' is an axis of the mesh, which traced functions do not see: they compute whole arrays\n"
        "  fix: write the reduction over the whole array, such as x.sum(); its collectives are added by the compiler",
    ),
    "groups": (
        NotImplementedError,
        lambda: members(lambda a: lax.psum(a, "i", axis_index_groups=[[0, 1], [2, 3]]), X),
        "psum: axis_index_groups are not there for vmap, as in JAX\n  fix: nest two vmaps with an axis each, and name the inner one",
    ),
    "extent": (
        ValueError,
        lambda: members(lambda a: lax.all_to_all(a, "i", 0, 0), X),
        "all_to_all: dim 0 of (3,) has extent 3, which must be equal to the number of members, 4\n"
        "  fix: tiled=True splits a dim into equal parts",
    ),
    "parts": (
        ValueError,
        lambda: members(lambda a: lax.psum_scatter(a, "i", tiled=True), X),
        "psum_scatter: dim 0 of (3,) has extent 3, which must be a multiple of the number of members, 4",
    ),
    "sent twice": (
        ValueError,
        lambda: members(lambda a: lax.ppermute(a, "i", [(0, 1), (2, 1)]), X),
        "ppermute: perm sends to 1 twice, from 0 and from 2; once is allowed",
    ),
    "no member": (
        ValueError,
        lambda: members(lambda a: lax.ppermute(a, "i", [(0, 4)]), X),
        "ppermute: perm has (0, 4), but members go from 0 to 3",
    ),
    "spread over what is used": (
        ShardingError,
        lambda: mj.vmap(lambda a: lax.with_sharding_constraint(a, on("x")), spmd_axis_name="x")(CUBE),
        "vmap: spmd_axis_name spreads the batch over 'x', which the constraint P('x', None) at ",
    ),
    "spread over no axis": (
        ShardingError,
        lambda: mj.vmap(lambda a: lax.with_sharding_constraint(a, on("x")), spmd_axis_name="z")(CUBE),
        "vmap: spmd_axis_name has 'z', but the constraints inside are on Mesh('x': 4, 'y': 2)\n  fix: one of ('x', 'y')",
    ),
    "spread over a number": (
        TypeError,
        lambda: mj.vmap(lambda a: a, spmd_axis_name=3),
        "vmap: spmd_axis_name must be the name of a mesh axis or a tuple of names, got 3",
    ),
}


def _within(mesh: Mesh, use: Callable[[], Any]) -> Any:
    with mesh:
        return use()


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    kind, call, text = ERRORS[name]
    with pytest.raises(kind) as error:
        call()
    assert str(error.value).startswith(text)
