"""auto and AUTO: results like jit's, states that come back as they went in, the mesh chosen, errors word for word."""

from __future__ import annotations

import gc
import inspect
import itertools
import json
import re
import time
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.api.call import Automatic
from meshjit.api.mesh_choice import finer_meshes
from meshjit.core.decision import parse_decisions
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.task import Task
from meshjit.sharding import AUTO, AbstractMesh, NamedSharding, PartitionSpec as P
from sharding.spec import placement_of, spec_of

WIDTH, ROWS = 48, 100


def line_here() -> int:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def loss(weights: Any, x: Any) -> Any:
    for w in weights:
        x = mnp.tanh(mnp.dot(x, w))
    return mnp.mean(x**2)


def step(weights: Any, x: Any) -> Any:
    value, gradients = mj.value_and_grad(loss)(weights, x)
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], value


def arguments() -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    weights = [generator.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8 for _ in range(6)]
    return weights, generator.standard_normal((ROWS, WIDTH)).astype(np.float32)


def planned(fun: Any, *args: Any) -> Any:
    return fun.trace(*args).plan().plan


@pytest.mark.device
@pytest.mark.parametrize("how", ["devices", "mesh", "AUTO"])
def test_two_steps_give_what_one_device_gives(how: str) -> None:
    mesh = mj.make_mesh((4, 2), ("a", "b"))
    automatic = {
        "devices": lambda: mj.auto(step, devices=8),
        "mesh": lambda: mj.auto(step, mesh=mesh),
        "AUTO": lambda: mj.jit(step, in_shardings=AUTO(mesh), out_shardings=AUTO),
    }[how]()
    weights, x = arguments()
    moved, _ = automatic(weights, x)
    got = automatic(moved, x)
    want = step(step(weights, x)[0], x)
    for a, b in zip(mj.tree.leaves(got), mj.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)
    plan = planned(automatic, weights, x)
    assert plan.outputs[:3] == plan.inputs[:3]  # the state comes back as it went in
    assert plan.optimum is not None and plan.optimum.is_optimal
    assert str(plan.optimum).endswith(" ms, optimal")


@pytest.mark.device
def test_a_mesh_alone_asks_for_the_search_where_the_option_is_on() -> None:
    """By default it does what JAX does. What is said otherwise stays."""
    mesh, (weights, x) = mj.make_mesh((4, 2), ("a", "b")), arguments()
    plain = mj.jit(step)
    with mesh, mj.config.using(automatic=True):
        moved, first = plain(weights, x)
        _, second = plain(moved, x)  # arrays that are committed to the mesh are pins
        plan = planned(plain, weights, x)
        placed = mj.jit(step, in_shardings=(None, NamedSharding(mesh, P("a"))))
        assert planned(placed, weights, x).optimum is None
        assert planned(mj.jit(step), [mj.device_put(w, mj.devices()[0]) for w in weights], x).optimum is None
    assert plan.optimum is not None and moved[0].sharding.is_equivalent_to(NamedSharding(mesh, spec_of(plan.outputs[0])), 2)
    with mesh:
        assert planned(plain, weights, x).optimum is None
    with mj.config.using(automatic=True):
        assert planned(plain, weights, x).optimum is None
    explicit = mj.make_mesh((8,), ("a",), axis_types=(mj.sharding.AxisType.Explicit,))
    with mj.set_mesh(explicit), mj.config.using(automatic=True):
        assert planned(mj.jit(lambda x: x * 2), x).optimum is None
    want, value = step(weights, x)
    np.testing.assert_allclose([float(first), float(second)], [float(value), float(step(want, x)[1])], rtol=1e-4)


def test_inside_of_another_function_nothing_is_chosen_and_a_warning_says_so() -> None:
    mesh = mj.make_mesh((8,), ("x",))
    x = np.ones((8, 8), np.float32)
    inner = mj.auto(lambda x: mnp.sum(x @ x), mesh=mesh)
    text = r"jit\(lambda\) is to be placed automatically, but .* the mesh is not used\n  fix: .* auto\(grad\(f\)\) for grad"
    for outer in (mj.jit(lambda x: inner(x) + 1), mj.grad(inner)):
        with pytest.warns(UserWarning, match=text) as warned:
            outer(x)
        assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mj.auto(mj.grad(inner), mesh=mesh).trace(x)
        mj.jit(lambda x: inner(x) + 1, in_shardings=AUTO(mesh)).trace(x)


@pytest.mark.device
def test_arguments_by_keyword_empty_arrays_loops_and_callbacks() -> None:
    mesh = mj.make_mesh((4, 2), ("a", "b"))
    x = np.arange(35, dtype=np.float32).reshape(7, 5)
    assert float(mj.auto(lambda x, y: mnp.sum(x * y), mesh=mesh)(x, y=x)) == float(np.sum(x * x))
    assert mj.auto(lambda x: mnp.sum(x @ x.T, 0), mesh=mesh)(np.zeros((0, 5), np.float32)).shape == (0,)

    def loop(x: Any) -> Any:
        return mj.lax.while_loop(lambda c: c[1] < 3, lambda c: (mnp.tanh(c[0] @ c[0].T @ c[0] / 100), c[1] + 1), (x, 0))[0]

    np.testing.assert_allclose(np.asarray(mj.auto(loop, mesh=mesh)(x)), np.asarray(loop(x)), rtol=1e-4)
    nested = mj.auto(lambda x: mj.auto(lambda y: y @ y.T, mesh=mesh)(x) + 1, mesh=mesh)
    np.testing.assert_allclose(np.asarray(nested(x)), x @ x.T + 1)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("mesh", [AbstractMesh((2, 2), ("a", "b")), AbstractMesh((2, 2, 2), ("a", "b", "c"))], ids=str)
def test_a_loop_that_never_runs(mesh: AbstractMesh) -> None:
    """0 times what is forbidden was no number, in the tables of the search."""

    def loop(x: Any, ys: Any) -> Any:
        return mj.lax.scan(lambda c, y: (mnp.cumsum(c, 0) @ mnp.tanh(y).T @ y, mnp.sum(c)), x, ys)

    plan = planned(mj.auto(loop, mesh=mesh), np.ones((8, 6), np.float32), np.ones((0, 6, 6), np.float32))
    assert str(plan.optimum) == "0 ms, optimal"


