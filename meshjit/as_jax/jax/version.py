"""`jax.version`: of the JAX whose names and behaviour meshjit follows."""

__version_info__ = (0, 10, 2)
__version__ = ".".join(map(str, __version_info__))
