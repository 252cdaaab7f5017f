"""Which equations and inputs of a Program are the same of equal layers, and so are decided once.

Repeats (`core/repeats.py`) are whole layers; what stands before the first and behind the last of a row of them and goes on as
they do, belongs to a layer, too: the first layer often begins in the midst of a repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshjit.core.once import once_per_program
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.repeats import Repeat, kinds_of, repeats
from meshjit.core.rules import rule_of
from meshjit.plan.graph import Annotations

Layer = tuple[int, int]  # kind of the repeat, position in it


@once_per_program
def alike_equations(program: Program) -> Mapping[int, Layer]:
    """By the number of an equation, its place in its layer."""
    places: dict[int, Layer] = {}
    every = repeats(program)
    for repeat in every:
        places.update((at, (repeat.kind, at - repeat.start)) for at in range(repeat.start, repeat.stop))
    kinds = list(kinds_of(program)) if every else []
    for repeat in every:
        _extend(repeat, range(repeat.stop, len(kinds)), -(repeat.stop - repeat.start), kinds, places)
        _extend(repeat, range(repeat.start - 1, -1, -1), repeat.stop - repeat.start, kinds, places)
    return places


@once_per_program
def separate_parts(program: Program) -> Mapping[int, tuple[Eqn, ...]]:
    """By the number of an equation that passes several values through which have nothing to do with one another, such as a
    barrier: an equation for each of them, decided by itself."""
    return {at: parts for at, eqn in enumerate(program.eqns) if len(parts := _parts(eqn)) > 1}


def _parts(eqn: Eqn) -> tuple[Eqn, ...]:
    if eqn.op.regions is not None or len(eqn.outputs) < 2 or len(eqn.inputs) != len(eqn.outputs):
        return ()
    rule = rule_of(eqn)
    if rule.kinds or rule.operands != rule.results:
        return ()
    sides = zip(eqn.inputs, eqn.outputs, strict=True)
    return tuple([Eqn(eqn.op, (v,), (w,), eqn.params, eqn.source) for v, w in sides])


@dataclass(frozen=True)
class Copies:
    """Equations of equal layers about which everything is decided alike, their results included. `equations`: the number of such
    an equation → that of the first one like it. `values`: its result → the result of that first one."""

    equations: Mapping[int, int] = field(default_factory=dict[int, int])
    values: Mapping[Var, Var] = field(default_factory=dict[Var, Var])


@once_per_program
def copies_of(program: Program) -> Copies:
    """Copies stand at the same place of their layers, and their results are read at the same places."""
    layers, separate = alike_equations(program), separate_parts(program)
    if not layers:
        return Copies()
    readers: dict[Var, list[Any]] = {}
    for at, eqn in enumerate(program.eqns):
        by = layers.get(at, at)
        for i, var in enumerate(eqn.inputs):
            readers.setdefault(var, []).append((by, i))
    for i, var in enumerate(program.outputs):
        readers.setdefault(var, []).append((program, i))
    firsts, equations, values = dict[object, int](), dict[int, int](), dict[Var, Var]()
    for at, eqn in enumerate(program.eqns):
        if at in layers and eqn.inputs and eqn.outputs and at not in separate:
            like = layers[at], *[tuple(readers.get(var, ())) for var in eqn.outputs]
            first = firsts.setdefault(like, at)
            if first != at:
                equations[at] = first
                values.update(zip(eqn.outputs, program.eqns[first].outputs, strict=True))
    return Copies(equations, values)


def _extend(repeat: Repeat, numbers: range, back: int, kinds: Sequence[int], places: dict[int, Layer]) -> None:
    """Equations that stand a whole repeat away from those of one, as long as each is like the other."""
    for at in numbers:
        if at in places or kinds[at] != kinds[at + back] or places.get(at + back, (None,))[0] != repeat.kind:
            return
        places[at] = places[at + back]


def alike_inputs(program: Program, annotations: Annotations, places: Mapping[int, Layer]) -> Mapping[Var, object]:
    """For inputs that layers read, a key that alike ones share: read first at the same place, of equal types and annotations."""
    specs = {var: str(spec) for var, spec in zip(program.inputs, annotations.inputs, strict=True)}
    keys: dict[Var, object] = {}
    for at, eqn in enumerate(program.eqns):
        for i, var in enumerate(eqn.inputs):
            if var in specs and var not in keys:
                keys[var] = (*places[at], i, var.type, specs[var]) if at in places else var
    return keys
