"""`import jax` means meshjit from here on, for a program and the libraries that it imports. JAX stays out of the process.

    import meshjit.as_jax                               before anything that imports jax
    python -m meshjit.as_jax script.py --its arguments
    python -m meshjit.as_jax -m pytest tests            pytest also takes it as a plugin: -p meshjit.as_jax

`jax.X` is `meshjit.X`, the same module. What only libraries ask JAX for (its version, `jax.core`, some of `jax._src`) lies in the
folder `jax` beside this file, which has the shape of JAX's. A name that is not there is named by the error. `jax.make_mesh` makes
explicit axes, unless MESHJIT_MESH_AXIS_TYPES says "auto".
"""

import os as _os

from meshjit.as_jax.finder import install as _install
from meshjit.config import config as _config

_install()
if "MESHJIT_MESH_AXIS_TYPES" not in _os.environ:  # a program as it was written for JAX 0.10 finds that version's default
    _config.update("mesh_axis_types", "explicit")
