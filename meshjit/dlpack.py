"""DLPack, under the names of `jax.dlpack`. To hand an Array over, the other library takes it: `numpy.from_dlpack(x)`."""

from meshjit.runtime.exchange import from_dlpack as from_dlpack, is_supported_dtype as is_supported_dtype
