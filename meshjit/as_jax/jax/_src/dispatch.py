"""`jax._src.dispatch`."""

from meshjit.missing import explain as _explain
from meshjit.runtime.effects import barrier as wait_for_tokens

__all__ = ["wait_for_tokens"]

_explain(__name__)
