"""Calls of shard_map as people write them, run by meshjit in the tests and by JAX to record what is expected.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python tests/tools/shard_map_cases.py      (where JAX is installed)

writes tests/goldens/shard_map.json: for each case its values, or the kind of error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parents[1] / "goldens" / "shard_map.json"
CASES: dict[str, Callable[[Any], Any]] = {}


def case(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    CASES[function.__name__] = function
    return function


def several(prefix: str, **functions: Callable[[Any], Any]) -> None:
    CASES.update({f"{prefix}_{name}": function for name, function in functions.items()})


def environment(jax: Any, mesh: Any) -> Any:
    """What cases are written with: `e.sm(f, in_specs, out_specs)` on a mesh x=4, y=2, arrays x and w."""

    def sm(f: Any, i: Any, o: Any, **more: Any) -> Any:
        return jax.shard_map(f, mesh=mesh, in_specs=i, out_specs=o, **more)

    x = np.arange(16, dtype=np.float32).reshape(8, 2) / 4 - 1
    w = np.arange(6, dtype=np.float32).reshape(2, 3) / 8
    return SimpleNamespace(jax=jax, jnp=jax.numpy, lax=jax.lax, P=jax.sharding.PartitionSpec, mesh=mesh, sm=sm, x=x, w=w)


def outcome(name: str, env: Any) -> Any:
    """The leaves of a case's value as nested lists, or the name of its error."""
    try:
        leaves = env.jax.tree.leaves(CASES[name](env))
        return [np.asarray(leaf, np.float64).tolist() for leaf in leaves]
    except Exception as error:  # noqa: BLE001 - its kind is what is recorded
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


# -- collectives

