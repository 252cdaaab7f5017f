"""Options: where they come from, how they are spelled, what is refused."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from meshjit.config import Config
from meshjit.options import ACCEPTED, OPTIONS


def test_defaults() -> None:
    config = Config({})
    assert {option.name: config.read(option.name) for option in OPTIONS} == {
        "enable_x64": False, "default_device": None, "num_cpu_devices": 1, "platforms": None,
        "device_model": None, "threefry_partitionable": True, "default_prng_impl": "threefry2x32", "mesh_axis_types": "auto", "automatic": False,
        "debug_nans": False, "debug_infs": False, "disable_jit": False, "explain_cache_misses": False,
        "traceback_filtering": "auto", "log_compiles": False, "log": None, "check_tracer_leaks": False, "default_matmul_precision": None, "cpu_collectives": "gloo",
        "numpy_dtype_promotion": "standard", "numpy_rank_promotion": "allow",
        "compilation_cache_dir": None, "compilation_cache_shared": False, "enable_compilation_cache": True,
        "persistent_cache_min_compile_time_secs": 0.0, "persistent_cache_min_entry_size_bytes": 0,
            "compilation_cache_max_size": -1,
        "auto_initialize": True, "agreement_timeout": 300.0, "heartbeat_timeout": 10, "shutdown_timeout": 300.0,
        "watchdog": True, "mtls_cert_file": None, "mtls_key_file": None, "mtls_ca_file": None, "mtls_peer_uri_prefix": None,
         "stall_report": 8.0, "stall_timeout": 300.0,
        "legacy_prng_key": "allow", "enable_custom_prng": False, "random_seed_offset": 0, "high_dynamic_range_gumbel": False,
        "allow_f16_reductions": True, "no_tracing": False, "no_execution": False, "transfer_guard": None,
        "transfer_guard_host_to_device": None, "transfer_guard_device_to_device": None, "transfer_guard_device_to_host": None,
        "array_garbage_collection_guard": None, "logging_level": None, "thread_guard": False, "enable_checks": False, "dump_ir_to": None,
        "disable_most_optimizations": False, "optimization_level": "UNKNOWN", "exec_time_optimization_effort": 0.0,
        "memory_fitting_level": "O2", "memory_fitting_effort": 0.0, "cpu_enable_async_dispatch": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "name", "value"),
    [
        ({"MESHJIT_ENABLE_X64": "1"}, "enable_x64", True),
        ({"JAX_ENABLE_X64": "True"}, "enable_x64", True),
        ({"MESHJIT_ENABLE_X64": "off", "JAX_ENABLE_X64": "1"}, "enable_x64", False),
        ({"MESHJIT_ENABLE_X64": "", "JAX_ENABLE_X64": "1"}, "enable_x64", True),
        ({"JAX_PLATFORMS": "gpu, cpu"}, "platforms", "cuda,cpu"),
        ({"XLA_FLAGS": "--a=1 --xla_force_host_platform_device_count=6"}, "num_cpu_devices", 6),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=6", "JAX_NUM_CPU_DEVICES": "2"}, "num_cpu_devices", 2),
        ({"MESHJIT_AUTOMATIC": "1"}, "automatic", True),
        ({"MESHJIT_AGREEMENT_TIMEOUT": "2.5"}, "agreement_timeout", 2.5),
        ({"JAX_COMPILATION_CACHE_DIR": "/tmp/x/../y"}, "compilation_cache_dir", "/tmp/y"),
        ({"JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}, "persistent_cache_min_entry_size_bytes", -1),
    ],
)
def test_environment(environ: dict[str, str], name: str, value: object) -> None:
    assert getattr(Config(environ), name) == value


def test_spelling_of_jax() -> None:
    config = Config({})
    config.update("jax_enable_x64", True)
    config.update("jax_cpu_collectives_implementation", "none")
    assert config.enable_x64 is config.jax_enable_x64 is True and config.cpu_collectives == "none"


def test_unknown_names_raise_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="there is no config option 'jax_enable_x32'; did you mean 'enable_x64'?"):
        Config({}).update("jax_enable_x32", True)
    with pytest.raises(AttributeError, match="there is no config option 'zzz'; there are enable_x64, default_device, num_cpu_devices"):
        Config({}).zzz  # noqa: B018


def test_assignment_is_refused() -> None:
    with pytest.raises(AttributeError, match=r'options are set by config.update\("enable_x64", True\)'):
        Config({}).enable_x64 = True


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("enable_x64", "maybe", "config option enable_x64: 'maybe' does not fit: expected true or false"),
        ("num_cpu_devices", 0, "0 does not fit: expected an integer of at least 1"),
        ("num_cpu_devices", "two", "'two' does not fit: expected a number"),
        ("platforms", "cpu,metal", "'metal' is no platform: expected a comma-separated list of cpu, cuda, tpu"),
        ("default_matmul_precision", "low", "'low' does not fit: expected one of None, 'default'"),
        ("agreement_timeout", 0, "0 does not fit: expected a number of seconds above 0"),
        ("agreement_timeout", None, "None does not fit: expected a number"),
        ("compilation_cache_dir", 3, "3 does not fit: expected a path"),
        ("persistent_cache_min_compile_time_secs", True, "True does not fit: expected a number"),
    ],
)
def test_values_that_do_not_fit(name: str, value: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Config({}).update(name, value)


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ValueError, match="environment variable JAX_ENABLE_X64: 'x' does not fit"):
        Config({"JAX_ENABLE_X64": "x"})


def test_using_holds_for_a_block_and_a_thread() -> None:
    config, seen = Config({}), []
    with config.using(enable_x64=True, jax_debug_nans=True):
        thread = threading.Thread(target=lambda: seen.append(config.enable_x64))
        thread.start()
        thread.join()
        with config.using(enable_x64=False):
            assert (config.enable_x64, config.debug_nans) == (False, True)
        assert config.enable_x64 is True
    assert (config.enable_x64, config.debug_nans, seen) == (False, False, [False])
    with pytest.raises(ValueError), config.using(enable_x64="maybe"):
        pass


def test_frozen_options_may_be_set_to_what_they_are() -> None:
    config = Config({"MESHJIT_NUM_CPU_DEVICES": "8"})
    config.freeze("num_cpu_devices", "they exist")
    config.update("num_cpu_devices", 8)
    with pytest.raises(RuntimeError, match="cannot change from 8 to 4: they exist\n  fix: set it before"):
        config.update("num_cpu_devices", 4)
    with pytest.raises(RuntimeError), config.using(num_cpu_devices=4):
        pass


def test_what_an_option_turned_out_to_mean_may_be_said_late() -> None:
    config = Config({})
    config.freeze("platforms", "devices are in use")
    config.found_out("platforms", "cpu")
    config.update("jax_platform_name", "cpu")
    with pytest.raises(RuntimeError, match="cannot change from 'cpu' to 'tpu': devices are in use"):
        config.update("jax_platform_name", "tpu")


def test_settings_of_how_jax_works_inside_are_accepted() -> None:
    config = Config({})
    config.update("jax_use_shardy_partitioner", False)
    config.update("jax_raise_persistent_cache_errors", True)
    assert (config.jax_use_shardy_partitioner, config.raise_persistent_cache_errors) == (False, True)
    for option in ACCEPTED:
        config.update(option.name, option.default)
        assert config.read("jax_" + option.name) == option.default
    assert not {option.name for option in ACCEPTED} & {option.name for option in OPTIONS}


def test_context_variables_are_part_of_what_calls_are_found_by() -> None:
    config = Config({})
    before = config.context()
    name = config.context_variable("a")
    assert config.context() != before and config.read(name) == config.traced_values()[name] == "a"
    with config.using(**{name: "b"}):
        assert config.read(name) == "b" and config.context() != before
    assert config.read(name) == "a"


def test_describe_names_every_option() -> None:
    text = Config({}).describe()
    assert all(f"{option.name} = " in text and option.doc in text for option in OPTIONS)
    assert {"enable_x64", "update"} <= set(dir(Config({})))


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("--jax_enable_x64", {"enable_x64": True}),
        ("--jax_enable_x64=false", {"enable_x64": False}),
        ("--nojax_threefry_partitionable -jax_num_cpu_devices=8", {"threefry_partitionable": False, "num_cpu_devices": 8}),
        ("train --jax_platform_name cpu --steps 3", {"platforms": "cpu"}),
        ("--jax_cpu_collectives_implementation=none -- --jax_enable_x64", {"cpu_collectives": "none", "enable_x64": False}),
        ("--no-cache --nojax --notes=--jax_enable_x64 --jax_log_compile jax_enable_x64", {"enable_x64": False, "log_compiles": False}),
    ],
)
def test_flags_of_a_command_line(line: str, values: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["program.py", *line.split()])
    config = Config({})
    config.parse_flags_with_absl()
    assert {name: config.read(name) for name in values} == values


def test_a_flag_whose_value_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["program.py", "--jax_num_cpu_devices=many"])
    with pytest.raises(ValueError, match="config option num_cpu_devices: 'many' does not fit"):
        Config({}).parse_flags_with_absl()


PROGRAM = """
from absl import app, flags
from meshjit.config import config
config.config_with_absl()
flags.DEFINE_integer("steps", 1, "")
def main(rest):
    print(config.enable_x64, config.num_cpu_devices, config.debug_nans, flags.FLAGS.steps, rest[1:])
app.run(main)
"""


def test_options_are_flags_of_absl(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), "--jax_enable_x64", "--steps=3", "--jax_num_cpu_devices=2", "a"]
    assert subprocess.check_output(command, text=True) == "True 2 False 3 ['a']\n"


def test_flags_of_absl_are_read_where_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """What libraries' tests define with absl can be asked for afterwards."""
    read: list[tuple[list[str], bool]] = []

    class Flags:
        def is_parsed(self) -> bool:
            return bool(read)

        def __call__(self, argv: list[str], known_only: bool) -> None:
            read.append((argv, known_only))

    flags = types.ModuleType("absl.flags")
    vars(flags)["FLAGS"] = Flags()
    monkeypatch.setitem(sys.modules, "absl.flags", flags)
    monkeypatch.setattr(sys, "argv", ["test.py", "--test_srcdir=x"])
    for _ in range(2):
        Config({}).parse_flags_with_absl()
    assert read == [(["test.py", "--test_srcdir=x"], True)]
