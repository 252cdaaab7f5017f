"""What stands around jit: switches, traces without compiling, names, checks for NaN, explanations, tracebacks."""

from __future__ import annotations

import concurrent.futures
import copy
import logging
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.cli import main
from meshjit.cli.reproduce import spec_of_line
from meshjit.core.parser import parse_program
from meshjit.errors import InternalError
from meshjit.experimental.layout import Format, Layout
from meshjit.runtime.array import Array
from meshjit.runtime.reproduce import _spec_text
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from tests.tools.asserting import message

pytestmark = pytest.mark.device

X = np.arange(32, dtype=np.float32).reshape(8, 4)


def mesh(*sizes: int) -> Mesh:
    count = int(np.prod(sizes))
    return Mesh(np.array(mj.devices()[:count]).reshape(sizes), ("x", "y")[: len(sizes)])


def on(spec: P, *sizes: int) -> NamedSharding:
    return NamedSharding(mesh(*sizes), spec)


# --- disable_jit


def test_disable_jit_runs_python() -> None:
    seen: list[Any] = []

    @mj.jit
    def f(x: Any, n: Any) -> Any:
        seen.append(x)
        return x * 2 if n > 0 else x

    with mj.disable_jit():
        assert float(f(3.0, 1)) == 6 and seen == [3.0]
        assert f(mnp.ones(2), mnp.asarray(1)).tolist() == [2, 2]
        assert isinstance(seen[1], mj.Array)
        with mj.disable_jit(False), pytest.raises(TypeError, match="has no value while f is traced"):
            f(3.0, 1)
        assert "multiply" in str(mj.jit(lambda x: x * 2).trace(3.0).program)  # tracing still works
    with pytest.raises(TypeError, match="has no value while f is traced"):
        f(3.0, 1)


def test_disable_jit_inside_control_flow() -> None:
    seen: list[Any] = []

    def note(x: Any) -> Any:
        seen.append(float(x))
        return x

    def run() -> Any:
        total, ys = mj.lax.scan(lambda c, x: (c + note(x), c * 2), 0.0, mnp.arange(3.0))
        count = mj.lax.while_loop(lambda i: i < 2, lambda i: note(i) + 1, 0)
        chosen = mj.lax.cond(True, lambda: note(7.0), lambda: note(8.0))
        return total, ys, count, chosen, mj.lax.fori_loop(0, 2, lambda i, v: v + note(i), 1.0)

    with mj.disable_jit():
        plain = mj.jit(run)()
    assert seen == [0, 1, 2, 0, 1, 7, 0, 1]
    for a, b in zip(plain, mj.jit(lambda: run_traced())(), strict=True):
        np.testing.assert_array_equal(a, b)


def run_traced() -> Any:
    total, ys = mj.lax.scan(lambda c, x: (c + x, c * 2), 0.0, mnp.arange(3.0))
    count = mj.lax.while_loop(lambda i: i < 2, lambda i: i + 1, 0)
    return total, ys, count, mj.lax.cond(True, lambda: 7.0, lambda: 8.0), mj.lax.fori_loop(0, 2, lambda i, v: v + i, 1.0)


def test_derivatives_under_disable_jit() -> None:
    f = mj.jit(lambda x: mj.lax.fori_loop(0, 3, lambda i, v: v * x, 1.0))
    with mj.disable_jit():
        assert float(mj.grad(f)(2.0)) == 12


# --- nested jit


