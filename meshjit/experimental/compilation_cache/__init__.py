"""`jax.experimental.compilation_cache`."""

from meshjit.experimental.compilation_cache import compilation_cache as compilation_cache
