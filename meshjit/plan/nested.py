"""What the operands and results of a loop or branch, and the values of its body, hold together: one memory counts once.

    %c2, %ys = scan(%w, %c, %xs) {body=program step(%w, %c, %x) -> (%c2, %y)}

    %w    is lent      the body reads the operand's own memory
    %c    is ceded     where nobody needs the operand afterwards, the carry takes its memory, and counts in the body
    %c2   is carried   in the body while the loop runs, among the results from its end on
    %ys   lies beside  the body all the time, as %xs does
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from meshjit.core.program import Eqn, Var
from meshjit.core.region import Region, run_regions


def lent(region: Region) -> frozenset[Var]:
    """The inputs of a region that are operands of its equation, as they are, for as long as it runs."""
    changing = {i for i, _ in region.carried} | region.sliced
    return frozenset([v for i, v in enumerate(region.program.inputs) if i not in changing])


def ceded(eqn: Eqn, last: Collection[Var]) -> Iterator[int]:
    """The operands whose memory carries take. `last`: the values that nobody needs after the equation."""
    for operand in dict.fromkeys([region.operands[i] for region in run_regions(eqn) for i, _ in region.carried]):
        var = eqn.inputs[operand]
        if var in last and eqn.inputs.count(var) == 1:
            yield operand


def unstacked(eqn: Eqn) -> list[int]:
    """The results that are values of the body until the equation ends."""
    regions = run_regions(eqn)
    beside = {region.results[o] for region in regions for o in region.stacked}
    results = {result for region in regions for result in region.results if result is not None}
    return sorted(results - beside)