def test_a_nested_jit_is_one_call_traced_once() -> None:
    traces: list[int] = []

    @mj.jit
    def layer(x: Any, w: Any) -> Any:
        traces.append(1)
        return mnp.tanh(x @ w)

    def model(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = layer(x, w)
        return x

    w = np.eye(4, dtype=np.float32)
    program = mj.make_jaxpr(model)(X, w).program
    assert [eqn.op.name for eqn in program.eqns] == ["call"] * 3 and len(traces) == 1
    assert str(parse_program(str(program))) == str(program)
    np.testing.assert_allclose(mj.jit(model)(X, w), np.tanh(np.tanh(np.tanh(X))), rtol=1e-5)
    assert "call(" not in mj.jit(model).trace(X, w).plan().as_text()  # planned as if written out
    layer(X, w)
    model(mnp.asarray(X), w)
    assert len(traces) == 1  # from Python the function is compiled by itself, from the same trace


def test_inline_makes_no_call() -> None:
    double = mj.jit(lambda x: x * 2, inline=True)
    assert [eqn.op.name for eqn in mj.make_jaxpr(lambda x: double(x))(3.0).program.eqns] == ["constant", "multiply"]


def test_nested_functions_that_close_over_outer_values() -> None:
    @mj.jit
    def outer(x: Any) -> Any:
        inner = mj.jit(lambda y: y + x)
        return inner(inner(1.0))

    assert float(outer(3.0)) == 7
    assert float(mj.grad(outer)(3.0)) == 2
    np.testing.assert_array_equal(mj.vmap(outer)(mnp.arange(3.0)), [1, 3, 5])


def test_nested_functions_of_every_kind() -> None:
    pair = mj.jit(lambda d, n, *, k: {"s": d["x"] * n + k, "t": None}, static_argnums=1)
    result = mj.jit(lambda x: pair({"x": x}, 3, k=True))(X)
    np.testing.assert_array_equal(result["s"], 3 * X + 1)
    assert result["t"] is None
    weak = mj.jit(lambda x: mj.jit(lambda v: v * 2)(3) + x)
    assert weak(np.float16(1)).dtype == np.float16  # a Python number stays weak on the way through
    assert mj.jit(lambda x: mj.jit(lambda v: (v, v))(x))(X)[0].shape == (8, 4)
    assert mj.jit(lambda: mj.jit(lambda: ())())() == ()
    np.testing.assert_array_equal(mj.grad(lambda x: pair({"x": x}, 2, k=1.0)["s"].sum())(mnp.asarray(X)), 0 * X + 2)
    text = message(TypeError, lambda: mj.jit(lambda x: mj.jit(lambda v: v)("a"))(X))
    assert text.startswith("argument v is not an array: str 'a'")


# --- traces


def test_make_jaxpr_and_eval_shape() -> None:
    program, shape = mj.make_jaxpr(lambda x, n: {"y": x[:n]}, static_argnums=1, return_shape=True)(X, 2)
    assert program.in_avals[0].shape == (8, 4) and shape["y"].shape == (2, 4)
    assert mj.make_jaxpr(lambda x: x)(mj.ShapeDtypeStruct((3,), np.int8)).program.name == "lambda"
    info = mj.eval_shape(lambda x: {"a": x, "b": 2, "c": None}, mj.ShapeDtypeStruct((3,), np.float32))
    assert (info["a"].shape, info["b"].dtype, info["b"].weak_type, info["c"]) == ((3,), np.int32, True, None)


def test_types_alone_say_what_arrays_would_say() -> None:
    """As with JAX 0.10.2: a ShapeDtypeStruct may be asked for its type, and be a result of what is only looked at for its types."""
    matrix, number = mj.ShapeDtypeStruct((3, 2), mnp.bfloat16), mj.ShapeDtypeStruct((), np.float32, weak_type=True)
    assert (mnp.shape(matrix), mnp.ndim(matrix), mnp.size(matrix), mnp.size(matrix, 1)) == ((3, 2), 2, 6, 2)
    assert mnp.result_type(matrix, 1.0) == mnp.bfloat16 and mnp.result_type(matrix, number) == np.float32
    assert mj.lax.dtype(matrix) == mnp.bfloat16 and str(mj.typeof(matrix)) == "bfloat16[3,2]" and mj.typeof(number).weak_type

    def outer(x: object) -> object:
        return {"x": x, "one": number, "both": [matrix, 1.0]}

    for _ in range(2):
        info = mj.eval_shape(outer, matrix)
        assert info["x"] == info["both"][0] == matrix and info["one"] == info["both"][1] == number
    with pytest.raises(TypeError, match=r"outer returned result\['both'\]\[0\], which is not an array: ShapeDtypeStruct"):
        mj.jit(outer)(mnp.ones(2))


def test_names_and_files_may_be_of_any_letters() -> None:
    scope: dict[str, Any] = {"mnp": mnp}
    exec(compile("def größe(λ): return mnp.tanh(λ) * 2", 'C:\\ü\\"x".py', "exec"), scope)
    with mj.named_scope('a "quoted" 名\n'):
        np.testing.assert_allclose(mj.jit(scope["größe"])(1.0), 2 * np.tanh(1.0), rtol=1e-6)
        np.testing.assert_allclose(scope["größe"](1.0), 2 * np.tanh(1.0), rtol=1e-6)


def test_ensure_compile_time_eval() -> None:
    double = mj.jit(lambda x: x * 2)

    def f(x: Any) -> Any:
        with mj.ensure_compile_time_eval():
            n = int(mnp.arange(3).sum())  # run now: its value is needed
            assert isinstance(double(mnp.ones(2)), Array)
            y = double(x + 1)  # of a traced value: staged
            assert not isinstance(y, Array)
            constrained = mj.lax.with_sharding_constraint(y, on(P(), 4))
        return constrained[:n]

    np.testing.assert_array_equal(mj.jit(f)(X), 2 * (X + 1)[:3])
    with pytest.raises(TypeError, match="has no value while"):
        mj.jit(lambda x: x[: int(mnp.arange(3).sum())])(X)


def test_named_scopes_are_seen_everywhere() -> None:
    @mj.named_scope("head")
    def head(x: Any) -> Any:
        return mnp.cos(x)

    def block(x: Any) -> Any:
        with mj.named_scope("attention"), mj.named_scope("scores"):
            x = mnp.sin(x)
        return head(x) + 1

    lowered = mj.jit(block).lower(X)
    text = str(lowered.plan)
    assert re.search(r"sine.*# test_api_tools.py:\d+ .*block/attention/scores\n", text)
    assert re.search(r"cosine.*# test_api_tools.py:\d+ .*head/head\n", text)
    assert "block/attention/scores" in lowered.compile().as_text()
    assert message(TypeError, lambda: mj.named_scope(3)) == "named_scope: the name must be a string, got 3"  # type: ignore


def test_traced_values_can_be_copied() -> None:
    assert float(mj.jit(lambda x: copy.deepcopy({"x": copy.copy(x)})["x"] + 1)(1)) == 2


def test_a_failed_trace_leaves_nothing_behind() -> None:
    def bad(x: Any) -> Any:
        raise LookupError(f"with {x}")

    with pytest.raises(LookupError, match=r"with Traced<i32\[\] weak>"):
        mj.jit(lambda x: mj.jit(bad)(x))(1)
    assert float(mnp.asarray(1) + 1) == 2


def test_jit_in_several_threads() -> None:
    f = mj.jit(lambda x: x + x - 3)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: f(np.arange(n, dtype=np.float32)), [3, 4, 3, 5, 4, 3]))
    assert [r.tolist() for r in found[:2]] == [[-3, -1, 1], [-3, -1, 1, 3]] and f._cache_size() == 3


