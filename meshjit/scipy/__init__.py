"""`jax.scipy` for meshjit: `import meshjit.scipy.linalg`."""

from meshjit.scipy import linalg as linalg
