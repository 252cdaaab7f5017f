"""Small optimizers and layers as JAX's own examples use them (`jax.example_libraries`)."""