@pytest.mark.device
def test_what_is_placed_stays() -> None:
    mesh = mj.make_mesh((4, 2), ("a", "b"))
    weights, x = arguments()
    pinned = mj.auto(step, mesh=mesh, in_shardings=(AUTO, NamedSharding(mesh, P("a"))))
    assert str(planned(pinned, weights, x).inputs[-1]) == "[a, -]"
    committed = mj.device_put(x, NamedSharding(mesh, P("b")))
    assert str(planned(mj.auto(step, mesh=mesh), weights, committed).inputs[-1]) == "[b, -]"


SQUARE = AbstractMesh((4, 2), ("x", "y"))


@pytest.mark.parametrize("how", [{"mesh": SQUARE}, {"devices": 8}, {"topology": "v5e:4x2"}], ids=str)
@pytest.mark.parametrize(
    ("ins", "outs"),
    [
        ((P("x"), P()), P("x")),
        ((P("x"), AUTO), P("x")),
        ((P("x"), None), AUTO),
        ((P(("x", "y")), AUTO), None),
        (AUTO, AUTO),
        (None, P("y")),
    ],
    ids=str,
)
def test_what_is_placed_stays_on_both_sides(how: dict[str, Any], ins: Any, outs: Any) -> None:
    """With both given, specs and AUTO were said to have no mesh."""
    types = {"a": mj.ShapeDtypeStruct((64, 32), np.float32)}, mj.ShapeDtypeStruct((32, 16), np.float32)
    ins = ({"a": ins[0]}, ins[1]) if isinstance(ins, tuple) else ins
    planned = mj.auto(lambda p, w: p["a"] @ w, in_shardings=ins, out_shardings=outs, **how).trace(*types).plan()
    asked = [] if not isinstance(ins, tuple) else [(ins[0]["a"], planned.plan.inputs[0]), (ins[1], planned.plan.inputs[1])]
    for spec, place in [*asked, (outs, planned.plan.outputs[0])]:
        assert not isinstance(spec, P) or place == placement_of(spec, 2)
    assert planned.plan.optimum is not None and planned.mesh.size == 8


def test_specs_choose_among_meshes_of_so_many_devices() -> None:
    types = mj.ShapeDtypeStruct((64, 32), np.float32)
    assert "y" in mj.auto(lambda x: x + 1, devices=8, in_shardings=P("y")).trace(types).plan().mesh.axis_names
    with pytest.raises(mj.errors.ShardingError, match="jit\\(lambda\\): meshjit.auto is on AbstractMesh.* but in_shardings for x is on"):
        mj.auto(lambda x: x, mesh=SQUARE, in_shardings=NamedSharding(MESH, P("x"))).trace(types).plan()


def test_specs_of_a_function_that_is_called_in_another_are_on_its_mesh() -> None:
    """The error was that there is no mesh."""
    inner = mj.auto(lambda x: x + 1, mesh=SQUARE, in_shardings=P("x"), out_shardings=P("y"))
    types = mj.ShapeDtypeStruct((64, 32), np.float32)
    program = planned(mj.auto(lambda x: inner(x), mesh=SQUARE), types).program
    assert [e.params["spec"] for e in program.eqns if e.op.name == "sharding_constraint"] == [P("x", None), P("y", None)]


def test_more_devices_than_there_are_can_be_planned_for() -> None:
    weights, x = arguments()
    of = mj.auto(step, devices=9).trace(weights, x).plan()
    assert isinstance(of.mesh, AbstractMesh) and of.mesh.device_count == 9
    of = mj.auto(step, topology="v5e:2x4").trace(weights, x).plan()
    assert of.mesh.axis_sizes == (2, 4) and of.plan.target is not None and of.plan.target.topology.name == "tpu v5e"


def test_three_axes_are_tried_for_the_best_two() -> None:
    meshes = [mesh.axis_sizes for mesh in finer_meshes(AbstractMesh((4, 2), ("x", "y")))]
    assert meshes == [(2, 2, 2)]
    assert [*finer_meshes(AbstractMesh((8,), ("x",)))] == [] == [*finer_meshes(AbstractMesh((2, 2, 2), ("x", "y", "z")))]
    meshes = [mesh.axis_sizes for mesh in finer_meshes(AbstractMesh((2, 2, 8), ("x", "y", "z")))]
    assert meshes == [(2, 2, 2, 4), (2, 2, 4, 2)]
    concrete = mj.make_mesh((4, 2), ("a", "b"))
    (finer,) = finer_meshes(concrete)
    assert isinstance(finer, mj.sharding.Mesh) and [*finer.devices.flat] == [*concrete.devices.flat]


def test_more_axes_are_tried_while_they_gain_much(tmp_path: Any) -> None:
    """A state of dims of two is divided by no longer axis. The saved plan is for the mesh that was chosen."""

    def mirrored(state: Any) -> Any:
        return state + mnp.flip(state, 0)

    state = mj.ShapeDtypeStruct((2,) * 12, np.float32)
    of = mj.auto(mirrored, devices=32).trace(state).plan()
    assert of.mesh.shape == {"x": 2, "y": 2, "z": 2, "u": 2, "v": 2}
    of.plan.save(tmp_path / "plan.json")
    again = mj.auto(mirrored, devices=32, plan=tmp_path / "plan.json").trace(state).plan()
    assert again.mesh == of.mesh and again.plan.inputs == of.plan.inputs


def wide_step(weights: Any, x: Any) -> Any:
    return [w - g for w, g in zip(weights, mj.grad(loss)(weights, x), strict=True)]


MESH = AbstractMesh((8,), ("x",))
WIDE = [mj.ShapeDtypeStruct((512, 512), np.float32)] * 4, mj.ShapeDtypeStruct((8192, 512), np.float32)


def test_the_memory_is_a_limit() -> None:
    """Without one, data parallel; with one no slower than all parameters sharded and gathered again (ZeRO 3), which is what is left
    where layers are not computed again."""
    free = planned(mj.auto(wide_step, mesh=MESH), *WIDE)
    assert [str(p) for p in free.inputs] == ["[-, -]"] * 4 + ["[x, -]"] and free.optimum.is_optimal
    limit = 0.9 * free.cost.peak_bytes
    tight = planned(mj.auto(wide_step, mesh=MESH, memory=limit), *WIDE)
    rows = NamedSharding(MESH, P("x"))
    sharded = planned(mj.auto(wide_step, mesh=MESH, memory=limit, in_shardings=([rows] * 4, rows)), *WIDE)
    assert free.cost.seconds <= tight.cost.seconds <= sharded.cost.seconds
    assert all(plan.cost.peak_bytes <= limit and [str(p) for p in plan.inputs] != ["[-, -]"] * 5 for plan in (tight, sharded))
    gathers = [c for c in sharded.collectives if c.kind == "all_gather"]
    scatters = [c for c in sharded.collectives if c.kind == "reduce_scatter"]
    assert len(gathers) >= 4 and len(scatters) == 4 and len(gathers) + len(scatters) == len(sharded.collectives)