# --- constraints and resharding


def test_constraints_on_trees() -> None:
    rows, columns = on(P("x"), 4), on(P(None, "x"), 4)
    tree = {"a": X, "b": (X, X)}
    for run in (lambda f: f, mj.jit):
        result = run(lambda t: mj.lax.with_sharding_constraint(t, {"a": rows, "b": columns}))(tree)
        assert [x.sharding.spec for x in mj.tree.leaves(result)] == [P("x"), P(None, "x"), P(None, "x")]
        result = run(lambda t: mj.lax.with_sharding_constraint(t, {"a": rows, "b": (None, rows)}))(tree)
        assert result["b"][1].sharding.spec == P("x")
        with mesh(4):
            assert run(lambda t: mj.lax.with_sharding_constraint(t, P("x")))(tree)["b"][0].sharding == rows
    one = SingleDeviceSharding(mj.devices()[3])
    assert mj.jit(lambda x: mj.lax.with_sharding_constraint(x, one))(X).devices() == {mj.devices()[3]}


def test_constraints_on_several_meshes_of_the_same_devices() -> None:
    line = NamedSharding(Mesh(np.array(mj.devices()), ("all",)), P("all"))
    rows = on(P("x"), 4, 2)

    def f(x: Any) -> Any:
        x = mj.lax.with_sharding_constraint(x * 2, line)
        return mj.lax.with_sharding_constraint(x + 1, rows), mj.reshard(x, on(P(None, "y"), 4, 2))

    for options in ({}, {"in_shardings": rows}, {"in_shardings": line, "out_shardings": (rows, None)}):
        first, second = mj.jit(f, **options)(X)
        np.testing.assert_array_equal(first, 2 * X + 1)
        assert first.sharding.is_equivalent_to(rows, 2)
        assert second.sharding.is_equivalent_to(on(P(None, "y"), 4, 2), 2)
    small = on(P("x"), 2)
    text = message(ValueError, lambda: mj.jit(lambda x: mj.reshard(mj.reshard(x, line), small))(X))
    assert text.startswith("lambda uses two meshes: Mesh('all': 8) at ")


