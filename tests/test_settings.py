"""Options for a block of code under JAX's names, and what each of them does."""

from __future__ import annotations

import contextlib
import gc
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, numpy as mnp, random
from meshjit.config import config


@contextlib.contextmanager
def updated(**options: Any) -> Any:
    before = {name: config.read(name) for name in options}
    for name, value in options.items():
        config.update(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            config.update(name, value)


def test_a_setting_holds_for_a_block() -> None:
    assert mj.enable_x64.value is False
    with mj.enable_x64():
        assert mj.enable_x64.value is True and config.enable_x64 and config.x64_enabled
        with mj.enable_x64(False):
            assert mj.enable_x64.value is False
    assert repr(mj.enable_x64) == "<setting enable_x64 = False>"
    with pytest.raises(TypeError, match=r"enable_x64 is a setting, neither true nor false\n  fix: enable_x64.value"):
        bool(mj.enable_x64)
    with pytest.raises(TypeError, match=r"default_prng_impl needs a value: with default_prng_impl\('threefry2x32'\): ..."):
        mj.default_prng_impl()
    with pytest.raises(ValueError, match="config option legacy_prng_key: 'foo' does not fit: expected one of 'allow', 'warn', 'error'"):
        mj.legacy_prng_key("foo").__enter__()


def test_no_tracing_lets_run_what_is_known() -> None:
    f = mj.jit(lambda x: x + 1)
    x, longer = mnp.arange(3.0), mnp.arange(11.0)
    f(x)
    with mj.no_tracing(True):
        np.testing.assert_array_equal(f(x), [1, 2, 3])
        with pytest.raises(RuntimeError, match=r"jit\(lambda\) would be traced, and config.no_tracing is set"):
            f(longer)
        with pytest.raises(RuntimeError, match="sine would be compiled for new operands, and config.no_tracing is set"):
            mnp.sin(longer)
    np.testing.assert_array_equal(f(longer)[:2], [1, 2])


def test_no_execution_lets_compile_and_move() -> None:
    f = mj.jit(lambda x: x + 1)
    x = mnp.arange(3.0)
    f(x), f(x)
    with mj.no_execution(True):
        for run in (lambda: f(x), lambda: mnp.sin(x), lambda: f.lower(x).compile()(x)):
            with pytest.raises(RuntimeError, match="would run, and config.no_execution is set"):
                run()
        f.lower(x).compile()
        assert np.asarray(mj.device_put(np.ones(3)))[0] == np.asarray(x)[1] == 1
    np.testing.assert_array_equal(f(x), [1, 2, 3])


def test_raw_keys_can_be_refused() -> None:
    raw, typed = random.PRNGKey(0), random.key(0)
    expected = random.uniform(raw)
    with mj.legacy_prng_key("error"):
        assert random.uniform(typed) == expected
        with pytest.raises(ValueError, match="random.split: a raw key, and config.legacy_prng_key is 'error'\n  at test_settings.py:"):
            random.split(raw)
    with mj.legacy_prng_key("warn"), pytest.warns(UserWarning, match="random.uniform: a raw key") as seen:
        assert random.uniform(raw) == expected
    assert seen[0].filename == __file__


def test_keys_of_a_program() -> None:
    with mj.enable_custom_prng(True):
        assert random.PRNGKey(3) == random.key(3)
    with mj.default_prng_impl("rbg"):
        assert str(random.key(0).dtype) == "key<rbg>" and random.PRNGKey(0).shape == (4,)
    with config.using(random_seed_offset=3):
        assert random.key(4) == random.wrap_key_data(np.array([0, 7], np.uint32))
        assert mj.jit(random.key)(4) == random.wrap_key_data(np.array([0, 7], np.uint32))
    with mj.threefry_partitionable(False):
        old = random.uniform(random.key(0), (3,))
    assert not np.array_equal(old, random.uniform(random.key(0), (3,)))


def test_gumbel_numbers_of_high_range() -> None:
    key = random.key(0)
    with config.using(high_dynamic_range_gumbel=True):
        high = random.gumbel(key, (2,)), random.categorical(key, np.zeros(5))
    np.testing.assert_array_equal(high[0], random.gumbel(key, (2,), mode="high"))
    assert high[1] == random.categorical(key, np.zeros(5), mode="high")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_half_precision_can_be_refused(dtype: str) -> None:
    x = mnp.ones(3, dtype)
    with mj.allow_f16_reductions(False):
        with pytest.raises(ValueError, match=rf"^reduce_sum of {dtype}\[3\], and config.allow_f16_reductions is False\n  at test_sett"):
            lax.reduce_sum(x, (0,))
        assert mnp.sum(x) == 3 and lax.reduce_max(x, (0,)) == 1  # sums in float32
    assert lax.reduce_sum(x, (0,)) == 3


def test_a_users_context_is_part_of_what_a_function_is_traced_for() -> None:
    context, seen = mj.make_user_context("outer"), []

    @mj.jit
    def f(x: Any) -> Any:
        seen.append(context.value)
        return x

    f(1.0), f(1.0)
    with context("inner"):
        f(1.0), f(1.0)
        with context(None):
            f(1.0)
        f(1.0)
    f(1.0)
    assert seen == ["outer", "inner", None] and context.value == "outer"
    with pytest.raises(TypeError, match="the value of a context is part of what calls are found by, and must be hashable"):
        with context([]):
            pass


def test_guards_of_moves_as_options() -> None:
    f = mj.jit(lambda x: x + 1)
    with updated(jax_transfer_guard="disallow"):
        with pytest.raises(Exception, match="[Dd]isallowed host-to-device transfer"):
            f(np.ones(3))
        with mj.transfer_guard("allow"):
            f(np.ones(3))
    with config.using(transfer_guard_host_to_device="disallow"), pytest.raises(Exception, match="[Dd]isallowed host-to-device"):
        f(np.ones(3))
    np.testing.assert_array_equal(f(np.ones(3)), [2, 2, 2])


def test_arrays_that_are_garbage_can_be_logged(capfd: pytest.CaptureFixture[str]) -> None:
    def leave_a_cycle() -> None:
        cycle = [mnp.ones(3) + 1]
        cycle.append(cycle)

    gc.collect()
    with mj.array_garbage_collection_guard("log"):
        leave_a_cycle()
        gc.collect()
    logged = capfd.readouterr().err
    leave_a_cycle()
    gc.collect()
    assert "Python garbage collector" in logged and "Python garbage collector" not in capfd.readouterr().err


def test_the_level_of_our_logger(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("meshjit")
    with updated(jax_logging_level="debug"):
        assert log.level == logging.DEBUG and len(log.handlers) == 1
    assert log.level == logging.NOTSET and not log.handlers


def test_what_is_compiled_can_be_written(tmp_path: Path) -> None:
    with updated(dump_ir_to=tmp_path / "ir"):
        mj.jit(lambda x: x * 3.25, keep_unused=True)(np.ones(7))
    (file,) = (tmp_path / "ir").iterdir()
    assert file.name.startswith("meshjit_ir") and file.name.endswith("_lambda.mlir") and "tensor<7xf32>" in file.read_text()


@pytest.mark.parametrize(
    "options",
    [
        {"disable_most_optimizations": True},
        {"optimization_level": "O1", "memory_fitting_level": "O1"},
        {"exec_time_optimization_effort": -0.5, "memory_fitting_effort": 0.5},
    ],
)
def test_how_much_xla_optimizes(options: dict[str, Any]) -> None:
    x = mnp.arange(4.0)
    with updated(**options):
        traced = mj.jit(lambda x: mnp.sin(x) @ x).trace(x)
        assert traced.call.options
        np.testing.assert_allclose(traced.lower().compile()(x), np.sin(x) @ x, rtol=1e-6)


def test_threads_can_be_kept_from_shared_programs() -> None:
    with mj.thread_guard(True):
        assert mj.jit(lambda x: x + 1)(1.0) == 2  # of this process alone: every thread may
    assert mj.thread_guard.value is False
