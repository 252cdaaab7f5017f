"""How large the tables of a Model would be at least, before anything is priced.

On three axes and more an equation may be spread in hundreds of ways, and what two readers ask of a value is a table over three
decisions, by placements that these make or ask for. To find out that these are too many, once most equations were priced, takes
longer than what is done instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from meshjit.core.program import Eqn, Program, Var
from meshjit.plan.automatic.layers import alike_equations, separate_parts
from meshjit.plan.automatic.tables import MOST_OF_READERS, TWO

Choices: TypeAlias = tuple[object, Callable[[], int]]  # of a decision: what is the same for it alone, and how many it has


def least_entries(
    program: Program, inputs: Callable[[int], int], placements: Callable[[Eqn, int], int], most: float = math.inf
) -> int:
    """Of the tables between makers and readers, by how many placements an input may have, and a value of an equation: its
    operands first, then its results. No more are counted once there are more than `most`. Not counted are what loops hold, and
    what ops ask for that have a rule of their own: they may ask for several placements."""
    layers, apart = alike_equations(program), separate_parts(program)
    makers: dict[Var, Choices] = {v: ((-1, i), partial(inputs, i)) for i, v in enumerate(program.inputs)}
    readers: dict[Var, list[Choices]] = {}
    for at, eqn in enumerate(program.eqns):
        if eqn.op.regions is None and at not in apart and eqn.outputs:
            decision, count = layers.get(at, (at, 0)), len(eqn.inputs)
            makers.update((var, (decision, partial(placements, eqn, count + i))) for i, var in enumerate(eqn.outputs))
            for i, var in enumerate(eqn.inputs if eqn.op.partition is None and eqn.op.pinned is None else ()):
                readers.setdefault(var, []).append((decision, partial(placements, eqn, i)))
    counts = Counter([v for eqn in program.eqns for v in eqn.inputs] + list(program.outputs))
    tables, entries = set[object](), 0
    for var, reading in readers.items():
        together = dict([makers[var], *reading]) if var in makers else {}
        if len(reading) == counts[var] <= TWO and len(together) == len(reading) + 1 and frozenset(together) not in tables:
            tables.add(frozenset(together))
            entries += _entries([count() for count in together.values()])
            if entries > most:
                break
    return entries


def _entries(counts: Sequence[int]) -> int:
    """Of a table over a maker and its readers, by how many placements each has; or of those over sets that are prefixes."""
    maker, *readers = counts
    whole = math.prod(counts)
    return whole if len(readers) < TWO or whole <= MOST_OF_READERS else maker * max(readers)
