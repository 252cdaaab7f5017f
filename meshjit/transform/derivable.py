"""Programs as derivatives and batches need them."""

from __future__ import annotations

from meshjit.core.program import Program
from meshjit.transform.dce import dce
from meshjit.transform.fold_slices import fold_slices
from meshjit.transform.inline_calls import inline_calls
from meshjit.transform.rewriting import everywhere


def derivable(program: Program) -> Program:
    """Jitted functions are part of it, so that derivatives see through them, and parts at known places are seen whole, so that
    the derivative of a shift is a shift."""
    return dce(everywhere(inline_calls(program), fold_slices))
