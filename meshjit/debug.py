"""`jax.debug`: values of traced functions, seen when they are computed."""

from meshjit.api.breakpoints import breakpoint
from meshjit.api.callbacks import debug_callback as callback
from meshjit.api.printing import debug_log as log, debug_print as print
from meshjit.api.visualizing import inspect_array_sharding, print_placement, visualize_array_sharding, visualize_sharding
from meshjit.missing import explain as _explain

__all__ = [
    "breakpoint", "callback", "inspect_array_sharding", "log", "print", "print_placement",
    "visualize_array_sharding", "visualize_sharding",
]  # fmt: skip

_explain(__name__)
