"""`jax.interpreters`: where libraries put the rules of their primitives."""