def mixture(params: Any, x: Any) -> Any:
    gate = mj.nn.softmax(x @ params["gate"])
    top, places = mj.lax.top_k(gate, 2)
    shares = (mj.nn.one_hot(places, 10) * top[..., None]).sum(1)
    hidden = mj.nn.gelu(mnp.einsum("td,edf->etf", x, params["up"]))
    out = mnp.einsum("etf,efd->etd", hidden, params["down"])
    return mnp.mean((mnp.einsum("etd,te->td", out, shares) - x) ** 2)


def test_a_limit_above_what_the_best_plan_holds_changes_nothing() -> None:
    """Descents end at plans that hold more, and the effort of the proof, which finds the best one, was too little where none fits:
    the plan that was taken took twice as long."""
    shapes = {"gate": (1024, 10), "up": (10, 1024, 4096), "down": (10, 4096, 1024)}
    params = {name: mj.ShapeDtypeStruct(shape, np.float32) for name, shape in shapes.items()}

    def step(params: Any, x: Any) -> Any:
        value, gradients = mj.value_and_grad(mixture)(params, x)
        return mj.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    arguments = params, mj.ShapeDtypeStruct((8192, 1024), np.float32)
    free = planned(mj.auto(step, topology="v5e:4x4"), *arguments)
    tight = planned(mj.auto(step, topology="v5e:4x4", memory=1.01 * free.cost.peak_bytes), *arguments)
    assert tight.cost.seconds == free.cost.seconds and free.optimum.is_optimal and tight.optimum.is_optimal


def residual(weights: Any, x: Any) -> Any:
    for w in weights:
        x = x + mj.nn.gelu(mnp.dot(x, w))
    return mnp.mean(x**2)


def residual_step(weights: Any, x: Any) -> Any:
    value, gradients = mj.value_and_grad(residual)(weights, x)
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], value


LONG = [mj.ShapeDtypeStruct((256, 256), np.float32)] * 6, mj.ShapeDtypeStruct((32768, 256), np.float32)


def test_layers_are_computed_again_where_memory_is_short(tmp_path: Any) -> None:
    """Batches are sharded already, and weights are small: what is held are activations. The plan says so, and is kept."""
    free = planned(mj.auto(residual_step, mesh=MESH), *LONG)
    limit = 0.8 * free.cost.peak_bytes
    tight = planned(mj.auto(residual_step, mesh=MESH, memory=limit), *LONG)
    assert tight.cost.peak_bytes <= limit and free.cost.seconds < tight.cost.seconds < 1.1 * free.cost.seconds
    assert tight.inputs[-1] == free.inputs[-1] and not tight.optimum.is_optimal
    least = planned(mj.auto(residual_step, mesh=MESH, memory=0.6 * free.cost.peak_bytes), *LONG)
    assert least.cost.peak_bytes <= 0.6 * free.cost.peak_bytes and least.cost.seconds < 1.35 * free.cost.seconds
    (decision,) = [d for d in tight.decisions if d.kind == "try" and d.choice == "kept"]
    line = residual.__code__.co_firstlineno + 2
    assert decision.subject.startswith(f"compute the first 2 of 3 sections of line {line} again in the backward pass, not keep ")
    assert decision.because[0].startswith("memory is short, and the peak holds ")
    assert parse_decisions(str(decision)) == [decision]
    path = tmp_path / "plan.json"
    tight.save(path)
    again = planned(mj.auto(residual_step, mesh=MESH, plan=path), *LONG)  # within the memory that it was made for
    assert str(again) == str(tight) and again.collectives == tight.collectives


@pytest.mark.device
def test_what_is_computed_again_has_the_same_values() -> None:
    mesh = mj.make_mesh((8,), ("x",))
    generator = np.random.default_rng(0)
    weights = [generator.standard_normal((32, 32)).astype(np.float32) / 8 for _ in range(3)]
    x = generator.standard_normal((1000, 32)).astype(np.float32)
    free = planned(mj.auto(residual_step, mesh=mesh), weights, x)
    tight = mj.auto(residual_step, mesh=mesh, memory=0.9 * free.cost.peak_bytes).trace(weights, x).plan()
    assert [d for d in tight.plan.decisions if d.subject.startswith("compute ") and d.choice == "kept"]
    got, want = tight.lower().compile()(weights, x), mj.jit(residual_step)(weights, x)
    for mine, its in zip(mj.tree.leaves(got), mj.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(its), rtol=1e-5, atol=1e-6)


def test_nothing_fits() -> None:
    with pytest.raises(ValueError) as raised:
        planned(mj.auto(wide_step, mesh=MESH, memory=12e6), *WIDE)
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("wide_step: no plan was found that holds at most 12,000,000 bytes a device; the least that one was found to hold is 12,713,984")
    line = loss.__code__.co_firstlineno + 2
    assert lines[1] == f"  that was not enough: compute all 3 sections of line {line} again in the backward pass, not keep 6,291,456 bytes"
    layer = r"  at the peak 2,097,152 bytes: (optimization_barrier|multiply|dot_general) at test_automatic_api.py:\d+ loss \((again|backward)\) float32\[8192@x, 512\]"
    assert sum(re.fullmatch(layer, line) is not None for line in lines[1:-1]) == 4
    assert lines[-1].startswith("  fix: 16 devices, {'x': 16} (tried: ")
    assert re.search(r", or memory=12713984, or a half of the batch, x f32\[4096,512\] \(tried: [\d,]+ bytes\)$", lines[-1])


@pytest.mark.parametrize(
    ("rows", "memory", "part"),
    [(8192, 3e6, "a half of the batch, x f32[4096,64]"), (8192, 1.2e6, "an eighth of"), (8191, 3e6, ""), (8192, 1e4, "")],
)
def test_the_largest_part_of_the_batch_that_fits_is_tried(rows: int, memory: float, part: str) -> None:
    """Arguments that no result replaces, with one leading extent; the function must be one that can be traced so."""
    types = [mj.ShapeDtypeStruct(shape, np.float32) for shape in ((64, 64), (rows, 64), (rows, 64))]

    def step(w: Any, x: Any, y: Any) -> Any:
        return w - mj.grad(lambda w: mnp.sum((mnp.tanh(x @ w) @ w - y) ** 2))(w)

    with pytest.raises(ValueError, match="no plan was found") as raised:
        planned(mj.auto(step, mesh=AbstractMesh((2,), ("x",)), memory=memory), *types)
    tried = re.search(r", or (\w+ \w+ of the batch.*) \(tried: ([\d,]+) bytes\)$", str(raised.value))
    assert bool(tried) is bool(part) and (tried is None or (tried[1].startswith(part) and float(tried[2].replace(",", "")) <= memory))


