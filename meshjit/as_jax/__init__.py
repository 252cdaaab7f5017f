"""`import jax` means meshjit from here on, for a program and the libraries that it imports. JAX stays out of the process.

    import meshjit.as_jax                               before anything that imports jax
    python -m meshjit.as_jax script.py --its arguments
    python -m meshjit.as_jax -m pytest tests            pytest also takes it as a plugin: -p meshjit.as_jax

`jax.X` is `meshjit.X`, the same module. What only libraries ask JAX for (its version, `jax.core`, some of `jax._src`) lies in the
folder `jax` beside this file, which has the shape of JAX's. A name that is not there is named by the error.
"""

from meshjit.as_jax.finder import install as _install

_install()
