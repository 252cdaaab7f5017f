"""Common subexpressions: equal ops on equal operands with equal params are computed once, if they have no effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.splat import element_of, is_known_splat
from meshjit.transform.rewriting import Rewriter, rewrite

_SMALL = 64  # constants of more elements are compared by identity: hashing them costs more than it saves
_PLAIN = {int}  # equal ones are the same: not so True and 1, or 0.0 and -0.0
_SIMPLE = frozenset((int, float, bool, str, type(None)))  # what most params are


def cse(program: Program, constants: bool = False) -> Program:
    """The Program with repeated equations replaced by the first of them.

    Constants keep a copy for each use, because every use may then be placed as it likes; not so with `constants`, which
    is for local Programs.
    """
    seen: dict[Any, tuple[Var, ...]] = {}
    params: dict[int, int] = {}  # a number for equal ones, by identity: layers made of one Program share theirs
    numbers: dict[Any, int] = {}

    def rule(eqn: Eqn, here: Rewriter) -> Sequence[Var] | None:
        if not eqn.inputs and not constants:
            return None
        key = params.get(id(eqn.params))
        if key is None:
            same = tuple([(k, _hashable(v)) for k, v in eqn.params.items()])
            key = params[id(eqn.params)] = numbers.setdefault(same, len(numbers))
        first = seen.setdefault((eqn.op, eqn.inputs, key), eqn.outputs)
        return None if first is eqn.outputs or not is_pure(eqn) else first

    return rewrite(program, rule)


def _hashable(value: Any) -> Any:
    if type(value) in _SIMPLE:
        return (type(value), value)
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