several(
    "collective",
    psum=lambda e: e.sm(lambda a: e.lax.psum(a, "x"), e.P("x"), e.P())(e.x),
    psum_both=lambda e: e.sm(lambda a: e.lax.psum(a, ("x", "y")), e.P("x", "y"), e.P())(e.x),
    psum_of_a_tree=lambda e: e.sm(lambda a: e.lax.psum({"a": a, "b": a.sum()}, "x"), e.P("x"), e.P())(e.x),
    psum_of_what_all_have=lambda e: e.sm(lambda a: e.lax.psum(a, "x"), e.P(), e.P())(e.x),
    psum_of_some_of_both=lambda e: e.sm(lambda a: e.lax.psum(a, ("x", "y")), e.P("x"), e.P())(e.x),
    psum_of_bools=lambda e: e.sm(lambda a: e.lax.psum(a > 0, "x"), e.P("x"), e.P())(e.x),
    psum_of_a_number=lambda e: e.sm(lambda a: a * e.lax.psum(2, ("x", "y")), e.P("x"), e.P("x"))(e.x),
    psum_along_a_dim=lambda e: e.sm(lambda a: e.lax.psum(a, ("x", 0)), e.P("x"), e.P(), check_vma=False)(e.x),
    pmean=lambda e: e.sm(lambda a: e.lax.pmean(a, "x"), e.P("x"), e.P())(e.x),
    pmax=lambda e: e.sm(lambda a: e.lax.pmax(a, "x"), e.P("x"), e.P())(e.x),
    pmin=lambda e: e.sm(lambda a: e.lax.pmin(a, ("y", "x")), e.P("x", "y"), e.P())(e.x),
    all_gather=lambda e: e.sm(lambda a: e.lax.all_gather(a, "x"), e.P("x"), e.P(None, "x"))(e.x),
    all_gather_axis=lambda e: e.sm(lambda a: e.lax.all_gather(a, ("x", "y"), axis=1), e.P("x", "y"), e.P("x", None, "y"))(e.x),
    all_gather_tiled=lambda e: e.sm(lambda a: e.lax.all_gather(a, "y", axis=1, tiled=True), e.P("x", "y"), e.P("x", "y"))(e.x),
    all_gather_invarying=lambda e: e.sm(lambda a: e.lax.all_gather(a, "x", tiled=True, to="invarying"), e.P("x"), e.P())(e.x),
    all_gather_varies=lambda e: e.sm(lambda a: e.lax.all_gather(a, "x", tiled=True), e.P("x"), e.P())(e.x),
    psum_scatter=lambda e: e.sm(lambda a: e.lax.psum_scatter(a, "y", scatter_dimension=1), e.P("x"), e.P(("x", "y")))(e.x),
    psum_scatter_tiled=lambda e: e.sm(lambda a: e.lax.psum_scatter(a, "x", tiled=True), e.P(), e.P("x"))(e.x),
    psum_scatter_uneven=lambda e: e.sm(lambda a: e.lax.psum_scatter(a, "x", scatter_dimension=1), e.P(), e.P("x"))(e.x),
    all_to_all=lambda e: e.sm(lambda a: e.lax.all_to_all(a, "x", 0, 1), e.P(), e.P("x"))(e.x[:4]),
    all_to_all_behind=lambda e: e.sm(lambda a: e.lax.all_to_all(a, "y", 1, 2), e.P("x"), e.P(("x", "y")))(e.x[..., None]),
    all_to_all_before=lambda e: e.sm(lambda a: e.lax.all_to_all(a, "y", 1, 0), e.P("x"), e.P(("x", "y")))(e.x[..., None]),
    all_to_all_tiled=lambda e: e.sm(lambda a: e.lax.all_to_all(a, "y", 1, 0, tiled=True), e.P("x"), e.P(("x", "y")))(e.x),
    ppermute=lambda e: e.sm(lambda a: e.lax.ppermute(a, "x", [(0, 1), (1, 3), (3, 0)]), e.P("x"), e.P("x"))(e.x),
    ppermute_both=lambda e: e.sm(lambda a: e.lax.ppermute(a, ("y", "x"), [(i, (i + 1) % 8) for i in range(8)]),
        e.P(("x", "y")), e.P(("x", "y")))(e.x),
    ppermute_twice=lambda e: e.sm(lambda a: e.lax.ppermute(a, "x", [(0, 1), (1, 1)]), e.P("x"), e.P("x"))(e.x),
    pshuffle=lambda e: e.sm(lambda a: e.lax.pshuffle(a, "x", [1, 2, 3, 0]), e.P("x"), e.P("x"))(e.x),
    pswapaxes=lambda e: e.sm(lambda a: e.lax.pswapaxes(a, "y", 1), e.P("x"), e.P("x", "y"))(e.x),
    axis_index=lambda e: e.sm(lambda a: a * e.lax.axis_index(("y", "x")), e.P("x", "y"), e.P("x", "y"))(e.x),
    axis_size=lambda e: e.sm(lambda a: a * e.lax.axis_size(("y", "x")), e.P("x"), e.P("x"))(e.x),
    groups=lambda e: e.sm(lambda a: e.lax.psum(a, "x", axis_index_groups=[[0, 2], [3, 1]]), e.P("x"), e.P("x"), check_vma=False)(e.x),
    groups_checked=lambda e: e.sm(lambda a: e.lax.psum(a, "x", axis_index_groups=[[0, 1], [2, 3]]), e.P("x"), e.P("x"))(e.x),
    groups_gather=lambda e: e.sm(lambda a: e.lax.all_gather(a, "x", axis_index_groups=[[0, 3], [1, 2]]), e.P("x"), e.P("x"))(e.x),
    groups_scatter=lambda e: e.sm(lambda a: e.lax.psum_scatter(a, "x", axis_index_groups=[[0, 3], [1, 2]]), e.P("x"), e.P("x"))(e.x),
    groups_exchange=lambda e: e.sm(
        lambda a: e.lax.all_to_all(a, "x", 1, 0, axis_index_groups=[[0, 3], [1, 2]], tiled=True), e.P("x"), e.P("x"))(e.x),
    pcast=lambda e: e.sm(lambda a: e.lax.pcast(a, "y", to="varying"), e.P("x"), e.P(("x", "y")))(e.x),
    pcast_twice=lambda e: e.sm(lambda a: e.lax.pcast(a, "x", to="varying"), e.P("x"), e.P("x"))(e.x),
    unbound=lambda e: e.lax.psum(e.x, "x"),
)  # fmt: skip


