"""Fold equations that give back their operand, chains of reshapes, arithmetic on constants of one value, and sums of nothing.

    broadcast_in_dim(constant 0.5)  ->  constant 0.5 of the larger shape: placed as its use likes, without a Var between
    multiply(x, constant 1)         ->  x
    reshape(reshape(x))             ->  reshape(x)
    reduce_sum(f32[0, 3])           ->  constant 0 of 3 elements, which no device need send to another

Results stay the same to the bit, signs of zeros included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.splat import element_of, is_splat, splat
from meshjit.core.types import TensorType
from meshjit.ops.base.constants import constant
from meshjit.ops.base.identity_elements import identity_element
from meshjit.transform.rewriting import Rewriter, rewrite

Constants = dict[Var, np.ndarray[Any, Any]]  # the one value, as an array of no dims

# Exact in NumPy and XLA alike; anything transcendental is not.
_ARITHMETIC = {"add", "subtract", "multiply", "divide", "negate", "maximum", "minimum"}
_SPREADING = {"broadcast_in_dim", "reshape", "transpose", "convert", "slice", "reverse"}
_FOLDED = _ARITHMETIC | _SPREADING
_REDUCING = {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "dot_general"}


def fold(program: Program) -> Program:
    """The Program with every equation replaced that is its operand or a constant of one value."""
    values: Constants = {}
    reshapes: dict[Var, Eqn] = {}
    copies: dict[int, tuple[Mapping[str, Any], np.ndarray[Any, Any] | None]] = {}  # by id of params: their one value

    def rule(eqn: Eqn, here: Rewriter) -> Eqn | Var | None:
        name, old = eqn.op.name, eqn
        converts = name == "convert" and eqn.inputs[0].type.dtype != eqn.outputs[0].type.dtype
        if (converts or name in _ARITHMETIC) and values.keys().isdisjoint(eqn.inputs):
            return None
        if name == "reshape" and (before := reshapes.get(eqn.inputs[0])) is not None:  # of a chain only the last is one
            eqn = eqn.with_inputs(before.inputs)
        same = None if eqn.op is constant else _same_as(eqn, values)
        if same is not None:
            return same
        if name in _REDUCING:
            eqn = _of_nothing(eqn)
        elif name in _FOLDED and not any([v not in values for v in eqn.inputs]):
            eqn = _as_constant(eqn, values)
        elif name == "reshape":
            reshapes[eqn.outputs[0]] = eqn
        if eqn.op is constant:
            known = copies.get(id(eqn.params))
            if known is None:
                known = copies[id(eqn.params)] = eqn.params, _one_value(eqn.params["value"])
            if known[1] is not None:
                values[eqn.outputs[0]] = known[1]
        return None if eqn is old else eqn

    return rewrite(program, dict.fromkeys(("constant", *_IDENTITIES, *_FOLDED, *_REDUCING), rule))


def _one_value(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """The value of all elements; None where they differ or there are none."""
    return np.asarray(element_of(value)) if value.size > 0 and is_splat(value) else None


# -- equations that are their operand


def _same_as(eqn: Eqn, values: Constants) -> Var | None:
    """The operand that the equation's one result is, bit for bit; None where it is none."""
    rule = _IDENTITIES.get(eqn.op.name)
    same = rule(eqn, values) if rule is not None else None
    return same if same is not None and same.type == eqn.outputs[0].type else None


def _first_if(test: Callable[[Eqn], bool]) -> Callable[[Eqn, Constants], Var | None]:
    return lambda eqn, values: eqn.inputs[0] if test(eqn) else None


def _beside(number: Any, *positions: int) -> Callable[[Eqn, Constants], Var | None]:
    """The other operand where the one at one of these positions is `number` everywhere."""

    def rule(eqn: Eqn, values: Constants) -> Var | None:
        for i in positions:
            value = values.get(eqn.inputs[i])
            if value is not None and value == number and not _negative_zero(value):
                return eqn.inputs[1 - i]
        return None

    return rule


