"""`jax.memory`: the memories of devices and of their hosts, as `device_put(x, meshjit.memory.Space.Host)` names them."""

from meshjit.core.memories import MemorySpace as Space

__all__ = ["Space"]