def test_compiled_code_does_not_keep_the_function_alive() -> None:
    """What was traced does, to trace it again."""
    function = mj.jit(lambda x: x * 2)
    traced = function.trace(np.ones(8, np.float32))
    compiled, alive = traced.lower().compile(), weakref.ref(function)
    del function
    assert alive() is not None
    del traced
    gc.collect()
    assert alive() is None and float(compiled(np.ones(8, np.float32))[0]) == 2


def test_a_batch_of_which_no_part_can_be_traced_is_not_offered() -> None:
    def step(w: Any, x: Any) -> Any:
        return w - mj.grad(lambda w: mnp.sum(mnp.tanh(x.reshape(8192, 64) @ w) ** 2))(w)

    types = [mj.ShapeDtypeStruct(shape, np.float32) for shape in ((64, 64), (8192, 64))]
    with pytest.raises(ValueError, match=r"or memory=\d+$"):
        planned(mj.auto(step, mesh=AbstractMesh((2,), ("x",)), memory=1.2e6), *types)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many devices each of the meshes has on which a refusal tries what would fit."""
    devices, original = list[int](), Task.briefly

    def counted(task: Task, mesh: Any = None, **others: Any) -> Any:
        devices.extend([] if mesh is None else [mesh.device_count])
        return original(task, mesh=mesh, **others)

    monkeypatch.setattr(Task, "briefly", counted)
    return devices


def test_of_several_meshes_the_one_that_holds_least_says_what_would_fit(tried: list[int]) -> None:
    """Each of them tried to donate, and more devices, and all but one for nothing."""
    with pytest.raises(ValueError, match=r"\n  fix: 16 devices, \{.*\} \(tried: [\d,]+ bytes\), or memory=\d+, or a half of"):
        planned(mj.auto(wide_step, devices=8, memory=12e6), *WIDE)
    assert tried == [8, 16]


def test_what_inputs_alone_do_not_fit_is_not_tried(tried: list[int]) -> None:
    with pytest.raises(ValueError, match=r"\n  fix: memory=\d+; smaller batches .* \(8 times the devices do not suffice\)$"):
        planned(mj.auto(wide_step, mesh=MESH, memory=1000), *WIDE)
    assert tried == []


def adam_step(state: Any, x: Any) -> Any:
    weights, means, squares = state
    value, gradients = mj.value_and_grad(residual)(weights, x)
    means = [0.9 * m + 0.1 * g for m, g in zip(means, gradients, strict=True)]
    squares = [0.9 * s + 0.1 * g * g for s, g in zip(squares, gradients, strict=True)]
    weights = [w - 0.1 * m / mnp.sqrt(s + 1e-6) for w, m, s in zip(weights, means, squares, strict=True)]
    return (weights, means, squares), value


STATE = ([mj.ShapeDtypeStruct((1024, 1024), np.float32)] * 3,) * 3, mj.ShapeDtypeStruct((64, 1024), np.float32)


def test_a_state_that_nobody_donates_is_there_twice() -> None:
    """XLA holds an argument that is not donated to the end: 14 MB of state on 8 devices, and as much in results."""
    kept, donated = (planned(mj.auto(adam_step, mesh=MESH, donate_argnums=each), *STATE) for each in ((), 0))
    state = 9 * 4 * 1024 * 1024 // 8
    assert kept.cost.peak_bytes > 2 * state and state < donated.cost.peak_bytes < kept.cost.peak_bytes - state / 2


def test_to_donate_is_the_fix_where_that_suffices() -> None:
    donated = planned(mj.auto(adam_step, mesh=MESH, donate_argnums=0), *STATE)
    with pytest.raises(ValueError) as raised:
        planned(mj.auto(adam_step, mesh=MESH, memory=donated.cost.peak_bytes), *STATE)
    assert "\n  at the peak 524,288 bytes: argument state[0][0] float32[" in str(raised.value)
    fix = re.search(r"\n  fix: donate argument state \(tried: ([\d,]+) bytes\)$", str(raised.value))
    assert fix is not None and float(fix[1].replace(",", "")) <= donated.cost.peak_bytes


def test_where_nothing_fits_arguments_have_their_paths() -> None:
    """They were p_layers_0_down."""
    arguments_ = {"layers": [{"down": WIDE[0][0], "up": WIDE[0][1]}]}, mj.ShapeDtypeStruct((64, 512), np.float32)

    def function(p: Any, x: Any) -> Any:
        return mnp.sum(x @ p["layers"][0]["down"] @ p["layers"][0]["up"])

    with pytest.raises(ValueError, match=r"at the peak 131,072 bytes: argument p\['layers'\]\[0\]\['down'\] float32\[512"):
        planned(mj.auto(function, mesh=MESH, memory=2e4), *arguments_)


def test_decisions_say_how_good_the_plan_is() -> None:
    first = planned(mj.auto(wide_step, mesh=MESH), *WIDE).decisions[0]
    assert str(first).splitlines()[:3] == [
        "search wide_step: 315.1 ms, optimal",
        "  because 1 plan was priced in full; no further choice can be cheaper",
        "  because on this mesh none takes less than 315.1 ms, of plans over whole axes that compute nothing again; loops of "
        "long programs in blocks, and rewrites of some equations, are tried on a few of them",
    ]
    assert parse_decisions(str(first)) == [first]


def test_why_tells_what_the_search_found() -> None:
    """It said "from planning chose it for this equation", of an argument, and no reason."""
    report = mj.auto(wide_step, mesh=MESH).trace(*WIDE).plan().report()
    assert str(report.why("x")).splitlines()[1].strip().startswith("x on dim 0: the search chose it, with all dims that are split alike: saves")
    assert "us of work, sends 4 times all_reduce over x, 1,048,576 bytes" in " ".join(str(report.why("x")).split())
    assert "chosen for this value" in str(next(d for d in report.subject.plan.decisions if d.subject.startswith("%x ")))


def test_the_plan_is_the_same_every_time() -> None:
    weights, x = arguments()
    texts = {str(planned(mj.auto(step, devices=9), weights, x)) for _ in range(2)}
    assert len(texts) == 1


def test_a_slow_machine_finds_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search counts what it does. Here an hour passes between any two looks at the clock."""
    weights, x = arguments()
    of = mj.auto(step, devices=9).trace(weights, x)
    fast = of.plan().plan
    monkeypatch.setattr(time, "perf_counter", itertools.count(0.0, 3600.0).__next__)
    slow = of.plan().plan
    assert str(slow) == str(fast) and slow.optimum == fast.optimum


