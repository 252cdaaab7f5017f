"""Random functions with the structure of real ones: loops over stencils, caches, pipelines, experts, and their derivatives.

    python -m tests.tools.fuzz_structured --minutes 10 [--seed N] [--compiled]

Random expressions (`fuzz`) seldom are a stencil whose shift is half of a ring, or two fields that change places in a loop. Here
extents, shifts, meshes and specs are drawn so that they meet. Of every function is checked that it gives in the simulator what one
device gives, planned from specs, by proposals that are taken whether they pay or not, for drawn machines, in blocks of any number
of iterations, and automatically; with --compiled that XLA does.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

import meshjit as mj
from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Program
from meshjit.core.region import run_regions, without_sharing
from meshjit.core.verify import verify
from meshjit.partition.blocking import blocked_loop
from meshjit.partition.partition import write_locally
from meshjit.partition.stretches import Refused
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.make import make_automatic_plan
from meshjit.plan.cost import Machine
from meshjit.plan.draft import first_draft
from meshjit.plan.make import Annotations, make_plan
from meshjit.plan.proposals import KINDS
from meshjit.runtime.executable import Executable
from meshjit.runtime.lowering import lower_plan, plan_program
from meshjit.runtime.placing import place
from meshjit.simulate.devices import gather, scatter, simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.targets import target_of
from meshjit.transform.pipeline import finish
from sharding.mesh import AbstractDevice, AbstractMesh, Mesh
from tests.tools.fuzz_loops import Drawn, drawn_by
from tests.tools.laws import partitioned_as_predicted, random_spec
from tests.tools.wire import traced

DEVICES_AT_HAND: Final = (None, AbstractDevice("NVIDIA H100 80GB HBM3", 1, "gpu"), AbstractDevice("TPU v5 lite", 1, "tpu"))
SECONDS: Final = 60  # that one case may take


def fails(drawn: Drawn, compiled: bool = False) -> str | None:
    """What is wrong; None where nothing is."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        check(drawn, compiled)
    except Exception as error:  # noqa: BLE001  whatever it is, it is a failure
        return f"{type(error).__name__}: {error}\n{traceback.format_exc()[-1500:]}"
    finally:
        signal.alarm(0)
    return None


def check(drawn: Drawn, compiled: bool) -> None:
    program, g = traced(drawn.function, drawn.types), drawn.generator
    with np.errstate(all="ignore"):
        expected = evaluate(program, drawn.arrays)
    outputs = [random_spec(g, v.rank, drawn.mesh) if g.integers(2) else None for v in program.outputs]
    annotations = Annotations(drawn.inputs, outputs)
    if compiled:
        compare(_compiled(program, drawn, annotations), expected, lambda: f"compiled\n{program}")
        return
    for plan, is_forced in _plans(program, drawn, annotations):
        local = verify(_forced(plan) if is_forced else partitioned_as_predicted(plan), "partition")
        shards = [scatter(np.asarray(a), p, plan.mesh) for a, p in zip(drawn.arrays, plan.inputs, strict=True)]
        with np.errstate(all="ignore"):
            results = simulate(local, plan.mesh, shards)
        whole = [gather(r, p, v.shape, plan.mesh) for r, p, v in zip(results, plan.outputs, plan.program.outputs, strict=True)]
        compare(whole, expected, lambda plan=plan, local=local: f"{plan}\n{local}\noutputs {outputs}")


def _forced(plan: Plan) -> Program:
    """The local program of a plan that was changed since its collectives were predicted."""
    assert plan.target is not None
    return finish(write_locally(plan, plan.target), plan.mesh, plan.target.topology)


def _plans(program: Program, drawn: Drawn, annotations: Annotations) -> Iterator[tuple[Plan, bool]]:
    """As annotated, in blocks that nobody asked for, and now and then automatic."""
    plan = make_plan(program, drawn.mesh, annotations)
    yield plan, False
    whim = _by_whim(program, drawn, annotations)
    yield whim, False
    plan = whim if drawn.generator.integers(2) else plan
    blocked = _in_blocks(plan, drawn.generator)
    if str(blocked) != str(plan) or any(a.block != b.block for a, b in zip(plan.equations, blocked.equations, strict=True)):
        yield blocked, True
    if drawn.generator.integers(4) == 0:
        yield make_automatic_plan(program, drawn.mesh, annotations, limits=Limits(effort=0.01)), False


