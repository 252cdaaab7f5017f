"""`jax._src.state.types`."""

from meshjit.missing import explain as _explain
from meshjit.ref import AbstractRef as AbstractRef

_explain(__name__)
