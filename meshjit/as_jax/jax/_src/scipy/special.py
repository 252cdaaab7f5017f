"""`jax._src.scipy.special`: the functions of `jax.scipy.special`."""

from typing import Any

from meshjit.missing import explain as _explain
from meshjit.scipy import special as _special

_explain(__name__)
_explained = globals()["__getattr__"]


def __getattr__(name: str) -> Any:
    return _explained(name) if name.startswith("_") else getattr(_special, name)
