"""`jax.extend`: what JAX offers to libraries that extend it."""

import importlib
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Its modules, also where nothing has imported them yet: `import jax.extend` imports those of JAX."""
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return importlib.import_module(f"jax.extend.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(str(error), name=name) from None
