"""StableHLO text to executables, and executables to bytes and back."""

from __future__ import annotations

import functools
import gc
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]

from meshjit.runtime._jaxlib.base import CompilationError, XlaError
from meshjit.runtime._jaxlib.clients import is_absent
from meshjit.runtime._jaxlib.kernels import prepare_kernels
from meshjit.runtime._jaxlib.layouts import device_list

ifrt_programs = _jax.ifrt_programs  # plugins' own programs, for Pathways


def compile(  # noqa: A001
    client: Any,
    text: str,
    devices: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callable[..., Any]] = (),
) -> Any:
    """Compile StableHLO text for a row of devices: replica i runs on `devices[i]`.

    `callbacks` are what the text calls in Python, by their numbers; the executable keeps them alive. `options` are XLA's (as
    in XLA_FLAGS, without dashes); one that XLA does not know raises CompilationError, too."""
    row = device_list(tuple(devices))
    prepare_kernels(text, client)
    try:
        build = _compile_options(devices, options)
        if callbacks:
            _let_go_with_python()
            return client.compile_and_load(parse_module(text), row, build, list(callbacks))
        if hasattr(client, "compile_and_load") and not is_absent(devices[0]):
            return client.compile_and_load(text.encode(), row, build)
        return client.compile(parse_module(text), row, build)  # absent devices: a compile-only client wants a Module
    except XlaError as error:
        raise CompilationError(str(error).strip(), text, _save_reproducer(text)) from None


@functools.cache
def _let_go_with_python() -> None:
    """jaxlib lets go of the functions that executables have held when it is asked to. Ask whenever Python looks for garbage."""

    def collect(phase: str, info: Any) -> None:
        if phase == "stop":
            _jax.collect_garbage()

    gc.callbacks.append(collect)


def _compile_options(devices: Sequence[Any], options: Mapping[str, Any] | None) -> Any:
    count = len(devices)
    result = xla_client.CompileOptions()
    result.num_replicas, result.num_partitions = count, 1
    build = result.executable_build_options
    build.num_replicas, build.num_partitions = count, 1
    build.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id] for device in devices]))
    for name, value in (options or {}).items():
        if name in _EFFORTS:
            setattr(build, name, _LEVELS.get(value, value))
    overrides = [(name, _option_value(value)) for name, value in (options or {}).items() if name not in _EFFORTS]
    if overrides:
        result.env_option_overrides = overrides
    return result


# Options that are none of XLA_FLAGS, and the numbers of XLA's levels of effort.
_EFFORTS = ("optimization_level", "exec_time_optimization_effort", "memory_fitting_level", "memory_fitting_effort")
_LEVELS = {"UNKNOWN": 0, "O0": 9, "O1": 19, "O2": 29, "O3": 39}


def _option_value(value: Any) -> Any:
    """XLA wants a bool for a bool option; people write "true"."""
    words = {"true": True, "false": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def parse_module(text: str) -> Any:
    """The MLIR module of StableHLO text."""
    from jaxlib.mlir import ir  # takes 0.05 s to load; only this needs it
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, stablehlo

    context, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (chlo, stablehlo):
        dialect.register_dialect(context)
    with context:
        return ir.Module.parse(text)


def _save_reproducer(text: str) -> str:
    descriptor, path = tempfile.mkstemp(prefix="meshjit_", suffix=".mlir")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return path


def serialize(executable: Any) -> bytes:
    """Bytes that `deserialize` takes, on the same jaxlib version and kind of device."""
    return executable.serialize()


def deserialize(client: Any, data: bytes, devices: Sequence[Any], options: Mapping[str, Any] | None = None) -> Any:
    """The executable that `serialize` was given. Trusts its input as code: read only your own files."""
    prepare_kernels(data, client)
    return client.deserialize_executable(data, device_list(tuple(devices)), _compile_options(devices, options))
