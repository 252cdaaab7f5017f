"""Callbacks: what they are called with, how often and in which order, in every transformation, as JAX's documents have it."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as jnp
from meshjit.core.evaluate import evaluate
from meshjit.core.parser import parse_program
from meshjit.core.simulate import simulate
from meshjit.core.verify import verify
from meshjit.experimental import io_callback
from meshjit.partition.partition import partition
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from sharding.mesh import AbstractMesh

pytestmark = pytest.mark.device

SCALAR = mj.ShapeDtypeStruct((), np.float32)
FOUR = mj.ShapeDtypeStruct((4,), np.float32)
X = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def _nothing_is_running() -> Iterator[None]:
    yield
    mj.effects_barrier()


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """The lines that a call prints."""

    def lines(f: Callable[..., Any], *args: Any) -> list[str]:
        f(*args)
        mj.effects_barrier()
        return capsys.readouterr().out.splitlines()

    return lines


def mesh() -> Mesh:
    return mj.make_mesh((4,), ("x",))


def sharded(x: Any = X) -> Any:
    return mj.device_put(x, NamedSharding(mesh(), P("x")))


# -- debug.print


@pytest.mark.parametrize("wrap", [lambda f: f, mj.jit])
def test_print_fills_in_formats(printed: Any, wrap: Any) -> None:
    def f(x: Any) -> Any:
        mj.debug.print("x = {x}, {y} and {name}", x=x, y=x[1], name="w")
        mj.debug.print("{:.2f} {!r}", x[2], x)
        mj.debug.print("{{}} {t}", t={"a": (x[0], 1)})
        mj.debug.print("plain")
        return x

    lines = printed(wrap(f), X)
    assert sorted(lines) == sorted([
        "x = [0. 1. 2. 3.], 1.0 and w", "2.00 Array([0., 1., 2., 3.], dtype=float32)",
        "{} {'a': (Array(0., dtype=float32), Array(1, dtype=int32))}", "plain",
    ])  # fmt: skip


def test_print_in_the_form_of_two_calls(printed: Any) -> None:
    assert printed(mj.jit(lambda x: mj.debug.print(ordered=True)("v {x}", x=x)), X) == ["v [0. 1. 2. 3.]"]
    with pytest.raises(TypeError, match="two-call form"):
        mj.debug.print(x=1)


def test_print_takes_numpys_options_of_the_call(printed: Any) -> None:
    with np.printoptions(precision=2):
        assert printed(mj.jit(lambda x: mj.debug.print("{}", x)), np.array([1 / 3], np.float32)) == ["[0.33]"]


@pytest.mark.parametrize(("call", "kind", "words"), [
    (lambda x: mj.debug.print("v", x), ValueError, "Unused positional arguments to `debug.print`: "),
    (lambda x: mj.debug.print("v {x}", x=x, y=2), ValueError, r"Unused keyword arguments to `debug.print`: \['y'\].*f-string"),
    (lambda x: mj.debug.print("v {x} {z}", x=x), KeyError, "z"),
    (lambda x: mj.debug.callback(3, x), TypeError, "must be callable, but got an object of type <class 'int'>"),
    (lambda x: mj.pure_callback(abs, FOUR, x, vmap_method="no"), ValueError, "pure_callback: there is no vmap_method 'no'; there are 'sequential'"),
    (lambda x: mj.pure_callback(abs, mj.ShapeDtypeStruct((4,), np.float64), x), ValueError, "64-bit types when `enable_x64`"),
    (lambda x: mj.pure_callback(abs, FOUR, "x"), TypeError, "str"),
])  # fmt: skip
def test_wrong_calls(call: Any, kind: Any, words: str) -> None:
    for f in (call, mj.jit(call)):
        with pytest.raises(kind, match=words):
            f(X)


def test_log_goes_to_the_logger_with_the_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "meshjit"):
        mj.jit(lambda x: mj.debug.log("x is {}", x))(X)
        mj.effects_barrier()
    (record,) = [r for r in caplog.records if r.message.startswith("x is")]
    assert record.message == "x is [0. 1. 2. 3.]" and record.filename == "test_api_callbacks.py"


# -- how often, and in which order


def test_vmap_prints_for_each_member(printed: Any) -> None:
    f = mj.vmap(lambda x, y: mj.debug.print("{} {}", x, y), (0, None))
    for each in (f, mj.jit(f)):
        assert printed(each, X, 2.0) == ["0.0 2.0", "1.0 2.0", "2.0 2.0", "3.0 2.0"]
    assert printed(mj.vmap(lambda x: mj.debug.print("same")), X) == ["same"]


def test_members_of_a_branch_print_in_both(printed: Any) -> None:
    def f(x: Any) -> Any:
        return mj.lax.cond(x > 1, lambda: mj.debug.print("a {}", x), lambda: mj.debug.print("b {}", x))

    assert sorted(printed(mj.vmap(f), X)) == [f"{name} {i}.0" for name in "ab" for i in range(4)]
    assert [printed(f, x) for x in X] == [["b 0.0"], ["b 1.0"], ["a 2.0"], ["a 3.0"]]


def test_loops_keep_the_order(printed: Any) -> None:
    def f(x: Any) -> Any:
        def body(c: Any, y: Any) -> Any:
            z = io_callback(lambda a, b: np.float32(a + b), SCALAR, c, y, ordered=True)
            mj.debug.print("scan {}", z, ordered=True)
            return z, z

        c, ys = mj.lax.scan(body, jnp.float32(0), x)
        c = mj.lax.cond(c > 3, lambda c: (mj.debug.print("big {}", c, ordered=True), c)[1], lambda c: c, c)

        def more(c: Any) -> Any:
            mj.debug.print("more {}", c, ordered=True)
            return c < 8

        def step(c: Any) -> Any:
            mj.debug.print("step {}", c, ordered=True)
            return c + 1.5

        return mj.lax.while_loop(more, step, c), ys

    expected = ["scan 0.0", "scan 1.0", "scan 3.0", "scan 6.0", "big 6.0", "more 6.0", "step 6.0", "more 7.5", "step 7.5", "more 9.0"]
    for each in (f, mj.jit(f)):
        assert printed(each, X) == expected
    assert printed(mj.jit(f), sharded()) == expected
    np.testing.assert_array_equal(mj.jit(f)(X)[1], [0, 1, 3, 6])


def test_order_holds_over_several_programs() -> None:
    seen: list[int] = []

    @mj.jit
    def first(x: Any) -> Any:
        io_callback(lambda v: seen.append(int(v)), None, x, ordered=True)
        return x + 1

    @mj.jit
    def second(x: Any) -> Any:
        io_callback(lambda v: seen.append(-int(v)), None, x, ordered=True)
        return x + 1

    on = [mj.device_put(np.int32(0), d) for d in mj.devices()[:2]]
    for i in range(10):
        first(i)
        second(i + on[i % 2])
    mj.effects_barrier()
    assert seen == [sign * i for i in range(10) for sign in (1, -1)]


@pytest.mark.parametrize("loop", ["scan", "while", "fori"])
def test_a_loop_whose_results_nobody_needs_runs(loop: str) -> None:
    seen: list[float] = []

    def tell(x: Any) -> Any:
        io_callback(lambda v: seen.append(float(v)), None, x)
        return x + 1

    @mj.jit
    def f(x: Any) -> Any:
        if loop == "scan":
            mj.lax.scan(lambda c, _: (tell(c), None), x, None, 3)
        elif loop == "while":
            mj.lax.while_loop(lambda c: c < 3, tell, x)
        else:
            mj.lax.fori_loop(0, 3, lambda i, c: tell(c), x)
        return x

    f(jnp.float32(0))
    mj.effects_barrier()
    assert seen == [0, 1, 2]


def test_equal_calls_stay_two_and_pure_ones_may_be_one() -> None:
    seen: list[float] = []

    def tell(x: Any) -> Any:
        seen.append(float(x))
        return np.asarray(x)

    def f(x: Any) -> Any:
        return io_callback(tell, SCALAR, x) + io_callback(tell, SCALAR, x)

    assert float(mj.jit(f)(3.0)) == 6 and seen == [3, 3]
    seen.clear()
    assert float(mj.jit(lambda x: mj.pure_callback(tell, SCALAR, x) + mj.pure_callback(tell, SCALAR, x))(3.0)) == 6
    assert len(seen) <= 2
    seen.clear()
    mj.jit(lambda x: (mj.pure_callback(tell, SCALAR, x), x)[1])(3.0)
    assert not seen  # nobody needs it


# -- derivatives


def test_differentiated_functions_print_values_once(printed: Any) -> None:
    def f(x: Any) -> Any:
        mj.debug.print("x {}", x)
        return jnp.sum(jnp.sin(x) * x)

    for each in (mj.grad(f), mj.jit(mj.grad(f)), lambda x: mj.jvp(f, (x,), (x,)), lambda x: mj.linearize(f, x)[1](x)):
        assert printed(each, X) == ["x [0. 1. 2. 3.]"]


def test_a_checkpoint_prints_again(printed: Any) -> None:
    def f(x: Any) -> Any:
        mj.debug.print("x {}", x)
        return jnp.sum(jnp.sin(x))

    assert printed(mj.grad(mj.checkpoint(f)), X) == ["x [0. 1. 2. 3.]"] * 2
    assert printed(mj.jit(mj.grad(mj.checkpoint(f))), X) == ["x [0. 1. 2. 3.]"] * 2


def test_a_scan_prints_on_the_way_forth_alone(printed: Any) -> None:
    def f(x: Any) -> Any:
        def body(c: Any, y: Any) -> Any:
            mj.debug.print("c {}", c)
            return c * y, None

        return mj.lax.scan(body, x[0] + 1, x)[0]

    assert printed(mj.grad(f), X) == ["c 1.0", "c 0.0", "c 0.0", "c 0.0"]


def test_callbacks_have_no_derivative() -> None:
    for f in (mj.grad(lambda x: mj.pure_callback(np.sin, SCALAR, x)), lambda x: mj.jvp(lambda x: mj.pure_callback(np.sin, SCALAR, x), (x,), (x,))):
        with pytest.raises(ValueError, match="pure_callback: nothing is known of the function's derivative. custom_jvp or custom_vjp say it"):
            f(1.0)
    with pytest.raises(ValueError, match="io_callback: effects have no derivative. With stop_gradient on its operands it needs none"):
        mj.grad(lambda x: (io_callback(print, None, x), x)[1])(1.0)
    stopped = mj.grad(lambda x: x * mj.pure_callback(np.cos, SCALAR, mj.lax.stop_gradient(x)))
    assert abs(float(stopped(1.0)) - np.cos(1)) < 1e-6


# -- vmap


@pytest.mark.parametrize(("method", "shapes"), [
    ("sequential", [((), ())] * 4), ("sequential_unrolled", [((), ())] * 4), ("expand_dims", [((4,), (1,))]),
    ("broadcast_all", [((4,), (4,))]), ("legacy_vectorized", [((4,), ())]),
])  # fmt: skip
def test_vmap_methods(method: str, shapes: Any) -> None:
    seen: list[Any] = []

    def add(a: Any, b: Any) -> Any:
        seen.append((np.shape(a), np.shape(b)))
        return np.asarray(a) + np.asarray(b)

    f = mj.vmap(lambda a, b: mj.pure_callback(add, SCALAR, a, b, vmap_method=method), (0, None))
    for each in (f, mj.jit(f)):
        np.testing.assert_array_equal(each(X, 2.0), X + 2)
        assert seen == shapes
        seen.clear()
    if method != "legacy_vectorized":
        twice = mj.vmap(f, (None, 0))
        np.testing.assert_array_equal(twice(X, X[:2]), X + X[:2, None])


def test_vmap_refusals() -> None:
    with pytest.raises(NotImplementedError, match="vmap of pure_callback: nobody has said how the function takes many members at once"):
        mj.vmap(lambda x: mj.pure_callback(np.sin, SCALAR, x))(X)
    with pytest.raises(ValueError, match="vmap of io_callback at .*: it is ordered, and the members of a batch have no order"):
        mj.vmap(lambda x: io_callback(np.sin, SCALAR, x, ordered=True))(X)
    tell = lambda x: io_callback(print, None, x)  # noqa: E731
    with pytest.raises(NotImplementedError, match="vmap of cond with io_callback at .*: members go through the cond differently"):
        mj.vmap(lambda x: mj.lax.cond(x > 1, lambda: tell(x), lambda: None))(X)
    with pytest.raises(NotImplementedError, match="vmap of while.* with io_callback at"):
        mj.vmap(lambda x: mj.lax.while_loop(lambda c: c < 3, lambda c: (tell(c), c + 1)[1], x))(X)


def test_vmap_of_io_calls_for_each_member() -> None:
    seen: list[float] = []

    def tell(x: Any) -> Any:
        seen.append(float(x))
        return np.asarray(x) * 2

    np.testing.assert_array_equal(mj.vmap(lambda x: io_callback(tell, SCALAR, x))(X), X * 2)
    assert seen == [0, 1, 2, 3]


# -- results and errors


def test_results_are_what_was_declared() -> None:
    double = mj.jit(lambda x: mj.pure_callback(lambda a: {"b": a * 2, "a": 1.5}, {"a": SCALAR, "b": FOUR}, x))
    result = double(X)
    np.testing.assert_array_equal(result["b"], X * 2)
    assert float(result["a"]) == 1.5 and result["a"].dtype == np.float32
    for dtype in (np.bool_, np.int8, np.uint32, np.float16, jnp.bfloat16, np.complex64):
        x = np.array([[1, 0, 1]], dtype)
        for wrap in (lambda f: f, mj.jit):
            np.testing.assert_array_equal(wrap(lambda x: mj.pure_callback(lambda a: a, x, x))(x), x)
    empty = np.zeros((0, 3), np.float32)
    assert mj.jit(lambda x: mj.pure_callback(lambda a: a, x, x))(empty).shape == (0, 3)


@pytest.mark.parametrize(("function", "words"), [
    (lambda a: np.ones(3, np.float32), r"Incorrect output shape for return value #0: Expected: \(4,\), Actual: \(3,\)"),
    (lambda a: np.ones(4, np.int32), "Incorrect output dtype for return value #0: Expected: float32, Actual: int32"),
    (lambda a: (a, a), "Mismatched number of outputs from callback. Expected: 1, Actual: 2"),
])  # fmt: skip
def test_wrong_results(function: Any, words: str) -> None:
    for wrap in (lambda f: f, mj.jit):
        with pytest.raises(RuntimeError, match=words):
            wrap(lambda x: mj.pure_callback(function, FOUR, x))(X).block_until_ready()


def fail(x: Any) -> Any:
    raise ValueError("negative pressure")


@pytest.mark.parametrize("call", [
    lambda x: mj.pure_callback(fail, FOUR, x), lambda x: io_callback(fail, FOUR, x, ordered=True), lambda x: mj.debug.callback(fail, x),
])  # fmt: skip
def test_what_a_callback_raises_reaches_the_caller_with_its_line(call: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError) as caught:
        mj.block_until_ready(mj.jit(call)(X))
        mj.effects_barrier()
    line = fail.__code__.co_firstlineno + 1
    assert f'test_api_callbacks.py", line {line}, in fail' in str(caught.value) and "ValueError: negative pressure" in str(caught.value)
    assert "fail failed" in caplog.text
    with contextlib.suppress(RuntimeError):  # that nobody has asked for yet
        mj.effects_barrier()
    assert mj.jit(lambda x: io_callback(lambda a: a * 2, FOUR, x, ordered=True))(X)[1] == 2  # holds up nothing after it


def test_eagerly_a_debug_callback_raises_its_own_error() -> None:
    with pytest.raises(ValueError, match="negative pressure"):
        mj.debug.callback(fail, X)
    with pytest.raises(RuntimeError, match="negative pressure") as caught:
        mj.pure_callback(fail, FOUR, X)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_callback_may_not_wait_for_its_own_program() -> None:
    with pytest.raises(RuntimeError, match="effects_barrier: called inside of a callback"):
        mj.block_until_ready(mj.jit(lambda x: mj.pure_callback(lambda a: mj.effects_barrier(), FOUR, x))(X))


def test_callbacks_call_jitted_functions_and_callbacks() -> None:
    seen: list[float] = []
    inner = mj.jit(lambda x: (io_callback(lambda v: seen.append(float(v)), None, jnp.sum(x), ordered=True), jnp.sin(x))[1])
    outer = mj.jit(lambda x: mj.pure_callback(lambda a: inner(a + 1), FOUR, x) * 2)
    for _ in range(3):
        np.testing.assert_allclose(outer(X), np.sin(X + 1) * 2, rtol=1e-6)
    mj.effects_barrier()
    assert seen == [10.0] * 3


def test_arguments_are_arrays_of_their_own() -> None:
    kept: list[Any] = []

    def keep(x: Any, *, scale: Any) -> None:
        assert isinstance(x, mj.Array) and isinstance(scale, mj.Array)
        kept.append(x * scale)  # computes inside of the call

    f = mj.jit(lambda x: (mj.debug.callback(keep, x, scale=x[1]), x + 1)[1])
    for i in range(3):
        f(X + i)
    mj.effects_barrier()
    np.testing.assert_array_equal(np.stack([np.asarray(k) for k in kept]), [(X + i) * (i + 1) for i in range(3)])


# -- sharded values


def test_on_sharded_values_one_device_calls_with_all(printed: Any) -> None:
    x = sharded()
    assert printed(mj.jit(lambda x: mj.debug.print("{}", x)), x) == ["[0. 1. 2. 3.]"]
    assert sorted(printed(mj.jit(lambda x: mj.debug.print("{}", x, partitioned=True)), x)) == ["[0.]", "[1.]", "[2.]", "[3.]"]
    seen: list[Any] = []

    def double(a: Any) -> Any:
        seen.append(np.asarray(a).tolist())
        return np.asarray(a) * 2

    for call in (mj.pure_callback, io_callback, functools.partial(io_callback, ordered=True)):
        result = mj.jit(lambda x, call=call: call(double, FOUR, x) * 1)(x)
        np.testing.assert_array_equal(result, X * 2)
    assert seen == [X.tolist()] * 3


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "bfloat16", "float32", "complex64"])
def test_results_reach_all_devices_to_the_bit(dtype: str) -> None:
    values = np.array([-0.0, 1, -np.inf, np.nan] if dtype != "int8" else [0, 1, -128, 127]).astype(jnp.dtype(dtype))
    result = mj.jit(lambda x: mj.pure_callback(lambda a: values, mj.ShapeDtypeStruct((4,), dtype), x))(sharded())
    for shard in result.addressable_shards:
        assert np.asarray(shard.data).tobytes() == values[shard.index].tobytes()


def test_uneven_shards_come_without_padding(printed: Any) -> None:
    f = mj.jit(lambda x: mj.debug.print("{}", x, partitioned=True), in_shardings=NamedSharding(mesh(), P("x")))
    assert sorted(printed(f, np.arange(6.0, dtype=np.float32))) == ["[0. 1.]", "[2. 3.]", "[4. 5.]", "[]"]


def test_a_sharding_says_which_device_calls() -> None:
    def f(x: Any, device: Any) -> Any:
        return mj.pure_callback(lambda a: a * 2, FOUR, x, sharding=SingleDeviceSharding(device))

    np.testing.assert_array_equal(mj.jit(f, static_argnums=1)(sharded(), mj.devices()[2]), X * 2)
    with pytest.raises(NotImplementedError, match="specifies device 7 that is not in the device assignment"):
        mj.jit(f, static_argnums=1)(sharded(), mj.devices()[7])
    with pytest.raises(NotImplementedError, match="pure_callback only supports SingleDeviceSharding, but got"):
        mj.pure_callback(lambda a: a, FOUR, X, sharding=NamedSharding(mesh(), P()))


def test_other_platforms_say_that_they_cannot() -> None:
    f = mj.jit(lambda x: mj.pure_callback(np.sin, SCALAR, x))
    traced = f.trace(jnp.float32(1))
    with pytest.raises(NotImplementedError, match=r"sin at .*is called back from a program for TPU"):
        traced.lower(lowering_platforms=("tpu",))
    assert "xla_ffi_python_gpu_callback" in traced.lower(lowering_platforms=("cuda",)).as_text()


# -- texts and lives


def test_texts_parse_back() -> None:
    program = mj.jit(lambda x: (mj.debug.print("{}", x), mj.pure_callback(fail, FOUR, x))[1]).trace(X).program
    text = str(program)
    assert "host('fail', " in text and str(parse_program(text)) == text
    number = text.split("host('fail', ")[1].split(",")[0]
    strange = parse_program(text.replace(f"host('fail', {number},", "host('fail', 99999999,"))
    assert "99999999" in str(strange)


def test_nothing_keeps_a_callback_alive() -> None:
    class Tell:
        def __call__(self, x: Any) -> None:
            pass

    tell = Tell()
    gone = weakref.ref(tell)
    f = mj.jit(functools.partial(lambda tell, x: mj.debug.callback(tell, x), tell))
    f(X)
    g = mj.vmap(functools.partial(lambda tell, x: mj.debug.callback(tell, x), tell))
    g(X)
    mj.effects_barrier()
    del f, g, tell
    mj.clear_caches()
    gc.collect()
    assert gone() is None


def test_a_compiled_program_keeps_its_callback_alive(printed: Any) -> None:
    compiled = mj.jit(lambda x: mj.debug.callback(lambda v: print("kept", v), x)).lower(X).compile()
    gc.collect()
    assert printed(compiled, X) == ["kept [0. 1. 2. 3.]"]


def test_effects_are_over_when_python_ends() -> None:
    code = (
        "import meshjit as mj, numpy as np, time\n"
        "f = mj.jit(lambda x: mj.debug.callback(lambda v: (time.sleep(0.2), print('seen', v)), x))\n"
        "f(np.float32(2))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=True)
    assert run.stdout == "seen 2.0\n"


# -- in custom derivatives and code for single devices, as JAX's documents use them


def test_a_callback_with_a_derivative_of_its_own() -> None:
    def on_host(function: Any, x: Any) -> Any:
        return mj.pure_callback(lambda v: function(np.asarray(v)), x, x, vmap_method="expand_dims")

    @mj.custom_jvp
    def sine(x: Any) -> Any:
        return on_host(np.sin, x)

    @sine.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return sine(*primals), on_host(np.cos, primals[0]) * tangents[0]

    def total(x: Any) -> Any:
        return jnp.sum(sine(x) ** 2)

    for wrap in (lambda f: f, mj.jit):
        np.testing.assert_allclose(wrap(mj.grad(total))(X), 2 * np.sin(X) * np.cos(X), atol=1e-6)
        np.testing.assert_allclose(wrap(mj.vmap(mj.grad(sine)))(X), np.cos(X), atol=1e-6)
        np.testing.assert_allclose(wrap(lambda x: mj.lax.scan(lambda c, y: (c, mj.grad(sine)(y)), 0.0, x)[1])(X), np.cos(X), atol=1e-6)
    np.testing.assert_allclose(mj.jit(mj.grad(total))(sharded()), 2 * np.sin(X) * np.cos(X), atol=1e-6)


def test_rules_print_gradients_and_tangents(printed: Any) -> None:
    @mj.custom_vjp
    def watched(x: Any) -> Any:
        return x

    def backward(_: Any, ct: Any) -> Any:
        mj.debug.print("gradient {}", ct)
        return (ct,)

    watched.defvjp(lambda x: (x, None), backward)
    f = mj.grad(lambda x: jnp.sin(watched(x) * 3.0))
    for each in (f, mj.jit(f)):
        assert printed(each, 0.0) == ["gradient 3.0"]

    @mj.custom_jvp
    def pushed(x: Any) -> Any:
        return x

    @pushed.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        mj.debug.print("tangent {}", tangents[0])
        return primals[0], tangents[0]

    assert printed(lambda x: mj.jvp(pushed, (x,), (2.0,)), 1.0) == ["tangent 2.0"]
    assert printed(mj.grad(pushed), 1.0) == []  # backwards there is no tangent


def test_code_for_single_devices_calls_on_each(printed: Any) -> None:
    def shard(x: Any) -> Any:
        mj.debug.print("shard {}", x)
        return mj.pure_callback(lambda v: np.asarray(v) * 2, x, x)

    f = mj.shard_map(shard, mesh=mesh(), in_specs=P("x"), out_specs=P("x"))
    results: list[Any] = []
    assert sorted(printed(lambda: results.append(mj.jit(f)(sharded())))) == [f"shard [{i}.]" for i in range(4)]
    np.testing.assert_array_equal(results[0], X * 2)

    def first(x: Any) -> Any:
        return mj.lax.cond(mj.lax.axis_index("x") == 2, lambda: mj.debug.print("only {}", x), lambda: None)

    each = mj.shard_map(lambda x: (first(x), x)[1], mesh=mesh(), in_specs=P("x"), out_specs=P("x"))
    assert printed(mj.jit(each), sharded()) == ["only [2.]"]


def test_code_for_the_devices_of_some_axes_calls_once_for_each() -> None:
    """The other axes share the work of one call, whichever device makes it."""
    mesh = mj.make_mesh((4, 2), ("x", "y"), axis_types=(mj.sharding.AxisType.Auto,) * 2)
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    for device in (None, mesh.devices[2, 1]):
        seen: list[Any] = []

        def double(v: Any, seen: list[Any] = seen) -> Any:
            seen.append(np.asarray(v)[0, 0])
            return np.asarray(v) * 2

        def body(v: Any, double: Any = double, device: Any = device) -> Any:
            sharding = None if device is None else SingleDeviceSharding(device)
            return io_callback(double, mj.ShapeDtypeStruct(v.shape, v.dtype), v, sharding=sharding)

        per_device = mj.shard_map(body, mesh=mesh, in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"})
        np.testing.assert_array_equal(mj.jit(per_device)(x), 2 * x)
        assert sorted(seen) == [0, 1]


def test_meaning_and_devices_call_alike() -> None:
    """In NumPy, and on imaginary devices, a function is called as often as by the compiled program."""
    seen: list[list[float]] = []

    def double(x: Any) -> Any:
        seen.append(np.asarray(x).tolist())
        return np.asarray(x) * 2

    program = mj.jit(lambda x: io_callback(double, FOUR, x, ordered=True) + 1).trace(X).program
    np.testing.assert_array_equal(evaluate(program, [X])[0], X * 2 + 1)
    plan = make_plan(program, AbstractMesh((4,), ("x",)), Annotations([P("x")], [P("x")]))
    local = verify(partition(plan))
    shards = simulate(local, plan.mesh, [[X[i : i + 1] for i in range(4)]])
    np.testing.assert_array_equal(np.concatenate(shards[0]), X * 2 + 1)
    assert seen == [X.tolist()] * 2
