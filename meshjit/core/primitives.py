"""Equations as JAX names them, for functions of the user's that ask: checkpoint policies get a primitive, types and params."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshjit.core.program import Eqn

Binder = Callable[[str, Sequence[Any], Mapping[str, Any]], list[Any]]
_bind: Binder | None = None


def set_binder(bind: Binder) -> None:
    """Install what applies the op of a name, with JAX's params, to values."""
    global _bind
    _bind = bind


@dataclass(frozen=True)
class Primitive:
    """The name of an operation, as JAX has it (`jax.lax.sin_p`). One object per name, so that `prim is sin_p` answers."""

    name: str

    call_primitive = map_primitive = False  # as of all that JAX has today; libraries ask

    @property
    def multiple_results(self) -> bool:
        return self.name in MULTIPLE_RESULTS

    def bind(self, *operands: Any, **params: Any) -> Any:
        """Its results for these values, computed or traced: a list where `multiple_results`. `params` are those of an equation of
        it, in JAX's words."""
        assert _bind is not None, "meshjit is imported"
        results = _bind(self.name, operands, params)
        return results if self.multiple_results else results[0]

    def get_bind_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """What `bind` takes besides operands."""
        return dict(params)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


@functools.cache
def primitive(name: str) -> Primitive:
    """The one object of this name, in JAX's words."""
    return Primitive(name)


# Op → the primitive's name, where the two differ.
NAMES = {
    "all_reduce": "psum", "betainc": "regularized_incomplete_beta", "bitcast_convert": "bitcast_convert_type", "call": "jit",
    "case": "cond", "checkpoint": "remat2", "collective_permute": "ppermute", "conjugate": "conj",
    "convert": "convert_element_type",
    "convolution": "conv_general_dilated", "cosine": "cos", "count_leading_zeros": "clz",
    "custom_jvp": "custom_jvp_call", "custom_vjp": "custom_vjp_call", "divide": "div", "exponential": "exp",
    "exponential_minus_one": "expm1", "in_memory": "device_put", "log_plus_one": "log1p", "manual": "shard_map", "maximum": "max",
    "minimum": "min", "multiply": "mul", "negate": "neg", "popcnt": "population_count", "power": "pow",
    "remainder": "rem", "reverse": "rev", "round_nearest_afz": "round", "round_nearest_even": "round",
    "select": "select_n", "sine": "sin", "subtract": "sub", "update_slice": "scatter",
}  # fmt: skip
# Names that JAX and meshjit share, of which `jax.lax` has primitives.
_SHARED = """
    bessel_i0e bessel_i1e igamma igamma_grad_a igammac random_gamma_grad zeta
    abs acos acosh add all_gather all_to_all and argmax argmin asin asinh atan atan2 atanh axis_index broadcast_in_dim
    cbrt ceil clamp complex concatenate copy cosh cummax cummin cumprod cumsum digamma dot_general dynamic_slice
    dynamic_update_slice erf erf_inv erfc fft floor gather imag integer_pow iota is_finite lgamma log logistic not
    optimization_barrier or pad polygamma real reduce_and reduce_max reduce_min reduce_or reduce_precision reduce_prod
    reduce_sum reduce_window reshape rsqrt scan scatter select_and_scatter sharding_constraint shift_left
    shift_right_arithmetic shift_right_logical sign sinh slice sort sqrt stop_gradient tan tanh top_k transpose while
    xor
"""
MULTIPLE_RESULTS = frozenset("""
    cond custom_jvp_call custom_vjp_call custom_vmap eig eigh geqrf hessenberg jit linear_call lu optimization_barrier qr
    qr_pivoted remat2 repeated scan schur shard_alike shard_map sort svd threefry2x32 top_k tridiagonal while
""".split())
_NOT_IN_LAX = {"device_put", "remat2", "jit", "custom_jvp_call", "custom_vjp_call", "shard_map"}
PRIMITIVES = sorted({*NAMES.values(), *_SHARED.split(), "eq", "ne", "lt", "le", "gt", "ge"} - _NOT_IN_LAX)


def primitive_of(eqn: Eqn) -> Primitive:
    """What JAX calls the op of an equation."""
    if eqn.op.name == "compare":
        return primitive(eqn.params["direction"].lower())
    return primitive(NAMES.get(eqn.op.name, eqn.op.name))


def params_of(eqn: Eqn) -> Mapping[str, Any]:
    """Its params, with those of JAX's that policies ask for."""
    if eqn.op.name == "dot_general":
        return {**eqn.params, "dimension_numbers": (eqn.params["contract"], eqn.params["batch"])}
    return eqn.params