def test_reshard() -> None:
    placed = mj.device_put(X, on(P("x"), 4))
    target = on(P(None, "x"), 4)
    for f in (mj.reshard, mj.sharding.reshard):
        assert f({"a": placed}, target)["a"].sharding == target
        assert mj.jit(lambda x, f=f: f(x, target))(placed).sharding == target
    assert message(TypeError, lambda: mj.reshard(X, "x")) == (
        "reshard of x: 'x' is no sharding\n  fix: use a NamedSharding, or a PartitionSpec under a mesh"
    )
    assert message(ValueError, lambda: mj.reshard([X], P("x"))).startswith("reshard of x[0]: P('x',) needs a mesh")


# --- NaN


def test_debug_nans_names_the_operation() -> None:
    def loss(params: Any) -> Any:
        return {"loss": mnp.log(params["w"] - 1).sum(), "ok": params["w"]}

    params = {"w": np.array([2.0, 0.0], np.float32)}
    loss_ = mj.jit(loss)
    assert np.isnan(loss_(params)["loss"])
    with mj.debug_nans():
        text = message(FloatingPointError, lambda: loss_(params))
        lines = text.split("\n")
        assert lines[0] == "jit(loss): result['loss'] f32[] holds NaN"
        assert re.fullmatch(r"  made by log at test_api_tools.py:\d+ \(.*loss\)", lines[1])
        assert lines[2] == "  its operands: f32[2] from -1.0 to 1.0"
        assert loss_({"w": np.array([2.0, 3.0], np.float32)})["loss"] > 0
        sharded = {"w": mj.device_put(np.array([2.0, 0.0, 3.0], np.float32), on(P("x"), 2))}
        assert "made by log" in message(FloatingPointError, lambda: loss_(sharded))
        arrived = message(FloatingPointError, lambda: loss_({"w": np.array([np.nan], np.float32)}))
        assert arrived.endswith("it came in with argument params['w']")
        eager = message(FloatingPointError, lambda: mnp.log(mnp.asarray(-1.0)))
        assert re.match(r"log at test_api_tools.py:\d+ \(.*\): the result f32\[\] holds NaN\n  made by log\n", eager)
    assert np.isnan(loss_(params)["loss"])


def test_debug_nans_needs_donated_arguments_and_deletes_them_afterwards() -> None:
    f = mj.jit(lambda x: mnp.log(x), donate_argnums=0)
    with mj.debug_nans():
        bad, good = mnp.asarray([-1.0]) + 0, mnp.asarray([1.0]) + 0
        assert "made by log" in message(FloatingPointError, lambda: f(bad))
        f(good)
        assert good.is_deleted()


def test_debug_infs() -> None:
    with mj.debug_infs():
        text = message(FloatingPointError, lambda: mj.jit(lambda x: 1 / x)(0.0))
    assert text.startswith("jit(lambda): result f32[] holds infinity\n  made by divide at ")


