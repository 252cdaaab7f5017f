"""meshjit.verify: every value compared; the first wrong equation named with its line; rounding told from mistakes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.cli import main
from meshjit.core.program import Builder
from meshjit.core.types import TensorType
from meshjit.inspect.comparison import difference, magnitudes
from meshjit.inspect.running import ReplicasDiffer, assemble
from meshjit.inspect.verification import VerificationError
from meshjit.inspect.verify import _Verifier, run_partitioned, run_whole
from meshjit.ops.base.arithmetic import add, subtract
from meshjit.ops.base.reduction import reduce_sum
from meshjit.plan.make import Annotations, make_plan
from sharding import AbstractMesh, PartitionSpec as P, Placement
from tests.tools.broken import broken, passthrough

X = np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)


def model(w, x):
    hidden = mnp.tanh(x @ w)
    total = mnp.cumsum(hidden, axis=0)
    return (mj.nn.softmax(total) * x[:, :5]).sum()


@pytest.fixture(scope="module")
def mesh():
    return mj.make_mesh((4, 2), ("x", "y"))


def shardings(mesh):
    return mj.NamedSharding(mesh, P(None, "y")), mj.NamedSharding(mesh, P("x"))


# --- what agrees ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("simulate", [True, False])
def test_a_right_program_agrees(mesh, simulate):
    found = mj.verify(mj.value_and_grad(model), W, X, in_shardings=shardings(mesh), simulate=simulate)
    how = "simulated" if simulate else "run"
    first = str(found).splitlines()[0]
    assert first == f"jit(model) on Mesh('x': 4, 'y': 2), {how} on 8 devices: {found.values} values ({found.elements:,} elements) agree"
    assert found.values > 20 and not found.drifted and 0 < found.largest_error < 1e-4
    assert found.worst is not None and "test_verify.py:" in str(found)


def test_meshes_without_devices_are_simulated():
    found = mj.verify(model, W, X, in_shardings=(P(None, "y"), P("x")), mesh=AbstractMesh((16, 4), ("x", "y")))
    assert found.simulated and found.mesh.size == 64


def test_code_for_single_devices_is_held_to_its_meaning(mesh):
    """One device cannot run it: NumPy says what it means."""
    spec = P(mesh.axis_names[0])

    def step(x):
        return x + mj.lax.pmean(mnp.sin(x), mesh.axis_names[0])

    def f(x):
        return mj.lax.scan(lambda c, _: (mj.shard_map(step, mesh=mesh, in_specs=spec, out_specs=spec)(c), None), x, length=2)[0] * 2

    report = mj.verify(mj.jit(f), np.ones((8, 3), np.float32))
    assert "agree" in str(report)


def test_jitted_functions_keep_their_statics_and_captured_arrays(mesh):
    weights = mj.device_put(W, shardings(mesh)[0])

    @mj.jit(static_argnames="power")
    def fun(x, power):
        return ((x @ weights) ** power).sum(0)

    assert mj.verify(fun, X, power=2).values >= 3
    with pytest.raises(ValueError, match="the function is jitted already\n  fix: give the shardings to jit"):
        mj.verify(fun, X, power=2, in_shardings=(P(),))


def test_one_device_says_that_nothing_is_partitioned():
    assert str(mj.verify(lambda x: x + 1, X)).endswith(
        "that proves nothing: on one device nothing is partitioned; name a mesh by in_shardings, mesh= or placed arguments"
    )


def test_what_cannot_be_run_is_refused(mesh):
    abstract = AbstractMesh((4,), ("x",))
    with pytest.raises(ValueError, match=r"AbstractMesh\('x': 4\) has no devices\n  fix: verify\(\.\.\., simulate=True\)"):
        mj.verify(lambda x: x, X, in_shardings=(P("x"),), mesh=abstract, simulate=False)
    with pytest.raises(TypeError, match="verify: argument x is a ShapeDtypeStruct\n  fix: pass an array"):
        mj.verify(lambda x: x, mj.ShapeDtypeStruct((4,), np.float32))


# --- what differs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("simulate", [True, False])
def test_a_broken_rule_is_named_with_its_line(mesh, simulate):
    with broken("cumsum", factor_rule=passthrough, partition=None), pytest.raises(VerificationError) as caught:
        mj.verify(mj.value_and_grad(model), W, X, in_shardings=shardings(mesh), simulate=simulate)
    line = model.__code__.co_firstlineno + 2
    text = str(caught.value).splitlines()
    assert caught.value.eqn is not None and caught.value.eqn.op.name == "cumsum"
    assert text[0].startswith("jit(model) on Mesh('x': 4, 'y': 2) differs from one device, first at equation ")
    assert text[1].startswith(f"  test_verify.py:{line} model: %") and "= cumsum(" in text[1]
    assert text[2:4] == [
        "  its operands were brought to f32[10,5] at [x, y]",
        "  its rule a b -> a b was spread as a: x, b: y",
    ]
    assert text[4].startswith("  element [") and text[4].endswith("of 50 elements differ")


def _deep(ws, x):
    return mj.lax.scan(lambda c, _: (mnp.sin(3 * (mnp.cumsum(c, 1) @ ws)), None), x, None, length=4)[0]


def _deep_arguments():
    rng = np.random.default_rng(0)
    ws, x = rng.normal(size=(16, 16)) * 0.05, rng.normal(size=(8, 16))
    placed = {"in_shardings": (P("x"), P(None, "x")), "mesh": AbstractMesh((4,), ("x",))}
    return (ws.astype(ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16)), placed


def test_rounding_that_a_loop_makes_larger_is_no_mistake():
    arguments, placed = _deep_arguments()
    assert len(mj.verify(_deep, *arguments, **placed).drifted) == 1


def test_a_mistake_in_a_loop_that_makes_rounding_larger_is_found():
    arguments, placed = _deep_arguments()
    with broken("cumsum", factor_rule=passthrough, partition=None), pytest.raises(VerificationError, match=r"= cumsum\("):
        mj.verify(_deep, *arguments, **placed)


def test_a_broken_rule_inside_of_a_loop_is_named(mesh):
    def fun(ws, x):
        def body(h, w):
            return mnp.cumsum(mnp.tanh(h @ w), axis=0), h.sum()

        return mj.lax.scan(body, x, ws)[0] * 2

    ws = np.random.default_rng(5).normal(size=(3, 6, 6)).astype(np.float32)
    with broken("cumsum", factor_rule=passthrough, partition=None), pytest.raises(VerificationError) as caught:
        mj.verify(fun, ws, X, in_shardings=(mj.NamedSharding(mesh, P()), mj.NamedSharding(mesh, P("x"))))
    first, line = fun.__code__.co_firstlineno, str(caught.value).splitlines()
    assert line[0].startswith(f"jit(fun), inside of scan at test_verify.py:{first + 4} ")
    assert line[1].startswith(f"  test_verify.py:{first + 2} ") and "= cumsum(" in line[1]


def test_a_wrong_linearity_is_found():
    def fun(a, b, c):
        return mnp.maximum(a @ b, a @ c)

    with broken("maximum", linear=((0, 1),)), pytest.raises(VerificationError, match="= maximum"):
        mj.verify(fun, X.T, X, -X, in_shardings=(P(None, "x"), P("x"), P("x")), mesh=AbstractMesh((4,), ("x",)))


def _plan(body, shape=(6,), spec=None, size=4):
    with Builder("test") as builder:
        program = builder.build([body(builder.input(TensorType(shape, np.dtype(np.float32))))])
    return make_plan(program, AbstractMesh((size,), ("x",)), Annotations([spec or P("x")], [None]))


def test_values_that_follow_their_operands_are_no_mistakes():
    plan = _plan(lambda x: add(add(x, x), x))
    x = np.arange(6, dtype=np.float32)
    whole, shards = run_whole(plan.program, [x], None), run_partitioned(plan, [x], on_devices=False)
    first = plan.program.eqns[0].outputs[0]
    whole[first] = whole[first] + np.float32(1)  # as if one device had rounded otherwise
    found = _Verifier("f", plan, [x], whole, shards, True, 1.0).run()
    assert [f.number for f in found.drifted] == [0]
    assert "1 of them only follow operands that rounding set apart; the first:" in str(found)


def test_partial_sums_that_cancel_are_no_mistakes():
    """4096 addends of either sign: what is left of them is rounding, and differs between one device and eight."""
    x = np.random.default_rng(3).normal(size=(4096, 8)).astype(np.float32) * 1e4
    x = np.concatenate([x, -x[::-1]])
    found = mj.verify(lambda x: x.sum(0) * 0.25, x, in_shardings=(P("x"),), mesh=AbstractMesh((8,), ("x",)))
    assert found.values == 3


def test_results_that_are_moved_wrongly_are_named():
    plan = _plan(lambda x: reduce_sum(x, axes=(0,)))
    x = np.arange(6, dtype=np.float32)
    whole, shards = run_whole(plan.program, [x], None), run_partitioned(plan, [x], on_devices=False)
    shards.outputs[0][1][3] = np.float32(-1)
    with pytest.raises(VerificationError, match=r"result 0 at \[\]: device 3 holds another replica"):
        _Verifier("f", plan, [x], whole, shards, True, 1.0).run()


def test_results_that_xla_rounds_otherwise_are_mentioned():
    plan = _plan(lambda x: add(x, x), shape=(1000,))
    x = np.arange(1000, dtype=np.float32)
    whole, shards = run_whole(plan.program, [x], None), run_partitioned(plan, [x], on_devices=False)
    placement, blocks = shards.outputs[0]
    other = [b.copy() for b in blocks]
    other[2][:10] += 1
    shards.usual.append((placement, other))
    text = str(_Verifier("f", plan, [x], whole, shards, True, 1.0).run())
    assert "1 results are rounded otherwise without values in between; result 0: [500] is 1001.0 instead of 1000.0; 10 of 1000" in text
    other[3][:10] += 1
    with pytest.raises(VerificationError, match="as result 0 of the program without values in between, which XLA compiles"):
        _Verifier("f", plan, [x], whole, shards, True, 1.0).run()


# --- comparing --------------------------------------------------------------------------------------------------------


def test_nan_and_infinity_equal_themselves():
    values = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert difference(values, values).agrees and difference(values, values).error == 0
    for i, other in enumerate([1.0, -np.inf, np.nan, np.nan]):
        got = values.copy()
        got[i] = other
        found = difference(got, values)
        assert (found.index, found.count, found.error) == ((i,), 1, np.inf)


@pytest.mark.parametrize(("dtype", "close", "far"), [("float32", 1e-5, 1e-3), ("float64", 1e-12, 1e-7), (ml_dtypes.bfloat16, 1e-2, 0.2)])
def test_tolerances_depend_on_the_dtype(dtype, close, far):
    want = np.linspace(1, 2, 12).reshape(3, 4).astype(dtype)
    assert difference((want.astype(np.float64) * (1 + close)).astype(dtype), want).agrees
    assert difference((want.astype(np.float64) * (1 + far)).astype(dtype), want).count == 12
    assert difference((want.astype(np.float64) * (1 + far)).astype(dtype), want, tolerance=1000).agrees


def test_large_elements_do_not_hide_small_ones():
    want = np.array([1e9, 1.0, 2.0, 3.0], np.float32)
    found = difference(want + np.array([0, 0.1, 0, 0], np.float32), want)
    assert (found.index, found.count) == ((1,), 1)
    assert str(found) == "[1] is 1.1 instead of 1.0; 1 of 4 elements differ"


def test_integers_bools_and_empty_arrays():
    assert difference(np.array([1, 2]), np.array([1, 3])).index == (1,)
    assert difference(np.array(True), np.array(True)).agrees
    assert not difference(np.array(True), np.array(False)).agrees
    assert difference(np.zeros((0, 3)), np.zeros((0, 3))).agrees


def test_sums_that_cancel_are_measured_by_their_terms():
    with Builder("test") as builder:
        x = [builder.input(TensorType((3,), np.dtype(np.float32))) for _ in range(2)]
        program = builder.build([subtract(*x)])
    (eqn,) = program.eqns
    a = np.array([1e6, 1.0, -2.0], np.float32)
    (sizes,) = magnitudes(eqn, [a, a], [None, None])
    assert sizes.tolist() == [2e6, 2.0, 4.0]
    assert magnitudes(eqn, [a, a], [np.abs(a) * 3, None])[0].tolist() == [4e6, 4.0, 8.0]
    got = np.array([0.5, 0.0, 0.0], np.float32)
    assert difference(got, a - a, sizes).agrees and not difference(got, a - a).agrees


def test_assembling_adds_addends_and_compares_replicas():
    mesh = AbstractMesh((2, 2), ("x", "y"))
    addends = [np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 9.0]), np.array([6.0, 9.0])]
    assert assemble(addends, Placement((("x",),), (("y", "sum"),)), (3,), mesh).tolist() == [4.0, 6.0, 11.0]
    assert assemble(addends, Placement((("x",),), (("y", "max"),)), (3,), mesh).tolist() == [3.0, 4.0, 6.0]
    replicated = [np.array([1.0, 2.0])] * 3 + [np.array([1.0, 7.0])]
    with pytest.raises(ReplicasDiffer, match="device 3"):
        assemble(replicated, Placement(((),)), (2,), mesh)
    assert assemble(replicated, Placement((("y",),)), (3,), mesh).tolist() == [1.0, 2.0, 1.0]  # 7 is padding


# --- the command ------------------------------------------------------------------------------------------------------

SCRIPT = """
import numpy as np, meshjit as mj, meshjit.numpy as mnp
mesh = mj.make_mesh((4,), ("x",))
x = mj.device_put(np.ones((10, 3), np.float32), mj.NamedSharding(mesh, mj.P("x")))
@mj.jit
def step(x):
    return mnp.cumsum(x, 0)
