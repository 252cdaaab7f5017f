"""The constants of a Program as inputs of it, for Programs that are the same but for their numbers.

    lambda x: x * 0.1, lambda x: x * 0.2   ->   one Program of x and a number, compiled once

Only the Program's own equations are looked at, not those of loop bodies and branches.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.core.program import Builder, Eqn, Program
from meshjit.ops.base.constants import constant, is_splat
from meshjit.ops.base.shape import broadcast_in_dim


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
    made = tuple(eqn.outputs[0] for eqn in program.eqns if eqn.op is constant)
    rest = tuple(eqn for eqn in program.eqns if eqn.op is not constant)
    return Program(program.name, program.inputs + made, rest, program.outputs)


def with_operands(program: Program, numbers: list[Number], chosen: Collection[int]) -> Program:
    """The Program with the chosen of its numbers (counted as in `numbers`) as its last inputs."""
    places = {numbers[i].eqn: numbers[i] for i in sorted(chosen)}
    with Builder(program.name) as builder:
        env = {v: builder.input(v.type, v.hint) for v in program.inputs}
        given = {eqn: builder.input(eqn.outputs[0].type.with_shape(n.value.shape)) for eqn, n in places.items()}
        for eqn in program.eqns:
            if eqn in given:
                shape = eqn.outputs[0].shape
                with builder.at(eqn.source):
                    env[eqn.outputs[0]] = _spread(given[eqn], shape) if places[eqn].splat and shape else given[eqn]
                continue
            builder.eqns.append(eqn.with_inputs(tuple(env[v] for v in eqn.inputs)))
            env.update(zip(eqn.outputs, eqn.outputs, strict=True))
        return builder.build([env[v] for v in program.outputs])


def _spread(number: Any, shape: tuple[int, ...]) -> Any:
    return broadcast_in_dim(number, shape=shape, dimensions=())
