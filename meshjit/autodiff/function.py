"""A Python function at given arguments, as a Program: what every transformation starts from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshjit import numpy as mnp, tree
from meshjit.core.types import TensorType, is_inexact
from meshjit.trace import Argument, Traced, argument_of, as_operand, bind_program, trace_to_program
from meshjit.trace.program import function_name
from meshjit.transform.calls import inline_calls
from meshjit.transform.dce import dce
from meshjit.transform.places import place

Function = Callable[..., Any]
FLOAT0 = np.dtype([("float0", "V")])  # the dtype of derivatives with respect to integers: there are none


@dataclass(frozen=True)
class Call:
    """fun(*args, **kwargs), traced. `operands` are the flat arguments, `names` their paths."""

    traced: Traced
    operands: list[Any]
    weak: list[bool]
    names: list[str]
    in_tree: Any

    @property
    def inputs(self) -> list[Any]:
        """What the traced Program is applied to: the arguments, then what the function closed over."""
        return [*self.operands, *self.traced.captured]

    @property
    def input_types(self) -> list[TensorType]:
        """Of the arguments."""
        return [v.type for v in self.traced.program.inputs[: len(self.operands)]]

    def padded(self, flags: Sequence[bool]) -> list[bool]:
        """Flags of the arguments, with False for what the function closed over."""
        return [*flags, *[False] * len(self.traced.captured)]


def call_of(fun: Function, args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> Call:
    """Trace fun(*args, **kwargs) for a transformation called `what`; TypeError if it is no function."""
    check_function(fun, what)
    leaves, in_tree, names = named_leaves(fun, args, kwargs)
    arguments = [argument_of(x, n) for x, n in zip(leaves, names, strict=True)]
    traced = trace_flat(fun, arguments, in_tree)
    return Call(traced, operands_of(leaves, arguments), [a.weak for a in arguments], names, in_tree)


def trace_flat(fun: Function, arguments: Sequence[Argument], in_tree: Any) -> Traced:
    """Trace; jitted functions that `fun` calls become part of its Program, so that derivatives see through them, and
    parts at known places are seen whole, so that the derivative of a shift is a shift."""
    traced = trace_to_program(fun, arguments, in_tree, function_name(fun))
    return replace(traced, program=dce(place(inline_calls(traced.program))))


def check_function(fun: Any, what: str) -> None:
    if not callable(fun):
        raise TypeError(f"{what} needs a function, was given {type(fun).__name__}: {fun!r}")


def operands_of(leaves: Sequence[Any], arguments: Sequence[Argument]) -> list[Any]:
    return [as_operand(x, a) for x, a in zip(leaves, arguments, strict=True)]


def named_leaves(fun: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any, list[str]]:
    """(leaves, structure, paths such as `params['w1']`) of `(args, kwargs)`."""
    leaves, in_tree = tree.flatten((args, kwargs))
    names: list[str] = []
    for name, x in zip(parameter_names(fun, len(args)), args, strict=True):
        names += tree.path_names(x, name)
    for name in sorted(kwargs):
        names += tree.path_names(kwargs[name], name)
    return leaves, in_tree, names


def parameter_names(fun: Function, count: int) -> list[str]:
    """Names of the first `count` positional arguments; those that *args takes are `args[2]`."""
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (ValueError, TypeError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in kinds][:count]
    rest = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), "args")
    first = len(names) if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters) else 0
    return names + [f"{rest}[{i - first}]" for i in range(len(names), count)]


def value_leaves(traced: Traced, has_aux: bool, what: str) -> int:
    """How many of the flat outputs are the value (the others are aux)."""
    if not has_aux:
        return traced.out_tree.num_leaves
    dummy = tree.unflatten(traced.out_tree, range(traced.out_tree.num_leaves))
    if not (isinstance(dummy, tuple) and len(dummy) == 2):
        raise TypeError(f"{what} with has_aux: the function must return (value, aux), it returned {type(dummy).__name__}")
    return len(tree.leaves(dummy[0]))


def no_derivative(type: TensorType) -> np.ndarray[Any, Any]:
    """What stands for the derivative with respect to an integer argument: zeros of dtype float0, as in JAX."""
    return np.zeros(type.shape, FLOAT0)


def run(program: Any, inputs: Sequence[Any], weak: Sequence[bool], mesh: Any) -> list[Any]:
    """`mesh`: of the constraints in the function that the Program comes from."""
    return bind_program(program, inputs, weak, mesh)


def direction_of(value: Any, type: TensorType, what: str, name: str, place: str) -> Any:
    """A tangent or cotangent as an operand of this type; Python numbers and other weak values adapt.

    ValueError for another shape, TypeError for another dtype, with both."""
    argument = argument_of(value, name)
    if argument.type.shape != type.shape:
        raise ValueError(f"{what}: a {name} has shape {argument.type.shape}, {place} {type.shape}")
    if argument.type.dtype == type.dtype:
        return as_operand(value, argument)
    if not argument.weak or (argument.type.dtype.kind == "c" and type.dtype.kind != "c"):
        raise TypeError(
            f"{what}: a {name} has dtype {argument.type.dtype}, {place} {type.dtype}\n"
            f"  fix: {name}.astype({type.dtype})"
        )
    return mnp.astype(as_operand(value, argument), type.dtype)


def inexact(types: Sequence[TensorType]) -> list[bool]:
    return [is_inexact(t.dtype) for t in types]