# -- specs

several(
    "specs",
    an_axis_left_out=lambda e: e.sm(lambda a: a * 2, e.P("x"), e.P("x"))(e.x),
    results_vary=lambda e: e.sm(lambda a: a * 2, e.P("x"), e.P())(e.x),
    results_vary_unchecked=lambda e: e.sm(lambda a: a * 2, e.P("x"), e.P("x", "y"), check_vma=False)(e.x),
    results_do_not_vary=lambda e: e.sm(lambda a: a * 2, e.P(), e.P("x"))(e.x),
    a_tree=lambda e: e.sm(lambda t, b: {"s": t["a"] + b, "n": t["n"]}, ({"a": e.P("x"), "n": e.P()}, e.P("x")),
        {"s": e.P("x"), "n": e.P()})({"a": e.x, "n": e.w}, e.x),
    a_prefix=lambda e: e.sm(lambda t: (t["a"], t["b"]), e.P("x"), (e.P("x"), e.P("x")))({"a": e.x, "b": e.x[:4]}),
    no_prefix=lambda e: e.sm(lambda a: a, {"a": e.P("x")}, e.P("x"))(e.x),
    no_spec=lambda e: e.sm(lambda a: a, "x", e.P("x"))(e.x),
    none=lambda e: e.sm(lambda a, n: a * n, (e.P("x"), None), e.P("x"))(e.x, 3),
    uneven=lambda e: e.sm(lambda a: a, e.P("x"), e.P("x"))(e.x[:6]),
    longer_than_the_rank=lambda e: e.sm(lambda a: a, e.P("x", None, "y"), e.P("x"))(e.x),
    a_scalar_put_together=lambda e: e.sm(lambda a: a.sum(), e.P("x"), e.P("x"))(e.x),
    another_axis=lambda e: e.sm(lambda a: a, e.P("z"), e.P("x"))(e.x),
    none_given=lambda e: e.jax.shard_map(lambda a: a, mesh=e.mesh, out_specs=e.P())(e.x),
    no_mesh=lambda e: e.jax.shard_map(lambda a: a, in_specs=e.P("x"), out_specs=e.P("x"))(e.x),
    not_a_function=lambda e: e.sm(3, e.P("x"), e.P("x"))(e.x),
    no_keywords=lambda e: e.sm(lambda a: a, e.P("x"), e.P("x"))(a=e.x),
    axes_that_are_not_there=lambda e: e.sm(lambda a: a, e.P("x"), e.P("x"), axis_names={"z"})(e.x),
    axes_as_a_tuple=lambda e: e.sm(lambda a: a, e.P("x"), e.P("x"), axis_names=("x",)),
    an_axis_that_is_automatic=lambda e: e.sm(lambda a: a, e.P("y"), e.P("x"), axis_names={"x"})(e.x),
    some_axes=lambda e: e.sm(lambda a: e.lax.psum(a @ e.w, "x"), e.P("x"), e.P(), axis_names={"x"})(e.x),
    a_decorator=lambda e: e.jax.shard_map(mesh=e.mesh, in_specs=e.P("x"), out_specs=e.P())(lambda a: e.lax.psum(a, "x"))(e.x),
    static_and_closed_over=lambda e: e.sm(lambda a: a @ e.jnp.asarray(e.w), e.P("x"), e.P("x"))(e.x),
)


# -- transformations