def test_a_plan_is_saved_and_planned_by_again(tmp_path: Any) -> None:
    path = tmp_path / "plan.json"
    first = planned(mj.auto(wide_step, mesh=MESH, memory=2.4e7), *WIDE)
    first.save(path)
    again = planned(mj.auto(wide_step, mesh=MESH, memory=2.4e7, plan=path), *WIDE)
    assert str(again) == str(first) and again.collectives == first.collectives
    assert str(again.optimum) == str(first.optimum)


def test_a_plan_that_propagation_found_is_saved_too(tmp_path: Any) -> None:
    """Here it is the best, for it splits an axis, and `save` refused it. What was edited since is followed."""
    path, mesh = tmp_path / "plan.json", AbstractMesh((8,), ("x",))
    ins = (NamedSharding(mesh, P("x")),)
    args = (mj.ShapeDtypeStruct((1 << 20,), np.float32),)

    def function(x: Any) -> Any:
        return mnp.tanh(mnp.reshape(x, (4, 1 << 18)))

    def again(plan: Any = None) -> Any:
        return planned(mj.auto(function, mesh=mesh, in_shardings=ins, plan=plan), *args)

    first = again()
    first.save(path)
    saved = json.loads(path.read_text())
    assert saved["refined"].startswith("propagated") and {str(spread) for _, spread in saved["equations"]} == {"None"}
    assert saved["arguments"]["x"] == ["f32[1048576]", "[x]"]
    replayed = again(path)
    assert str(replayed) == str(first) and replayed.collectives == first.collectives
    assert str(replayed.optimum) == str(first.optimum)
    saved["outputs"] = ["[-, x]"]
    path.write_text(json.dumps(saved))
    assert [str(p) for p in again(path).outputs] == saved["outputs"]


def test_a_saved_plan_names_the_mesh_of_so_many_devices(tmp_path: Any) -> None:
    path = tmp_path / "plan.json"
    mesh = AbstractMesh((4, 2), ("x", "y"))
    planned(mj.auto(wide_step, mesh=mesh), *WIDE).save(path)
    again = mj.auto(wide_step, devices=8, plan=path).trace(*WIDE).plan()
    assert dict(again.mesh.shape) == {"x": 4, "y": 2}


@pytest.mark.parametrize("mesh", [AbstractMesh((4, 2), ("data", "model")), AbstractMesh((8, 1), ("data", "model"))], ids=str)
def test_a_mesh_that_is_given_is_the_mesh(mesh: AbstractMesh) -> None:
    traced = mj.jit(wide_step).trace(*WIDE)
    assert traced.automatically(Automatic(Limits(), (mesh,))).mesh == mesh
    assert mj.auto(wide_step, mesh=mesh).trace(*WIDE).plan().mesh == mesh


def test_a_saved_plan_of_something_else_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "plan.json"
    planned(mj.auto(wide_step, mesh=MESH), *WIDE).save(path)
    other = [mj.ShapeDtypeStruct((512, 512), np.float32)] * 4, mj.ShapeDtypeStruct((64, 512), np.float32)
    cases = [
        (MESH, other, "equation 0 was dot_general f32[8192,512] f32[512,512] -> f32[8192,512], now it is dot_general f32[64,512]"),
        (AbstractMesh((4, 2), ("x", "y")), WIDE, "its mesh was {'x': 8}, now it is {'x': 4, 'y': 2}"),
    ]
    for mesh, arguments_, text in cases:
        with pytest.raises(ValueError) as raised:
            planned(mj.auto(wide_step, mesh=mesh, plan=path), *arguments_)
        first, fix = str(raised.value).split("\n")
        assert first.startswith(f"wide_step: the saved plan does not belong to this program: {text}")
        weights = ", ".join(f'"weights[{i}]": P()' for i in range(4))
        held = "}" if arguments_ is other else ", … 1 more in error.pins}"
        assert fix == f"  fix: plan anew without plan=, and save that; what still holds, pinned: traced.plan(pins={{{weights}{held})"
        again = mj.auto(wide_step, mesh=mesh).trace(*arguments_).plan(pins=raised.value.pins).plan
        assert [str(p) for p in again.inputs[:4]] == ["[-, -]"] * 4
    path.write_text("{}")
    with pytest.raises(ValueError, match="is no saved plan of format 2\n  fix: save one with plan.save"):
        planned(mj.auto(wide_step, mesh=MESH, plan=path), *WIDE)


def test_a_saved_plan_has_an_axis_once_for_every_value_of_a_barrier(tmp_path: Any) -> None:
    """The values have nothing to do with one another; the plan was refused for using an axis twice."""

    def barrier(x: Any, y: Any) -> Any:
        a, b = mj.lax.optimization_barrier((mnp.sin(x), mnp.cos(y)))
        return mnp.tan(a), mnp.exp(b)

    path, types = tmp_path / "plan.json", [mj.ShapeDtypeStruct(shape, np.float32) for shape in ((64, 32), (48, 16))]
    plan = planned(mj.auto(barrier, mesh=MESH), *types)
    plan.save(path)
    again = planned(mj.auto(barrier, mesh=MESH, plan=path), *types)
    assert again.cost == plan.cost and [str(p) for p in again.outputs] == ["[x, -]"] * 2


