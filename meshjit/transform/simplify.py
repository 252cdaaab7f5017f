"""Clean-up between passes: nothing here changes what a Program computes."""

from __future__ import annotations

from meshjit.core.program import Program
from meshjit.transform.cse import cse
from meshjit.transform.dce import dce


def simplify(program: Program) -> Program:
    """Without dead code and common subexpressions."""
    return dce(cse(dce(program)))
