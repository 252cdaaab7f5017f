"""`jax.interpreters`: where libraries put the rules of their primitives."""

from meshjit.as_jax.finder import modules_of

__getattr__ = modules_of("jax.interpreters")
