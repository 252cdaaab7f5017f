"""Options for a block of code: `with debug_nans(True): ...`, under JAX's names."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from meshjit.config import config
from meshjit.options import ACCEPTED, OPTIONS
from meshjit.runtime import _jaxlib, guards

guards.begin()

_DOCS = {option.name: option.doc for option in (*OPTIONS, *ACCEPTED)}
_MISSING = object()


class Setting:
    """An option that is set for a block of code, in this thread: `with setting(value):`. `setting.value` is what holds now.

    Raises ValueError for a value that does not fit. Source: the context managers of `jax`, as `jax.enable_x64`."""

    def __init__(self, name: str, doc: str = "", default: Any = _MISSING) -> None:
        self._option, self._default = name, default
        self.__doc__ = f"{doc or _DOCS[name]} Inside of the block, in this thread."

    def __call__(self, new_val: Any = _MISSING) -> AbstractContextManager[None]:
        value = self._default if new_val is _MISSING else new_val
        if value is _MISSING:
            raise TypeError(f"{self._option} needs a value: with {self._option}({self.value!r}): ...")
        return config.using(**{self._option: value})

    @property
    def value(self) -> Any:
        return config.read(self._option)

    def __bool__(self) -> bool:
        raise TypeError(f"{self._option} is a setting, neither true nor false\n  fix: {self._option}.value")

    def __repr__(self) -> str:
        return f"<setting {self._option} = {self.value!r}>"


def disable_jit(disable: bool = True) -> AbstractContextManager[None]:
    """Inside, jitted functions run as ordinary Python, one op at a time: prints and breakpoints see values.

    Shardings, donation and static arguments of the jitted functions then mean nothing. `.trace` and `.lower` still work."""
    return config.using(disable_jit=disable)


enable_x64 = Setting("enable_x64", default=True)
debug_nans = Setting(
    "debug_nans", "A NaN in a result raises FloatingPointError that names the op and the line that made it.", default=True
)
debug_infs = Setting("debug_infs", "An infinity in a result raises FloatingPointError, as `debug_nans` does.", default=True)
log_compiles = Setting("log_compiles", default=True)
explain_cache_misses = Setting("explain_cache_misses", default=True)
checking_leaks = Setting(
    "check_tracer_leaks",
    "A traced value that outlives its function is an UnexpectedTracerError where tracing ends.",
    default=True,
)
check_tracer_leaks = checking_leaks
default_device = Setting("default_device")
default_matmul_precision = Setting("default_matmul_precision")
numpy_dtype_promotion = Setting("numpy_dtype_promotion")
numpy_rank_promotion = Setting("numpy_rank_promotion")
default_prng_impl = Setting("default_prng_impl")
threefry_partitionable = Setting("threefry_partitionable")
legacy_prng_key = Setting("legacy_prng_key")
enable_custom_prng = Setting("enable_custom_prng", default=True)
allow_f16_reductions = Setting("allow_f16_reductions")
no_tracing = Setting("no_tracing", default=True)
no_execution = Setting("no_execution", default=True)
thread_guard = Setting("thread_guard", default=True)
array_garbage_collection_guard = Setting("array_garbage_collection_guard")
enable_checks = Setting("enable_checks", default=True)
softmax_custom_jvp = Setting("softmax_custom_jvp", default=True)
auto_pcast = Setting("auto_pcast", default=True)
remove_size_one_mesh_axis_from_type = Setting("remove_size_one_mesh_axis_from_type", default=True)
jax2tf_associative_scan_reductions = Setting("jax2tf_associative_scan_reductions", default=True)


# -- moves between host and devices


def transfer_guard(new_val: str) -> AbstractContextManager[None]:
    """Inside, in this thread, arrays that move between host and devices without being asked to are let go ("allow"), logged by
    jaxlib ("log") or refused with an error ("disallow"); "log_explicit" and "disallow_explicit" are for `device_put` and
    `device_get`, too (`jax.transfer_guard`). A jitted call with NumPy arrays moves them without being asked to. Reading an
    Array that is on a CPU moves nothing. ValueError for another level."""
    return _guard(new_val, _jaxlib.DIRECTIONS)


def transfer_guard_host_to_device(new_val: str) -> AbstractContextManager[None]:
    """`transfer_guard` for what goes to devices."""
    return _guard(new_val, ("host_to_device",))


def transfer_guard_device_to_device(new_val: str) -> AbstractContextManager[None]:
    """`transfer_guard` for what goes from devices to others."""
    return _guard(new_val, ("device_to_device",))


def transfer_guard_device_to_host(new_val: str) -> AbstractContextManager[None]:
    """`transfer_guard` for what comes to the host."""
    return _guard(new_val, ("device_to_host",))


def _guard(level: str, directions: Sequence[str]) -> AbstractContextManager[None]:
    if level not in _jaxlib.LEVELS:
        raise ValueError(f"transfer_guard: there is no level {level!r}\n  fix: use one of {', '.join(_jaxlib.LEVELS)}")
    return _jaxlib.guarding(directions, level)


# -- what traced functions may depend on besides their arguments


class UserContext:
    """A value of the user's own that jitted functions may read while they are traced: a function that was traced under another
    value is traced again. `context.value` is what holds now, `with context(value):` sets it for a block, in this thread."""

    def __init__(self, default_value: Hashable) -> None:
        self._name = config.context_variable(default_value)

    @property
    def value(self) -> Any:
        return config.read(self._name)

    @contextlib.contextmanager
    def __call__(self, new_val: Hashable) -> Generator[None]:
        try:
            hash(new_val)
        except TypeError as error:
            raise TypeError(f"the value of a context is part of what calls are found by, and must be hashable: {error}") from None
        with config.using(**{self._name: new_val}):
            yield


def make_user_context(default_value: Hashable = None) -> UserContext:
    """A context of the user's own. Source: `jax.make_user_context`."""
    return UserContext(default_value)
