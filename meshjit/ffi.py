"""`jax.ffi`: functions in C++ or CUDA, compiled by their user, called from programs.

    library = ctypes.cdll.LoadLibrary("librms.so")                      # written with the headers in include_dir()
    register_ffi_target("rms_norm", pycapsule(library.RmsNorm), platform="cpu")
    y = ffi_call("rms_norm", ShapeDtypeStruct(x.shape, x.dtype), vmap_method="broadcast_all")(x, eps=np.float32(1e-5))
"""

from __future__ import annotations

import ctypes
from typing import Any, NoReturn

from meshjit.api.foreign import ffi_call as ffi_call
from meshjit.missing import explain as _explain
from meshjit.runtime import _jaxlib


def register_ffi_target(name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any) -> None:
    """Make a function known to XLA (`jax.ffi.register_ffi_target`).

    Args:
      fn: a capsule with a pointer to the handler, or a dict of these by stage, such as "instantiate" and "execute".
      platform: "cpu", "CUDA", "ROCM", ...: the devices that can call it.
      api_version: 1 for XLA's typed FFI, 0 for custom calls as they were before.

    Every process that runs a program registers what the program calls. RuntimeError for what is no such capsule."""
    _jaxlib.register_kernel(name, fn, platform, api_version, **kwargs)


def register_ffi_type(name: str, type_registration: Any, platform: str = "cpu") -> None:
    """Make a type of the state that handlers keep known to XLA (`jax.ffi.register_ffi_type`): a dict of capsules, `type_id` and,
    if there is one, `type_info`."""
    _jaxlib.register_kernel_type(name, type_registration, platform)


def register_ffi_type_id(name: str, obj: Any, platform: str = "cpu") -> NoReturn:
    """ValueError: jaxlib takes types by `register_ffi_type`."""
    raise ValueError(f"register_ffi_type_id({name!r}): jaxlib takes types by register_ffi_type alone")


def pycapsule(funcptr: Any) -> Any:
    """A capsule of a function that `ctypes` has loaded (`jax.ffi.pycapsule`)."""
    build = ctypes.pythonapi.PyCapsule_New
    build.restype, build.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return build(funcptr, None, None)


def include_dir() -> str:
    """The folder with XLA's headers that jaxlib brings (`jax.ffi.include_dir`): xla/ffi/api/ffi.h is in it."""
    return _jaxlib.include_folder()


_explain(__name__)
