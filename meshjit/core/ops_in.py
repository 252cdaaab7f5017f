"""Which ops a Program has: what passes that rewrite a few ops ask before they look at every equation."""

from __future__ import annotations

from meshjit.core.once import once_per_program
from meshjit.core.op import Op
from meshjit.core.program import Program


@once_per_program
def ops_in(program: Program) -> frozenset[Op]:
    """The ops of the Program's own equations, those of nested Programs aside."""
    return frozenset([eqn.op for eqn in program.eqns])


@once_per_program
def op_names_in(program: Program) -> frozenset[str]:
    """Their names."""
    return frozenset([op.name for op in ops_in(program)])


@once_per_program
def has_regions(program: Program) -> bool:
    """Whether an equation holds Programs."""
    return any([op.regions is not None for op in ops_in(program)])
