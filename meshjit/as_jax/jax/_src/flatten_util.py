"""`jax._src.flatten_util`."""

from meshjit.flatten_util import ravel_pytree as ravel_pytree
from meshjit.missing import explain as _explain

_explain(__name__)
