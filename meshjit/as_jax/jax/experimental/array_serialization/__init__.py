"""`jax.experimental.array_serialization`: what libraries derive from. `meshjit.checkpoints` saves and loads."""
