"""The module `jax`: what meshjit has, and the version of JAX whose behaviour it follows."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import meshjit
from meshjit.as_jax.finder import OWN_MODULES, module_for
from meshjit.as_jax.jax.version import __version__ as __version__, __version_info__ as __version_info__
from meshjit.missing import refuse

_ABSENT = object()


def __getattr__(name: str) -> Any:
    value = getattr(meshjit, name, _ABSENT)
    if value is _ABSENT or (isinstance(value, ModuleType) and name in OWN_MODULES):
        if name.startswith("__") or module_for(f"jax.{name}") is None:
            refuse("meshjit", name, sys._getframe(1), f"jax.{name}: ")
        value = importlib.import_module(f"jax.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    theirs = {name for name in dir(meshjit) if not (name in OWN_MODULES and isinstance(getattr(meshjit, name), ModuleType))}
    return sorted(theirs | globals().keys())
