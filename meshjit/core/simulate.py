"""What a Program of single devices means: each op's NumPy meaning on N imaginary devices, collectives included, no XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.evaluate import Array, evaluate_eqn
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import run_programs
from sharding.mesh import BaseMesh


def simulate(program: Program, mesh: BaseMesh, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The shards of every output; `inputs[i][d]` is the shard of input i on device d, and so it is with the result."""
    env: dict[Var, list[Array]] = dict(zip(program.inputs, map(list, inputs), strict=True))
    for eqn in program.eqns:
        env.update(zip(eqn.outputs, _step(eqn, mesh, [env[v] for v in eqn.inputs]), strict=True))
    return [env[v] for v in program.outputs]


def _step(eqn: Eqn, mesh: BaseMesh, operands: list[list[Array]]) -> list[list[Array]]:
    """One equation on all devices."""
    per_device = [[operand[d] for operand in operands] for d in range(mesh.size)]
    if eqn.op.simulate is not None:
        results = eqn.op.simulate([tuple(values) for values in per_device], mesh, eqn.params)
    elif eqn.op.steps is not None:
        results = _in_step(eqn, mesh, per_device)
    else:
        results = [evaluate_eqn(eqn, values) for values in per_device]
    return [[np.asarray(result[i]) for result in results] for i in range(len(eqn.outputs))]


def _in_step(eqn: Eqn, mesh: BaseMesh, per_device: list[list[Array]]) -> list[Sequence[Any]]:
    """An op with regions on all devices at once. Where collectives are inside they must all ask for the same Program, or the
    collectives would wait for one another for ever."""
    assert eqn.op.steps is not None
    devices = [eqn.op.steps(*values, **eqn.params) for values in per_device]
    asked = [_next(device, None) for device in devices]
    while not all(isinstance(question, StopIteration) for question in asked):
        if len({None if isinstance(q, StopIteration) else id(q[0]) for q in asked}) == 1:
            answers = _together(asked[0][0], mesh, [question[1] for question in asked])
        else:
            programs = [q[0] for q in asked if not isinstance(q, StopIteration)]
            hangs = any(map(_communicates, programs))
            assert not hangs, f"{eqn.op.name} at {eqn.source}: the devices take different ways, and would hang"
            answers = [_alone(question, mesh, d) for d, question in enumerate(asked)]
        asked = [q if a is None else _next(device, a) for q, a, device in zip(asked, answers, devices, strict=True)]
    return [question.value for question in asked]


def _together(program: Program, mesh: BaseMesh, values: Sequence[Sequence[Any]]) -> list[list[Array]]:
    """The results on every device."""
    results = simulate(program, mesh, [[np.asarray(v) for v in column] for column in zip(*values, strict=True)])
    return [[shards[d] for shards in results] for d in range(mesh.size)]


def _alone(question: Any, mesh: BaseMesh, device: int) -> list[Array] | None:
    """The results on one device of a Program that asks no other; None where the device asks for none any more."""
    if isinstance(question, StopIteration):
        return None
    program, operands = question
    env: dict[Var, Array] = dict(zip(program.inputs, map(np.asarray, operands), strict=True))
    for eqn in program.eqns:
        values = [env[v] for v in eqn.inputs]
        env.update(zip(eqn.outputs, map(np.asarray, _step_alone(eqn, mesh, device, values)), strict=True))
    return [env[v] for v in program.outputs]


def _step_alone(eqn: Eqn, mesh: BaseMesh, device: int, values: list[Array]) -> Sequence[Any]:
    """One equation on one device: it happens once."""
    if eqn.op.simulate is not None:
        return eqn.op.simulate([tuple(values)] * mesh.size, mesh, eqn.params)[device]
    if eqn.op.steps is None:
        return evaluate_eqn(eqn, values)
    steps = eqn.op.steps(*values, **eqn.params)
    question = _next(steps, None)
    while not isinstance(question, StopIteration):
        question = _next(steps, _alone(question, mesh, device))
    return question.value


def _communicates(program: Program) -> bool:
    """Whether a device gets anything from others: any collective with an operand."""
    return any(
        (eqn.op.simulate is not None and eqn.inputs) or any(map(_communicates, run_programs(eqn))) for eqn in program.eqns
    )


def _next(device: Any, answer: Sequence[Array] | None) -> Any:
    try:
        return device.send(answer)
    except StopIteration as end:
        return end
