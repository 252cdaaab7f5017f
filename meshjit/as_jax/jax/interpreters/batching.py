"""`jax.interpreters.batching`: where libraries put the batch rules of their primitives."""

from typing import Any

from meshjit.autodiff.vmappable import register_vmappable as register_vmappable
from meshjit.missing import explain as _explain

primitive_batchers: dict[Any, Any] = {}
axis_primitive_batchers: dict[Any, Any] = {}
not_mapped = None


def unregister_vmappable(data_type: type) -> None:
    """Nothing, as in JAX: a class stays registered."""


_explain(__name__)
