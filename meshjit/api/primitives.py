"""Equations under JAX's names, there and back: what interpreters of the user's read (`eqn.primitive`, `eqn.params`), and
`eqn.primitive.bind(*values, **eqn.params)`, which applies the op to other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.core.op import REGISTRY, Op
from meshjit.core.primitives import NAMES, primitive_of, set_binder
from meshjit.core.program import Builder, Eqn, Program
from meshjit.core.region import copied
from meshjit.core.types import TensorType
from meshjit.trace import Argument, argument_of, as_operand, bind_program, user_source
from sharding.mesh import current_mesh

PARAMS = {  # those of JAX's with other names there; the key is JAX's name of the op
    "bitcast_convert_type": {"dtype": "new_dtype"},
    "broadcast_in_dim": {"dimensions": "broadcast_dimensions"},
    "conv_general_dilated": {"preferred": "preferred_element_type"},
    "convert_element_type": {"dtype": "new_dtype"},
    "custom_jvp_call": {"body": "call_jaxpr", "jvp": "jvp_jaxpr_fun", "consts": "num_consts"},
    "custom_vjp_call": {"body": "call_jaxpr", "fwd": "fwd_jaxpr_thunk", "consts": "num_consts"},
    "dot_general": {"preferred": "preferred_element_type"},
    "integer_pow": {"exponent": "y"},
    "jit": {"body": "jaxpr"},
    "remat2": {"body": "jaxpr"},
    "reshape": {"shape": "new_sizes"},
    "scan": {"body": "jaxpr"},
    "shard_map": {"body": "jaxpr"},
    "slice": {"start": "start_indices", "limit": "limit_indices"},
    "while": {"cond": "cond_jaxpr", "body": "body_jaxpr", "cond_consts": "cond_nconsts", "body_consts": "body_nconsts"},
}
_PLACES = frozenset(("argmax", "argmin"))  # along one axis, of which JAX makes a tuple, "axes"
_ROUNDING = {"round_nearest_afz": 0, "round_nearest_even": 1}  # `lax.RoundingMethod`
_SAME_SHAPES = frozenset("""
    add and atan2 clamp complex div eq ge gt le lt max min mul ne nextafter or pow rem select_n shift_left shift_right_arithmetic
    shift_right_logical sub xor
""".split())  # fmt: skip

# primitive → kinds of dtypes that its op does not take, and the function that is bound for these
_COMPOSED: dict[str, tuple[str, Callable[..., Any]]] = {}


def composed(kinds: str, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Bind these functions, by name of the primitive, for operands of these kinds (`dtype.kind`), which the primitive's op does
    not take."""
    _COMPOSED.update({name: (kinds, function) for name, function in functions.items()})


def jax_params(eqn: Eqn) -> dict[str, Any]:
    """Its params as JAX has them, with Programs as they are."""
    name = primitive_of(eqn).name
    renamed = PARAMS.get(name, {})
    params = {renamed.get(param, param): value for param, value in eqn.params.items()}
    if eqn.op.name == "compare":  # which the name says
        del params["direction"]
    elif eqn.op.name == "dot_general":
        params["dimension_numbers"] = (params.pop("contract"), params.pop("batch"))
    elif eqn.op.name in _PLACES:
        params["axes"] = (params.pop("axis"),)
    elif eqn.op.name in _ROUNDING:
        params["rounding_method"] = _ROUNDING[eqn.op.name]
    return params


def takes_scalars(eqn: Eqn) -> bool:
    """Whether an operand that is one number throughout may be that number: the other operands say its shape."""
    return primitive_of(eqn).name in _SAME_SHAPES and len({v.shape for v in eqn.inputs}) == 1


def _bind(name: str, operands: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
    """The results of the op that JAX calls so."""
    arguments = [argument_of(x, f"operand {i} of {name}") for i, x in enumerate(operands)]
    values = [as_operand(x, a) for x, a in zip(operands, arguments, strict=True)]
    if name in _SAME_SHAPES:
        values, arguments = _of_one_shape(values, arguments)
    kinds, function = _COMPOSED.get(name, ("", None))
    if function is not None and any(a.type.dtype.kind in kinds for a in arguments):
        return [function(*values, *([params["axes"]] if "axes" in params else []))]
    program = _program(name, arguments, params)
    weak = bool(arguments) and all(a.weak for a in arguments)
    flags = [weak and v.dtype == arguments[0].type.dtype for v in program.outputs]
    return bind_program(program, values, flags, current_mesh())


def _of_one_shape(values: Sequence[Any], arguments: Sequence[Argument]) -> tuple[list[Any], list[Argument]]:
    """Numbers become arrays of the shape of the others."""
    shape = next((a.type.shape for a in arguments if a.type.shape), ())
    is_number = [not a.type.shape and isinstance(x, np.ndarray | np.generic) for x, a in zip(values, arguments, strict=True)]
    pairs = list(zip(values, arguments, is_number, strict=True))
    return (
        [np.broadcast_to(x, shape) if number else x for x, _, number in pairs],
        [a.with_type(a.type.with_shape(shape)) if number else a for _, a, number in pairs],
    )


def _program(name: str, arguments: Sequence[Argument], params: Mapping[str, Any]) -> Program:
    op, own = op_of(name, [a.type for a in arguments], params)
    with Builder(op.name) as builder, builder.at(user_source()):
        return builder.build(builder.emit(op, [builder.input(a.type) for a in arguments], own))


def op_of(name: str, types: Sequence[TensorType], params: Mapping[str, Any]) -> tuple[Op, dict[str, Any]]:
    """The op that JAX calls so for operands of these types, with its own params; TypeError where there is none for them."""
    errors: list[Exception] = []
    for op, own in _candidates(name, params):
        try:
            op.type_rule(tuple(types), own)
            return op, own
        except (TypeError, KeyError) as error:
            errors.append(error)
    if errors:
        raise errors[0]
    raise NotImplementedError(f"the primitive {name} is no op of meshjit's\n  fix: the function of jax.lax that it is of")


def _candidates(name: str, params: Mapping[str, Any]) -> Iterator[tuple[Op, dict[str, Any]]]:
    """The ops that JAX calls so, each with its own params."""
    names = {new: old for old, new in PARAMS.get(name, {}).items()}
    own = {names.get(param, param): _own(value) for param, value in params.items()}
    if name in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield REGISTRY["compare"], {**own, "direction": name.upper()}
        return
    if name == "dot_general" and "dimension_numbers" in own:
        own["contract"], own["batch"] = own.pop("dimension_numbers")
    if name in _PLACES and "axes" in own:
        (own["axis"],) = own.pop("axes")
    rounding = own.pop("rounding_method", None)
    for op in REGISTRY.values():
        if NAMES.get(op.name, op.name) == name and _ROUNDING.get(op.name, rounding) == rounding:
            yield op, own


def _own(value: Any) -> Any:
    """ClosedJaxprs as Programs, with Vars of their own."""
    program = getattr(value, "program", None)
    if isinstance(program, Program):
        return copied(program)
    return tuple(map(_own, value)) if isinstance(value, tuple) and any(hasattr(v, "program") for v in value) else value


set_binder(_bind)
