"""Kernels that jaxlib carries beside XLA, and that programs call by name: LAPACK's, on CPU."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, Final

import jaxlib
from jaxlib import xla_client  # pyright: ignore[reportAttributeAccessIssue]

_PREFIX = "lapack_"
_THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")


@functools.cache
def cpu_kernels() -> frozenset[str]:
    """What programs for CPU may call: `lapack_sgetrf_ffi` and so on; nothing where SciPy is missing.

    The kernels are jaxlib's, the LAPACK that they call is SciPy's: it is loaded here (0.3 s), so ask for the first
    program that would call one. They are made known to XLA on the way; doing so twice is harmless."""
    try:
        from jaxlib.cpu import _lapack  # pyright: ignore[reportAttributeAccessIssue]

        _lapack.initialize()
    except ImportError:
        return frozenset()
    kernels = {name: target for name, target in _lapack.registrations().items() if name.endswith("_ffi")}
    for name, target in kernels.items():
        xla_client.register_custom_call_target(name, target, platform="cpu", api_version=1)
    return frozenset(kernels)


def register_gpu_kernels(plugin: Any) -> None:
    """Let a CUDA plugin run what programs for GPUs call by name: Python, users' functions, cuSOLVER.

    They come in a package beside the plugin. Where that is missing, XLA says of such calls that it does not know them."""
    extension = _gpu_module("cuda_plugin_extension")
    if extension is None:
        return
    xla_client.register_custom_type_handler("CUDA", functools.partial(extension.register_custom_type, plugin))
    xla_client.register_custom_call_handler("CUDA", functools.partial(extension.register_custom_call_target, plugin))
    for name, type in extension.ffi_types().items():
        xla_client.register_custom_type(name, type, platform="CUDA")
    for name, function in extension.ffi_handlers().items():
        xla_client.register_custom_call_target(name, function, platform="CUDA", api_version=1)


def _gpu_module(name: str) -> Any:
    """A module of the package that jaxlib's plugin for CUDA 13 or 12 comes with; None where neither is installed."""
    for package in ("jax_cuda13_plugin", "jax_cuda12_plugin"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(f"{package}.{name}")
    return None


def register_kernel(name: str, function: Any, platform: str, api_version: int, **options: Any) -> None:
    """Make a user's function known to XLA."""
    xla_client.register_custom_call_target(name, function, platform, api_version, **options)


def register_kernel_type(name: str, registration: Any, platform: str) -> None:
    xla_client.register_custom_type(name, registration, platform=platform)


def include_folder() -> str:
    """Where jaxlib has the headers that such functions are written with."""
    return os.path.join(os.path.dirname(os.path.abspath(jaxlib.__file__ or "")), "include")


class _CpuKernels(Container[str]):
    """`cpu_kernels()`, which is asked for no earlier than a name is."""

    def __contains__(self, name: object) -> bool:
        return name in cpu_kernels()


CPU_KERNELS: Final = _CpuKernels()


def prepare_kernels(program: str | bytes, client: Any) -> None:
    """Make known what a program calls, that may come from another process; call this before it is compiled or loaded."""
    calls = _PREFIX in program if isinstance(program, str) else _PREFIX.encode() in program
    if calls and client.platform == "cpu" and cpu_kernels():
        _share_processor(len(client.local_devices()))


@functools.cache
def _share_processor(devices: int) -> None:
    """Give LAPACK as many threads as a device has cores. Every device calls it from a thread of its own, and OpenBLAS, which
    uses all cores for each of these calls, then spends its time waiting: 16 matrices of 128 x 128 on 8 devices and 2
    cores take seconds instead of milliseconds. What the environment says stays."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if devices == 1 or any(name in os.environ for name in _THREADS):
        return
    for library in _openblas():
        for name in ("scipy_openblas_set_num_threads", "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(max(1, cores // devices))
                break


def _openblas() -> Iterator[ctypes.CDLL]:
    """The OpenBLAS that SciPy has loaded; NumPy's own is left alone. None where the system does not say what is loaded."""
    if sys.platform != "linux":
        return
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in lines if "openblas" in line}
    for path in sorted(p for p in paths if "numpy" not in p and os.path.exists(p)):
        yield ctypes.CDLL(path)
