"""What runs ops and Programs outside of traces: the runtime installs it when meshjit is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshjit.core.op import REGISTRY, Op
from meshjit.core.program import Eqn, Program

Value = Any  # concrete array, np.ndarray or np.generic
RunOp = Callable[[Op, Sequence[Value], Mapping[str, Any], bool], Sequence[Value]]
RunProgram = Callable[[Program, Sequence[Value], Sequence[bool], Any], Sequence[Value]]

_run_op: RunOp | None = None
_run_program: RunProgram | None = None


def set_eager(run_op: RunOp | None, run_program: RunProgram | None) -> tuple[RunOp | None, RunProgram | None]:
    """Install what runs ops and Programs outside of traces; gives back what was installed before.

    run_op(op, operands, params, weak) -> values        `weak`: the results' weak_type
    run_program(program, operands, weak, mesh) -> values    `weak`: one flag per result; `mesh`: that of its constraints
    """
    global _run_op, _run_program
    before = (_run_op, _run_program)
    _run_op, _run_program = run_op, run_program
    return before


def run_op(op: Op, operands: Sequence[Value], params: Mapping[str, Any], weak: bool) -> Sequence[Value]:
    """One op on concrete values."""
    if _run_op is None:
        raise _no_evaluator(op.name)
    return _run_op(op, operands, params, weak)


def run_program(program: Program, operands: Sequence[Value], weak: Sequence[bool], mesh: Any) -> Sequence[Value]:
    """A whole Program on concrete values. `mesh`: that of its constraints."""
    if _run_program is None:
        raise _no_evaluator(program.name)
    return _run_program(program, operands, weak, mesh)


def run_eqn(eqn: Eqn, operands: Sequence[Value], mesh: Any) -> Sequence[Value]:
    """One equation of a Program whose constraints are on `mesh`."""
    if eqn.op is REGISTRY["constant"]:
        return [eqn.params["value"]]
    if eqn.op.regions is None and eqn.op.seed is None:
        return run_op(eqn.op, operands, eqn.params, False)
    values = dict(zip(eqn.inputs, operands, strict=True))
    program = Program(eqn.op.name, tuple(values), (eqn,), eqn.outputs)
    return run_program(program, list(values.values()), [False] * len(eqn.outputs), mesh)


def _no_evaluator(name: str) -> RuntimeError:
    return RuntimeError(f"{name}: no eager evaluator is installed; `import meshjit` installs one")
