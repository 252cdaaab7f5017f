"""What Python keeps of a function under vmap or grad stays usable where it depends on no argument, as it is in JAX."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.errors import UnexpectedTracerError


def kept_of(transform: Callable[[Any], Any], argument: Any = 1.5) -> SimpleNamespace:
    """What a function keeps while `transform` of it runs."""
    kept = SimpleNamespace()

    def f(x: Any) -> Any:
        kept.mask = mnp.arange(3) > 0
        kept.ones = mnp.ones(3) * 2
        kept.total = mnp.sum(kept.ones)
        kept.weak = mnp.asarray(2.0) * 3.0
        kept.empty = mnp.ones((0, 3))
        kept.key = mj.random.key(1)
        kept.small = mnp.ones(2, mnp.bfloat16) * 2
        kept.derived = x * 2
        kept.positive = x > 0
        return x * kept.total

    transform(f)(argument)
    return kept


TRANSFORMS = {
    "grad": (mj.grad, 1.5),
    "vjp": (lambda f: lambda x: mj.vjp(f, x), 1.5),
    "jvp": (lambda f: lambda x: mj.jvp(f, (x,), (x,)), 1.5),
    "vmap": (mj.vmap, np.ones(3, np.float32)),
    "vmap of grad": (lambda f: mj.vmap(mj.grad(f)), np.ones(3, np.float32)),
    "grad of vmap": (lambda f: mj.grad(lambda x: mj.vmap(f)(mnp.full(3, x)).sum()), 1.5),
}


@pytest.fixture(params=TRANSFORMS, name="kept")
def _kept(request: pytest.FixtureRequest) -> SimpleNamespace:
    return kept_of(*TRANSFORMS[request.param])


def test_is_an_array(kept: SimpleNamespace) -> None:
    np.testing.assert_array_equal(kept.ones + 1, [3, 3, 3])
    np.testing.assert_array_equal(np.asarray(kept.ones), [2, 2, 2])
    np.testing.assert_array_equal(mnp.where(kept.mask, kept.ones, 0), [0, 2, 2])
    assert (float(kept.total), bool(kept.total > 3), repr(kept.ones)) == (6.0, True, "Array([2., 2., 2.], dtype=float32)")
    assert (str(kept.ones), kept.ones.sharding, (kept.empty + 1).shape) == ("[2. 2. 2.]", mnp.ones(3).sharding, (0, 3))
    assert (kept.weak * mnp.ones(2, mnp.bfloat16)).dtype == (kept.small * 2.0).dtype == mnp.bfloat16
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kept.ones)), copy.deepcopy(kept.ones))
    assert mj.block_until_ready(kept.ones).block_until_ready() is not None
    assert isinstance(mj.device_get({"a": kept.ones})["a"], np.ndarray)


def test_can_be_an_argument(kept: SimpleNamespace) -> None:
    mesh = mj.make_mesh((3,), ("x",), devices=mj.devices()[:3])
    placed = mj.device_put(kept.ones, mj.NamedSharding(mesh, mj.P("x")))
    assert [shard.data.shape for shard in placed.addressable_shards] == [(1,)] * 3
    np.testing.assert_array_equal(mj.jit(lambda x, y: x + y["a"])(kept.ones, {"a": kept.total}), [8, 8, 8])
    np.testing.assert_array_equal(mj.jit(mnp.negative).lower(kept.ones).compile()(kept.ones), [-2, -2, -2])
    np.testing.assert_array_equal(mj.vmap(lambda x: x + 1)(kept.ones), [3, 3, 3])
    np.testing.assert_array_equal(mj.grad(lambda x: mnp.sum(x * x))(kept.ones), [4, 4, 4])
    expected = mj.random.normal(mj.random.key(1))
    assert mj.random.normal(kept.key) == expected


def test_can_be_closed_over(kept: SimpleNamespace) -> None:
    @mj.custom_vjp
    def scaled(x: Any) -> Any:
        return x * kept.total

    scaled.defvjp(lambda x: (scaled(x), None), lambda _, ct: (ct * kept.total,))
    for run in (mj.jit, lambda f: f):
        np.testing.assert_array_equal(run(lambda x: x + kept.ones)(1.0), [3, 3, 3])
        np.testing.assert_array_equal(run(mj.vmap(lambda x: x * kept.total))(mnp.arange(2.0)), [0, 6])
        np.testing.assert_array_equal(run(lambda x: lax.scan(lambda c, y: (c + y * kept.total, c), 0.0, x)[0])(mnp.ones(3)), 18)
        np.testing.assert_array_equal(run(lambda x: lax.cond(x > 0, lambda: kept.ones, lambda: -kept.ones))(1.0), [2, 2, 2])
        assert run(mj.grad(scaled))(1.0) == 6
        assert run(mj.grad(mj.checkpoint(lambda x: mnp.sin(x) * kept.total)))(0.0) == 6


def test_what_depends_on_arguments_is_an_error(kept: SimpleNamespace) -> None:
    text = r"belongs to the trace of f, which has ended; used at test_trace_outlived\.py:\d+"
    with pytest.raises(UnexpectedTracerError, match=text):
        _ = kept.derived + 1
    with pytest.raises(UnexpectedTracerError, match=text):
        mj.jit(mnp.negative)(kept.derived)
    assert not hasattr(kept.derived, "sharding")


def test_a_comparison_of_what_is_differentiated_is_an_array() -> None:
    assert bool(kept_of(mj.grad).positive)


def test_inner_functions_leave_values_to_outer_ones() -> None:
    def outer(x: Any, transform: Callable[[Any], Any], y: Any) -> Any:
        kept: list[Any] = []

        def inner(y: Any) -> Any:
            kept[:] = [mnp.ones(2), mnp.sin(x) * 2]
            return y * kept[0].sum() * x

        result = mnp.sum(transform(inner)(y))
        return result + kept[0].sum() + kept[1] ** 2

    for transform, y in ((mj.grad, 1.0), (mj.vmap, np.arange(3.0, dtype=np.float32))):
        expected = mj.grad(lambda x: (2 * x if transform is mj.grad else 6 * x) + 4 * mnp.sin(x) ** 2)(0.5)  # noqa: B023
        for run in (lambda f: f, mj.jit, lambda f: lambda x: mj.vmap(f)(mnp.full(2, x))[1]):
            got = run(mj.grad(lambda x: outer(x, transform, y)))(0.5)  # noqa: B023
            np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_what_jit_and_loops_leave_is_an_error() -> None:
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept[:] = [mnp.ones(3)]
        return x

    runs = (mj.jit(keep), mj.jit(mj.grad(keep)), lambda x: lax.scan(lambda c, _: (keep(c), None), x, None, 2))
    for run in runs:
        run(1.0)
        with pytest.raises(UnexpectedTracerError, match="which has ended"):
            _ = kept[0] + 1


def test_a_layer_made_under_vmap_keeps_its_mask() -> None:
    class Layer:
        def __init__(self, weight: Any, mask: Any) -> None:
            self.weight, self.mask = weight, mask

        def __call__(self, x: Any) -> Any:
            return mnp.where(self.mask, self.weight, 0) @ x

    mj.tree_util.register_pytree_node(Layer, lambda layer: ((layer.weight,), layer.mask), lambda mask, w: Layer(w[0], mask))
    layers = mj.vmap(lambda key: Layer(mj.random.normal(key, (3, 3)), mnp.tril(mnp.ones((3, 3), bool))))(
        mj.random.split(mj.random.key(0), 4)
    )
    weights, x = np.asarray(layers.weight), np.ones(3, np.float32)
    results = mj.vmap(lambda layer: layer(x))(layers)
    np.testing.assert_allclose(results, np.tril(weights) @ x, rtol=1e-6)


def test_leaks_are_not_said_of_what_stays_usable() -> None:
    with mj.checking_leaks():
        kept = []
        mj.vmap(lambda x: (kept.append(mnp.ones(3)), x)[1])(mnp.ones(2))
        np.testing.assert_array_equal(kept[0], [1, 1, 1])
        with pytest.raises(UnexpectedTracerError, match="something still refers to a value of it"):
            mj.vmap(lambda x: (kept.append(x), x)[1])(mnp.ones(2))


def test_what_a_ref_held_is_what_it_held_then() -> None:
    ref: Any = mj.new_ref(mnp.ones(2))
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept[:] = [ref[...] * 3]
        return x

    mj.grad(f)(1.0)
    ref[...] = mnp.zeros(2)
    np.testing.assert_array_equal(kept[0], [3, 3])

    def outer(x: Any) -> Any:
        mj.grad(f)(x)
        ref[...] = mnp.full(2, 7.0)
        return kept[0] + x

    with pytest.raises(UnexpectedTracerError, match="which has ended"):
        mj.jit(outer)(1.0)
