"""`jax.extend.ifrt_programs`: jaxlib's, for Pathways."""

from meshjit.runtime._jaxlib import ifrt_programs as ifrt_programs