def test_what_was_edited_wrongly_in_a_saved_plan_is_named(tmp_path: Any) -> None:
    path = tmp_path / "plan.json"
    planned(mj.auto(wide_step, mesh=MESH), *WIDE).save(path)
    saved = json.loads(path.read_text())
    name = f"equation 0, {saved['equations'][0][0]}"

    def equation(spread: Any) -> dict[str, Any]:
        return {"equations": [[saved["equations"][0][0], spread], *saved["equations"][1:]]}

    cases: list[tuple[dict[str, Any], str]] = [
        (equation({"q": ["x"]}), f"{name}, has no factor 'q'; its rule is "),
        (equation({"a": ["y"]}), f'{name}, axis "y" is not in the mesh, whose axes are x'),
        (equation({"a": ["x"], "b": ["x"]}), f'{name}, uses axis "x" twice'),
        (equation({"a": "x"}), f"{name}, is spread over 'x'; write a list of axes, such as ['x']"),
        (equation(["x"]), f"{name}, is spread by ['x']; write factors with their axes"),
        ({"values": ["[x]", *saved["values"][1:]]}, "value 0: [x] has 1 dims, f32[512,512] has 2"),
        ({"outputs": ["[x, x]", *saved["outputs"][1:]]}, "output 0: placement [x, x] uses an axis twice: x and x overlap"),
        ({"outputs": ["x, -", *saved["outputs"][1:]]}, "output 0: not a placement: 'x, -'"),
    ]
    for edit, text in cases:
        path.write_text(json.dumps(saved | edit))
        with pytest.raises(ValueError) as raised:
            planned(mj.auto(wide_step, mesh=MESH, plan=path), *WIDE)
        assert str(raised.value).startswith(f"wide_step: the saved plan cannot be followed: {text}")
        assert str(raised.value).endswith("\n  fix: write what the mesh and the program have, or plan anew without plan=")
    path.write_text(json.dumps(saved | {"refined": "most"}))
    with pytest.raises(ValueError, match="'refined' is 'most', not one of '', 'memory', 'blocks', 'all', "):
        planned(mj.auto(wide_step, mesh=MESH, plan=path), *WIDE)
    path.write_text(json.dumps({key: value for key, value in saved.items() if key != "values"}))
    with pytest.raises(ValueError, match="is no whole plan: 'values' is missing\n  fix: save one with plan.save"):
        planned(mj.auto(wide_step, mesh=MESH, plan=path), *WIDE)


def test_an_edited_plan_is_followed(tmp_path: Any) -> None:
    """Another spread of an equation, and another place of an argument: both as written, and priced."""
    path = tmp_path / "plan.json"
    first = planned(mj.auto(wide_step, mesh=MESH), *WIDE)
    first.save(path)
    saved = json.loads(path.read_text())
    assert saved["values"][0] == "[-, -]" and saved["equations"][0][1] == {"a": ["x"]}
    saved["values"][0], saved["equations"][0][1] = "[x, -]", {"b": ["x"]}
    path.write_text(json.dumps(saved))
    edited = planned(mj.auto(wide_step, mesh=MESH, plan=path), *WIDE)
    assert str(edited.inputs[0]) == "[x, -]" and edited.equations[0].assignment["b"] == ("x",)
    assert edited.cost is not None and first.cost is not None and edited.cost.seconds > first.cost.seconds
    assert edited.optimum is not None and not edited.optimum.is_optimal


def test_one_more_pin_without_tracing_again() -> None:
    traced = mj.auto(wide_step, mesh=MESH).trace(*WIDE)
    free, pinned = traced.plan().plan, traced.plan(pins={"weights[0]": P("x")}).plan
    assert str(free.inputs[0]) == "[-, -]" and str(pinned.inputs[0]) == str(pinned.outputs[0]) == "[x, -]"
    assert free.cost is not None and pinned.cost is not None and pinned.cost.seconds >= free.cost.seconds
    report = traced.plan().report()
    same = report.why_not("weights[0]", P())  # what was pinned is there already: the search comes to the same plan
    assert same.data.costs[1].seconds == free.cost.seconds
    other = report.why_not("weights[0]", P("x"))
    assert not other.data.is_better and other.data.costs[1].seconds == pinned.cost.seconds
    with pytest.raises(ValueError) as raised:
        traced.plan(pins={"w": P("x")})
    assert str(raised.value).startswith("jit(wide_step): pins name 'w', which is no argument\n  fix: one of weights[0], weights[1]")
    with pytest.raises(ValueError, match=r"'weight\[1\]', which is no argument\n  fix: weights\[1\]$"):
        traced.plan(pins={"weight[1]": P("x")})


SMALL = mj.ShapeDtypeStruct((64, 48), np.float32), mj.ShapeDtypeStruct((48, 32), np.float32)
TWO = AbstractMesh((4, 2), ("a", "b"))


def summed(p: Any, w: Any) -> Any:
    return mnp.sum(mj.lax.with_sharding_constraint(mnp.tanh(p["x"] @ w), NamedSharding(TWO, P(None, "b"))), 0)


@pytest.mark.parametrize(
    ("said", "difference", "held"),
    [
        ({"in_shardings": ({"x": P(None, "b")}, AUTO)}, "argument p['x'] was placed [-, -], now it is annotated P(None, 'b')", ["w"]),
        ({"out_shardings": P("a")}, "output 0 was placed [b], now it is annotated P('a',)", ["p['x']", "w"]),
    ],
)
def test_a_saved_plan_does_not_overrule_annotations(tmp_path: Any, said: Any, difference: str, held: Any) -> None:
    """It did, and the program was run with shards of other shapes, which ended the process."""
    path, args = tmp_path / "plan.json", ({"x": SMALL[0]}, SMALL[1])
    first = planned(mj.auto(summed, mesh=TWO), *args)
    first.save(path)
    assert [str(p) for p in (*first.inputs, *first.outputs)] == ["[-, -]", "[-, b]", "[b]"]
    with pytest.raises(mj.errors.ShardingError, match=re.escape(f"does not belong to this program: {difference}\n")) as raised:
        planned(mj.auto(summed, mesh=TWO, plan=path, **said), *args)
    pins: Any = getattr(raised.value, "pins", None)
    assert [*pins] == held
    assert mj.auto(summed, mesh=TWO, **said).trace(*args).plan(pins=pins).plan.optimum is not None
    agreeing = {"in_shardings": ({"x": P(None, P.UNCONSTRAINED)}, P(None, "b")), "out_shardings": P("b")}
    assert str(planned(mj.auto(summed, mesh=TWO, plan=path, **agreeing), *args)) == str(first)


def test_a_saved_plan_does_not_overrule_a_constraint(tmp_path: Any) -> None:
    """Equations are told by their types, which constraints on other axes share."""
    path = tmp_path / "plan.json"

    def constrained(spec: Any) -> Any:
        return lambda x, w: mnp.sum(mj.lax.with_sharding_constraint(x @ w, NamedSharding(TWO, spec)), 0)

    planned(mj.auto(constrained(P(None, "b")), mesh=TWO), *SMALL).save(path)
    problem = r"the constraint at test_automatic_api.py:\d+ .*was placed \[-, b\], now it is annotated P\('a', None\)"
    with pytest.raises(mj.errors.ShardingError, match=problem):
        planned(mj.auto(constrained(P("a", None)), mesh=TWO, plan=path), *SMALL)


