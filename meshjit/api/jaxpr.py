"""A Program under JAX's names, for programs that look at what a function was traced to (`jax.make_jaxpr`).

    closed = make_jaxpr(f)(x)
    [eqn.primitive.name for eqn in closed.eqns]      ['sin', 'mul']
    eval_jaxpr(closed.jaxpr, closed.consts, x)       [f(x)]

Equations have JAX's names and params where an op of JAX's corresponds, and their own elsewhere. Constants are no equations here
but `Literal`s among the operands. `.program` is the Program itself, and the text is its text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from meshjit.core.effects import Effect, effect_of
from meshjit.core.op import REGISTRY
from meshjit.core.printer import print_program
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.splat import element_of, is_known_splat
from meshjit.core.types import TensorType
from meshjit.trace import argument_of, as_operand, bind_program, line_of, user_source

_NAMES = {  # of ops that JAX calls otherwise
    "all_reduce": "psum", "bitcast_convert": "bitcast_convert_type", "call": "jit", "case": "cond", "checkpoint": "remat2",
    "collective_permute": "ppermute", "conjugate": "conj", "convert": "convert_element_type",
    "convolution": "conv_general_dilated", "cosine": "cos", "count_leading_zeros": "clz", "custom_jvp": "custom_jvp_call",
    "custom_vjp": "custom_vjp_call", "divide": "div", "exponential": "exp", "exponential_minus_one": "expm1",
    "log_plus_one": "log1p", "manual": "shard_map", "maximum": "max", "minimum": "min", "multiply": "mul", "negate": "neg",
    "popcnt": "population_count", "power": "pow", "remainder": "rem", "reverse": "rev", "round_nearest_afz": "round",
    "round_nearest_even": "round", "select": "select_n", "sine": "sin", "subtract": "sub",
}  # fmt: skip
_PARAMS = {  # of their params; the key is JAX's name of the op
    "broadcast_in_dim": {"dimensions": "broadcast_dimensions"},
    "conv_general_dilated": {"preferred": "preferred_element_type"},
    "convert_element_type": {"dtype": "new_dtype"},
    "dot_general": {"preferred": "preferred_element_type"},
    "integer_pow": {"exponent": "y"},
    "jit": {"body": "jaxpr"},
    "remat2": {"body": "jaxpr"},
    "reshape": {"shape": "new_sizes"},
    "scan": {"body": "jaxpr"},
    "slice": {"start": "start_indices", "limit": "limit_indices"},
    "while": {"cond": "cond_jaxpr", "body": "body_jaxpr", "cond_consts": "cond_nconsts", "body_consts": "body_nconsts"},
}


@dataclass(frozen=True)
class Primitive:
    """The name of an operation; the same object for the same name."""

    name: str
    multiple_results: bool = False

    def __str__(self) -> str:
        return self.name


@functools.cache
def _primitive(name: str, multiple_results: bool) -> Primitive:
    return Primitive(name, multiple_results)


@dataclass(frozen=True)
class Literal:
    """A constant operand: a NumPy scalar where all of its elements are equal, else an array. `aval` is its type."""

    val: Any
    aval: TensorType

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return f"{self.val}:{self.aval}"


Atom: TypeAlias = Var | Literal


@dataclass(frozen=True, eq=False)
class JaxprEqn:
    """outvars = primitive(invars, **params). `eqn` is the Program's equation, `source_info` the user's line."""

    eqn: Eqn
    invars: list[Atom]

    @property
    def outvars(self) -> list[Var]:
        return list(self.eqn.outputs)

    @property
    def primitive(self) -> Primitive:
        return _primitive(_name_of(self.eqn), len(self.eqn.outputs) != 1)

    @functools.cached_property
    def params(self) -> dict[str, Any]:
        """Nested Programs are ClosedJaxprs."""
        renamed = _PARAMS.get(self.primitive.name, {})
        params = {renamed.get(name, name): _closed(value) for name, value in self.eqn.params.items()}
        if self.eqn.op.name == "compare":  # which the name says
            del params["direction"]
        elif self.eqn.op.name == "dot_general":
            params["dimension_numbers"] = (params.pop("contract"), params.pop("batch"))
        return params

    @property
    def effects(self) -> set[Effect]:
        return {effect_of(self.eqn)} - {Effect.NONE}

    @property
    def source_info(self) -> Any:
        return self.eqn.source

    def __str__(self) -> str:
        return print_program(Program("eqn", self.eqn.inputs, (self.eqn,), self.eqn.outputs)).split("\n")[1].strip()


@dataclass(frozen=True, eq=False)
class Jaxpr:
    """A Program whose last inputs are `constvars`, for what the function closed over."""

    program: Program
    count: int  # of constvars
    weak: tuple[bool, ...] = field(repr=False)  # of the results
    mesh: Any = field(repr=False, default=None)  # of the constraints inside

    @property
    def invars(self) -> list[Var]:
        return list(self.program.inputs[: len(self.program.inputs) - self.count])

    @property
    def constvars(self) -> list[Var]:
        return list(self.program.inputs[len(self.program.inputs) - self.count :])

    @functools.cached_property
    def eqns(self) -> list[JaxprEqn]:
        return [JaxprEqn(e, [self._atom(v) for v in e.inputs]) for e in self.program.eqns if not _is_constant(e)]

    @property
    def outvars(self) -> list[Atom]:
        return [self._atom(v) for v in self.program.outputs]

    @property
    def in_avals(self) -> list[TensorType]:
        return [v.type for v in self.invars]

    @property
    def out_avals(self) -> list[TensorType]:
        return list(self.program.output_types)

    @property
    def effects(self) -> set[Effect]:
        return {effect for eqn in self.eqns for effect in eqn.effects}

    @functools.cached_property
    def _literals(self) -> dict[Var, Literal]:
        return {e.outputs[0]: _literal(e) for e in self.program.eqns if _is_constant(e)}

    def _atom(self, var: Var) -> Atom:
        return self._literals.get(var, var)

    def __str__(self) -> str:
        return print_program(self.program)


@dataclass(frozen=True, eq=False)
class ClosedJaxpr:
    """A Jaxpr and the values of its constvars: what `make_jaxpr` and `jit(f).trace(x).jaxpr` give."""

    jaxpr: Jaxpr
    consts: list[Any]

    @property
    def program(self) -> Program:
        return self.jaxpr.program

    @property
    def eqns(self) -> list[JaxprEqn]:
        return self.jaxpr.eqns

    @property
    def literals(self) -> list[Any]:
        return self.consts

    @property
    def in_avals(self) -> list[TensorType]:
        return self.jaxpr.in_avals

    @property
    def out_avals(self) -> list[TensorType]:
        return self.jaxpr.out_avals

    @property
    def effects(self) -> set[Effect]:
        return self.jaxpr.effects

    def __str__(self) -> str:
        return str(self.jaxpr)


def closed_jaxpr(program: Program, consts: Sequence[Any], weak: Sequence[bool], mesh: Any = None) -> ClosedJaxpr:
    """A Program whose last inputs have the values `consts`."""
    return ClosedJaxpr(Jaxpr(program, len(consts), tuple(weak), mesh), list(consts))


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any) -> list[Any]:
    """The results for these arguments, flat (`jax.core.eval_jaxpr`): computed, or inlined into what is being traced.

    TypeError where their number or a type does not fit."""
    values = [*args, *consts]
    arguments = [argument_of(x, f"args[{i}]") for i, x in enumerate(values)]
    expected = jaxpr.program.input_types
    if [a.type for a in arguments] != list(expected):
        given = ", ".join(str(a.type) for a in arguments)
        raise TypeError(
            f"eval_jaxpr: {jaxpr.program.name} takes ({', '.join(map(str, expected))}), arguments and then constants,"
            f" and was given ({given})\n  at {line_of(user_source())}\n  fix: make_jaxpr for arguments like these"
        )
    operands = [as_operand(x, a) for x, a in zip(values, arguments, strict=True)]
    return bind_program(jaxpr.program, operands, jaxpr.weak, jaxpr.mesh)


def jaxprs_in_params(params: Mapping[str, Any]) -> Iterator[Jaxpr]:
    """The Jaxprs among the params of an equation, in order."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr


def _is_constant(eqn: Eqn) -> bool:
    return eqn.op is REGISTRY["constant"]


def _literal(eqn: Eqn) -> Literal:
    value = np.asarray(eqn.params["value"])
    one = value.size > 0 and is_known_splat(value)
    return Literal(element_of(value)[()] if one else value, eqn.outputs[0].type)


def _name_of(eqn: Eqn) -> str:
    if eqn.op.name == "compare":
        return str(eqn.params["direction"]).lower()
    return _NAMES.get(eqn.op.name, eqn.op.name)


def _closed(value: Any) -> Any:
    """Programs, also in a tuple, as ClosedJaxprs without constants; anything else as it is."""
    if isinstance(value, Program):
        return closed_jaxpr(value, (), [False] * len(value.outputs))
    return tuple(map(_closed, value)) if isinstance(value, tuple) and any(isinstance(v, Program) for v in value) else value
