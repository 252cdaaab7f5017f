"""`jax._src.state`: mutable arrays, which meshjit does not have."""