def test_what_pins_may_be() -> None:
    """Specs, NamedShardings, also of captured arrays; others were errors from within, or a bug of meshjit."""
    weight = mnp.ones((48, 32), np.float32)
    traced = mj.auto(lambda x: x @ weight, mesh=TWO).trace(SMALL[0])
    pins = {"x": NamedSharding(TWO, P("a")), "captured array weight": P(None, "b")}
    assert [str(p) for p in traced.plan(pins=pins).plan.inputs] == ["[a, -]", "[-, b]"]
    for pin in (None, "a", AUTO):
        with pytest.raises(TypeError, match=re.escape(f"pins for x: {pin!r} is no spec\n  fix: a PartitionSpec, such as P('x', None); leave")):
            traced.plan(pins={"x": pin})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"pins=\[\('x', P\('a',\)\)\] is no dict\n  fix: names with specs: pins={'x': P\('x'\)}"):
        traced.plan(pins=[("x", P("a"))])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"pins name 0, which is no argument\n  fix: one of x, captured array weight$"):
        traced.plan(pins={0: P("a")})  # type: ignore[dict-item]
    with pytest.raises(mj.errors.ShardingError, match=r"pins for x: P\('a',\) needs a mesh, and there is none"):
        mj.jit(lambda x: x).trace(SMALL[0]).plan(pins={"x": P("a")})


def test_pins_that_contradict_are_named_with_their_lines() -> None:
    line = 1 + line_here()
    said = mj.jit(wide_step, in_shardings=(AUTO, NamedSharding(MESH, P("x"))), out_shardings=AUTO(MESH)).trace(*WIDE)
    assert str(said.plan(pins={"x": P("x")}).plan.inputs[-1]) == "[x, -]"  # the same is no contradiction
    with pytest.raises(ValueError) as raised:
        said.plan(pins={"x": P(None, "x")})
    assert str(raised.value) == (
        f"jit(wide_step): pins say that x f32[8192,512] is P(None, 'x') at test_automatic_api.py:{line + 3}"
        " (test_pins_that_contradict_are_named_with_their_lines), but in_shardings say P('x',)"
        f" at test_automatic_api.py:{line} (test_pins_that_contradict_are_named_with_their_lines)\n"
        "  fix: leave one of them out; AUTO in in_shardings lets pins say it"
    )


@pytest.mark.device
def test_a_pin_does_not_move_a_committed_array() -> None:
    mesh = mj.make_mesh((8,), ("x",))
    placed = mj.device_put(np.zeros((8, 8), np.float32), NamedSharding(mesh, P("x")))
    with pytest.raises(ValueError, match=r"but the argument is committed to P\('x', None\)\n  fix: leave the pin out, or pass"):
        mj.jit(lambda x: x, in_shardings=AUTO(mesh)).trace(placed).plan(pins={"x": P(None, "x")})


@pytest.mark.device
@pytest.mark.parametrize("sides", [{"in_shardings": AUTO}, {"in_shardings": (None, AUTO)}, {"out_shardings": AUTO}], ids=str)
def test_auto_without_a_mesh_is_an_error(sides: dict[str, Any]) -> None:
    """It ran on one device, and nobody was told."""
    mesh, x = mj.make_mesh((8,), ("x",)), np.ones((8, 8), np.float32)
    function = mj.jit(lambda a, b: a @ b, **sides)
    with pytest.raises(mj.errors.ShardingError) as raised:
        function(x, x)
    side = "out_shardings for result" if "out_shardings" in sides else f"in_shardings for {'b' if sides['in_shardings'] != AUTO else 'a'}"
    assert str(raised.value) == (
        f"jit(lambda): {side} say AUTO, but there is no mesh, so nothing can be chosen\n"
        "  fix: AUTO(mesh), or call inside `with mesh:`; meshjit.auto(f) takes all devices"
    )
    with mesh:
        np.testing.assert_array_equal(np.asarray(function(x, x)), x @ x)


@pytest.mark.device
def test_what_is_planned_for_devices_that_are_not_here_says_how_it_could_run() -> None:
    x = np.ones((8, 8), np.float32)
    with pytest.raises(ValueError) as raised:
        mj.auto(lambda a: a @ a, devices=9)(x)
    needs = r"jit\(lambda\) is lowered for AbstractMesh\(.*\), which needs 9 devices; none were given\n"
    fix = "  fix: compile(device_assignment=…) where there are so many; here are 8 of platform cpu, for which a mesh is made by "
    assert re.fullmatch(needs + re.escape(fix + "meshjit.auto(…, devices=8)"), str(raised.value).partition("\n(frames")[0])
    here = mj.auto(lambda a: a @ a, topology="cpu:4x2")
    with pytest.raises(ValueError, match=r"fix: compile\(device_assignment=meshjit.devices\(\)\[:8\]\)"):
        here(x)
    np.testing.assert_array_equal(np.asarray(here.lower(x).compile(device_assignment=mj.devices()[:8])(x)), x @ x)
    elsewhere = mj.auto(lambda a: a @ a, topology="v5e:4x2")
    with pytest.raises(ValueError, match=r"fix: lower\(lowering_platforms=\('cpu',\)\); AbstractMesh\(.*\) is of another platform"):
        elsewhere.lower(x).compile(device_assignment=mj.devices()[:8])
    lowered = elsewhere.trace(x).lower(lowering_platforms=("cpu",))
    np.testing.assert_array_equal(np.asarray(lowered.compile(device_assignment=mj.devices()[:8])(x)), x @ x)


