"""The error where no plan fits the memory: the least that a plan holds, what it holds at its peak, and what would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from meshjit.core.plan import Plan
from meshjit.core.program import Program, Var
from meshjit.plan.automatic.candidate import Candidate
from meshjit.plan.cost import Machine
from meshjit.plan.lifetimes import Lifetimes
from sharding.mesh import AbstractMesh, BaseMesh
from sharding.placement import Placement
from sharding.spec import ShardingError

SHOWN: Final = 5  # values
GROWN: Final = (2, 4, 8)  # times as many devices


class DoesNotFit(ShardingError):
    """No plan was found that holds at most so many bytes a device. `least`: the bytes that the leanest one holds. `peak`: bytes,
    names and types of the largest values that it holds then; the name of an input is its number."""

    def __init__(self, problem: str, peak: Sequence[tuple[int, str | int, str]], fix: str, least: float) -> None:
        self.problem, self.peak, self.fix, self.least = problem, peak, fix, least
        named = ((size, name if isinstance(name, str) else f"argument {name}", type) for size, name, type in peak)
        lines = [f"  at the peak {size:,} bytes: {name} {type}" for size, name, type in named]
        super().__init__("\n".join([problem, *lines, f"  fix: {fix}"]))

    def named(self, names: Sequence[str]) -> DoesNotFit:
        """The same with the inputs' names, such as `argument params['w1']`."""
        peak = [(size, name if isinstance(name, str) else names[name], type) for size, name, type in self.peak]
        return DoesNotFit(self.problem, peak, self.fix, self.least)


def refusal(leanest: Candidate, memory: float, machine: Machine, attempt: Callable[[BaseMesh], Candidate | None]) -> DoesNotFit:
    """`attempt` gives the leanest plan on another mesh."""
    plan = leanest.plan
    problem = (
        f"{plan.program.name}: no plan was found that holds at most {memory:,.0f} bytes a device;"
        f" the least that one was found to hold is {leanest.peak:,.0f}"
    )
    return DoesNotFit(problem, [*_at_peak(plan, machine)], _fix(leanest, memory, machine.mesh, attempt), leanest.peak)


def _fix(leanest: Candidate, memory: float, mesh: BaseMesh, attempt: Callable[[BaseMesh], Candidate | None]) -> str:
    for times in GROWN:
        larger = grown(mesh, times)
        candidate = attempt(larger)
        if candidate is not None and candidate.peak <= memory:
            shape = ", ".join(f"{name!r}: {size}" for name, size in larger.shape.items())
            tried = f"{larger.device_count} devices, {{{shape}}} (tried: {candidate.peak:,.0f} bytes)"
            return f"{tried}, or memory={leanest.peak:.0f}"
    tried = f"{GROWN[-1]} times the devices do not suffice"
    return f"memory={leanest.peak:.0f}; smaller batches or meshjit.checkpoint hold less ({tried})"


def grown(mesh: BaseMesh, times: int) -> AbstractMesh:
    """The mesh with its first axis so many times as long."""
    first, *rest = mesh.axis_sizes
    return AbstractMesh((first * times, *rest), mesh.axis_names, abstract_device=getattr(mesh, "abstract_device", None))


def _at_peak(plan: Plan, machine: Machine) -> Iterator[tuple[int, str | int, str]]:
    """The largest values at the peak, with their lines."""
    lifetimes = Lifetimes(plan.program, machine, plan.equations, plan.inputs, plan.outputs)
    held = lifetimes.held_bytes()
    at = held.index(max(held))
    alive = [
        (lifetimes.local_bytes(var, placement), number, var, placement)
        for number, ((var, placement), uses) in enumerate(lifetimes.uses.items())
        if uses[0] <= at <= uses[-1]
    ]
    for size, _, var, placement in sorted(alive, key=lambda each: (-each[0], each[1]))[:SHOWN]:
        yield size, _name(plan.program, var), _type(var, placement)


def _name(program: Program, var: Var) -> str | int:
    if var in program.inputs:
        return program.inputs.index(var)
    eqn = next(eqn for eqn in program.eqns if var in eqn.outputs)
    return f"{eqn.op.name} at {eqn.source}" if eqn.source else eqn.op.name


def _type(var: Var, placement: Placement) -> str:
    return f"{var.type.dtype}[{placement.annotate(var.shape)}]"
