"""Options that programs written for JAX set. The first are about values, errors and files, and do what they do there. The rest
(`ACCEPTED`) choose among ways in which JAX works inside: they can be set and read, and change nothing."""

from __future__ import annotations

from typing import Any

from meshjit.options.kinds import Option, boolean, folder, integer, number, one_of

_GUARDS = one_of(None, "allow", "log", "disallow", "log_explicit", "disallow_explicit")
_LEVELS = one_of("UNKNOWN", "O0", "O1", "O2", "O3")


def _variables(name: str) -> tuple[str, ...]:
    return (f"MESHJIT_{name.upper()}", f"JAX_{name.upper()}")


def _option(name: str, parse: Any, default: Any, doc: str) -> Option:
    return Option(name, parse, default, doc, _variables(name))


OF_JAX = (
    _option(
        "legacy_prng_key", one_of("allow", "warn", "error"), "allow",
        "What functions of `random` do with a raw key, uint32 words: take it, warn, or raise ValueError.",
    ),
    _option("enable_custom_prng", boolean, False, "`random.PRNGKey` gives typed keys, as `random.key` does."),
    _option("random_seed_offset", integer, 0, "Is added to the seed of every key."),
    _option(
        "high_dynamic_range_gumbel", boolean, False,
        '`random.gumbel` and `random.categorical` have mode "high" where none is named: twice the bits, right for rare events.',
    ),
    _option("allow_f16_reductions", boolean, True, "False: `lax.reduce_sum` of float16 or bfloat16 is an error."),
    _option("no_tracing", boolean, False, "A function that would have to be traced (for `jit`, or as a single op) is an error."),
    _option("no_execution", boolean, False, "Running a compiled function, or a single op, is an error. Moving arrays is none."),
    _option("transfer_guard", _GUARDS, None, "Of moves between host and devices, in every direction: see `transfer_guard`."),
    _option("transfer_guard_host_to_device", _GUARDS, None, "The same for moves to devices."),
    _option("transfer_guard_device_to_device", _GUARDS, None, "The same for moves from devices to others."),
    _option("transfer_guard_device_to_host", _GUARDS, None, "The same for moves to the host."),
    _option(
        "array_garbage_collection_guard", one_of(None, "allow", "log", "fatal"), None,
        "Arrays that Python's garbage collector lets go, since they are part of a cycle: allowed, logged, or the end.",
    ),
    _option(
        "logging_level", one_of(None, "NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), None,
        'From which level on the logger "meshjit" writes to stderr; None: as Python\'s logging is set.',
    ),
    _option(
        "thread_guard", boolean, False,
        "From now on a program that several processes share is an error in every thread but this one: others could run it in"
        " another order than the other processes do.",
    ),
    _option(
        "enable_checks", boolean, False,
        "Types in Programs are checked, before they are planned and after they are partitioned; XLA checks what comes of them.",
    ),
    _option("dump_ir_to", folder, None, "Folder that the StableHLO of every program which XLA compiles is written to."),
    _option("disable_most_optimizations", boolean, False, "XLA compiles faster, to slower programs."),
    _option("optimization_level", _LEVELS, "UNKNOWN", 'How much time XLA spends on fast programs; "O1" is the least.'),
    _option("exec_time_optimization_effort", number, 0.0, "The same as a number from -1 to 1."),
    _option("memory_fitting_level", _LEVELS, "O2", "How hard XLA tries to make a program fit the memory."),
    _option("memory_fitting_effort", number, 0.0, "The same as a number from -1 to 1."),
    _option("cpu_enable_async_dispatch", boolean, True, "Calls on CPUs return before they are done."),
)  # fmt: skip

_ACCEPTED: dict[str, tuple[Any, str]] = {
    "softmax_custom_jvp": (False, "the derivative of softmax always is that of its result"),
    "use_shardy_partitioner": (True, "meshjit partitions by itself"),
    "use_direct_linearize": (True, "JAX's way of tracing derivatives"),
    "remove_size_one_mesh_axis_from_type": (False, "placements mean the same with axes of one device and without"),
    "auto_pcast": (True, "values of shard_map are made to vary where they meet others that do"),
    "check_vma": (True, "each shard_map says by itself whether it is checked"),
    "jax2tf_associative_scan_reductions": (False, "there is no jax2tf"),
    "threefry_gpu_kernel_lowering": (False, "bits are made by ops that XLA fuses"),
    "persistent_cache_enable_xla_caches": ("xla_gpu_per_fusion_autotune_cache_dir", "XLA's own caches are set by XLA_FLAGS"),
    "raise_persistent_cache_errors": (False, "an entry that cannot be read is told, and compiled again"),
    "compilation_cache_include_metadata_in_key": (False, "lines of sources are no part of a cache's keys"),
    "share_binary_between_hosts": (False, "every process compiles for itself"),
    "enable_pgle": (False, "XLA's latency estimates are its own"),
    "pgle_profiling_runs": (3, "XLA's latency estimates are its own"),
    "pgle_aggregation_percentile": (90, "XLA's latency estimates are its own"),
    "include_full_tracebacks_in_locations": (True, "an op carries the line that the user wrote"),
    "traceback_in_locations_limit": (100, "an op carries the line that the user wrote"),
    "tracer_error_num_traceback_frames": (5, "errors name the line that the user wrote"),
    "hlo_source_file_canonicalization_regex": (None, "an op carries the line that the user wrote"),
    "log_checkpoint_residuals": (False, "ad_checkpoint.print_saved_residuals tells them"),
    "captured_constants_warn_bytes": (2_000_000_000, "captured arrays are arguments of the program"),
    "debug_log_modules": ("", "logging_level is for all modules"),
    "pprint_use_color": (True, "Programs are printed without colours"),
    "dump_ir_modes": ("stablehlo", "what is written is StableHLO"),
    "include_debug_info_in_dumps": (True, "what is written has the lines of sources"),
    "use_magma": ("auto", "nonsymmetric eigenvalues are computed on the host"),
    "bcoo_cusparse_lowering": (False, "there is no jax.experimental.sparse"),
    "xla_profile_version": (0, "XLA's own"),
    "serialization_version": (0, "the files of meshjit.export have a version of their own"),
    "backend_target": ("", "of JAX's own remote backends"),
    "xla_backend": ("", "see platforms"),
    "distributed_debug": (False, "see MESHJIT_WATCHDOG"),
    "enable_recoverability": (False, "a job ends when a process dies; meshjit run --restarts starts it again"),
    "explicit_x64_dtypes": ("allow", "a dtype that is too wide is told where it is asked for"),
}


def _anything(value: Any) -> Any:
    return value


ACCEPTED = tuple(Option(name, _anything, default, f"Without effect: {why}.", ()) for name, (default, why) in _ACCEPTED.items())