def test_a_nan_inside_a_loop_is_found() -> None:
    def step(c: Any, _: Any) -> Any:
        return mnp.log(c), None

    f = mj.jit(lambda x: mj.lax.scan(step, x, None, 3)[0])
    g = mj.jit(lambda x: mj.lax.cond(x > 0, lambda x: f(x), lambda x: x, x))
    with mj.debug_nans():
        lines = message(FloatingPointError, lambda: f(2.0)).split("\n")
        assert re.fullmatch(r"  made by log at test_api_tools.py:\d+ \(.*step\), in step 2 of scan", lines[1])
        assert lines[2].startswith("  its operands: f32[] = -0.36651")
        h = mj.jit(lambda x: mj.lax.while_loop(lambda c: c == c, lambda c: step(c, None)[0], x))
        assert re.search(r"made by log at .*step\), in step 2 of while\n", message(FloatingPointError, lambda: h(2.0)))
        assert re.search(r"made by log at .*step\), in step 2 of scan, in step 0 of case\n", message(FloatingPointError, lambda: g(2.0)))


# --- explanations


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "meshjit")

    def take() -> list[str]:
        texts = [re.sub(r"test_api_tools.py:\d+ \([^)]*\)", "HERE", r.getMessage()) for r in caplog.records]
        caplog.clear()
        return texts

    return take


def test_why_a_function_is_traced_again(logged: Callable[[], list[str]]) -> None:
    @mj.jit(static_argnames="n")
    def f(params: Any, n: int = 1) -> Any:
        return mj.tree.map(lambda x: x * n, params)

    def why(*args: Any, **kwargs: Any) -> str:
        f(*args, **kwargs)
        (text,) = logged()
        assert text.startswith("jit(f) is traced again at HERE:\n  ")
        return text.split("\n  ", 1)[1]

    with mj.explain_cache_misses():
        f({"w": X})
        assert re.fullmatch(
            r"jit\(f\) is traced at HERE:\n  it was never called before \(defined at test_api_tools.py:\d+\)", logged()[0]
        )
        f({"w": X + 1})
        assert logged() == []
        assert why({"w": X[:3]}) == "argument params['w'] is f32[3,4], before f32[8,4]"
        assert why({"w": X.astype(int)}) == "argument params['w'] is i32[8,4], before f32[8,4]"
        assert why({"w": X}, n=2) == "static argument n is 2, before not given"
        assert why({"w": X}, n=3) == "static argument n is 3, before 2"
        assert why({"w": X, "b": X}) == "argument params['b'] is new"
        assert why({}) == "argument params['w'] is missing"
        assert why({"w": 1.0}) == "argument params['w'] is f32[], before f32[3,4]"
        assert why({"w": np.float32(1)}) == "argument params['w'] is an array of type f32[], before a Python number"
        placed = mj.device_put(X, on(P("x"), 4))
        assert why({"w": placed}) == (
            "argument params['w'] f32[8,4] is committed to P('x',) on Mesh('x': 4), before not committed"
        )
        with mesh(2):
            assert why({"w": X}) == "the mesh context is Mesh('x': 2), before None"
        with mj.default_matmul_precision("highest"):
            assert why({"w": X}) == "config default_matmul_precision is highest, before None"


def test_a_function_that_is_defined_anew_each_time(logged: Callable[[], list[str]]) -> None:
    with mj.explain_cache_misses():
        for _ in range(2):
            mj.jit(lambda x: x + 1)(X)
    first, second = logged()
    assert "but another function" not in first
    assert second.endswith(
        ", but another function from this line was: is it defined anew each time?\n"
        "  fix: define and jit it once, outside of the loop or function, and pass what changes as arguments"
    )


def test_log_compiles(logged: Callable[[], list[str]]) -> None:
    with mj.log_compiles():
        mj.jit(lambda x, y: x + y)(X, 1.0)
    texts = [re.sub(r"\d+\.\d+ s", "T", t) for t in logged()]
    assert texts == [
        "jit(lambda): traced in T",
        "jit(lambda): planned and partitioned in T",
        "jit(lambda): compiled for (f32[8,4], f32[]) in T",
    ]


# --- tracebacks


def frames(use: Callable[[], Any]) -> list[str]:
    """The files of the traceback of what `use` raises, but for this function's own."""
    try:
        use()
    except Exception as error:
        return [Path(f.filename).name for f in traceback.extract_tb(error.__traceback__)][1:]
    raise AssertionError("nothing was raised")


