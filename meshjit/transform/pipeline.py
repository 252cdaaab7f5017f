"""The passes in the order in which they run, and why each stands where it stands.

Before planning (`simplify`, on the global Program):
     1 inline_calls      first, since no later pass sees through a call; checkpoints go, too
     2 dce               before the others, so that they look at nothing that nobody needs
     3 in_regions        the same for nested Programs, so that what follows sees the simple ones
     4 slice_early       before 5: it leaves chains of reshapes, and slices that may be no-ops
     5 fold              before 6 and 8: starts of slices and bounds of indices turn out to be constants
     6 fold_slices       after 4 and 5, which bring slices together
     7 join_parts        after 4, which merges dims that parts lie along; after 6, which makes shifts of pads
     8 batch_gathers     before planning, which then has batching dims to shard; after 5, which makes indices constants
     9 cse               after all that makes equal equations of different ones
    10 dce               most passes leave what they have replaced
    11 update_early      last (`runtime/lowering.py`): equations keep their order from here on

While planning (`plan/proposals/`: they need placements, and the search keeps what makes the plan cheaper):
    12 move_before_loops   parts along sharded dims; the others then see loops without them; with it collect_apart, after loops
    13 keep_dims_apart   before 14 and 15: axes of dims that stay apart need not go elsewhere
    14 align             stencils along sharded dims; before 15, since slices are then seen as shifts; after
                         turn_one_by_one, which makes slices of mirrors
    15 commute           transforms along whole dims come first
    16 separate_uses     where a plan does not fit the memory; after those that make plans cheaper
    17 compute_again     likewise; after 16, which computes nothing twice; with it compute_again_in_loops, of loops

After partitioning (`finish`, on local Programs; collectives are there now):
    18 cse               with constants, which no longer need a copy for each use
    19 slice_operands    after 18: where a device stands, and where its part begins, are one value each
    20 share_halos       before 22: overlapping borders are one, and not two to be merged
    21 compose_permutes  before 22, which would put something between
    22 merge_permutes    before 23: it copies little, and 23 computes masks
    23 pair_permutes     last of these: pairs that go different ways can be neither shared nor merged

Before emission (`clean`, on local Programs):
    24 simplify          what op's own `partition` rules wrote: slices of slices, no-ops, equal masks
    25 fuse              after all else that moves or cuts transforms: several dims in one
    26 share_shifts      where the target needs it: after 24, which makes shifts of pads
    27 slice_late        where the target needs it; after 24, which takes slices as early as it can
    28 hide_constants    where the target needs it; after 24, which folds constants
    29 materialize_updates   where the target needs it; last of these: no later pass may move a reshape over an update
    30 place_in_memories   where devices see their host's memory (`runtime/lowering.py`); last of all: copies between memories
                         stand around equations as they are, and what merges or moves these would move them
"""

from __future__ import annotations

from meshjit.core.program import Program
from meshjit.core.target import Target
from meshjit.transform.batch_gathers import batch_gathers
from meshjit.transform.compose_permutes import compose_permutes
from meshjit.transform.cse import cse
from meshjit.transform.dce import dce
from meshjit.transform.fold import fold
from meshjit.transform.fold_slices import fold_slices
from meshjit.transform.fuse import fuse
from meshjit.transform.hide_constants import hide_constants
from meshjit.transform.inline_calls import inline_calls
from meshjit.transform.join_parts import join_parts
from meshjit.transform.materialize_updates import materialize_updates
from meshjit.transform.merge_permutes import merge_permutes
from meshjit.transform.pair_permutes import pair_permutes
from meshjit.transform.rewriting import in_regions
from meshjit.transform.share_halos import share_halos
from meshjit.transform.share_shifts import share_shifts
from meshjit.transform.slice_early import slice_early
from meshjit.transform.slice_late import slice_late
from meshjit.transform.slice_operands import slice_operands
from sharding.mesh import BaseMesh
from sharding.topology import Topology


def simplify(program: Program) -> Program:
    """Passes 1 to 10: without calls, dead code, no-ops and common subexpressions, in nested Programs too."""
    program = in_regions(dce(inline_calls(program, final=True)), simplify)
    for change in (slice_early, fold, fold_slices, join_parts, batch_gathers, cse, dce):
        program = change(program)
    return program


def finish(local: Program, mesh: BaseMesh, topology: Topology) -> Program:
    """Passes 18 to 23: fewer collectives for the same bytes, in nested Programs too."""
    local = compose_permutes(share_halos(slice_operands(cse(local, constants=True))))
    return pair_permutes(merge_permutes(local, mesh, topology), mesh)


def clean(local: Program, target: Target) -> Program:
    """Passes 24 to 29: what partitioning wrote, without what is written twice, and as the target needs it."""
    local = fuse(simplify(local))
    local = share_shifts(local) if target.shares_shifts else local
    local = slice_late(local, target.slices_late) if target.slices_late else local
    local = hide_constants(local) if target.ends_at_sums_of_constants else local
    return materialize_updates(local) if target.materializes_updates else local