SOME_BYTES = "more than 0 bytes, such as memory=16e9; without it the limit is the device's own"
ANYWHERE = mj.ShapeDtypeStruct((8, 8), np.float32)


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: mj.jit(lambda x: mj.lax.with_sharding_constraint(x, AUTO)).trace(ANYWHERE), "with_sharding_constraint of x"),
        (lambda: mj.jit(lambda x: mj.lax.with_sharding_constraint(x, AUTO(MESH))).trace(ANYWHERE), "with_sharding_constraint of x"),
        (lambda: mj.device_put(np.zeros(8), AUTO), "device_put of x"),
        (lambda: NamedSharding(MESH, AUTO), "NamedSharding"),  # type: ignore[arg-type]
        (lambda: mj.ShapeDtypeStruct((8,), np.float32, sharding=AUTO), "ShapeDtypeStruct"),
        (lambda: mj.shard_map(lambda x: x, mesh=MESH, in_specs=AUTO, out_specs=P())(np.zeros(8)), "shard_map: in_specs"),
        (lambda: mnp.dot(np.zeros((8, 8)), np.zeros((8, 8)), out_sharding=AUTO), "dot: out_sharding"),
    ],
)
def test_auto_where_nothing_can_be_chosen(call: Any, where: str) -> None:
    with pytest.raises(TypeError) as raised:
        call()
    assert str(raised.value) == (
        f"{where}: AUTO lets the planner choose where arguments and results of jit live; here nothing can be chosen\n"
        "  fix: a NamedSharding, or a PartitionSpec under a mesh; AUTO in in_shardings or out_shardings of jit"
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: mj.auto(step, topology="v9:4"),
            "auto: unknown topology 'v9:4'; known devices are v4, v5e, v5p, v6e, tpu7x, a100, a100-ethernet, h100, h100-ethernet,"
            " h200, h200-ethernet, b200, b200-ethernet, cpu, cpu-ethernet\n"
            '  fix: a device, a colon and a shape, such as "v5e:4x4" or "h100:4x8"; or a file: "cluster.toml"',
        ),
        (
            lambda: mj.auto(step, topology="v5e"),
            "auto: topology 'v5e' does not say how many devices\n  fix: v5e:8, or devices=8",
        ),
        (
            lambda: mj.auto(step, topology="v5e:4x4", devices=8),
            "auto: topology 'v5e:4x4' has 16 devices, but devices=8\n  fix: leave devices out",
        ),
        (
            lambda: mj.auto(step, mesh=AbstractMesh((2,), ("x",)), devices=8),
            "auto: mesh and devices were both given\n  fix: leave devices out; the mesh has them",
        ),
        (
            lambda: mj.auto(step, in_shardings=P("x")),
            "auto: in_shardings and out_shardings name the axes of a mesh, and there is none\n  fix: auto(…, mesh=mesh)",
        ),
        (
            lambda: mj.auto(step, devices=8, in_shardings=(AUTO, P("data"))),
            "auto: in_shardings or out_shardings name axis 'data', and no mesh of 8 devices that is tried has such; its axes are x, y\n"
            "  fix: name one of these, or auto(…, mesh=mesh)",
        ),
        (
            lambda: mj.auto(step, topology="v5e:8", in_shardings=NamedSharding(MESH, P("x"))),
            f"auto: in_shardings or out_shardings: {NamedSharding(MESH, P('x'))} has devices of its own, and no mesh is given\n"
            "  fix: auto(…, mesh=mesh), and leave devices and topology out",
        ),
        (lambda: mj.auto(step, devices=0), "auto: devices=0\n  fix: at least 1"),
        (lambda: mj.auto(step, memory=0), f"auto: memory=0\n  fix: {SOME_BYTES}"),
        (lambda: mj.auto(step, memory=-1e9), f"auto: memory=-1000000000.0\n  fix: {SOME_BYTES}"),
        (lambda: mj.auto(step, memory=float("nan")), f"auto: memory=nan\n  fix: {SOME_BYTES}"),
        (
            lambda: mj.auto(step, time_limit=-1),
            "auto: time_limit=-1\n  fix: seconds from 0 on, such as time_limit=60; without it there is no limit",
        ),
        (
            lambda: mj.auto(step, effort=float("nan")),
            "auto: effort=nan\n  fix: from 0, which seeks no proof, to math.inf; 1 by default",
        ),
    ],
)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises(ValueError) as raised:
        call()
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: mj.auto(step, memory="16GB"), f"auto: memory='16GB' is no number\n  fix: {SOME_BYTES}"),  # type: ignore[arg-type]
        (lambda: mj.auto(step, memory=True), f"auto: memory=True is no number\n  fix: {SOME_BYTES}"),
        (
            lambda: mj.auto(step, time_limit=False),
            "auto: time_limit=False is no number\n  fix: seconds from 0 on, such as time_limit=60; without it there is no limit",
        ),
        (
            lambda: mj.auto(step, effort=True),
            "auto: effort=True is no number\n  fix: from 0, which seeks no proof, to math.inf; 1 by default",
        ),
        (
            lambda: mj.auto(step, devices=1.5),  # type: ignore[arg-type]
            "auto: devices=1.5 is no whole number\n  fix: how many there are, such as devices=8",
        ),
        (
            lambda: mj.auto(step, devices=True),
            "auto: devices=True is no whole number\n  fix: how many there are, such as devices=8",
        ),
        (
            lambda: mj.auto(step, mesh=(4, 2)),  # type: ignore[arg-type]
            "auto: mesh=(4, 2) is of type tuple\n"
            "  fix: a Mesh or an AbstractMesh, such as meshjit.make_mesh((4, 2), ('x', 'y'))",
        ),
        (
            lambda: mj.auto(step, topology=8),  # type: ignore[arg-type]
            'auto: topology=8 is of type int\n  fix: a device, a colon and a shape, such as "v5e:4x4"; or devices=8',
        ),
        (
            lambda: mj.auto(step, mesh=MESH, plan=3),  # type: ignore[arg-type]
            'auto: plan=3 is of type int\n  fix: the file that plan.save wrote, such as "plan.json"',
        ),
        (lambda: mj.auto(step, mesh=MESH, memry=3), "auto: memry is no option\n  fix: memory=…"),
    ],
)
def test_what_is_no_number(call: Any, text: str) -> None:
    with pytest.raises(TypeError) as raised:
        call()
    assert str(raised.value) == text


def test_limits_are_numbers_of_any_kind() -> None:
    limits: dict[str, Any] = {"devices": np.int64(4), "memory": np.int64(10**9), "effort": np.float32(0), "time_limit": 60}
    assert planned(mj.auto(step, **limits), *arguments()).mesh.size == 4


def test_a_saved_plan_that_cannot_be_read_is_named(tmp_path: Any) -> None:
    """It was called a bug of meshjit."""
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, problem in ((tmp_path / "none.json", "cannot be read: No such file"), (binary, "is no saved plan: 'utf-8' codec")):
        with pytest.raises(mj.errors.ShardingError, match=re.escape(f"{path} {problem}")):
            planned(mj.auto(step, devices=4, plan=path), *arguments())
