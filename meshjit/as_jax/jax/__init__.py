"""The module `jax`: what meshjit has, and the version of JAX whose behaviour it follows."""

from __future__ import annotations

from meshjit.api.wrapped import Wrapped
from meshjit.as_jax.finder import enter_children, forward
from meshjit.as_jax.jax.version import __version__ as __version__, __version_info__ as __version_info__
from meshjit.lax.pmap import Pmapped

# Libraries (chex) tell by the names of JAX's classes in C++ what is jitted.
Wrapped.__qualname__ = "PjitFunction"
Pmapped.__qualname__ = "PmapFunction"


__getattr__, __dir__ = forward(__name__, "meshjit", "jax")
enter_children("meshjit", "jax")  # libraries look for jax.tree_util in sys.modules, where `import jax` has put it
