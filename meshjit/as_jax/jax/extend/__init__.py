"""`jax.extend`: what JAX offers to libraries that extend it."""

from meshjit.as_jax.finder import modules_of

__getattr__ = modules_of("jax.extend")
