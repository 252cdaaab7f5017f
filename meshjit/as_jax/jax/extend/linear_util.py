"""`jax.extend.linear_util`: meshjit traces functions as they are, so nothing of it is there."""

from meshjit.missing import explain as _explain

_explain(__name__)