def test_our_own_frames_are_hidden() -> None:
    def bad(x: Any) -> Any:
        return x + mnp.zeros(3)

    def nested(x: Any) -> Any:
        return mj.jit(bad)(x)

    hidden = frames(lambda: mj.jit(nested)(X))
    assert set(hidden) == {"test_api_tools.py"} and len(hidden) == 3
    with mj.config.using(traceback_filtering="off"):
        assert "wrapped.py" in frames(lambda: mj.jit(nested)(X))
    with mj.config.using(traceback_filtering="tracebackhide"):
        assert "wrapped.py" in frames(lambda: mj.jit(nested)(X))
    with pytest.raises(ValueError) as error:
        mj.jit(bad)(X)
    assert error.value.__notes__ == ["(frames of meshjit are hidden; MESHJIT_TRACEBACK_FILTERING=off shows them)"]
    assert set(frames(lambda: mj.jit(lambda x: x).lower("a"))) == {"test_api_tools.py"}
    assert set(frames(lambda: mj.jit(lambda x: x).lower(X).compile()(3))) == {"test_api_tools.py"}


def test_derivatives_hide_our_frames_too() -> None:
    def bad(x: Any) -> Any:
        return x + mnp.zeros(3)

    x = mnp.zeros(2)
    for use in (mj.grad(bad), mj.value_and_grad(bad), mj.jacfwd(bad), mj.jacrev(bad), mj.hessian(bad), mj.vmap(lambda v: bad(x))):
        assert set(frames(lambda use=use: use(x))) == {"test_api_tools.py"}
    for use in (lambda: mj.jvp(bad, (x,), (x,)), lambda: mj.vjp(bad, x), lambda: mj.linearize(bad, x)):
        assert set(frames(use)) == {"test_api_tools.py"}
    assert mj.grad(bad).__name__ == "bad"


def test_bugs_of_ours_show_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        raise KeyError("bug")

    monkeypatch.setattr("meshjit.api.wrapped.trace_to_program", broken)
    monkeypatch.setattr("meshjit.api.tracebacks.is_own", lambda code: "wrapped" in code.co_filename or code is broken.__code__)
    assert "wrapped.py" in frames(lambda: mj.jit(lambda x: x)(X))


# --- what breaks inside


def report_of(text: str) -> tuple[Path, str]:
    """The file that an InternalError names, and what it holds."""
    found = re.search(
        r"in (\S+\.txt)\n  the file holds the values of the program's constants, so look whether they may be sent\n"
        r"  fix: please report it with that file; `meshjit reproduce \1` shows it again$",
        text,
    )
    assert found is not None, text
    return Path(found[1]), Path(found[1]).read_text()


def test_a_failure_of_xla_names_a_file_with_everything(capsys: pytest.CaptureFixture[str]) -> None:
    lowered = mj.jit(lambda x: mnp.sin(x) * 2, in_shardings=on(P("x"), 4)).lower(X)
    object.__setattr__(lowered.lowering, "text", lowered.lowering.text.replace("stablehlo.sine", "stablehlo.sin"))
    text = message(InternalError, lowered.compile)
    assert re.match(r"jit\(lambda\): XLA could not compile the per-device program: .*stablehlo.sin", text)
    path, content = report_of(text)
    for title in ("versions", "what failed", "options", "mesh", "program and plan", "per-device program", "stablehlo"):
        assert f"=== {title} ===" in content
    section = content.split("=== program and plan ===\n")[1].split("\n\n===")[0]
    assert str(parse_program(section)) == str(lowered.plan.program) and "f32[8@x, 4]" in section
    assert main(["reproduce", str(path)]) == 1
    assert "it fails: CompilationError: XLA could not compile" in capsys.readouterr().out
    path.write_text(content.replace("stablehlo.sin\"", "stablehlo.sine\""))
    assert main(["reproduce", str(path)]) == 0
    path.unlink()


