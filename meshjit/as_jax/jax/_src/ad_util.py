"""`jax._src.ad_util`: the primitive for which lineax brings a transpose rule."""

from meshjit.core.primitives import primitive
from meshjit.missing import explain as _explain

stop_gradient_p = primitive("stop_gradient")

_explain(__name__)
