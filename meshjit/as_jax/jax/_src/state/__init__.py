"""`jax._src.state`: arrays that are changed in place (`meshjit.ref`)."""
