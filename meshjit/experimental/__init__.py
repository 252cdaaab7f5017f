"""What JAX keeps in `jax.experimental`, in the same places."""
