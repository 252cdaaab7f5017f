"""`jax.scipy.spatial`."""

from meshjit.missing import explain as _explain
from meshjit.scipy.spatial import transform as transform

_explain(__name__)
