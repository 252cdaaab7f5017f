"""custom_partitioning: functions that say how they are cut up. Values beside the whole function; what the user is told and asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.experimental.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)
from sharding import NamedSharding, PartitionSpec as P

R = np.random.default_rng(0)
A, B = R.normal(size=(8, 12)).astype(np.float32), R.normal(size=(12, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def mesh():
    return mj.make_mesh((4, 2), ("x", "y"))


def placed(mesh, array, *spec):
    return mj.device_put(array, NamedSharding(mesh, P(*spec)))


def matmul(told: list[Any] | None = None) -> Any:
    """A product that adds up its own partial sums."""

    @custom_partitioning
    def product(a, b):
        return a @ b

    def partition(mesh, arg_shapes, result_shape):
        if told is not None:
            told.append((arg_shapes, result_shape))
        a, b = arg_shapes
        axes = a.sharding.spec[1]

        def of_shards(a, b):
            return lax.psum(a @ b, axes) if axes else a @ b

        return mesh, of_shards, result_shape.sharding, (a.sharding, b.sharding)

    product.def_partition(partition, sharding_rule="m k, k n -> m n", reduction_factors=("k",))
    return product


def rows(function: Any, told: list[Any] | None = None, rule: Any = "... n -> ... n", **settings: Any) -> Any:
    """A function of one array that wants the last dim whole."""
    cut = custom_partitioning(function)

    def partition(mesh, arg_shapes, result_shape):
        if told is not None:
            told.append((arg_shapes[0].sharding.spec, result_shape.sharding.spec))
        spec = P(*arg_shapes[0].sharding.spec[:-1], None)
        return mesh, function, NamedSharding(mesh, spec), (NamedSharding(mesh, spec),)

    cut.def_partition(partition, sharding_rule=rule, **settings)
    return cut


# -- values and placements


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (("x", "y"), ("y", None), ("x",)),
        ((None, "x"), ("x", "y"), (None, "y")),
        (("x",), (None, "y"), ("x", "y")),
        ((None, ("x", "y")), (("x", "y"),), ()),  # 12 over 8: the user is not told of shards that are uneven along k
        ((), (), ()),
    ],
)
def test_a_product_that_adds_up_itself(mesh, left, right, result):
    out = mj.jit(matmul())(placed(mesh, A, *left), placed(mesh, B, *right))
    np.testing.assert_allclose(out, A @ B, rtol=1e-5, atol=1e-5)
    assert out.sharding.spec == P(*result)


def test_what_partition_is_told(mesh):
    told = list[Any]()
    mj.jit(matmul(told))(placed(mesh, A, "x", "y"), placed(mesh, B, "y"))
    (arguments, result) = told[-1]
    assert [s.shape for s in arguments] == [(8, 12), (12, 6)] and result.shape == (8, 6)
    assert [s.sharding.spec for s in arguments] == [P("x", "y"), P("y", None)] and result.sharding.spec == P("x", None)
    assert arguments[0].dtype == np.float32 and arguments[0].sharding.mesh == mesh


def test_uneven_shards_are_not_told_of_where_the_function_adds_up(mesh):
    told = list[Any]()
    a, b = A[:, :10], B[:10]
    out = mj.jit(matmul(told))(placed(mesh, a, "y", "x"), placed(mesh, b, "x"))
    np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)
    assert all(arguments[0].sharding.spec[1] is None for arguments, _ in told)


def test_uneven_shards_of_dims_that_pass_through(mesh):
    x = R.normal(size=(7, 5, 6)).astype(np.float32)
    f = rows(lambda x: mnp.cumsum(x, axis=-1))
    out = mj.jit(f)(placed(mesh, x, "x", "y"))
    np.testing.assert_allclose(out, np.cumsum(x, -1), rtol=1e-5)
    assert out.sharding.spec == P("x", "y")


@pytest.mark.parametrize("spec", [("x",), ("x", "y"), (None, "y"), (None, ("x", "y")), ()])
def test_what_partition_asks_for_is_brought_and_its_result_is_brought_on(mesh, spec):
    """The last dim is a factor like any other, but the function wants it whole: the result comes whole, too."""
    told = list[Any]()
    x = R.normal(size=(8, 16)).astype(np.float32)
    compiled = mj.jit(rows(lambda x: x / x.sum(-1, keepdims=True), told)).lower(placed(mesh, x, *spec)).compile()
    out = compiled(placed(mesh, x, *spec))
    np.testing.assert_allclose(out, x / x.sum(-1, keepdims=True), rtol=1e-5)
    assert out.sharding.spec == P(*spec)
    assert ("all-gather" in compiled.as_text()) == (len(spec) > 1)
    assert all(operand == result for operand, result in told)


def test_without_a_gather_where_the_rule_keeps_the_dim_whole(mesh):
    f = rows(lambda x: mj.numpy.fft.fft(x), need_replication_factors=("n",))
    x = R.normal(size=(8, 16)).astype(np.complex64)
    compiled = mj.jit(f).lower(placed(mesh, x, "x")).compile()
    np.testing.assert_allclose(compiled(placed(mesh, x, "x")), np.fft.fft(x), rtol=1e-4, atol=1e-4)
    assert "all-gather" not in compiled.as_text() and "all-to-all" not in compiled.as_text()


def test_trees_keywords_and_static_arguments(mesh):
    def shift(kind, pair, offset):
        return {kind: pair[0] + offset, "both": (pair[0] * pair[1], pair[1])}

    told = list[Any]()

    def partition(kind, mesh, arg_shapes, result_shape):
        told.append((kind, arg_shapes, result_shape))
        shardings = mj.tree.map(lambda s: s.sharding, (result_shape, arg_shapes))
        return mesh, lambda pair, offset: shift(kind, pair, offset), *shardings

    f = custom_partitioning(shift, static_argnums=(0,))
    f.def_partition(partition, sharding_rule="a b, a b, -> a b, a b, a b")
    out = mj.jit(lambda x, y: f("sum", offset=2.0, pair=(x, y)))(placed(mesh, A, "x"), placed(mesh, A, "x"))
    np.testing.assert_allclose(out["sum"], A + 2)
    np.testing.assert_allclose(out["both"][0], A * A, rtol=1e-4)
    kind, (pair, offset), result = told[-1]
    assert kind == "sum" and pair[0].sharding.spec == P("x", None) and offset.shape == ()
    assert result["both"][1].sharding.spec == P("x", None)


def test_rules_as_objects_and_functions(mesh):
    objects = SdyShardingRule((ArrayMapping(BATCHING, "n"),), (ArrayMapping(BATCHING, "n"),))
    asked = list[Any]()

    def made(mesh, operands, results):
        asked.append((mesh, [t.shape for t in operands], [t.shape for t in results]))
        return "... n -> ... n", {"need_replication_factors": ("n",)}

    x = R.normal(size=(8, 4)).astype(np.float32)
    for rule in (objects, made, lambda mesh, operands, results: objects, None):
        out = mj.jit(rows(lambda x: mnp.sort(x, -1), rule=rule))(placed(mesh, x, "x"))
        np.testing.assert_array_equal(out, np.sort(x, -1))
    with mesh:
        mj.jit(rows(lambda x: mnp.sort(x, -1), rule=made))(placed(mesh, x, "x"))
    assert asked[-1] == (mesh, [(8, 4)], [(8, 4)])


def test_compound_factors(mesh):
    """(h d) -> h d; heads are spread, and the function splits its own share of them."""

    @custom_partitioning
    def heads(x):
        return x.reshape(x.shape[0], 4, -1)

    def partition(mesh, arg_shapes, result_shape):
        (x,), spec = arg_shapes, result_shape.sharding.spec
        count = 4 if spec[1] is None else 4 // mesh.shape[spec[1]]
        return mesh, lambda x: x.reshape(x.shape[0], count, -1), result_shape.sharding, (x.sharding,)

    heads.def_partition(partition, sharding_rule="b (h d) -> b h d")
    x = R.normal(size=(8, 12)).astype(np.float32)
    for spec in (("y", "x"), ("x", "y"), ("x",)):
        out = mj.jit(heads)(placed(mesh, x, *spec))
        np.testing.assert_array_equal(out, x.reshape(8, 4, 3))
        assert out.sharding.spec == P(*spec)


# -- among transformations


def test_with_derivatives_of_its_own(mesh):
    product = matmul()

    @mj.custom_vjp
    def f(a, b):
        return product(a, b)

    f.defvjp(lambda a, b: (product(a, b), (a, b)), lambda res, t: (product(t, res[1].T), product(res[0].T, t)))
    grads = mj.jit(mj.grad(lambda a, b: (f(a, b) ** 2).sum(), (0, 1)))(placed(mesh, A, "x", "y"), placed(mesh, B, "y"))
    t = 2 * (A @ B)
    np.testing.assert_allclose(grads[0], t @ B.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(grads[1], A.T @ t, rtol=1e-4, atol=1e-4)


def test_in_loops_branches_checkpoints_and_device_code(mesh):
    product = matmul()
    square = R.normal(size=(8, 8)).astype(np.float32) / 4

    def loop(a, b):
        return lax.scan(lambda c, _: (product(c, b), None), a, None, length=3)[0]

    def branch(a, b):
        return lax.cond(a.sum() > 0, product, lambda a, b: product(b, a), a, b)

    def kept(a, b):
        return mj.checkpoint(product)(mnp.sin(a), b)

    def on_devices(a, b):
        return mj.shard_map(product, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))(a, b)

    a, b = placed(mesh, square, "x", "y"), placed(mesh, square, None, "y")
    for f in (loop, branch, kept, on_devices):
        expected = np.asarray(mj.jit(f)(square, square))
        np.testing.assert_allclose(mj.jit(f)(a, b), expected, rtol=1e-4, atol=1e-5)


def test_closed_over_arrays_and_values(mesh):
    scale = placed(mesh, np.arange(8, dtype=np.float32), "x")

    def outer(x):
        twice = 2 * scale  # traced

        @custom_partitioning
        def f(x):
            return x * 3

        def partition(mesh, arg_shapes, result_shape):
            return mesh, lambda x: x * constant, result_shape.sharding, (arg_shapes[0].sharding,)

        f.def_partition(partition, sharding_rule="a b -> a b")
        return f(x) + twice[:, None]

    constant = mnp.full((), 3, np.float32)
    out = mj.jit(outer)(placed(mesh, A, "x"))
    np.testing.assert_allclose(out, A * 3 + 2 * np.arange(8)[:, None], rtol=1e-4)


def test_the_plan_is_automatic_and_verified(mesh):
    report = mj.verify(lambda a, b: mnp.tanh(matmul()(a, b)), A, B, in_shardings=(P("x", "y"), P("y")), mesh=mesh, simulate=True)
    assert "agree" in str(report)
    auto = mj.jit(lambda a, b: mnp.tanh(matmul()(a, b)), in_shardings=mj.sharding.AUTO, out_shardings=mj.sharding.AUTO)
    with mesh:
        np.testing.assert_allclose(auto(A, B), np.tanh(A @ B), rtol=1e-4, atol=1e-5)


def test_outside_of_jit_the_function_itself_runs():
    seen = list[Any]()

    @custom_partitioning
    def f(x):
        seen.append(type(x).__name__)
        return x + 1

    f.def_partition(lambda *_: None, sharding_rule="a -> a")
    np.testing.assert_array_equal(f(np.arange(3)), [1, 2, 3])
    assert seen == ["ndarray"]


# -- what does not fit


def test_no_derivative_and_no_batch_of_its_own():
    for transform in (lambda f: mj.grad(lambda x: f(x, B).sum()), lambda f: mj.vmap(lambda x: f(x[None], B))):
        with pytest.raises(NotImplementedError, match="custom_jvp, custom_vjp or custom_vmap around it say the rest"):
            transform(matmul())(A)


def test_errors_of_the_users_functions_are_theirs(mesh):
    def raising(mesh, arg_shapes, result_shape):
        raise KeyError("mine")

    f = custom_partitioning(lambda x: x)
    f.def_partition(raising, sharding_rule="a b -> a b")
    with pytest.raises(KeyError, match="mine"):
        mj.jit(f)(placed(mesh, A, "x"))


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda mesh, s: (mesh, lambda x: x), TypeError, r"partition of f must return \(mesh, function of shards, .* returned tuple"),
        (lambda mesh, s: (mesh, lambda x: x, P("x"), (s,)), ValueError, "Custom Partitioning rules must return Sharding"),
        (
            lambda mesh, s: (mesh, lambda x: x[:1], s, (s,)),
            ValueError,
            r"Mismatch in result shapes. lambda gives f32\[1,12\]; shards of the results of f are f32\[2,12\]",
        ),
        (
            lambda mesh, s: (mesh, lambda x: x, s, (NamedSharding(mj.make_mesh((8,), ("z",)), P("z")),)),
            ValueError,
            r"shardings of the arguments are on a mesh \{'z': 8\}, the program is for \{'x': 4, 'y': 2\}",
        ),
    ],
)
def test_wrong_answers(mesh, answer, error, message):
    def f(x):
        return x

    cut = custom_partitioning(f)
    cut.def_partition(lambda mesh, args, result: answer(mesh, result.sharding), sharding_rule="a b -> a b")
    with pytest.raises(error, match=message):
        mj.jit(cut)(placed(mesh, A, "x"))


def test_nobody_said_how():
    with pytest.raises(AttributeError, match="nobody has said how f is cut up"):

        @custom_partitioning
        def f(x):
            return x

        f(A)
    f = custom_partitioning(lambda x: x)
    f.def_partition(lambda *_: None, infer_sharding_from_operands=lambda *_: None)
    with pytest.raises(NotImplementedError, match="no sharding_rule\n"):
        f(A)


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("a b", {}, "There is no -> in rule: 'a b'"),
        ("a . -> a", {}, "Character '.' must be used inside ellipsis"),
        ("a … -> a", {}, "Unknown character '…'"),
        ("a ... -> a", {}, "Ellipsis can only be used at the beginning"),
        ("(a -> a", {}, "Brackets are not balanced"),
        ("a) -> a", {}, "Brackets are not balanced"),
        ("(a) -> a", {}, "Brackets should contain at least two factors"),
        ("((a b) c) -> a", {}, "nested brackets are not allowed"),
        ("1 a -> a", {}, "Factor names have to start with a letter, but got '1'"),
        ("a! -> a", {}, "start with a letter, but got '!'"),
        ("(a b) -> a", {}, "Factor b is only used in compound factors; must specify its size"),
        ("a b -> a b", {"a": 2}, "Factor a represents a whole dimension; do not specify its size"),
        ("a b -> a b", {"c": 2}, "Factor c is not used in the rule, but size is provided"),
        ("a b -> a", {"reduction_factors": ("c",)}, "Factor c in reduction_factors is not used"),
        ("a b -> a", {"reduction_factors": ("b", "b")}, "reduction_factors contains duplicated factors"),
        ("a b -> a", {"reduction_factors": "b"}, "reduction_factors must be a tuple of factors"),
        ("a b -> a", {"reduction_factors": ("b",), "permutation_factors": ("b",)}, "Factor b can only be in one of the"),
    ],
)
def test_rules_that_are_none(text, settings, message):
    with pytest.raises(ValueError, match=message):
        custom_partitioning(lambda x: x).def_partition(lambda *_: None, sharding_rule=text, **settings)


@pytest.mark.parametrize(
    ("rule", "settings", "message"),
    [
        ("a b, a b -> a b", {}, "has 2 operands, but the operation has 1 operands"),
        ("a b -> a b, a", {}, "has 2 results, but the operation has 1 results"),
        ("a -> a b", {}, "0th operand has rank 1, but the operation's has rank 2"),
        ("... a b c -> a b", {}, "0th operand has rank at least 3, but the operation's has rank 2"),
        ("a (b c) -> a (b c)", {"b": 5, "c": 2}, "extent 12 doesn't match the size 10 that the factors b c have"),
    ],
)
def test_rules_that_do_not_fit_the_arrays(mesh, rule, settings, message):
    f = custom_partitioning(lambda x: x)
    f.def_partition(lambda *_: None, sharding_rule=rule, **settings)
    with pytest.raises(ValueError, match=message):
        mj.jit(f)(A)


def test_objects_of_rules():
    with pytest.raises(ValueError, match="at least two factors"):
        CompoundFactor("a")
    with pytest.raises(ValueError, match="must be a str or CompoundFactor"):
        ArrayMapping(2)  # pyright: ignore[reportArgumentType]
    rule = SdyShardingRule((ArrayMapping("a", "b"),), (ArrayMapping("a"),), reduction_factors=("b",))
    assert str(rule) == "SdyShardingRule((('a', 'b'),), (('a',),), {} reduction_factors=('b',))"
