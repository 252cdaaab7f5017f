"""Common subexpressions: equal ops on equal operands with equal params are computed once. All ops are pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.splat import element_of, is_known_splat

_SMALL = 64  # constants of more elements are compared by identity: hashing them costs more than it saves
_PLAIN = {int}  # equal ones are the same: not so True and 1, or 0.0 and -0.0


def cse(program: Program, constants: bool = False) -> Program:
    """The Program with repeated equations replaced by the first of them.

    Constants keep a copy for each use, because every use may then be placed as it likes; not so with `constants`, which
    is for local Programs.
    """
    names: dict[Var, Var] = {}
    seen: dict[Any, tuple[Var, ...]] = {}
    kept: list[Eqn] = []
    for eqn in program.eqns:
        inputs = tuple([names.get(v, v) for v in eqn.inputs])
        key = _key(eqn, inputs) if inputs or constants else None
        if key is not None and key in seen:
            names.update(zip(eqn.outputs, seen[key], strict=True))
            continue
        if key is not None:
            seen[key] = eqn.outputs
        kept.append(eqn if inputs == eqn.inputs else eqn.with_inputs(inputs))
    return Program(program.name, program.inputs, tuple(kept), tuple(names.get(v, v) for v in program.outputs))


def _key(eqn: Eqn, inputs: tuple[Var, ...]) -> Any:
    return (eqn.op, inputs, tuple([(k, _hashable(v)) for k, v in eqn.params.items()]))


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.size > _SMALL and is_known_splat(value):
            return (value.shape, value.dtype, element_of(value).tobytes())
        return (value.shape, value.dtype, value.tobytes()) if value.size <= _SMALL else id(value)
    if isinstance(value, Program):
        return id(value)
    if isinstance(value, tuple):
        if len(value) > _SMALL and type(value[0]) is tuple:  # pairs of devices
            return value
        return value if {*map(type, value)} <= _PLAIN else tuple([_hashable(v) for v in value])
    return (type(value), value)
