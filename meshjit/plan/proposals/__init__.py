"""What else a plan could be: one file per kind of alternative, each a pure function `propose(draft)`.

A proposal is other seeds to propagate, or the Program written in another way; `plan/search.py` makes the plan of it and
compares. To add a kind, write its file and name its `propose` in KINDS; those of USUAL are made for every plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from meshjit.plan.draft import Draft
from meshjit.plan.proposals import (
    align_stencils,
    block_iterations,
    commute_transforms,
    compute_again,
    copy_borders,
    gather_again,
    gather_in_loops,
    gather_merged,
    hand_over_slices,
    keep_dims_apart,
    keep_gathered,
    leave_in_loops,
    leave_outputs,
    move_before_loops,
    spread_again,
    spread_largest_first,
    turn_conflicts,
)
from meshjit.plan.proposals.proposal import Proposal as Proposal

KINDS: Final[Mapping[str, Callable[[Draft], Iterable[Proposal]]]] = {
    "slices": hand_over_slices.propose,
    "before": move_before_loops.propose,
    "apart": keep_dims_apart.propose,
    "turn": turn_conflicts.propose,
    "order": spread_largest_first.propose,
    "shared": spread_again.propose,
    "unmoved": leave_in_loops.propose,  # once it is settled where values lie
    "align": align_stencils.propose,
    "commute": commute_transforms.propose,
    "merged": gather_merged.propose,
    "whole": keep_gathered.propose,
    "leave": leave_outputs.propose,
    "block": block_iterations.propose,
    "fastest": block_iterations.propose_fastest,
    "copied": copy_borders.propose,
    "inside": gather_in_loops.propose,
    "again": gather_again.propose,
    "compute": compute_again.propose,
}
USUAL: Final = KINDS.keys() - {"fastest"}  # others are made where plans are compared by their time alone
