"""`jax.scipy.cluster`."""

from meshjit.missing import explain as _explain
from meshjit.scipy.cluster import vq as vq

_explain(__name__)
