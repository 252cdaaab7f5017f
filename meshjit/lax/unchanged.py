"""Results of branches and loops that are operands, unchanged. The caller has them already: they are not made a second time, and
under vmap they stay one for all members, however the members go (as in JAX)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from meshjit.core.program import Program, Var


def in_all(branches: Sequence[Program]) -> dict[int, int]:
    """Which results are the same input in all branches: place among the results → place among the inputs."""
    places = [{v: i for i, v in enumerate(b.inputs)} for b in branches]
    columns = zip(*([at.get(v, -1) for v in b.outputs] for b, at in zip(branches, places, strict=True)), strict=True)
    return {i: column[0] for i, column in enumerate(columns) if column[0] >= 0 and len(set(column)) == 1}


def without(program: Program, unchanged: Container[int]) -> Program:
    """The branch without these results."""
    return program.with_outputs([v for i, v in enumerate(program.outputs) if i not in unchanged])


@dataclass(frozen=True)
class Loop:
    """A while loop whose carries that never change are constants. Places are among the carries that it had."""

    cond: Program
    body: Program
    of_cond: tuple[int, ...]  # carries that are constants of the condition now, behind its own
    of_body: tuple[int, ...]  # the same of the body
    changing: tuple[int, ...]
    invariant: tuple[int, ...]


def with_invariants_apart(cond: Program, body: Program) -> Loop:
    """The loop of two Programs of constants and carries."""
    count = len(body.outputs)
    (own_cond, asked), (own_body, carries) = (_apart(p.inputs, count) for p in (cond, body))
    invariant = tuple(i for i in range(count) if body.outputs[i] is carries[i])
    changing = tuple(i for i in range(count) if i not in invariant)
    body = without(body, invariant)
    of_cond, of_body = (
        tuple(i for i in invariant if inputs[i] in _read(program)) for program, inputs in ((cond, asked), (body, carries))
    )
    cond = cond.with_inputs([*own_cond, *(asked[i] for i in (*of_cond, *changing))])
    body = body.with_inputs([*own_body, *(carries[i] for i in (*of_body, *changing))])
    return Loop(cond, body, of_cond, of_body, changing, invariant)


def _apart(inputs: Sequence[Var], carries: int) -> tuple[Sequence[Var], Sequence[Var]]:
    """The constants, the carries."""
    return inputs[: len(inputs) - carries], inputs[len(inputs) - carries :]


def _read(program: Program) -> set[Var]:
    return {v for eqn in program.eqns for v in eqn.inputs} | set(program.outputs)
