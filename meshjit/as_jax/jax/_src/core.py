"""`jax._src.core`."""

from meshjit.as_jax.jax.core import (
    ShapedArray as ShapedArray,
    Tracer as Tracer,
    concrete_or_error as concrete_or_error,
    get_aval as get_aval,
)
from meshjit.as_jax.jax.interpreters.primitive import Primitive as Primitive
from meshjit.missing import explain as _explain
from meshjit.trace import active_trace


def trace_state_clean() -> bool:
    """Whether nothing is being traced."""
    return active_trace() is None


_explain(__name__)
