"""Sets of placements of values with many readers, as they are best told apart by now.

Every set that is still possible is a choice of its own, where these are few. Else they are grouped by their dearest member again,
as prices are now that more of them are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from meshjit.plan.automatic.alike_choices import Alike, Groups, kept
from meshjit.plan.automatic.groupings import Grouping, Sets, added, by_dearest, grouped, links
from meshjit.plan.automatic.left import Left
from meshjit.plan.automatic.problem import Scope
from meshjit.plan.automatic.reached import Entries, taken
from meshjit.plan.automatic.tables import Term
from sharding.placement import Placement

MOST_STATES: Final = 3000  # sets of placements of one value
MOST_TOGETHER: Final = 5  # placements in one of them
State: TypeAlias = tuple[Placement, tuple[Placement, ...]]  # of a value: its home, and what is brought besides


def regroup(left: Left) -> bool:
    """Whether that changed anything."""
    changed = False
    for sets in left.model.tables.sets:
        if sets.number in left.refined:
            continue
        states = _states(left, sets)
        if states is not None:
            left.refined.add(sets.number)
            grouping = _apart(left, sets, states)
        else:
            grouping = _grouped(left, sets)
            if grouping.is_like(left.grouping.get(sets.number)):
                continue
            left.grouping[sets.number] = grouping
        _replace(left, sets, grouping)
        changed = True
    return changed


def _apart(left: Left, sets: Sets, states: Sequence[State]) -> Grouping:
    prices, var = sets.value.prices, sets.value.var
    return grouped([(h, *rest) for h, rest in states], [left.prices.number(prices, var, h, rest) for h, rest in states])


def _grouped(left: Left, sets: Sets) -> Grouping:
    value, asked = sets.value, dict[Placement, None]()
    for by, demands in sets.uses:
        asked |= dict.fromkeys([p for d in demands.of(left.alive[by.number]) for p in d if not p.partial])
    return by_dearest(left.prices, value, value.homes.of(left.alive[value.maker.number]), list(asked))


def _replace(left: Left, sets: Sets, grouping: Grouping) -> None:
    """The variable of the sets gets these choices."""
    left.seconds = left.prices.array()
    at, scope = sets.number, (sets.number,)
    left.alive[at] = np.arange(len(grouping.homes))
    left.terms[scope] = [Term(sets.weight, grouping.prices)]
    left.fixed.pop(scope, None)
    left.messages.own[at] = left.table(scope)
    whole: dict[Scope, tuple[Entries, Groups]] = {}
    for pair, table, groups in links(at, sets.value, sets.uses, grouping):
        before = whole.get(pair)
        whole[pair] = (table, groups) if before is None else added(before, (table, groups))
    for pair, (table, groups) in whole.items():
        alike, places = kept(Alike(groups), (left.alive[pair[0]], left.alive[at]))
        left.fixed[pair] = taken(table, places)
        left.messages.replace(pair, left.table(pair), alike)


def _states(left: Left, sets: Sets) -> list[State] | None:
    """Homes, and what may be asked for together; None where there are too many."""
    value = sets.value
    homes = value.homes.of(left.alive[value.maker.number])
    unions: dict[frozenset[Placement], None] = {frozenset(): None}
    for by, demands in sets.uses:
        asked = [frozenset(p for p in d if not p.partial) for d in demands.of(left.alive[by.number])]
        unions = dict.fromkeys([union | each for union in unions for each in dict.fromkeys(asked)])
        if len(unions) * len(homes) > MOST_STATES or any(len(union) > MOST_TOGETHER for union in unions):
            return None
    states = [(home, union - {home}) for home in homes for union in unions]
    return [(home, tuple(sorted(rest, key=str))) for home, rest in dict.fromkeys(states)]
