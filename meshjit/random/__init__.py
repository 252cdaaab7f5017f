"""`jax.random` for meshjit."""
