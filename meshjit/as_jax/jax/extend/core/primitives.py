"""`jax.extend.core.primitives`: what equations of a Jaxpr say that they call. `jit_p` is what a jitted function's call has."""

from meshjit.core.primitives import PRIMITIVES, primitive
from meshjit.missing import explain as _explain

globals().update({f"{name}_p": primitive(name) for name in PRIMITIVES})
call_p, closed_call_p, jit_p = primitive("call"), primitive("closed_call"), primitive("jit")
cond_p, scan_p, while_p, remat_p = primitive("cond"), primitive("scan"), primitive("while"), primitive("remat2")
custom_jvp_call_p, custom_vjp_call_p = primitive("custom_jvp_call"), primitive("custom_vjp_call")

_explain(__name__)
