"""`jax.interpreters.pxla`: imported by libraries for Pathways; meshjit has nothing of it."""

from meshjit.missing import explain as _explain

_explain(__name__)