@mj.jit
def other(x):
    return x + 1
for _ in range(2):
    x = step(x)
other(x)
"""


def test_the_command_checks_what_a_script_jits(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    assert main(["verify", str(path)]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("jit")] == [
        "jit(step) on Mesh('x'", "jit(other) on Mesh('x'"
    ]  # fmt: skip
    assert main(["verify", f"{path}:nothing"]) == 1
    assert "calls no jitted function named nothing" in capsys.readouterr().err
    with broken("cumsum", factor_rule=passthrough, partition=None):
        assert main(["verify", f"{path}:step"]) == 1
    assert "script.py:7 step: %1: f32[10@x, 3] = cumsum(%x)" in capsys.readouterr().err


def test_addends_are_added_in_their_own_dtype() -> None:
    """A product in bfloat16 over a sharded dim, then float32: what was rounded as bfloat16 is not the conversion's fault."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((203, n)).astype(ml_dtypes.bfloat16) for n in (16, 5))
    rows = mj.NamedSharding(AbstractMesh((4,), ("x",)), P("x", None))
    assert mj.verify(lambda a, b: mnp.tanh((a.T @ b).astype(np.float32)), a, b, in_shardings=(rows, rows))


def test_loops_are_as_exact_as_what_is_inside() -> None:
    """Sums in bfloat16 inside of a loop whose carry is float32."""
    a = (0.1 * np.random.default_rng(0).standard_normal((203, 16))).astype(ml_dtypes.bfloat16)
    rows = mj.NamedSharding(AbstractMesh((4,), ("x",)), P("x", None))

    def fun(a: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return c - 0.1 * ((a @ c.astype(a.dtype)) @ a).astype(np.float32), None

        return mj.lax.scan(step, mnp.ones(16, np.float32), None, length=4)[0]

    assert mj.verify(fun, a, in_shardings=(rows,))
