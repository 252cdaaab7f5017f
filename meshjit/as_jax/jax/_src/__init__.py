"""The little of `jax._src`, which is private to JAX, that libraries import. All of it stands for something that meshjit has."""

from meshjit.as_jax.finder import modules_of

__getattr__ = modules_of("jax._src")
