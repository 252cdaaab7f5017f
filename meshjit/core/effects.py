"""Effects: what an op does besides computing its results, and the questions that passes ask about it.

    NONE       nothing: equations may be dropped, merged, repeated and moved
    DEBUG      it tells somebody what is computed: a message. It happens as often as what it tells of is computed
    IO         it does something in the world: a counter, a file. It happens as often as the Program says
    ORDERED    beside one of these: in the order of the Program's equations that are ordered

In derivatives an effect belongs to the values: it happens once, on the way forth. Where a checkpoint computes again on the way
back, DEBUG happens again, and IO does not: what it gave is kept. DEBUG of tangents happens in forward mode alone. Under vmap
what is the same for all members happens once; an effect on what differs is left to the op's batch rule, an ordered IO is
refused, and so is any IO in a branch or loop that members go through differently: all run for all, and DEBUG tells of that.

An equation with an effect is never dropped, merged, made again, or done on other elements than the Program says. Ordered ones
keep their order because no pass reorders equations with effects: a pass that moves an equation asks `is_pure`. Programs
therefore hold no tokens. Emission hands one on: each ordered equation's custom call takes the token of the one before it
and gives the next, loops carry the token, and the module's function takes and returns it.
"""

from __future__ import annotations

import enum

from meshjit.core.once import once_per_program
from meshjit.core.program import Eqn, Program
from meshjit.core.region import run_programs


class Effect(enum.Flag):
    """See the module's docstring. The effect of several equations is the union of theirs."""

    NONE = 0
    DEBUG = enum.auto()
    IO = enum.auto()
    ORDERED = enum.auto()


def own_effect(eqn: Eqn) -> Effect:
    """The effect of the op itself, without that of the Programs that it runs."""
    effects = eqn.op.effects
    return effects if isinstance(effects, Effect) else effects(eqn.params)


def effect_of(eqn: Eqn) -> Effect:
    """The effect of the op itself, and of the Programs that it runs."""
    effect = own_effect(eqn)
    for program in run_programs(eqn):
        effect |= effect_of_program(program)
    return effect


@once_per_program
def effect_of_program(program: Program) -> Effect:
    """All effects of its equations."""
    effect = Effect.NONE
    for eqn in program.eqns:
        if eqn.op.effects is not Effect.NONE or eqn.op.regions is not None:
            effect |= effect_of(eqn)
    return effect


def is_ordered(*programs: Program) -> bool:
    """Whether something in one of the Programs happens in order, so that they hand on a token."""
    return any(effect_of_program(program) & Effect.ORDERED for program in programs)


def is_pure(eqn: Eqn) -> bool:
    """Whether the equation only computes: the one question of every pass that drops, merges, repeats or moves equations."""
    op = eqn.op
    if op.effects is Effect.NONE and op.regions is None:
        return True
    return effect_of(eqn) is Effect.NONE
