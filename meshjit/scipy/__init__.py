"""`jax.scipy` for meshjit: `import meshjit.scipy.linalg`. Modules that programs seldom need are imported when asked for."""

from meshjit.missing import explain as _explain
from meshjit.scipy import linalg as linalg, optimize as optimize, special as special, stats as stats

_LATER = "cluster fft integrate interpolate ndimage signal sparse spatial"

_explain(__name__, {name: f"{__name__}.{name}" for name in _LATER.split()})
