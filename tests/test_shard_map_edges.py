"""Code for single devices at its edges: shards without elements, numbers as operands, results that are None, batches that
are spread over axes which the code leaves alone, donated arguments, library functions that loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import AxisType, NamedSharding
from sharding.spec import P

pytestmark = pytest.mark.device

LINE = mj.make_mesh((8,), ("i",), axis_types=AxisType.Auto)
MESH = mj.make_mesh((2, 4), ("x", "y"), axis_types=AxisType.Auto)
EXPLICIT = mj.make_mesh((2, 4), ("x", "y"), axis_types=AxisType.Explicit)


def mapped(f: Callable[..., Any], in_specs: Any, out_specs: Any, mesh: Any = LINE, **more: Any) -> Any:
    return mj.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **more)


@pytest.mark.parametrize(
    ("collective", "shape"),
    [
        (lambda x: lax.all_gather(x, "i", tiled=True), (0, 8)),
        (lambda x: lax.all_gather(x, "i"), (64, 0, 8)),
        (lambda x: lax.psum_scatter(x, "i", tiled=True), (0, 8)),
        (lambda x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True), (0, 1)),
        (lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True), (0, 1)),
        (lambda x: lax.ppermute(x, "i", [(0, 1)]), (0, 8)),
    ],
)
def test_shards_without_elements(collective: Any, shape: tuple[int, ...]) -> None:
    empty = np.zeros((0, 8), np.float32)
    f = mapped(collective, P("i"), P("i"))
    assert f(empty).shape == shape
    assert mj.jit(mj.grad(lambda x: f(x).sum()))(empty).shape == (0, 8)


def test_an_axis_is_named_once() -> None:
    for collective in (lax.psum, lax.pmax, lax.all_gather):
        with pytest.raises(ValueError, match="which has 'i' twice"):
            mapped(lambda x, f=collective: f(x, ("i", "i")), P("i"), P("i"))(np.ones(8, np.float32))


def test_pcast_takes_numbers_which_stay_weak() -> None:
    x = mnp.ones(8, mnp.bfloat16)
    assert mapped(lambda x: x * lax.pcast(1.5, "i", to="varying"), P("i"), P("i"))(x).dtype == mnp.bfloat16
    counted = mapped(lambda x: lax.scan(lambda c, r: (c + r, c), lax.pcast(0.0, "i", to="varying"), x)[1], P("i"), P("i"))
    np.testing.assert_array_equal(counted(np.ones(16, np.float32)), [0, 1] * 8)


def test_results_that_are_none() -> None:
    x = np.arange(8, dtype=np.float32)
    value, nothing = mapped(lambda x: (x * 2, None), P("i"), (P("i"), None))(x)
    np.testing.assert_array_equal(value, 2 * x)
    assert nothing is None
    assert mapped(lambda x: None, P("i"), None)(x) is None
    with pytest.raises(ValueError, match=r"out_specs\[1\] does not fit: it is None"):
        mapped(lambda x: (x, x), P("i"), (P("i"), None))(x)


def test_members_are_spread_over_axes_that_the_code_leaves() -> None:
    """Each device computes with its own members: nothing is gathered over x."""
    x, w = np.arange(32, dtype=np.float32).reshape(4, 8), np.arange(8, dtype=np.float32)
    there = mj.device_put(x, NamedSharding(MESH, P("x", "y")))

    def member(v: Any, w: Any) -> Any:
        return mapped(lambda v, w: lax.psum(mnp.sin(v) * w, "y"), (P("y"), P("y")), P(), MESH)(v, w)

    f = mj.jit(mj.vmap(member, (0, None), spmd_axis_name="x"))
    expected = (np.sin(x) * w).reshape(4, 4, 2).sum(1)
    np.testing.assert_allclose(f(there, w), expected, rtol=1e-5)
    assert f(there, w).sharding.spec == P("x")
    assert {c.axes for c in f.lower(there, w).plan.collectives} == {("y",)}
    both = mj.grad(lambda v, w: mnp.sum(mj.vmap(member, (0, None), spmd_axis_name="x")(v, w)), (0, 1))(there, w)
    np.testing.assert_allclose(both[0], np.cos(x) * w, rtol=1e-5)
    np.testing.assert_allclose(both[1], np.sin(x).sum(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("size", "member"), [(3, lambda v: v * 2), (4, lambda v: lax.psum(v, "x"))], ids=["uneven", "summed"])
def test_members_are_whole_where_they_do_not_divide_or_the_code_needs_the_axis(size: int, member: Any) -> None:
    x = np.arange(size * 8, dtype=np.float32).reshape(size, 8)
    f = mj.vmap(lambda v: mapped(member, P("y"), P("y"), MESH)(v), spmd_axis_name="x")
    np.testing.assert_array_equal(f(x), 2 * x)


@pytest.mark.parametrize("checked", [True, False])
def test_members_stay_where_explicit_axes_say(checked: bool) -> None:
    x, w = np.arange(32, dtype=np.float32).reshape(4, 8), np.float32(3)
    with mj.set_mesh(EXPLICIT):
        there = mj.device_put(x, P("x", "y"))
        f = mj.vmap(
            mj.shard_map(lambda v, w: mnp.sin(v * w), in_specs=(P("y"), P()), out_specs=P("y"), check_vma=checked), (0, None)
        )
        result = mj.jit(f)(there, w)
        assert result.sharding.spec == P("x", "y")
        np.testing.assert_allclose(result, np.sin(x * w), rtol=1e-5, atol=1e-5)
        ours = mj.jit(mj.grad(lambda v, w: mnp.sum(f(v, w)), 1))(there, w)
        np.testing.assert_allclose(ours, (x * np.cos(x * w)).sum(), rtol=1e-4)


def test_donated_arguments_do_not_say_where_results_are() -> None:
    double = mapped(lambda x: x * 2, P("i"), P("i"))
    x = np.arange(16, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their memory is not used
        for f in (double, lambda v: double(v) + 1):
            assert mj.jit(f, donate_argnums=0)(mnp.asarray(x)).sharding.spec == P("i")
        whole = mj.device_put(x, NamedSharding(LINE, P()))
        assert mj.jit(double, donate_argnums=0)(whole).sharding.spec == P("i")


@pytest.mark.parametrize(("extreme", "kept"), [(lax.pmax, (2, 3)), (lax.pmin, (0, 1))])
def test_extremes_of_groups_differ_between_the_groups(extreme: Any, kept: tuple[int, int]) -> None:
    """Sums over groups are refused while it is checked which values vary, as in JAX."""
    groups = [[0, 2, 4, 6], [1, 3, 5, 7]]
    x = np.array([0, 1, 2, 3, 2, 3, 0, 1], np.float32)
    f = mapped(lambda v: extreme(v, "i", axis_index_groups=groups), P("i"), P("i"))
    for call in (f, mj.jit(f)):
        np.testing.assert_array_equal(call(x), kept * 4)
    np.testing.assert_array_equal(f(x > 1), [kept[0] > 1] * 8)
    with pytest.raises(ValueError, match="may differ between the devices along 'i'"):
        mapped(lambda v: extreme(v, "i", axis_index_groups=groups), P("i"), P())(x)
    with pytest.raises(NotImplementedError, match="psum: axis_index_groups give devices different results"):
        mapped(lambda v: lax.psum(v, "i", axis_index_groups=groups), P("i"), P("i"))(x)


@pytest.mark.parametrize("extreme", [lax.pmax, lax.pmin])
def test_the_largest_of_all_devices_has_no_derivative(extreme: Any) -> None:
    f = mapped(lambda v: extreme(v, "i"), P("i"), P())
    with pytest.raises(NotImplementedError, match="psum and pmean have a derivative, pmax and pmin have none"):
        mj.grad(lambda x: f(x).sum())(np.arange(8, dtype=np.float32))


RATES = np.linspace(0.5, 30, 24, dtype=np.float32).reshape(8, 3)
SEEDS = np.arange(8, dtype=np.uint32)
LOOPING: dict[str, Callable[[Any, Any], Any]] = {
    "poisson": lambda key, x: mj.random.poisson(key, x),
    "binomial": lambda key, x: mj.random.binomial(key, mnp.floor(x), 0.7),
    "chances": lambda key, x: mj.random.binomial(key, 20.0, mj.nn.sigmoid(x - 9)),
    "multinomial": lambda key, x: mj.random.multinomial(key, 9.0, x / x.sum()),
    "gamma": lambda key, x: mj.random.gamma(key, x),
    "eigh_tridiagonal": lambda key, x: mj.scipy.linalg.eigh_tridiagonal(x, x[:2] / 9, eigvals_only=True),
    "off-diagonal": lambda key, x: mj.scipy.linalg.eigh_tridiagonal(np.ones(3, np.float32), x[:2] / 9, eigvals_only=True),
}


@pytest.mark.parametrize("varying", ["both", "keys", "parameters"])
@pytest.mark.parametrize("name", LOOPING)
def test_functions_that_loop_take_values_that_differ_among_devices(name: str, varying: str) -> None:
    """Their loops began with what all devices have in common, and gave back what differs: an error, where JAX has none."""
    seeds = SEEDS if varying != "parameters" else SEEDS[:1]
    rates = RATES if varying != "keys" else RATES[5:6]

    def one(seed: Any, x: Any) -> Any:
        return LOOPING[name](mj.random.key(seed), x) + 0 * seed

    def of_device(seed: Any, x: Any) -> Any:
        return one(seed[0], x[0])[None]

    specs = (P("i") if len(seeds) > 1 else P(), P("i") if len(rates) > 1 else P())
    expected = [np.asarray(one(seeds[i % len(seeds)], rates[i % len(rates)])) for i in range(8)]
    found = mj.jit(mapped(of_device, specs, P("i")))(seeds, rates)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)
