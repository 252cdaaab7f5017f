"""`jax._src.numpy.ufuncs`."""

from typing import Any

from meshjit import numpy as _numpy
from meshjit.lax.ufuncs import ufunc as ufunc
from meshjit.missing import explain as _explain

_explain(__name__)
_explained = globals()["__getattr__"]


def __getattr__(name: str) -> Any:
    """The functions of `jax.numpy`."""
    return _explained(name) if name.startswith("_") else getattr(_numpy, name)
