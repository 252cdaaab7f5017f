"""`jax.api_util`."""

from meshjit.as_jax.jax.core import get_aval as shaped_abstractify
from meshjit.missing import explain as _explain

__all__ = ["shaped_abstractify"]

_explain(__name__)
