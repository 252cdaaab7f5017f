"""`jax.experimental.colocated_python.func`: nothing is wrapped or serialized here; orbax asks whether a name of it exists."""
