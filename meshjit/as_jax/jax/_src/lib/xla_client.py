"""`jax._src.lib.xla_client`."""

from meshjit.missing import explain as _explain
from meshjit.runtime._jaxlib import XlaError as XlaRuntimeError  # noqa: F401

_explain(__name__)
