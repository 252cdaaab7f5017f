"""The little of `jax._src`, which is private to JAX, that libraries import. All of it stands for something that meshjit has."""
