"""The quick tier, `pytest -m quick`: for every room the test files that belong to it, and that of a file every n-th test runs.

A file that is not named here is not even imported by `pytest -m quick`; `pytest` alone runs everything. Keep the tier under 60
seconds on two cores: tests that need no device run in milliseconds, one that compiles takes a tenth of a second and more.
"""

from __future__ import annotations

# room → file → n: every n-th test of the file, beginning with its first
QUICK: dict[str, dict[str, int]] = {
    "sharding": {
        "test_sharding_mesh": 1, "test_sharding_spec": 1, "test_sharding_named": 1, "test_sharding_rule": 1,
        "test_sharding_propagate": 2, "test_sharding_reshard": 6,
    },
    "launch": {"test_launch_cluster": 1, "test_launch_judge": 1, "test_launch_rendezvous": 1},
    "core": {"test_core_text": 4, "test_core_garbage": 3},
    "emit": {"test_emit_platform": 7},
    "ops": {
        "test_ops_meaning": 53, "test_ops_rules": 12, "test_ops_derivatives": 16, "test_ops_batch": 17, "test_ops_errors": 1,
        "test_ops_table": 1,
    },
    "trace": {"test_trace_programs": 1, "test_trace_constants": 1, "test_trace_once": 8, "test_trace_outlived": 9},
    "transform": {
        "test_transform_goldens": 2, "test_transform_simplify": 1, "test_transform_merge_permutes": 1,
        "test_transform_pair_permutes": 1, "test_transform_fold_slices": 1,
    },
    "plan": {"test_automatic_experts": 7, "test_plan_bytes": 4, "test_plan_decisions": 1, "test_plan_delay": 1, "test_plan_memory": 3, "test_plan_parts": 13, "test_plan_priorities": 1, "test_golden_programs": 2, "test_golden_decisions": 1},
    "partition": {"test_partition_counting": 5, "test_partition_ops": 230, "test_partition_made_again": 3},
    "simulate": {"test_law_fuzz": 25, "test_fuzz_functions": 23, "test_fuzz_structured": 13},
    "targets": {"test_targets": 2, "test_targets_files": 5},
    "options": {"test_runtime_config": 1},
    "runtime": {"test_memories": 11, "test_runtime_composed": 7, "test_runtime_eager": 9, "test_runtime_fast": 4},
    "api": {
        "test_explicit_mesh": 1, "test_explicit_types": 8, "test_explicit_like_jax": 30, "test_explicit_sums": 4, "test_api_callbacks": 11, "test_ffi": 9, "test_api_debugging": 4,
        "test_api_errors": 1, "test_api_jit": 8, "test_api_jaxpr": 5, "test_api_memory": 1, "test_api_like_jax": 70, "test_settings": 3,
    },
    "export": {"test_export": 5},
    "numpy": {"test_numpy_errors": 2, "test_numpy_named_axes": 9, "test_numpy_surface": 15, "test_numpy_of_numpy": 9, "test_numpy_quick_calls": 40, "test_promotion": 13},
    "lax": {"test_lax_errors": 4, "test_lax_control_flow": 13, "test_lax_collectives": 13, "test_shard_map": 13, "test_shard_map_values": 6},
    "nn": {"test_nn": 4},
    "random": {"test_random": 13, "test_random_keys": 90, "test_refs": 11},
    "scipy": {"test_linalg_errors": 4},
    "autodiff": {"test_autodiff_checkify": 13, "test_autodiff_devices": 7, "test_custom_derivatives": 7, "test_custom_jvp_of_loops": 3, "test_custom_batching": 6, "test_custom_linear": 9, "test_autodiff_functions": 5, "test_autodiff_checkpoint": 9, "test_autodiff_arguments": 13, "test_autodiff_values": 12, "test_autodiff_float0": 4, "test_autodiff_kinks": 20},
    "inspect": {"test_verify": 6},
    "report": {"test_report": 5, "test_report_labels": 2, "test_report_patch": 1, "test_report_exports": 2, "test_report_totals": 6},
    "checkpoints": {"test_checkpoints": 17},
    "cli": {"test_reproduce": 6, "test_cli_inspect": 3},
    "as_jax": {"test_as_jax": 17},
    "example_libraries": {"test_example_libraries": 20},
    "experimental": {"test_experimental_topologies": 1},
    "tests": {"test_tests": 6, "test_imports": 9, "test_tree": 1},
}  # fmt: skip

EVERY = {f"{name}.py": n for files in QUICK.values() for name, n in files.items()}
