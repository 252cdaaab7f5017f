"""`jax.experimental.colocated_python.serialization`: nothing is serialized here; orbax names this type."""

from meshjit.runtime._jaxlib import DeviceList as DeviceList
