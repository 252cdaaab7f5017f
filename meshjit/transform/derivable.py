"""Programs as derivatives and batches need them."""

from __future__ import annotations

from meshjit.core.program import Program
from meshjit.transform.dce import dce
from meshjit.transform.fold_slices import fold_slices
from meshjit.transform.inline_calls import inline_calls
from meshjit.transform.move_before_loops import leave_something_out, move_before_loops
from meshjit.transform.rewriting import everywhere


def derivable(program: Program) -> Program:
    """Jitted functions are part of it, so that derivatives see through them, and parts at known places are seen whole, so that
    the derivative of a shift is a shift. Where a loop takes some parts of what does not change, they are taken before it, so
    that their gradients are added up in the loop, and not one as large as the whole."""
    return dce(move_before_loops(everywhere(inline_calls(program), fold_slices), leave_something_out))
