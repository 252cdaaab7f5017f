"""`jax.experimental`: meshjit's, and what only libraries ask for."""

from meshjit.as_jax.finder import forward

__getattr__, __dir__ = forward(__name__, "meshjit.experimental", "jax.experimental")
