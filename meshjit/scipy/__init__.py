"""`jax.scipy` for meshjit: `import meshjit.scipy.linalg`."""

from meshjit.missing import explain as _explain
from meshjit.scipy import linalg as linalg, optimize as optimize, special as special, stats as stats

_explain(__name__)