def test_a_failure_of_ours_names_a_file_with_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: Any) -> Any:
        raise AssertionError("no such case")

    monkeypatch.setattr("meshjit.runtime.lowering.partition", broken)
    text = message(InternalError, lambda: mj.jit(lambda x: x + 1, in_shardings=on(P("x"), 4)).lower(X))
    first, second, _, _ = text.split("\n")
    assert first == "lambda: meshjit could not partition this program: AssertionError: no such case"
    assert second.startswith("  this is a bug in meshjit, not in your function; the program and its placements are in /")
    path, content = report_of(text)
    assert "Mesh('x': 4)" in content and "=== input specs ===\nP('x')" in content and "raise AssertionError" in content
    assert parse_program(content.split("=== program ===\n")[1]).name == "lambda"
    assert main(["reproduce", str(path)]) == 1
    assert "it fails: AssertionError: no such case" in capsys.readouterr().out
    monkeypatch.undo()
    assert main(["reproduce", str(path)]) == 0
    path.unlink()


def test_specs_in_reports_are_read_back() -> None:
    for spec in (P(), P("x"), P(None, ("x", "y")), P(P.UNCONSTRAINED, "x")):
        assert spec_of_line(_spec_text(spec)) == spec
    assert spec_of_line("free") is None


def test_single_operations_leave_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise AssertionError("no such case")

    x = mnp.ones((3, 7))
    monkeypatch.setattr("meshjit.runtime.lowering.partition", broken)
    path, content = report_of(message(InternalError, lambda: mnp.arctan2(x, x)))
    path.unlink()
    assert "atan2(" in content


def test_default_device() -> None:
    device, other = mj.devices()[1], mj.devices()[2]
    f, x = mj.jit(lambda a: a + 1), mnp.ones(3)
    with mj.default_device(device):
        for found in (mnp.ones(2), mnp.asarray(1.0), f(1.0), f(1.0), f(x), f(x), x + 1, mj.device_put(X), mj.random.normal(mj.random.key(0))):
            assert found.devices() == {device} and not found.committed
        assert f(mj.device_put(X, other)).devices() == {other}
        assert mj.jit(lambda a: a, out_shardings=on(P("x"), 4))(X).sharding == on(P("x"), 4)
    assert mnp.ones(2).devices() == f(1.0).devices() == f(x).devices() == {mj.devices()[0]}
    with pytest.raises(ValueError, match="config option default_device: 'cpu' does not fit: expected one of meshjit.devices"):
        mj.config.update("jax_default_device", "cpu")


def test_leaks_are_an_error_where_tracing_ends() -> None:
    kept: list[Any] = []

    def keeping(x: Any) -> Any:
        kept.append(mnp.sin(x))
        return x

    def nested(x: Any) -> Any:
        y = mnp.sin(x)
        return mj.lax.scan(lambda c, e: (c + e * y.sum(), c), 0.0, x)[0] + mj.grad(lambda z: (mnp.cos(z) * y).sum())(x)

    assert mj.jit(keeping)(mnp.ones(2)).shape == (2,)
    kept.clear()
    with mj.checking_leaks():
        assert mj.jit(mj.vmap(nested))(mnp.ones((2, 3))).shape == (2, 3)
        with pytest.raises(mj.errors.UnexpectedTracerError, match="the trace of keeping has ended, and something still refers"):
            mj.jit(keeping)(mnp.ones(3))


def test_formats_are_places() -> None:
    place = NamedSharding(mj.make_mesh((4,), ("x",)), P("x"))
    x = np.arange(8.0, dtype=np.float32)
    for format in (Format(Layout((0,)), place), Format(None, place)):
        assert mj.device_put(x, format).sharding == place
        assert mj.lax.with_sharding_constraint(x, format).sharding == place
        assert mj.jit(lambda x, format=format: mj.lax.with_sharding_constraint(x, format))(x).sharding == place
    assert message(NotImplementedError, lambda: mj.device_put(np.ones((2, 2)), Format(Layout((1, 0)), place))) == (
        "device_put of x: Layout(major_to_minor=(1, 0)) is not C order (0, 1), and only XLA chooses another order here\n"
        "  fix: pass the sharding without a layout"
    )


def test_in_shardings_of_none_leave_keywords_alone() -> None:
    f = mj.jit(lambda x, *, y: x + y, in_shardings=None)
    assert f(1.0, y=2.0) == 3.0 and mj.jit(lambda x: f(x, y=x))(2.0) == 4.0


# --- moves between host and devices

ONES = np.ones(4, np.float32)


