"""`jax.custom_derivatives`' names."""

from meshjit.lax.custom_jvp import custom_jvp as custom_jvp
from meshjit.lax.custom_rules import SymbolicZero as SymbolicZero, zero_from_primal as zero_from_primal
from meshjit.lax.custom_vjp import (
    CustomVJPPrimal as CustomVJPPrimal,
    custom_gradient as custom_gradient,
    custom_vjp as custom_vjp,
    custom_vjp_primal_tree_values as custom_vjp_primal_tree_values,
)
from meshjit.lax.linear import (
    closure_convert as closure_convert,
    linear_call as linear_call,
    linear_transpose as linear_transpose,
)
from meshjit.ops.control.custom import custom_jvp as custom_jvp_call_p, custom_vjp as custom_vjp_call_p

__all__ = [
    "CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_gradient", "custom_jvp", "custom_jvp_call_p", "custom_vjp",
    "custom_vjp_call_p", "custom_vjp_primal_tree_values", "linear_call", "linear_transpose",
    "zero_from_primal",
]  # fmt: skip
