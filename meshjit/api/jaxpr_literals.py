"""Constants of a jaxpr: equations of the Program, operands under JAX's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.core.op import REGISTRY
from meshjit.core.program import Eqn, Var
from meshjit.core.splat import element_of, is_known_splat, own
from meshjit.core.types import TensorType


@dataclass(frozen=True)
class Literal:
    """A constant operand: a NumPy scalar where it is one number throughout and other operands say its shape, else an array.
    `aval` is its type."""

    val: Any
    aval: TensorType

    def __hash__(self) -> int:
        return id(self)

    def as_scalar(self) -> Literal:
        """Itself as one number, if it is one throughout."""
        one = isinstance(self.val, np.ndarray) and self.val.size > 0 and is_known_splat(self.val)
        return Literal(element_of(self.val)[()], self.aval) if one else self

    def __str__(self) -> str:
        return f"{self.val}:{self.aval}"


def constant(var: Var, literal: Literal) -> Eqn:
    value = np.broadcast_to(np.asarray(literal.val, literal.aval.dtype), literal.aval.shape)
    return Eqn(REGISTRY["constant"], (), (var,), {"value": own(value)})


def is_constant(eqn: Eqn) -> bool:
    return eqn.op is REGISTRY["constant"]


def literal_of(eqn: Eqn) -> Literal:
    value = np.asarray(eqn.params["value"])
    return Literal(value if value.shape else value[()], eqn.outputs[0].type)
