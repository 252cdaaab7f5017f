"""What a Program means: each op's NumPy meaning, one equation after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Steps
from meshjit.core.types import type_of

Array = np.ndarray[Any, Any]


def evaluate(program: Program, arrays: Sequence[Any]) -> list[Array]:
    """The outputs of the Program for these inputs, each of exactly its declared type."""
    env: dict[Var, Array] = {}
    for var, array in zip(program.inputs, arrays, strict=True):
        value = np.asarray(array)
        if type_of(value) != var.type:
            raise TypeError(f"input {var!r} was given {type_of(value)}")
        env[var] = value
    for eqn in program.eqns:
        env.update(zip(eqn.outputs, evaluate_eqn(eqn, [env[v] for v in eqn.inputs]), strict=True))
    return [env[v] for v in program.outputs]


def evaluate_eqn(eqn: Eqn, arrays: Sequence[Array]) -> list[Array]:
    """One equation's results; a result of another type than declared is an error in the op's rules."""
    results: Any = eqn.op.evaluate(*arrays, **eqn.params)
    values: list[Array] = [np.asarray(r) for r in (cast(Any, results) if isinstance(results, tuple) else (results,))]
    for var, result in zip(eqn.outputs, values, strict=True):
        if type_of(result) != var.type:
            raise TypeError(f"{eqn.op.name}: NumPy meaning gave {type_of(result)}, the type rule says {var.type}")
    return values


def evaluated(steps: Callable[..., Steps]) -> Callable[..., tuple[Array, ...]]:
    """The NumPy meaning of an op with regions, from its steps."""

    def run(*operands: Array, **params: Any) -> tuple[Array, ...]:
        asking = steps(*operands, **params)
        try:
            program, values = next(asking)
            while True:
                program, values = asking.send(evaluate(program, values))
        except StopIteration as end:
            return tuple(end.value)

    return run
