"""Effects: what an op does besides computing its results, and the questions that passes ask about it.

    NONE        nothing: equations may be dropped, merged, repeated and moved
    UNORDERED   it happens as often as the Program says, in any order: a message, a counter
    ORDERED     and in the order of the Program's equations: writing lines to a file

In derivatives an effect belongs to the values: it happens once, on the way forth, and nothing that depends on tangents may have
one. Under vmap what is the same for all members happens once; an unordered effect on what differs is left to the op's batch
rule, an ordered one is refused, and so is any in a branch or loop that members go through differently.

An equation with an effect is never dropped, merged, made again, or done on other elements than the Program says. Ordered ones
keep their order because no pass reorders equations with effects: a pass that moves an equation asks `is_pure`. Programs
therefore hold no tokens. Emission hands one on: each ordered equation's custom call takes the token of the one before it
and gives the next, loops carry the token, and the module's function takes and returns it.
"""

from __future__ import annotations

import enum

from meshjit.core.program import Eqn, Program
from meshjit.core.region import run_programs


class Effect(enum.IntEnum):
    """See the module's docstring. The effect of several equations is the greatest of theirs."""

    NONE = 0
    UNORDERED = 1
    ORDERED = 2


def effect_of(eqn: Eqn) -> Effect:
    """The effect of the op itself, and of the Programs that it runs."""
    effects = eqn.op.effects
    own = effects if isinstance(effects, Effect) else effects(eqn.params)
    if eqn.op.regions is None:
        return own
    return max([own, *map(effect_of_program, run_programs(eqn))])


def effect_of_program(program: Program) -> Effect:
    """The greatest effect of its equations."""
    return max(map(effect_of, program.eqns), default=Effect.NONE)


def is_pure(eqn: Eqn) -> bool:
    """Whether the equation only computes: the one question of every pass that drops, merges, repeats or moves equations."""
    op = eqn.op
    if op.effects is Effect.NONE and op.regions is None:
        return True
    return effect_of(eqn) is Effect.NONE
