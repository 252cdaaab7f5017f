"""The constants of a Program as inputs of it, for Programs that are the same but for their numbers.

    lambda x: x * 0.1, lambda x: x * 0.2   ->   one Program of x and a number, compiled once

Only the Program's own equations are looked at, not those of loop bodies and branches.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.base.constants import constant, is_splat
from meshjit.ops.base.shape import broadcast_in_dim
from meshjit.transform.rewriting import Rewriter


@dataclass(frozen=True)
class Number:
    """What one `constant` equation makes; of a splat the one element, since it may be large otherwise."""

    eqn: Eqn
    splat: bool
    value: np.ndarray[Any, Any]


def numbers_of(program: Program) -> list[Number]:
    """Of every `constant` equation, in order."""
    return [_number(eqn) for eqn in program.eqns if eqn.op is constant]


def _number(eqn: Eqn) -> Number:
    value = eqn.params["value"]
    if value.size and is_splat(value):
        return Number(eqn, True, np.asarray(value[(0,) * value.ndim]))
    return Number(eqn, False, value)


def without_numbers(program: Program) -> Program:
    """The Program with what its constants make as its last inputs: what it has in common with others of its kind."""
    constants = tuple(eqn.outputs[0] for eqn in program.eqns if eqn.op is constant)
    rest = tuple(eqn for eqn in program.eqns if eqn.op is not constant)
    return Program(program.name, program.inputs + constants, rest, program.outputs)


def with_operands(program: Program, numbers: list[Number], chosen: Collection[int]) -> Program:
    """The Program with the chosen of its numbers (counted as in `numbers`) as its last inputs."""
    here = Rewriter(program)
    lifted: dict[Var, Var] = {}
    splats: set[Var] = set()
    for number in (numbers[i] for i in sorted(chosen)):
        (result,) = number.eqn.outputs
        lifted[result] = here.input(result.type.with_shape(number.value.shape))
        splats |= {result} if number.splat and result.shape else set()

    def rule(eqn: Eqn, here: Rewriter) -> Var | None:
        (result,) = eqn.outputs
        return _spread(lifted[result], result.shape) if result in splats else lifted.get(result)

    return here.run({constant.name: rule})


def _spread(number: Any, shape: tuple[int, ...]) -> Any:
    return broadcast_in_dim(number, shape=shape, dimensions=())
