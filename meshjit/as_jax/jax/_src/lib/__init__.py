"""`jax._src.lib`: jaxlib's modules, as far as libraries ask for them."""

from meshjit.missing import explain as _explain

_explain(__name__)
