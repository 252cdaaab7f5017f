"""Whether a Program is so small that all its plans can be gone through."""

from __future__ import annotations

from typing import Final

from meshjit.core.program import Var
from meshjit.plan.automatic.eliminate import TooWide
from meshjit.plan.automatic.price_list import axes_beyond_few
from meshjit.plan.automatic.spreads import rooms_of, under
from meshjit.plan.draft import Draft
from meshjit.plan.graph import programs_in

WALKS: Final = 4000  # pairs of placements of operands, up to which the way from each to each is priced; a quarter on three axes,
# where a way takes 1 to 4 ms to find
FEW_DEVICES: Final = 8  # up to which all walks are quick
SLOWNESS: Final = 8
SMALL: Final = 400  # choices of all equations that are different, up to which everything is gone through


def is_small(draft: Draft) -> bool:
    """Whether its different equations have few choices, and their values few walks from each placement to each."""
    mesh, flat, choices, walks, seen = draft.machine.mesh, draft.flat, 0, 0, set[tuple[int, ...]]()
    most = WALKS // 4 ** axes_beyond_few(mesh)
    rooms = rooms_of(draft.program, flat, mesh)
    for part in programs_in(draft.program):
        for eqn in part.eqns:
            if eqn.identity not in seen and eqn.inputs and eqn.op.regions is None and eqn.op.pinned is None:
                seen.add(eqn.identity)
                rule = flat.rules[eqn]
                try:
                    spreads = rooms.spreads(eqn, rule)
                except TooWide:
                    return False
                choices += len(spreads)
                walks += sum(
                    _slowness(v, mesh.device_count) * len({under(spread, dims) for spread in spreads}) ** 2
                    for v, dims in zip(eqn.inputs, rule.operands, strict=True)
                )
                if choices > SMALL or walks > most:
                    return False
    return True


def _slowness(var: Var, count: int) -> int:
    """How many times as long as elsewhere walks of a value take, where blocks of many devices do not nest: 10 ms, on 64."""
    return SLOWNESS if count > FEW_DEVICES and any(n > 1 and n % count for n in var.shape) else 1
