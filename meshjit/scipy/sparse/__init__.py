"""`jax.scipy.sparse`."""

from meshjit.missing import explain as _explain
from meshjit.scipy.sparse import linalg as linalg

_explain(__name__)
