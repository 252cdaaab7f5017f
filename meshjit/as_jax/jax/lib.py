"""`jax.lib`, of which JAX has left jaxlib's version."""

from meshjit.missing import explain as _explain
from meshjit.runtime._jaxlib import version as __version__  # noqa: F401

_explain(__name__)
