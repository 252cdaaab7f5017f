"""`jax.extend`: what JAX offers to libraries that extend it."""
