"""Legality of a Program as a second program: it runs between passes and says which equation broke what."""

from __future__ import annotations

import functools
from typing import Any

from meshjit.core.host import calls_host
from meshjit.core.op import Op, Types
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import programs_of


class IllegalProgram(AssertionError):
    """A pass produced a Program that is not one; the message names the pass, the equation and the broken invariant."""


def verify(program: Program, after: str = "", types: bool = True) -> Program:
    """Check and give back the Program. Nested ones that stand in it several times are checked once.

    Invariants: every Var is defined once, before its uses; every output is defined; and with `types`, every equation's output
    types are what its op's type rule gives for its input types and params, nested Programs are legal too, and stand in params
    in the order of the op's regions.
    """
    if types:
        _verify(program, after, set())
    else:
        _check_definitions(program, after)
    return program


def _verify(program: Program, after: str, legal: set[Program]) -> None:
    _check_definitions(program, after)
    sound: set[tuple[int, ...]] = set()
    for eqn in program.eqns:
        copies = eqn.identity
        if copies not in sound:
            _check_eqn(eqn, after, legal)
            sound.add(copies)
    legal.add(program)


def _check_definitions(program: Program, after: str) -> None:
    """Every Var is defined once, before its uses."""
    if _are_in_order(program):
        return
    defined: set[Var] = set()
    for var in program.inputs:
        if var in defined:
            raise _illegal(f"input of {program.name}: {var!r} is defined twice", after)
        defined.add(var)
    for eqn in program.eqns:
        if not defined.issuperset(eqn.inputs):
            var = next(v for v in eqn.inputs if v not in defined)
            raise _illegal(f"{_describe(eqn)} uses {var!r} before it is defined", after)
        if not defined.isdisjoint(eqn.outputs):
            var = next(v for v in eqn.outputs if v in defined)
            raise _illegal(f"{_describe(eqn)}: {var!r} is defined twice", after)
        defined.update(eqn.outputs)
    for var in program.outputs:
        if var not in defined:
            raise _illegal(f"output {var!r} of {program.name} is not defined", after)


def _are_in_order(program: Program) -> bool:
    """The same question without saying where, which takes a third of the time."""
    defined = {*program.inputs}
    are_defined, define = defined.issuperset, defined.update
    for eqn in program.eqns:
        if not are_defined(eqn.inputs):
            return False
        define(eqn.outputs)
    return are_defined(program.outputs) and len(defined) == sum(1 for _ in program.vars())


def _check_eqn(eqn: Eqn, after: str, legal: set[Program]) -> None:
    types = _types(eqn)
    if types != eqn.output_types:
        raise _illegal(f"{_describe(eqn)} declares {eqn.output_types}, its rule gives {types}", after)
    _check_regions(eqn, after, legal)


def _check_regions(eqn: Eqn, after: str, legal: set[Program]) -> None:
    nested = list(programs_of(eqn.params))
    regions = eqn.op.regions(eqn.params) if eqn.op.regions is not None else ()
    if [id(region.program) for region in regions] != [id(program) for program in nested]:
        raise _illegal(f"{_describe(eqn)} has regions in another order than the Programs in its params", after)
    for program in nested:
        if program not in legal:
            _verify(program, after, legal)


def _types(eqn: Eqn) -> Types:
    """What the op's type rule gives, which is asked once for equations that are alike."""
    if eqn.op.regions is not None or calls_host(eqn):  # a cache would keep Programs and functions alive
        return eqn.op.type_rule(eqn.input_types, eqn.params)
    try:
        return _known_types(eqn.op, eqn.input_types, tuple(eqn.params.items()))
    except TypeError:  # a param that cannot be hashed, such as an array; or types that do not fit
        return eqn.op.type_rule(eqn.input_types, eqn.params)


@functools.lru_cache(maxsize=4096)
def _known_types(op: Op, in_types: Types, params: tuple[tuple[str, Any], ...]) -> Types:
    return op.type_rule(in_types, dict(params))


def _illegal(message: str, after: str) -> IllegalProgram:
    return IllegalProgram(f"after {after}: {message}" if after else message)


def _describe(eqn: Eqn) -> str:
    inputs = ", ".join(str(t) for t in eqn.input_types)
    return f"{eqn.op.name}({inputs})" + (f" at {eqn.source}" if eqn.source else "")
