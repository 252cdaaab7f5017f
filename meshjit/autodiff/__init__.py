"""grad, value_and_grad, vjp, jvp, vmap and what is made of them, with JAX's signatures.

Each traces its function to a Program, transforms that, and applies the result: inlined into the trace around it, or
compiled and run at once.
"""

from meshjit.autodiff.checkpoint import checkpoint, checkpoint_name, print_saved_residuals
from meshjit.autodiff.gradient import grad, value_and_grad
from meshjit.autodiff.jacobian import hessian, jacfwd, jacrev
from meshjit.autodiff.policies import Offloadable, Recompute, Saveable, checkpoint_policies
from meshjit.autodiff.products import fwd_and_bwd, jvp, linearize, vjp
from meshjit.autodiff.vectorize import vmap

__all__ = [
    "checkpoint", "checkpoint_name", "checkpoint_policies", "fwd_and_bwd", "grad", "hessian", "jacfwd", "jacrev", "jvp",
    "linearize", "Offloadable", "print_saved_residuals", "Recompute", "Saveable", "value_and_grad", "vjp", "vmap",
]  # fmt: skip
