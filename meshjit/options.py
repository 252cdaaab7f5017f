"""The options of `config` in one table: how each is read, its default, where the environment sets it, what JAX calls it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sharding.figures import DEVICES


@dataclass(frozen=True)
class Option:
    """One option: how its text is read, its default, where the environment sets it, what JAX calls it."""

    name: str
    parse: Callable[[Any], Any]  # a value of the user's, or the text of an environment variable, to the option's type
    default: Any
    doc: str
    variables: tuple[str, ...]  # the first that is set counts
    jax_name: str = ""


def _boolean(value: Any) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    try:
        return words[str(value).strip().lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def _integer_from(low: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, (bool, float)) or int(value) < low:
            raise ValueError(f"expected an integer of at least {low}")
        return int(value)

    return parse


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not float(value) > 0:
        raise ValueError("expected a number of seconds above 0")
    return float(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return float(value)


def _folder(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str | os.PathLike):
        raise ValueError("expected a path")
    return os.path.abspath(os.path.expanduser(value))


def _word(value: Any) -> str | None:
    return str(value) if value else None


def _one_of(*choices: str | None) -> Callable[[Any], str | None]:
    def parse(value: Any) -> str | None:
        found = None if value in (None, "") else str(value).lower()
        if found not in choices:
            raise ValueError(f"expected one of {', '.join(map(repr, choices))}")
        return found

    return parse


def _model(value: Any) -> str | None:
    """A name of DEVICES, or the full path of a file."""
    if value in (None, ""):
        return None
    if isinstance(value, str | os.PathLike) and os.fspath(value).endswith(".toml"):
        return _folder(value)
    if str(value).lower() not in DEVICES:
        raise ValueError(f"expected one of {', '.join(map(repr, DEVICES))}, or a file that ends in .toml")
    return str(value).lower()


def _platform_list(value: Any) -> str | None:
    """ "cuda,cpu" or None; "gpu" means "cuda"."""
    if value in (None, ""):
        return None
    names = [{"gpu": "cuda"}.get(name, name) for name in str(value).lower().replace(" ", "").split(",")]
    unknown = [name for name in names if name not in ("cpu", "cuda", "tpu")]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no platform: expected a comma-separated list of cpu, cuda, tpu")
    return ",".join(names)


def _device(value: Any) -> Any:
    """A device of `meshjit.devices()`, or None."""
    if value is not None and not hasattr(value, "process_index"):
        raise ValueError("expected one of meshjit.devices(), or None")
    return value


_PRECISIONS = (None, "default", "high", "highest", "bfloat16", "tensorfloat32", "float32")

OPTIONS = (
    Option(
        "enable_x64", _boolean, False,
        "Keep 64-bit types; otherwise float64, int64, … become their 32-bit kin where arrays are made.",
        ("MESHJIT_ENABLE_X64", "JAX_ENABLE_X64"),
    ),
    Option(
        "default_device", _device, None,
        "Where values go, and computations run, for which nobody named a place; None: the first device.",
        (),
    ),
    Option(
        "num_cpu_devices", _integer_from(1), 1,
        "Virtual CPU devices of this process. --xla_force_host_platform_device_count in XLA_FLAGS is honoured, too.",
        ("MESHJIT_NUM_CPU_DEVICES", "JAX_NUM_CPU_DEVICES"),
    ),
    Option(
        "platforms", _platform_list, None,
        'Platforms in order of preference, as "cuda,cpu"; None: an accelerator whose plugin works, else CPU.',
        ("MESHJIT_PLATFORMS", "JAX_PLATFORMS"),
    ),
    Option(
        "device_model", _model, None,
        'Whose figures plans are priced with, as "h100", "v5p" or a file, "cluster.toml"; None: those of the devices.',
        ("MESHJIT_DEVICE_MODEL",),
    ),
    Option(
        "automatic", _boolean, False,
        "jit under a mesh searches for the best plan where nobody names a placement, as meshjit.auto does.",
        ("MESHJIT_AUTOMATIC",),
    ),
    Option(
        "mesh_axis_types", _one_of("auto", "explicit"), "auto",
        'Axes that `make_mesh` makes where it is not told: "auto", or "explicit", as JAX 0.10 does.',
        ("MESHJIT_MESH_AXIS_TYPES",),
    ),
    Option(
        "threefry_partitionable", _boolean, True,
        "Random bits are generated by position, so that they do not depend on the placement and need no communication.",
        ("MESHJIT_THREEFRY_PARTITIONABLE", "JAX_THREEFRY_PARTITIONABLE"),
    ),
    Option(
        "default_prng_impl", _one_of("threefry2x32", "rbg", "unsafe_rbg"), "threefry2x32",
        "What makes random bits of keys for which nobody said it, and of raw ones.",
        ("MESHJIT_DEFAULT_PRNG_IMPL", "JAX_DEFAULT_PRNG_IMPL"),
    ),
    Option(
        "debug_nans", _boolean, False,
        "Raise FloatingPointError when a compiled function gives a NaN.",
        ("MESHJIT_DEBUG_NANS", "JAX_DEBUG_NANS"),
    ),
    Option(
        "debug_infs", _boolean, False,
        "Raise FloatingPointError when a compiled function gives an infinity.",
        ("MESHJIT_DEBUG_INFS", "JAX_DEBUG_INFS"),
    ),
    Option(
        "disable_jit", _boolean, False,
        "Run jitted functions, loops and branches as ordinary Python, one op at a time.",
        ("MESHJIT_DISABLE_JIT", "JAX_DISABLE_JIT"),
    ),
    Option(
        "explain_cache_misses", _boolean, False,
        "Log, as a warning, why a jitted function is traced again: which type, placement or static value changed.",
        ("MESHJIT_EXPLAIN_CACHE_MISSES", "JAX_EXPLAIN_CACHE_MISSES"),
    ),
    Option(
        "traceback_filtering", _one_of("off", "auto", "tracebackhide", "remove_frames", "quiet_remove_frames"), "auto",
        'Hide frames of meshjit in tracebacks; "off" shows them. "tracebackhide" only marks them, for IPython and pytest.',
        ("MESHJIT_TRACEBACK_FILTERING", "JAX_TRACEBACK_FILTERING"),
    ),
    Option(
        "log_compiles", _boolean, False,
        "Log each tracing and compilation, with its time, as a warning.",
        ("MESHJIT_LOG_COMPILES", "JAX_LOG_COMPILES"),
    ),
    Option(
        "check_tracer_leaks", _boolean, False,
        "Where a trace ends, raise if something still refers to one of its values. Costs a garbage collection per trace.",
        ("MESHJIT_CHECK_TRACER_LEAKS", "JAX_CHECK_TRACER_LEAKS"),
    ),
    Option(
        "log", _one_of(None, "plan"), None,
        'Log, as a warning: "plan" says of each plan its equations, devices, predicted step, bytes and largest collective.',
        ("MESHJIT_LOG",),
    ),
    Option(
        "default_matmul_precision", _one_of(*_PRECISIONS), None,
        "Precision of matrix products and convolutions that state none.",
        ("MESHJIT_DEFAULT_MATMUL_PRECISION", "JAX_DEFAULT_MATMUL_PRECISION"),
    ),
    Option(
        "numpy_dtype_promotion", _one_of("standard", "strict"), "standard",
        'Whether operands of different dtypes are converted: "strict" is an error, except for Python numbers that fit.',
        ("MESHJIT_NUMPY_DTYPE_PROMOTION", "JAX_NUMPY_DTYPE_PROMOTION"),
    ),
    Option(
        "numpy_rank_promotion", _one_of("allow", "warn", "raise"), "allow",
        "What happens where arrays of different ranks, none of them a scalar, are broadcast.",
        ("MESHJIT_NUMPY_RANK_PROMOTION", "JAX_NUMPY_RANK_PROMOTION"),
    ),
    Option(
        "compilation_cache_dir", _folder, None,
        "Folder in which compiled programs are kept for later processes; None: nowhere. What lies there is run: your own only.",
        ("MESHJIT_COMPILATION_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR"),
    ),
    Option(
        "compilation_cache_shared", _boolean, False,
        "Use a compilation_cache_dir, and entries, that others own or can write to. All of them can then run code as you.",
        ("MESHJIT_COMPILATION_CACHE_SHARED",),
    ),
    Option(
        "enable_compilation_cache", _boolean, True,
        "Use compilation_cache_dir, where one is given.",
        ("MESHJIT_ENABLE_COMPILATION_CACHE", "JAX_ENABLE_COMPILATION_CACHE"),
    ),
    Option(
        "persistent_cache_min_compile_time_secs", _number, 0.0,
        "Programs that XLA compiles in fewer seconds are not kept in compilation_cache_dir.",
        ("MESHJIT_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"),
    ),
    Option(
        "persistent_cache_min_entry_size_bytes", _number, 0,
        "Programs of fewer bytes are not kept in compilation_cache_dir.",
        ("MESHJIT_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"),
    ),
    Option(
        "compilation_cache_max_size", _integer_from(-1), -1,
        "Bytes that compilation_cache_dir may hold: what was not used for longest goes first. -1: no limit; 0: keep nothing.",
        ("MESHJIT_COMPILATION_CACHE_MAX_SIZE", "JAX_COMPILATION_CACHE_MAX_SIZE"),
    ),
    Option(
        "cpu_collectives", _one_of("gloo", "none"), "gloo",
        'How CPU devices of different processes talk; "none": each process keeps to its own devices.',
        ("MESHJIT_CPU_COLLECTIVES", "JAX_CPU_COLLECTIVES_IMPLEMENTATION"),
        "cpu_collectives_implementation",
    ),
    Option(
        "auto_initialize", _boolean, True,
        "Join the other processes on first use of devices when a launcher (mpirun, srun) started more than one.",
        ("MESHJIT_AUTO_INITIALIZE",),
    ),
    Option(
        "agreement_timeout", _seconds, 300.0,
        "Seconds that processes wait for each other before the first run of a program that they share.",
        ("MESHJIT_AGREEMENT_TIMEOUT",),
    ),
    Option(
        "watchdog", _boolean, True,
        "Processes of one job compare how far each has come, so that one which holds up the others is named.",
        ("MESHJIT_WATCHDOG",),
    ),
    Option(
        "stall_report", _seconds, 8.0,
        "Seconds that processes wait in a call that another has not begun, before that one is named, with everybody's stack.",
        ("MESHJIT_STALL_REPORT",),
    ),
    Option(
        "stall_timeout", _seconds, 300.0,
        "Seconds of such a wait after which the job is ended; inf: never.",
        ("MESHJIT_STALL_TIMEOUT",),
    ),
    Option(
        "heartbeat_timeout", _integer_from(1), 10,
        "Seconds after which a process that gives no sign of life counts as dead, and the job is ended.",
        ("MESHJIT_HEARTBEAT_TIMEOUT",),
    ),
    Option(
        "mtls_cert_file", _folder, None,
        "This process's certificate (PEM) for jaxlib's coordination service; with the next two: mutual TLS (jaxlib 0.12).",
        ("MESHJIT_MTLS_CERT_FILE",),
    ),
    Option(
        "mtls_key_file", _folder, None,
        "The certificate's private key (PEM).",
        ("MESHJIT_MTLS_KEY_FILE",),
    ),
    Option(
        "mtls_ca_file", _folder, None,
        "The authority (PEM) that has to have signed the certificates of the others.",
        ("MESHJIT_MTLS_CA_FILE",),
    ),
    Option(
        "mtls_peer_uri_prefix", _word, None,
        "How a URI in the others' certificates has to begin (spiffe://…).",
        ("MESHJIT_MTLS_PEER_URI_PREFIX",),
    ),
    Option(
        "shutdown_timeout", _seconds, 300.0,
        "Seconds that a process which has finished waits for the others before it leaves.",
        ("MESHJIT_SHUTDOWN_TIMEOUT",),
    ),
)  # fmt: skip

# What a traced function depends on. (The others say how to talk, where to compile, whom to ask.)
TRACED = (
    "enable_x64", "threefry_partitionable", "default_matmul_precision", "debug_nans", "debug_infs", "disable_jit",
    "default_device", "default_prng_impl", "device_model", "automatic", "numpy_dtype_promotion", "numpy_rank_promotion",
)  # fmt: skip
