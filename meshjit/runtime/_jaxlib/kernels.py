"""Kernels that jaxlib carries beside XLA, and that programs call by name: LAPACK's on CPU, cuSOLVER's on GPUs."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import jaxlib
from jaxlib import gpu_linalg, gpu_solver, gpu_sparse, xla_client  # pyright: ignore[reportAttributeAccessIssue]
from jaxlib.plugin_support import import_from_plugin

_CPU, _GPU = "lapack_", ("cusolver_", "cusparse_", "cu_")
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


def register_gpu_plugin(plugin: Any) -> None:
    """Let a CUDA plugin run what programs for GPUs call by name: Python, users' functions, `gpu_kernels`.

    What they call comes in a package beside the plugin. Where that is missing, XLA does not know these names."""
    extension = import_from_plugin("cuda", "cuda_plugin_extension")
    if extension is None:
        return
    xla_client.register_custom_type_handler("CUDA", functools.partial(extension.register_custom_type, plugin))
    xla_client.register_custom_call_handler("CUDA", functools.partial(extension.register_custom_call_target, plugin))
    for name, type in extension.ffi_types().items():
        xla_client.register_custom_type(name, type, platform="CUDA")
    for name, function in extension.ffi_handlers().items():
        xla_client.register_custom_call_target(name, function, platform="CUDA", api_version=1)


@functools.cache
def gpu_kernels() -> frozenset[str]:
    """What programs for CUDA may call: `cusolver_getrf_ffi` and so on; nothing where jaxlib's plugin is not installed."""
    lists = [module.registrations()["CUDA"] for module in (gpu_linalg, gpu_solver, gpu_sparse)]
    kernels = [kernel for kernels in lists for kernel in kernels if kernel[2] == 1]
    for name, function, version in kernels:
        xla_client.register_custom_call_target(name, function, platform="CUDA", api_version=version)
    return frozenset(name for name, *_ in kernels)


def register_kernel(name: str, function: Any, platform: str, api_version: int, **options: Any) -> None:
    """Make a user's function known to XLA."""
    xla_client.register_custom_call_target(name, function, platform, api_version, **options)


def register_kernel_type(name: str, registration: Any, platform: str) -> None:
    xla_client.register_custom_type(name, registration, platform=platform)


def include_folder() -> str:
    """Where jaxlib has the headers that such functions are written with."""
    return os.path.join(os.path.dirname(os.path.abspath(jaxlib.__file__ or "")), "include")


class _Kernels(Container[str]):
    """Names that are asked for no earlier than one of them is."""

    def __init__(self, ask: Callable[[], frozenset[str]]) -> None:
        self._ask = ask

    def __contains__(self, name: object) -> bool:
        return name in self._ask()


CPU_KERNELS: Final = _Kernels(cpu_kernels)
KERNELS: Final[Mapping[str, Container[str]]] = {"cpu": CPU_KERNELS, "gpu": _Kernels(gpu_kernels)}


def prepare_kernels(program: str | bytes, client: Any) -> None:
    """Make known what a program calls, that may come from another process; call this before it is compiled or loaded."""
    if client.platform == "cpu" and _calls(program, _CPU) and cpu_kernels():
        _share_processor(len(client.local_devices()))
    if client.platform in ("gpu", "cuda") and any(_calls(program, prefix) for prefix in _GPU):
        gpu_kernels()


def _calls(program: str | bytes, prefix: str) -> bool:
    return prefix in program if isinstance(program, str) else prefix.encode() in program


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