def layer(e: Any, **more: Any) -> Any:
    """tanh(a @ w), with w whole on all devices, summed over devices to one number."""
    return e.sm(lambda a, w: e.lax.psum(e.jnp.tanh(a @ w).sum(), "x"), (e.P("x"), e.P()), e.P(), **more)


def parallel(e: Any, **more: Any) -> Any:
    """a @ w, contracted over y, whose parts are added up."""
    return e.sm(lambda a, w: e.lax.psum(e.jnp.sin(a) @ w, "y"), (e.P("x", "y"), e.P("y")), e.P("x"), **more)


several(
    "transformed",
    grad=lambda e: e.jax.grad(layer(e), (0, 1))(e.x, e.w),
    grad_unchecked=lambda e: e.jax.grad(layer(e, check_vma=False), (0, 1))(e.x, e.w),
    grad_in_jit=lambda e: e.jax.jit(e.jax.grad(layer(e), (0, 1)))(e.x, e.w),
    grad_of_parts=lambda e: e.jax.grad(lambda a, w: (parallel(e)(a, w) ** 2).sum(), (0, 1))(e.x, e.w),
    grad_of_parts_unchecked=lambda e: e.jax.grad(lambda a, w: (parallel(e, check_vma=False)(a, w) ** 2).sum(), (0, 1))(e.x, e.w),
    second_derivative=lambda e: e.jax.jacfwd(e.jax.grad(layer(e), 1), 1)(e.x, e.w),
    second_derivative_unchecked=lambda e: e.jax.jacrev(e.jax.grad(layer(e, check_vma=False), 1), 1)(e.x, e.w),
    twice_backwards=lambda e: e.jax.hessian(lambda w: (parallel(e)(e.x, w) ** 3).sum())(e.w),
    reverse_over_reverse=lambda e: e.jax.jacrev(e.jax.jacrev(lambda w: layer(e)(e.x, w)))(e.w),
    jvp=lambda e: e.jax.jvp(layer(e), (e.x, e.w), (e.x, e.w)),
    linearize=lambda e: e.jax.linearize(lambda a: layer(e)(a, e.w), e.x)[1](e.x),
    vjp=lambda e: e.jax.vjp(parallel(e), e.x, e.w)[1](e.jnp.ones((8, 3))),
    vmap=lambda e: e.jax.vmap(layer(e), (0, None))(e.jnp.stack([e.x, -e.x, e.x + 1]), e.w),
    vmap_of_grad=lambda e: e.jax.vmap(e.jax.grad(layer(e), 1), (0, None))(e.jnp.stack([e.x, -e.x, e.x + 1]), e.w),
    vmap_inside=lambda e: e.sm(e.jax.vmap(lambda r: e.lax.psum(r * 2, "x")), e.P("x"), e.P())(e.x),
    vmap_spmd=lambda e: e.jax.jit(e.jax.vmap(e.sm(lambda a: e.lax.psum(a, "y"), e.P("y"), e.P(), axis_names={"y"}),
        spmd_axis_name="x"))(e.x[:4]),
    grad_inside=lambda e: e.sm(lambda a, w: e.jax.grad(lambda v: (e.jnp.sin(a) @ v).sum())(w), (e.P("x"), e.P()), e.P())(e.x, e.w),
    grad_inside_varying=lambda e: e.sm(lambda a: e.jax.grad(lambda b: e.lax.psum((b**3).sum(), "x"))(a), e.P("x"), e.P("x"))(e.x),
    grad_inside_unchecked=lambda e: e.sm(lambda a, w: e.lax.psum(e.jax.grad(lambda v: (e.jnp.sin(a) @ v).sum())(w), "x"),
        (e.P("x"), e.P()), e.P(), check_vma=False)(e.x, e.w),
    value_and_grad_inside=lambda e: e.sm(lambda a, w: e.jax.value_and_grad(
        lambda v: e.lax.pmean((e.jnp.sin(a) @ v).sum(), "x"))(w), (e.P("x"), e.P()), e.P())(e.x, e.w),
    jit_inside=lambda e: e.sm(lambda a: e.jax.jit(lambda b: e.lax.psum(b, "x"))(a), e.P("x"), e.P())(e.x),
    remat=lambda e: e.jax.grad(e.jax.checkpoint(layer(e)), 1)(e.x, e.w),
    remat_inside=lambda e: e.jax.grad(e.sm(lambda a, w: e.lax.psum(e.jax.checkpoint(
        lambda v: e.jnp.tanh(e.jnp.sin(a) @ v))(w).sum(), "x"), (e.P("x"), e.P()), e.P()), 1)(e.x, e.w),
    captured=lambda e: e.jax.grad(lambda w: e.sm(lambda a: e.lax.psum((a @ w).sum(), "x"), e.P("x"), e.P())(e.x))(e.jnp.asarray(e.w)),
)  # fmt: skip

