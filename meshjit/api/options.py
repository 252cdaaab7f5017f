"""compiler_options: what users may pass on to XLA, for one function or by options of `config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshjit.config import config


def checked_options(options: Any, what: str) -> Mapping[str, Any]:
    """The options as a dict; TypeError for anything that is none. Whether XLA knows them is XLA's to say."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(
            f"{what}: compiler_options must be a dict of XLA's options, got {type(options).__name__}: {options!r}\n"
            '  fix: compiler_options={"xla_cpu_enable_fast_math": True}'
        )
    for name, value in options.items():
        if not isinstance(name, str):
            raise TypeError(f"{what}: compiler_options has the key {name!r}, but names of XLA's options are strings")
        if not isinstance(value, bool | int | float | str):
            raise TypeError(
                f"{what}: compiler_options[{name!r}] is {value!r} of type {type(value).__name__}\n"
                "  fix: use a bool, a number or a string"
            )
    return dict(options)


def compiler_settings() -> Mapping[str, Any]:
    """What options of `config` say to XLA, where they say anything."""
    options: dict[str, Any] = {}
    if config.disable_most_optimizations:
        options |= {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    for name in _EFFORTS:
        if config.read(name) != config.default_of(name):
            options[name] = config.read(name)
    return options


_EFFORTS = ("optimization_level", "exec_time_optimization_effort", "memory_fitting_level", "memory_fitting_effort")
