"""`jax._src.scipy`."""