def _by_whim(program: Program, drawn: Drawn, annotations: Annotations) -> Plan:
    """A plan that takes proposals as they come, cheaper or not, for a drawn machine, which may have too little memory."""
    g = drawn.generator
    device = DEVICES_AT_HAND[int(g.integers(len(DEVICES_AT_HAND)))]
    mesh = AbstractMesh(drawn.mesh.axis_sizes, drawn.mesh.axis_names, abstract_device=device)
    target = target_of(mesh)
    memory = target.topology.memory if g.integers(2) else float(g.integers(1, 2000))
    target = dataclasses.replace(target, topology=dataclasses.replace(target.topology, memory=memory))
    program = without_sharing(program)
    draft = first_draft(program, annotations, Assigner(Machine(mesh, target, annotations.undonated_of(program))))
    for _ in range(int(g.integers(1, 6))):
        offered = [each for propose in KINDS.values() for each in itertools.islice(propose(draft), 3)]
        if not offered:
            break
        draft = offered[int(g.integers(len(offered)))].apply(draft, None)
    return dataclasses.replace(draft.plan, cost=draft.exact_cost)


def _in_blocks(plan: Plan, g: np.random.Generator) -> Plan:
    """Loops of any depth in blocks of a drawn number of iterations, where that is possible."""
    equations = [_blocked(eqn, each, plan, g) for eqn, each in zip(plan.program.eqns, plan.equations, strict=True)]
    return dataclasses.replace(plan, equations=tuple(equations))


def _blocked(eqn: Any, each: EquationPlan, plan: Plan, g: np.random.Generator) -> EquationPlan:
    if not each.bodies:
        return each
    if len(each.bodies) == 1 and any((r.trips or 0) > 1 for r in run_regions(eqn)):
        try:
            loop = blocked_loop(eqn, each.bodies[0], plan.mesh)
        except Refused:
            pass
        else:
            return dataclasses.replace(each, block=int(g.integers(1, len(loop.needs) + 1)))
    return dataclasses.replace(each, bodies=tuple(_in_blocks(body, g) for body in each.bodies))


def _compiled(program: Program, drawn: Drawn, annotations: Annotations) -> list[Any]:
    sizes = drawn.mesh.axis_sizes
    mesh = Mesh(np.array(mj.devices()[: math.prod(sizes)]).reshape(sizes), drawn.mesh.axis_names)
    limits = Limits(effort=0.01) if drawn.generator.integers(3) == 0 else None
    executable = Executable(lower_plan(plan_program(program, mesh, annotations, automatic=limits)), [False] * len(program.outputs))
    operands = [place(a, s, committed=True) for a, s in zip(drawn.arrays, executable.in_shardings, strict=True)]
    return [np.asarray(x) for x in executable(operands)]


def compare(results: Sequence[Any], expected: Sequence[Any], told: Callable[[], str]) -> None:
    for i, (got, want) in enumerate(zip(results, expected, strict=True)):
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        got, want = np.asarray(got).astype(wide), np.asarray(want).astype(wide)
        size = max(1.0, float(np.abs(want).max(initial=0)))
        if not np.allclose(got, want, 1e-4, 1e-4 * size, equal_nan=True):
            wrong = int((~np.isclose(got, want, 1e-4, 1e-4 * size)).sum())
            raise AssertionError(f"output {i}: {wrong} of {want.size} elements\n{told()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true", help="run by XLA, not simulated")
    parser.add_argument("--go-on", action="store_true", help="count failures instead of stopping at the first")
    args = parser.parse_args()
    end, seed, failures = time.time() + 60 * args.minutes, args.seed, 0
    while time.time() < end:
        drawn = drawn_by(seed)
        begin = time.time()
        if wrong := fails(drawn, args.compiled):
            failures += 1
            print(f"seed {seed} on {drawn.mesh}: {drawn.types}, inputs {drawn.inputs}\n{wrong:.3000}", flush=True)
            if not args.go_on:
                raise SystemExit(1)
        elif time.time() - begin > 10:
            print(f"seed {seed} took {time.time() - begin:.0f} s", flush=True)
        seed += 1
    print(f"{seed - args.seed} programs, {failures} failures")


if __name__ == "__main__":
    main()