for _name in ("all_gather", "psum_scatter_tiled", "all_to_all", "ppermute", "pcast", "all_gather_invarying", "groups", "groups_gather"):
    several(
        "gradient",
        **{_name: lambda e, name=_name: e.jax.grad(
            lambda x: (e.jnp.sin(CASES[f"collective_{name}"](SimpleNamespace(**{**vars(e), "x": x}))) ** 2).sum())(e.jnp.asarray(e.x))},
    )  # fmt: skip


# -- control flow


@case
def scan_of_shards(e: Any) -> Any:
    """A ring: every step adds what the neighbour had."""

    def ring(a: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            total, here = carry
            here = e.lax.ppermute(here, "x", [(i, (i + 1) % 4) for i in range(4)])
            return (total + e.jnp.sin(here), here), here.sum()[None]

        (total, _), sums = e.lax.scan(step, (e.jnp.zeros_like(a), a), None, length=4)
        return total, sums

    both = e.sm(ring, e.P("x"), (e.P("x"), e.P(None, "x")))
    return both(e.x), e.jax.grad(lambda x: (both(x)[0] ** 2).sum())(e.x)


several(
    "control",
    scan_varies=lambda e: e.sm(lambda a: e.lax.scan(lambda c, _: (c + a.sum(), None), 0.0, None, length=3)[0][None],
        e.P("x"), e.P("x"))(e.x),
    scan_weights=lambda e: e.jax.grad(lambda w: e.sm(lambda a, w: e.lax.psum(
        e.lax.scan(lambda c, _: (e.jnp.tanh(c @ w), None), a, None, length=3)[0].sum(), "x"), (e.P("x"), e.P()), e.P())(e.x, w))(e.w[:, :2]),
    while_on_its_own=lambda e: e.sm(lambda a: e.lax.while_loop(lambda c: c < a.sum() + 9, lambda c: c + 1, 0.0)[None],
        e.P("x"), e.P("x"))(e.x),
    cond_on_its_own=lambda e: e.sm(lambda a: e.lax.cond(a.sum() > 4, lambda b: e.jnp.sin(b), lambda b: 2 * b, a), e.P("x"), e.P("x"))(e.x),
    cond_weights=lambda e: e.jax.grad(lambda w: e.sm(lambda a, w: e.lax.psum(
        e.lax.cond(a.sum() > 2, lambda: (a @ w).sum(), lambda: e.lax.pcast(w, "x", to="varying").sum()), "x"), (e.P("x"), e.P()), e.P())(e.x, w))(e.w),
    cond_varies=lambda e: e.sm(lambda a: e.lax.cond(True, lambda: a.sum(), lambda: 0.0)[None], e.P("x"), e.P("x"))(e.x),
    cond_with_collectives=lambda e: e.sm(lambda a, n: e.lax.cond(n > 0, lambda: e.lax.psum(a, "x"), lambda: e.lax.pmax(a, "x")),
        (e.P("x"), e.P()), e.P())(e.x, np.float32(1)),
    fori=lambda e: e.sm(lambda a: e.lax.fori_loop(0, 3, lambda i, c: e.lax.ppermute(c, "x", [(0, 1), (1, 0)]) + i, a), e.P("x"), e.P("x"))(e.x),
    in_a_scan=lambda e: e.jax.grad(lambda x: e.lax.scan(lambda c, _: (e.sm(lambda a: e.jnp.tanh(a + e.lax.pmean(a, "x")), e.P("x"), e.P("x"))(c),
        None), x, None, length=3)[0].sum())(e.x),
    in_a_cond=lambda e: e.lax.cond(e.jnp.asarray(e.x).sum() > 0, e.sm(lambda a: a * 2, e.P("x"), e.P("x")), lambda a: a, e.x),
)  # fmt: skip


# -- pmap

several(
    "pmap",
    plain=lambda e: e.jax.pmap(lambda a: a * 2 + 1)(e.x),
    in_axes=lambda e: e.jax.pmap(lambda a, w: a @ w, in_axes=(1, None))(e.x.T, e.w),
    out_axes=lambda e: e.jax.pmap(lambda a: (a, a.sum()), out_axes=(1, 0))(e.x),
    out_none=lambda e: e.jax.pmap(lambda a: e.lax.psum(a, "i"), axis_name="i", out_axes=None)(e.x),
    collectives=lambda e: e.jax.pmap(lambda a: (e.lax.axis_index("i"), e.lax.all_gather(a, "i"), e.lax.pmean(a, "i"), e.lax.psum(1, "i")),
        axis_name="i")(e.x),
    groups=lambda e: e.jax.pmap(lambda a: e.lax.psum(a, "i", axis_index_groups=[[0, 1, 2, 3], [4, 5, 6, 7]]), axis_name="i")(e.x),
    a_tree=lambda e: e.jax.pmap(lambda d, k=None: {"s": d["a"] + d["b"] + k}, in_axes=({"a": 0, "b": None},), out_axes={"s": 0})(
        {"a": e.x, "b": e.x[0]}, k=e.x),
    static=lambda e: e.jax.pmap(lambda a, f, n: getattr(e.jnp, f)(a) * n, static_broadcasted_argnums=(1, 2))(e.x, "sin", 3),
    donated=lambda e: e.jax.pmap(lambda a, n, b: a + n * b, static_broadcasted_argnums=1, donate_argnums=(0, 2))(e.x, 2, e.x),
    devices=lambda e: e.jax.pmap(lambda a: a * e.lax.axis_index("i"), axis_name="i", devices=e.jax.devices()[3:6])(e.x[:3]),
    in_jit=lambda e: e.jax.jit(e.jax.pmap(lambda a: a * 2))(e.x),
    grad=lambda e: e.jax.grad(lambda a: (e.jax.pmap(lambda b: e.lax.psum(e.jnp.sin(b), "i"), axis_name="i")(a) ** 2).sum())(e.x),
    grad_inside=lambda e: e.jax.pmap(lambda a, w: e.lax.pmean(e.jax.grad(lambda w: (a @ w).sum())(w), "i"), axis_name="i", in_axes=(0, None))(e.x, e.w),
    vmapped=lambda e: e.jax.vmap(e.jax.pmap(lambda a: a * 2))(e.x),
    too_few_devices=lambda e: e.jax.pmap(lambda a: a)(np.ones(9, np.float32)),
    other_extents=lambda e: e.jax.pmap(lambda a, b: a)(e.x, e.x[:4]),
    none_mapped=lambda e: e.jax.pmap(lambda a: a, in_axes=None)(e.x),
    a_scalar=lambda e: e.jax.pmap(lambda a: a)(1.0),
    no_devices=lambda e: e.jax.pmap(lambda a: a, devices=[]),
    axes_of_strings=lambda e: e.jax.pmap(lambda a: a, in_axes="a"),
    axis_size=lambda e: e.jax.pmap(lambda a: a, axis_size=4)(e.x),
    a_static_keyword=lambda e: e.jax.pmap(lambda a, n: a * n, static_broadcasted_argnums=1)(e.x, n=2),
    nested=lambda e: e.jax.pmap(e.jax.pmap(lambda a: a))(e.x[:2]),
)  # fmt: skip


# -- axes that are left automatic


def mean_of_squares(e: Any) -> Any:
    """Its gradient is that of a layer whose rows are over x by hand, and whose columns the compiler spreads over y."""

    def f(a: Any, w: Any) -> Any:
        h = e.lax.with_sharding_constraint(e.jnp.tanh(a @ w), e.P(None, "y"))
        return e.lax.pmean((h**2).mean(), "x")

    return e.jax.jit(e.sm(f, (e.P("x"), e.P()), e.P(), axis_names={"x"}))


def inside(e: Any, f: Any) -> Any:
    """f under the mesh of the context, as nested shard_maps are written."""
    with e.jax.set_mesh(e.mesh):
        return f()


several(
    "partial",
    constraint=lambda e: inside(e, lambda: mean_of_squares(e)(e.x, np.tile(e.w, 2)[:, :4])),
    gradient=lambda e: inside(e, lambda: e.jax.jit(e.jax.grad(mean_of_squares(e), (0, 1)))(e.x, np.tile(e.w, 2)[:, :4])),
    constraint_by_hand=lambda e: inside(e, lambda: e.jax.jit(e.sm(lambda a: e.lax.with_sharding_constraint(a, e.P("x")),
        e.P("x"), e.P("x"), axis_names={"x"}))(e.x)),
    nested=lambda e: inside(e, lambda: e.jax.jit(e.jax.shard_map(lambda a: e.lax.psum(e.jax.shard_map(
        lambda b: e.lax.psum(b, "y") + e.lax.axis_index("x"), in_specs=e.P(None, "y"), out_specs=e.P(), axis_names={"y"})(a), "x"),
        in_specs=e.P("x"), out_specs=e.P(), axis_names={"x"}))(e.x)),
    nested_sums=lambda e: inside(e, lambda: e.jax.jit(e.jax.shard_map(lambda a: e.jax.shard_map(
        lambda b: e.lax.psum(b, ("x", "y")), in_specs=e.P(None, "y"), out_specs=e.P(), axis_names={"y"})(a),
        in_specs=e.P("x"), out_specs=e.P(), axis_names={"x"}))(e.x)),
    nested_gradient=lambda e: inside(e, lambda: e.jax.jit(e.jax.grad(lambda x: e.jax.shard_map(lambda a: e.lax.psum(e.jax.shard_map(
        lambda b: e.lax.psum((e.jnp.sin(b) ** 2).sum(), "y"), in_specs=e.P(None, "y"), out_specs=e.P(), axis_names={"y"})(a), "x"),
        in_specs=e.P("x"), out_specs=e.P(), axis_names={"x"})(x)))(e.x)),
    in_a_scan=lambda e: e.jax.jit(lambda x: e.lax.scan(lambda c, _: (e.sm(lambda a: e.lax.ppermute(a, "x", [(0, 1), (1, 0)]),
        e.P("x"), e.P("x"), axis_names={"x"})(c) + 1, None), x, None, length=2)[0])(e.x),
    mesh_inside=lambda e: inside(e, lambda: e.sm(lambda a: a * len(e.jax.sharding.get_abstract_mesh().manual_axes), e.P("x"), e.P("x"))(e.x)),
)  # fmt: skip


def record() -> None:
    import jax  # where it is installed, to record what it gives

    axis_types = (jax.sharding.AxisType.Auto,) * 2
    env = environment(jax, jax.make_mesh((4, 2), ("x", "y"), axis_types=axis_types))
    lines = [f" {json.dumps(name)}: {json.dumps(outcome(name, env))}" for name in CASES]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