@pytest.mark.device
@pytest.mark.parametrize("level", ["allow", "log"])
def test_moves_that_are_let_go(level: str) -> None:
    with mj.transfer_guard(level):
        assert float(mj.jit(lambda x: x.sum())(ONES)) == 4


@pytest.mark.device
def test_moves_that_nobody_asked_for_are_refused() -> None:
    there = mj.device_put(ONES)
    double = mj.jit(lambda x: 2 * x)
    double(there), double(ONES)
    with mj.transfer_guard("disallow"):
        np.testing.assert_array_equal(mj.device_get(double(there)), 2 * ONES)
        np.testing.assert_array_equal(double(mj.device_put(ONES)), 2 * ONES)
        with pytest.raises(mj.errors.JaxRuntimeError, match=r"Disallowed host-to-device transfer: aval=float32\[4\]"):
            double(ONES)
        with mj.transfer_guard_host_to_device("allow"):
            double(ONES)
        with pytest.raises(mj.errors.JaxRuntimeError, match="Disallowed host-to-device"):
            double(ONES)
    double(ONES)
    with mj.transfer_guard_host_to_device("disallow_explicit"), pytest.raises(mj.errors.JaxRuntimeError, match="host-to-device"):
        mj.device_put(ONES)
    with mj.transfer_guard_device_to_device("disallow_explicit"):
        double(ONES)
        with pytest.raises(mj.errors.JaxRuntimeError, match=r"Disallowed device-to-device transfer: aval=float32\[4\]"):
            mj.device_put(there, mj.devices()[1])
    with mj.transfer_guard_device_to_host("disallow"):
        assert mj.device_get(there).sum() == 4


def test_levels_of_guards() -> None:
    with pytest.raises(ValueError, match="there is no level 'forbid'\n  fix: use one of allow, log, disallow, log_explicit"):
        mj.transfer_guard("forbid")


def test_what_users_print() -> None:
    x = mnp.arange(3)
    assert isinstance(x.aval, mj.core.ShapedArray) and x.aval == mj.typeof(x) and repr(x.aval) == "ShapedArray(int32[3])"
    assert x.aval.str_short(short_dtypes=True) == "i32[3]" and repr(mnp.asarray(2.0).aval) == "ShapedArray(float32[], weak_type=True)"
    assert mj.random.key(0).aval == mj.typeof(mj.random.key(0))
    seen = []
    mj.jit(lambda v: (seen.append(v.aval), v)[1])(x)
    mj.vmap(lambda v: (seen.append(v.aval), v)[1])(x)
    assert list(map(str, seen)) == ["int32[3]", "int32[]"]
    assert repr(mj.jit(test_what_users_print)).startswith("<PjitFunction of <function test_what_users_print at 0x")
    assert repr(x.at[1]) == "Array([0, 1, 2], dtype=int32).at[1]" and repr(x.at) == "Array([0, 1, 2], dtype=int32).at"
    assert (repr(mj.lax.Precision.HIGH), str(mj.sharding.AxisType.Explicit)) == ("Precision.HIGH", "AxisType.Explicit")
    assert str(mj.lax.Precision.HIGH) == "HIGH"
    assert mj.lax.GatherScatterMode.CLIP.value == 1


def test_the_environment_is_printed(capsys) -> None:
    text = mj.print_environment_info(return_string=True)
    assert mj.print_environment_info() is None and capsys.readouterr().out == f"{text}\n"
    assert text.startswith(f"meshjit: {mj.__version__}\njaxlib: ") and "process_count: 1" in text


def test_old_names_of_processes_and_kinds_without_arrays() -> None:
    assert (mj.host_count(), mj.host_id(), mj.host_ids()) == (mj.process_count(), mj.process_index(), mj.process_indices())
    assert isinstance(mnp.ones(3).addressable_shards[0], mj.Shard)
    assert mnp.issubdtype(np.str_, mnp.character) and not mnp.issubdtype(np.float32, mnp.flexible)
    assert (mj.core.max_dim(2, 3), mj.core.min_dim(2, 3)) == (3, 2)
    with pytest.raises(TypeError):
        mnp.zeros(3, mnp.object_)
