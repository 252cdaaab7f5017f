"""`jax.debug`: values of traced functions, seen when they are computed."""

from meshjit.api.callbacks import debug_callback as callback
from meshjit.api.printing import debug_log as log, debug_print as print
from meshjit.missing import explain as _explain

__all__ = ["callback", "log", "print"]

_explain(__name__)
