"""`jax.experimental.colocated_python`: meshjit's, beside the modules in it that orbax imports."""

from meshjit.as_jax.finder import forward

__getattr__, __dir__ = forward(__name__, "meshjit.experimental.colocated_python", "jax.experimental.colocated_python")