def _sum_with_zero(eqn: Eqn, values: Constants) -> Var | None:
    """x + 0 for integers; for floats -0.0 + 0.0 is not -0.0."""
    return _beside(0, 0, 1)(eqn, values) if eqn.outputs[0].dtype.kind in "iu" else None


def _beside_bound(kind: str) -> Callable[[Eqn, Constants], Var | None]:
    """max(x, -inf), min(x, inf), and the like for integers: what a softmax of maybe nothing begins with."""

    def rule(eqn: Eqn, values: Constants) -> Var | None:
        return _beside(identity_element(kind, eqn.outputs[0].dtype), 0, 1)(eqn, values)

    return rule


def _negative_zero(value: np.ndarray[Any, Any]) -> bool:
    return bool(value == 0) and value.tobytes() != bytes(value.dtype.itemsize)


def _in_order(numbers: tuple[int, ...]) -> bool:
    return numbers == tuple(range(len(numbers)))


def _sees_itself(windows: Any) -> bool:
    """Whether every window is the one element at its place."""
    return {*windows["window"], *windows["strides"], *windows["base_dilation"]} <= {1} and not any(
        n for pair in windows["padding"] for n in pair
    )


_IDENTITIES: dict[str, Callable[[Eqn, Constants], Var | None]] = {
    "convert": _first_if(lambda eqn: True),
    "reshape": _first_if(lambda eqn: True),
    "transpose": _first_if(lambda eqn: _in_order(eqn.params["permutation"])),
    "broadcast_in_dim": _first_if(lambda eqn: _in_order(eqn.params["dimensions"])),
    "slice": _first_if(lambda eqn: True),
    "reverse": _first_if(lambda eqn: all(eqn.outputs[0].shape[d] == 1 for d in eqn.params["dimensions"])),
    "reduce_window": _first_if(lambda eqn: _sees_itself(eqn.params)),
    "integer_pow": _first_if(lambda eqn: eqn.params["exponent"] == 1),
    "stop_cotangent": _first_if(lambda eqn: True),
    "stop_gradient": _first_if(lambda eqn: True),
    "select": lambda eqn, values: eqn.inputs[1] if eqn.inputs[1] is eqn.inputs[2] else None,
    "multiply": _beside(1, 0, 1),
    "divide": _beside(1, 1),
    "subtract": _beside(0, 1),
    "add": _sum_with_zero,
    "maximum": _beside_bound("max"),
    "minimum": _beside_bound("min"),
}


# -- equations that are constants


def _as_constant(eqn: Eqn, values: Constants) -> Eqn:
    """The equation as a constant of one value, as its operands are."""
    out = eqn.outputs[0].type
    if eqn.op.name in _ARITHMETIC or eqn.op.name == "convert":
        value = np.asarray(eqn.op.evaluate(*(values[v] for v in eqn.inputs), **eqn.params))
    else:
        value = values[eqn.inputs[0]]
    assert value.shape == () and value.dtype == out.dtype, f"{eqn.op.name} of {values} gave {value!r} for {out}"
    return replace(eqn, op=constant, inputs=(), params=_splat_params(out, value.tobytes()))


def _of_nothing(eqn: Eqn) -> Eqn:
    """A reduction of no elements as the constant that it gives."""
    out = eqn.outputs[0].type
    if 0 in out.shape or not any([0 in v.type.shape for v in eqn.inputs]):
        return eqn
    shortest = [np.empty([min(n, 1) for n in type.shape], type.dtype) for type in eqn.input_types]
    value = np.asarray(eqn.op.evaluate(*shortest, **eqn.params))
    return replace(eqn, op=constant, inputs=(), params=_splat_params(out, value[(0,) * value.ndim].tobytes()))


@functools.lru_cache(maxsize=4096)
def _splat_params(type: TensorType, element: bytes) -> Mapping[str, Any]:
    """The same object for equal constants, which makes their equations alike by identity."""
    return {"value": splat(np.frombuffer(element, type.dtype)[0], type.shape)}
