"""Placements in types: errors word for word, resolutions that were tried, mixed axes, nested transformations, uneven extents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.api import out_sharding
from meshjit.errors import ShardingTypeError
from meshjit.sharding import AxisType, Mesh, NamedSharding, auto_axes, explicit_axes, reshard
from sharding.spec import P

pytestmark = pytest.mark.device

MESH = mj.make_mesh((4, 2), ("X", "Y"), axis_types=AxisType.Explicit)
MIXED = mj.make_mesh((4, 2), ("X", "Y"), axis_types=(AxisType.Explicit, AxisType.Auto))


def placed(shape: tuple[int, ...], *entries: Any, mesh: Any = MESH, dtype: Any = np.float32) -> Any:
    values = (np.arange(np.prod(shape)).reshape(shape) % 5).astype(dtype)
    return mj.device_put(values, NamedSharding(mesh, P(*entries)))


def message(function: Any, *args: Any, kind: type[Exception] = ShardingTypeError) -> str:
    with pytest.raises(kind) as caught:
        mj.jit(function)(*args)
    return str(caught.value)


def test_a_conflict_names_both_operands_and_what_each_way_out_sends() -> None:
    def f(x: Any, y: Any) -> Any:
        doubled = y * 2
        return x + doubled

    text = message(f, placed((8, 4), "X"), placed((8, 4), "Y"))
    assert text.splitlines()[0].startswith("add at test_explicit_types.py:")
    assert text.splitlines()[0].endswith(": dim 0 of operand 0 is sharded over X, dim 0 of operand 1 over Y")
    assert text.splitlines()[1] == "  operand 0 is f32[8@X,4]: argument x"
    assert text.splitlines()[2].startswith("  operand 1 is f32[8@Y,4]: computed at test_explicit_types.py:")
    assert text.splitlines()[3:] == [
        '  fix: meshjit.sharding.reshard(operand 0, P("Y", None)) before, which sends 64 bytes per device',
        '    or meshjit.sharding.reshard(operand 1, P("X", None)) before, which sends 32 bytes per device',
    ]


def test_a_sum_over_shards_says_what_each_placement_of_the_result_costs() -> None:
    text = message(lambda x, y: x @ y, placed((8, 4), "X", "Y"), placed((4, 16), "Y"))
    assert text.splitlines()[0].endswith(
        ": dim 1 of operand 0 and dim 0 of operand 1 are summed over and both sharded over Y: each device has a part of the sum"
    )
    assert text.splitlines()[3:] == [
        '  fix: out_sharding=P("X", None), which sends 128 bytes per device',
        '    or out_sharding=P("X", "Y"), which sends 64 bytes per device',
    ]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x.reshape(2, 16), "dim 0 of extent 8 is cut into 4 shards, which are no parts of the result's dims (2, 16)"),
        (lambda x: x[0], "dim 0 of extent 8 is sharded 4 ways over X, which do not divide the result's 1"),
        (lambda x: x[mnp.array([1, 2])], "dim 0 of operand 0 is looked up by computed places, and is sharded over X"),
        (lambda x: mnp.linalg.inv(x[:4]), "has to be whole, and is sharded over X"),
        (lambda x: mnp.outer(x[:, 0], x[:, 1]), "its result f32[8@X,8@X] would use X twice"),
    ],
)
def test_what_is_unclear_is_said(function: Any, text: str) -> None:
    assert text in message(function, placed((8, 4), "X"))


def test_a_constraint_moves_nothing() -> None:
    text = message(
        lambda x: mj.lax.with_sharding_constraint(x, NamedSharding(MESH, P("Y"))), placed((8, 4), "X"), kind=AssertionError
    )
    assert text.startswith('with_sharding_constraint of x: f32[8@X,4] is not P("Y", None) in dim 0')


def test_loops_and_branches_keep_placements() -> None:
    text = message(
        lambda x: mj.lax.scan(lambda c, _: (reshard(c, NamedSharding(MESH, P("Y"))), None), x, None, length=2),
        placed((8, 4), "X"), kind=TypeError,
    )  # fmt: skip
    assert "init is f32[8@X,4] at first and f32[8@Y,4] after one iteration" in text
    assert 'fix: meshjit.sharding.reshard it to P("Y", None)' in text
    text = message(lambda x: mj.lax.scan(lambda c, row: (c + row, None), x[0], x), placed((8, 4), "X"), kind=ValueError)
    assert "do not divide" in text
    text = message(lambda x: mj.lax.scan(lambda c, row: (c, row), 0.0, x), placed((8, 4), "X"), kind=ValueError)
    assert text.startswith("scan: xs is f32[8@X,4], sharded along the dim that the loop takes slices of")
    text = message(lambda x, y: mj.vmap(lambda a, b: a + b)(x, y), placed((8, 4), "X"), placed((8, 4), "Y"), kind=ValueError)
    assert text.startswith("vmap: the mapped dims are placed differently: that of a over ('X',), that of b over ('Y',)")


@pytest.mark.parametrize(
    ("asked", "got"),
    [(P(None, "Y"), P("X", "Y")), (P(), P("X", None)), (P("Y"), P(("X", "Y"))), (P("X", "Y"), P("X", "Y")), (P(P.UNCONSTRAINED, "Y"), P("X", "Y"))],
)
def test_a_constraint_over_automatic_axes_keeps_the_explicit_ones(asked: P, got: P) -> None:
    x = placed((8, 4), "X", mesh=MIXED)
    with mj.set_mesh(MIXED):
        f = mj.jit(lambda x: mj.lax.with_sharding_constraint(x * 2, asked))
        assert f(x).sharding.spec == got
        assert str(mj.typeof(f(x))) == "float32[8@X,4]"
        assert not f.lower(x).plan.collectives
        np.testing.assert_array_equal(mj.jit(mj.grad(lambda x: f(x).sum()))(x), np.full((8, 4), 2.0))
        with pytest.raises(AssertionError, match=r'x: f32\[8@X,4\] is not P\(None, "X"\) in dim 1'):
            mj.jit(lambda x: mj.lax.with_sharding_constraint(x, P(None, "X")))(placed((8, 4), "X", mesh=MIXED))


def test_explicit_and_automatic_axes_mix() -> None:
    seen: list[str] = []

    def f(x: Any, w: Any) -> Any:
        y = mnp.sin(x @ w)
        seen.append(str(mj.typeof(y)))
        return y

    x, w = placed((8, 4), "X", mesh=MIXED), placed((4, 6), None, "Y", mesh=MIXED)
    assert str(mj.typeof(w)) == "float32[4,6]"  # over automatic axes nothing is said
    result = mj.jit(f)(x, w)
    assert seen == ["float32[8@X,6]"]
    assert result.sharding.spec[0] == "X"
    np.testing.assert_allclose(result, np.sin(np.asarray(x) @ np.asarray(w)), rtol=1e-5)
    both = auto_axes(lambda a, b: a + b, out_sharding=P("X"))(x, placed((8, 4), None, "X", mesh=MIXED))
    assert both.sharding.spec[0] == "X"


@pytest.mark.parametrize("shape", [(10, 3), (3, 5), (0, 4), (1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
def test_any_extent_may_be_sharded(shape: tuple[int, int], dtype: Any) -> None:
    x = placed(shape, "X", "Y", dtype=dtype)
    for f in (
        lambda x: x | x if dtype is np.bool_ else x + x,
        lambda x: mnp.sum(x, 1),
        lambda x: x.T,
        lambda x: mnp.max(x) if x.size else x,
    ):
        for g in (f, mj.jit(f)):
            np.testing.assert_array_equal(g(x), f(np.asarray(x)) if f(np.asarray(x)) is not None else None)


@pytest.mark.parametrize("run", [mj.jit, lambda f: f])
def test_dims_of_one_beside_those_of_an_empty_array(run: Any) -> None:
    with mj.set_mesh(MESH):
        empty = placed((0, 4), None, "Y")
        wide = run(lambda x: x[:, None, :, None])(empty)
        assert wide.shape == (0, 1, 4, 1) and wide.sharding.spec == P(None, None, "Y", None)
        assert run(lambda x: x[None])(empty).sharding.spec == P(None, None, "Y")
        assert run(lambda x: x[0, :, 0])(run(lambda x: x[None, :, None])(placed((8, 0), "X"))).sharding.spec == P("X", None)


def test_gradients_are_placed_as_their_arguments() -> None:
    x, w, b = placed((8, 4), "X"), placed((4, 6), None, "Y"), placed((6,), "Y")

    def loss(params: Any) -> Any:
        w, b = params
        return mnp.mean((mnp.tanh(x @ w + b)) ** 2)

    for run in (mj.grad(loss), mj.jit(mj.grad(loss)), mj.jit(mj.grad(mj.checkpoint(loss)))):
        dw, db = run((w, b))
        assert (dw.sharding, db.sharding) == (w.sharding, b.sharding)
    hessian = mj.jit(mj.grad(lambda p: sum(g.sum() for g in mj.grad(loss)(p))))((w, b))
    assert hessian[0].sharding == w.sharding


def test_nested_transformations_agree_with_one_device() -> None:
    x = placed((8, 4), "X", "Y")

    def f(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return mj.checkpoint(lambda c: mnp.sin(c) * 2)(c), c.sum()

        last, sums = mj.lax.scan(step, x, None, length=3)
        return mj.lax.cond(sums[0] > 0, lambda c: c * 2, lambda c: c, last).sum() + mj.vmap(lambda row: (row**2).sum())(x).sum()

    with mj.set_mesh(MESH):
        value, slope = mj.jit(mj.value_and_grad(f))(x)
    alone = mj.value_and_grad(f)(np.asarray(x))
    np.testing.assert_allclose(value, alone[0], rtol=1e-5)
    np.testing.assert_allclose(slope, alone[1], rtol=1e-4)
    assert slope.sharding == x.sharding


def test_out_sharding_is_planned_with_the_function() -> None:
    def f(x: Any, y: Any) -> Any:
        return mnp.einsum("bd,df->bf", x, y, out_sharding=P("X", "Y"))

    x, y = placed((8, 4), "X", "Y"), placed((4, 16), "Y")
    with mj.set_mesh(MESH):
        collectives = mj.jit(f).lower(x, y).plan.collectives
        result = f(x, y)
    assert [c.kind for c in collectives] == ["reduce_scatter"]
    np.testing.assert_allclose(result, np.asarray(x) @ np.asarray(y))


def test_the_type_of_an_array_on_another_mesh_is_that_on_its_own() -> None:
    other = mj.make_mesh((2, 4), ("A", "B"), axis_types=AxisType.Explicit)
    automatic = mj.make_mesh((2, 4), ("A", "B"), axis_types=AxisType.Auto)
    x, mixed, y = placed((8, 4), "X", "Y"), placed((8, 4), "X", "Y", mesh=MIXED), placed((8, 4), "A", mesh=automatic)
    for context in (other, automatic):
        with mj.set_mesh(context):
            assert str(mj.typeof(x)) == "float32[8@X,4@Y]" and mj.typeof(x).sharding.mesh == MESH.abstract_mesh
            assert str(mj.typeof(mixed)) == "float32[8@X,4]" and str(x.aval) == "float32[8@X,4@Y]"
    with mj.set_mesh(MESH):
        assert mj.typeof(y).sharding == NamedSharding(automatic.abstract_mesh, P(None, None))
        assert mj.typeof(mnp.ones((8, 4))).sharding.mesh == MESH.abstract_mesh


def test_functions_around_which_axes_change() -> None:
    with mj.set_mesh(MESH):
        with pytest.raises(TypeError, match="auto_axes: where the results are is not said"):
            auto_axes(lambda x: x)(placed((8, 4), "X"))
        pair = auto_axes(lambda x: {"a": x, "b": x.T}, out_sharding={"a": P("X"), "b": P(None, "X")})(placed((8, 4), "Y"))
        assert pair["a"].sharding.spec == P("X", None) and pair["b"].sharding.spec == P(None, "X")
    with pytest.raises(ValueError, match="explicit_axes: there is no mesh in the context"):
        explicit_axes(lambda x: x, in_sharding=P("X"))(np.ones(8))


def test_the_type_of_a_value_says_where_it_is() -> None:
    x = placed((8, 4), "X")
    assert mj.typeof(x).sharding == NamedSharding(MESH.abstract_mesh, P("X", None))
    assert (mj.typeof(x).shape, mj.typeof(x).dtype, mj.typeof(x).ndim, mj.typeof(x).vma) == ((8, 4), np.float32, 2, frozenset())
    assert mj.typeof(np.ones(3)).sharding.mesh.empty
    with mj.set_mesh(MESH):
        assert mj.typeof(mnp.ones((8, 4))).sharding == NamedSharding(MESH.abstract_mesh, P(None, None))
        assert mnp.ones((8, 4)).sharding == NamedSharding(MESH, P(None, None))
    assert isinstance(mnp.ones(3).sharding, mj.sharding.SingleDeviceSharding)


def test_the_jitted_function_is_made_anew_for_other_types_of_axes() -> None:
    traces: list[str] = []

    def f(x: Any) -> Any:
        traces.append(str(mj.typeof(x)))
        return x * 2

    jitted = mj.jit(f)
    for mesh in (MESH, MESH.update(axis_types=AxisType.Auto), MESH):
        jitted(placed((8, 4), "X", mesh=mesh))
    assert traces == ["float32[8@X,4]", "float32[8,4]"]


def test_code_for_single_devices_inside_of_automatic_axes() -> None:
    """The meshes of both differ in the types of their axes alone."""
    with mj.set_mesh(MESH):
        total = mj.shard_map(lambda a: mj.lax.psum(a, "X"), in_specs=P("X"), out_specs=P())
        x = placed((8, 4), "X")
        f = mj.jit(lambda x: auto_axes(lambda a: total(a) + reshard(a[:2], P()), out_sharding=P(None, "Y"))(x))
        values = np.asarray(x)
        np.testing.assert_array_equal(f(x), values.reshape(4, 2, 4).sum(0) + values[:2])


def test_a_rule_of_a_function_that_reaches_traced_values_which_it_does_not_use() -> None:
    def f(x: Any, y: Any) -> Any:
        z = {"all": [x, y, x * y]}
        square = mj.custom_vjp(lambda v: v * v if z else v)
        square.defvjp(lambda v: (square(v), v), lambda v, ct: (3 * v * ct,))
        return (square(z["all"][2]) + y).sum()

    with mj.set_mesh(MESH):
        x, y = placed((8,), "X"), placed((8,), "X")
        gradients = mj.jit(mj.grad(f, (0, 1)))(x, y)
    x, y = np.asarray(x), np.asarray(y)
    np.testing.assert_allclose(gradients[0], 3 * x * y * y)
    np.testing.assert_allclose(gradients[1], 3 * x * y * x + 1)


def test_a_type_says_where_a_value_is_without_a_mesh_of_the_context() -> None:
    placed = NamedSharding(MESH, P("X", "Y"))

    def made() -> Any:
        return reshard(mnp.ones((4, 4)), placed)

    def called() -> Any:
        return mnp.sin(mj.jit(made)())

    abstract = NamedSharding(MESH.abstract_mesh, P("X", "Y"))
    assert mj.eval_shape(made).sharding == mj.eval_shape(called).sharding == abstract
    assert mj.eval_shape(lambda: mnp.ones(3)).sharding is None


def test_cotangents_are_of_the_dual_type() -> None:
    with mj.set_mesh(MESH):
        x, elsewhere = reshard(mnp.ones((4, 4)), P("X", "Y")), mnp.ones((4, 4))
        pull, push = mj.vjp(mnp.sin, x)[1], mj.linearize(mnp.sin, x)[1]
        with pytest.raises(ValueError, match=r"vjp: a cotangent is f32\[4,4\], and has to be f32\[4@X,4@Y\]\n") as error:
            pull(elsewhere)
        assert "fix: meshjit.sharding.reshard(cotangent, P('X', 'Y'))" in str(error.value)
        assert pull(reshard(elsewhere, P("X", "Y")))[0].sharding == pull(np.ones((4, 4), np.float32))[0].sharding == x.sharding
        with pytest.raises(ValueError, match=r"linearize: a tangent is f32\[4,4\], and has to be f32\[4@X,4@Y\]\n  fix: "):
            push(elsewhere)

        def of_shards(x: Any) -> Any:
            return mj.vjp(mnp.sin, x)[1](mnp.ones(x.shape))[0]

        with pytest.raises(ValueError, match=r"is f32\[1,2\], and has to be f32\[1,2\]\{V:\(X,Y\)\}\n  fix: meshjit.lax.pcast\("):
            mj.shard_map(of_shards, in_specs=P("X", "Y"), out_specs=P("X", "Y"))(x)


def test_equal_eager_calls_with_out_sharding_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[str] = []
    trace = out_sharding.trace_to_program
    monkeypatch.setattr(out_sharding, "trace_to_program", lambda *args: traces.append(args[3]) or trace(*args))
    with mj.set_mesh(MESH):
        x = reshard(mnp.arange(16.0).reshape(4, 4), P("X", "Y"))
        for factor, spec in ((1, P("X")), (2, P("X")), (3, P("Y"))):
            result = mnp.dot(x * factor, x, out_sharding=spec)
            np.testing.assert_array_equal(result, factor * np.asarray(x) @ np.asarray(x))
    assert traces == ["dot", "dot"]


def test_out_sharding_takes_what_typeof_says() -> None:
    with mj.set_mesh(MESH):
        x = reshard(mnp.arange(8.0).reshape(4, 2), P("X", None))
        y = mnp.arange(4.0, out_sharding=NamedSharding(MESH.abstract_mesh, P("X")))
        z = mj.random.bernoulli(mj.random.key(0), 1.0, x.shape, out_sharding=mj.typeof(x).sharding)
    assert y.sharding == NamedSharding(MESH, P("X")) and z.sharding == NamedSharding(MESH, P("X", None)) and bool(z.all())


def jaxpr_of(function: Any, *args: Any) -> Any:
    with mj.set_mesh(MESH):
        return mj.make_jaxpr(function)(*args)


def test_types_of_a_jaxpr_say_where_values_are() -> None:
    """What holds values there is no equation; of Programs inside, too."""
    matmul = jaxpr_of(lambda x, w: x @ w, placed((8, 4), "X"), placed((4, 16), None, "Y"))
    assert [str(a) for a in (*matmul.in_avals, *matmul.out_avals)] == ["float32[8@X,4]", "float32[4,16@Y]", "float32[8@X,16@Y]"]
    assert [e.primitive.name for e in matmul.eqns] == ["dot_general"]
    assert str(matmul).splitlines()[:2] == ["{ lambda ; a:f32[8@X,4] b:f32[4,16@Y]. let", "    c:f32[8@X,16@Y] = dot_general["]
    loop = jaxpr_of(lambda c, xs: mj.lax.scan(lambda c, x: (c * x, x.sum()), c, xs), placed((8,), "X"), placed((3, 8), None, "X"))
    assert "jaxpr={ lambda ; e:f32[8@X] f:f32[8@X]. let" in str(loop)
    inside = jaxpr_of(lambda x: mj.jit(lambda y: mnp.cos(y).T)(x) + 1, placed((8, 4), "X"))
    assert "jaxpr={ lambda ; a:f32[8@X,4]. let" in str(inside) and "transpose[permutation=(1, 0)] c" in str(inside)
    assert [str(a) for a in inside.out_avals] == ["float32[4,8@X]"]


def test_types_of_a_jaxpr_outside_of_explicit_axes_say_nothing() -> None:
    mixed = mj.make_jaxpr(mnp.sin)(placed((8, 4), "X", "Y", mesh=MIXED))
    assert str(mixed) == "{ lambda ; a:f32[8@X,4]. let b:f32[8@X,4] = sin a in (b,) }"
    auto = mj.make_mesh((4, 2), ("X", "Y"), axis_types=(AxisType.Auto,) * 2)
    assert str(mj.make_jaxpr(mnp.sin)(placed((8, 4), "X", mesh=auto))) == "{ lambda ; a:f32[8,4]. let b:f32[8,4] = sin a in (b,) }"


def test_a_jaxpr_with_other_equations_keeps_its_constraints() -> None:
    x, w = placed((8, 4), "X"), placed((4, 16), None, "Y")
    with mj.set_mesh(MESH):
        closed = mj.make_jaxpr(lambda x, w: mnp.sin(x @ w))(x, w)
        for eqns in (closed.eqns, [e.replace(primitive=mj.lax.cos_p) if e.primitive is mj.lax.sin_p else e for e in closed.eqns]):
            again = closed.jaxpr.replace(eqns=eqns)
            (result,) = mj.core.eval_jaxpr(again, closed.consts, x, w)
            assert result.sharding.spec == P("X", "Y") and [str(a) for a in again.out_avals] == ["float32[8@X,16@Y]"]
        np.testing.assert_allclose(result, np.cos(np.asarray(x) @ np.asarray(w)), rtol=1e-5)


def test_outside_of_jit_operands_on_meshes_of_other_axes_are_refused() -> None:
    """Else the result would be of the first one's axes; inside of jit two meshes are refused, too."""
    x = placed((8,), "X")
    other = mj.make_mesh((8,), ("Z",), axis_types=AxisType.Explicit)
    for y in (placed((8,), "Z", mesh=other), placed((8,), mesh=other), placed((8,), "Z", mesh=Mesh(other.devices, ("Z",)))):
        for pair in ((x, y), (y, x)):
            with pytest.raises(ValueError, match=r"(?s)^add at test_explicit_types.*two meshes.*one operand.*another.*fix: put one"):
                mnp.add(*pair)
        assert (x + mj.device_put(y, x.sharding)).sharding == x.sharding
    assert (x + np.ones(8, np.float32)).sharding == x.sharding
