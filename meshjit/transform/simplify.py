"""Clean-up between passes: nothing here changes what a Program computes."""

from __future__ import annotations

from meshjit.core.program import Program
from meshjit.transform.cse import cse
from meshjit.transform.dce import dce
from meshjit.transform.fold import fold


def simplify(program: Program) -> Program:
    """Without dead code, no-ops and common subexpressions."""
    return dce(cse(fold(dce(program))))
