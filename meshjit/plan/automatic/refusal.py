"""The error where no plan fits the memory: the least that a plan holds, what it holds at its peak, and what would fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from meshjit.core.plan import Plan
from meshjit.core.printer import root_of
from meshjit.core.program import Program, Var
from meshjit.plan.automatic.candidate import Candidate
from meshjit.plan.automatic.solve import Search
from meshjit.plan.cost import Machine
from meshjit.plan.lifetimes import Lifetimes
from sharding.mesh import AbstractMesh, BaseMesh
from sharding.placement import Placement
from sharding.spec import ShardingError

SHOWN: Final = 5  # values
GROWN: Final = (2, 4, 8)  # times as many devices
SMALLER: Final = "; smaller batches or meshjit.checkpoint hold less"  # where nobody knows which
HALVINGS: Final = 3  # memories that are tried between what there is and what the leanest plan holds


class DoesNotFit(ShardingError):
    """No plan was found that holds at most so many bytes a device. `least`: the bytes that the leanest one holds. `peak`: bytes,
    names and types of the largest values that it holds then; the name of an input is its number. `donors`: numbers of inputs
    that fit once they are donated, which then is the fix. `in_vain`: what the leanest plan computes again, in words."""

    def __init__(
        self,
        problem: str,
        peak: Sequence[tuple[int, str | int, str]],
        fix: str,
        least: float,
        donors: Sequence[int] = (),
        names: Sequence[str] = (),
        in_vain: Sequence[str] = (),
    ) -> None:
        self.problem, self.peak, self.fix, self.least, self.donors = problem, peak, fix, least, donors
        self.names, self.in_vain = names, in_vain
        named = ((size, name if isinstance(name, str) else _argument(name, names), type) for size, name, type in peak)
        lines = [f"  that was not enough: {text}" for text in in_vain]
        lines += [f"  at the peak {size:,} bytes: {name} {type}" for size, name, type in named]
        given = ", ".join(dict.fromkeys([root_of(_argument(i, names)) for i in donors]))
        super().__init__("\n".join([problem, *lines, f"  fix: {f'donate {given} ' if donors else ''}{fix}"]))

    def named(self, names: Sequence[str]) -> DoesNotFit:
        """The same with the inputs' names, such as `argument params['w1']`."""
        return DoesNotFit(self.problem, self.peak, self.fix, self.least, self.donors, names, self.in_vain)

    def with_further_fix(self, fix: str) -> DoesNotFit:
        """The same with one more that was tried."""
        fix = f"{self.fix.replace(SMALLER, '')}, or {fix}"
        return DoesNotFit(self.problem, self.peak, fix, self.least, self.donors, self.names, self.in_vain)


def _argument(number: int, names: Sequence[str]) -> str:
    return names[number] if names else f"argument {number}"


def nearest(search: Search, memory: float, within: Callable[[float], Search]) -> Search:
    """One that chose a plan that holds less, if there is one between the plan of `search` and the memory: plans are made to fit,
    not to hold as little as they can. `within` searches for a plan that fits so many bytes."""
    low = memory
    for _ in range(HALVINGS):
        between = (low + search.chosen.peak) / 2
        rival = within(between)
        if rival.chosen.peak <= memory:
            return rival
        search, low = (rival, low) if rival.chosen.peak < search.chosen.peak else (search, between)
    return search


def refusal(
    leanest: Candidate,
    memory: float,
    machine: Machine,
    attempt: Callable[[BaseMesh, Sequence[int]], Candidate] | None,
    donors: Sequence[int],
) -> DoesNotFit:
    """`attempt` gives the leanest plan on another mesh, or with inputs donated; without it nothing else is tried. `donors`:
    inputs that nobody donates, although results replace them."""
    plan = leanest.plan
    problem = (
        f"{plan.program.name}: no plan was found that holds at most {memory:,.0f} bytes a device;"
        f" the least that one was found to hold is {leanest.peak:,.0f}"
    )
    peak, mesh, held = [*_at_peak(plan, machine)], machine.mesh, _input_bytes(plan, machine)
    again = [trial.text for trial in plan.trials if trial.kind == "compute" and trial.is_accepted]
    if attempt is None:
        return DoesNotFit(problem, peak, f"memory={leanest.peak:.0f}", leanest.peak, in_vain=again)

    def tried(mesh: BaseMesh, donated: Sequence[int]) -> float:
        """Bytes of the leanest plan, infinitely many where shards of the inputs alone are too much."""
        return math.inf if held > memory * mesh.device_count else attempt(mesh, donated).peak

    donating = tried(mesh, donors) if donors else math.inf
    if donating <= memory:
        return DoesNotFit(problem, peak, f"(tried: {donating:,.0f} bytes)", leanest.peak, donors, in_vain=again)
    fix = _fix(leanest, memory, mesh, lambda larger: tried(larger, ()))
    return DoesNotFit(problem, peak, fix, leanest.peak, in_vain=again)


def refusal_of_saved(plan: Plan, memory: float, machine: Machine) -> DoesNotFit:
    """Of a plan that somebody saved."""
    assert plan.cost is not None
    least = plan.cost.peak_bytes
    problem = f"{plan.program.name}: the saved plan holds {least:,.0f} bytes a device, more than the memory of {memory:,.0f}"
    return DoesNotFit(problem, [*_at_peak(plan, machine)], f"plan anew without plan=, or memory={least:.0f}", least)


def _input_bytes(plan: Plan, machine: Machine) -> int:
    """Of all inputs that devices hold."""
    on_host = machine.on_host(plan.program)
    return sum(var.type.nbytes for var in plan.program.inputs if var not in on_host)


def _fix(leanest: Candidate, memory: float, mesh: BaseMesh, tried: Callable[[BaseMesh], float]) -> str:
    for times in GROWN:
        larger = grown(mesh, times)
        peak = tried(larger)
        if peak <= memory:
            shape = ", ".join(f"{name!r}: {size}" for name, size in larger.shape.items())
            suffices = f"{larger.device_count} devices, {{{shape}}} (tried: {peak:,.0f} bytes)"
            return f"{suffices}, or memory={leanest.peak:.0f}"
    others = f"{GROWN[-1]} times the devices do not suffice"
    return f"memory={leanest.peak:.0f}{SMALLER} ({others})"


def grown(mesh: BaseMesh, times: int) -> AbstractMesh:
    """The mesh with its first axis so many times as long."""
    first, *rest = mesh.axis_sizes
    return AbstractMesh((first * times, *rest), mesh.axis_names, abstract_device=getattr(mesh, "abstract_device", None))


def _at_peak(plan: Plan, machine: Machine) -> Iterator[tuple[int, str | int, str]]:
    """The largest values at the peak, with their lines, in the order in which they are made."""
    lifetimes = Lifetimes(plan.program, machine, plan.equations, plan.inputs, plan.outputs)
    held = lifetimes.held_bytes()
    at = held.index(max(held))
    alive = [(lifetimes.local_bytes(var, place), uses[0], var, place) for var, place, uses in lifetimes.alive(at)]
    for size, _, var, placement in sorted(alive, key=lambda each: (-each[0], each[1]))[:SHOWN]:
        yield size, _name(plan.program, var), _type(var, placement)


def _name(program: Program, var: Var) -> str | int:
    if var in program.inputs:
        return program.inputs.index(var)
    eqn = next(eqn for eqn in program.eqns if var in eqn.outputs)
    return f"{eqn.op.name} at {eqn.source}" if eqn.source else eqn.op.name


def _type(var: Var, placement: Placement) -> str:
    return f"{var.type.dtype}[{placement.annotate(var.shape)}]"
