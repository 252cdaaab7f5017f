"""Random programs of which nobody says where anything lives, or only something: what one device gives. Runs in CI, and as long as you like:

    python -m tests.tools.fuzz_automatic --minutes 10 [--seed N] [--compiled] [--loops | --functions]

Machines are drawn, too: where links are fast and work is slow, even small arrays are sharded. Of every plan is checked that the simulator,
or with --compiled XLA, gives what one device gives; that its collectives are those that it predicts; that it is no dearer than
propagation's; that neither it nor any plan that follows from random specs is cheaper than its bound; that it is the same once it was
saved, or kept; and that a limit to the memory is kept to or refused, and never makes it cheaper. With --loops they are loops over
stencils (`fuzz_loops`), which may be done in blocks of iterations. With --functions they are functions
as users write them (`fuzz_functions`), some of their
arguments placed or donated, compiled by `meshjit.auto`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import meshjit as mj
from meshjit.core.plan import Plan
from meshjit.core.program import Program, Var
from meshjit.core.target import Target
from meshjit.core.verify import verify
from meshjit.plan.automatic.candidate import candidate_of
from meshjit.plan.automatic.kept import kept_of, plan_again
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.make import make_automatic_plan
from meshjit.plan.automatic.refusal import DoesNotFit
from meshjit.plan.automatic.spreads import have_use
from meshjit.plan.automatic.task import task_of
from meshjit.plan.cost import Machine
from meshjit.plan.make import Annotations, make_plan
from meshjit.runtime.executable import Executable
from meshjit.runtime.lowering import lower_plan, plan_program
from meshjit.runtime.placing import place
from meshjit.runtime.targets import target_for
from meshjit.sharding import AUTO, NamedSharding
from meshjit.simulate.devices import gather, scatter, simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.targets.files import written
from meshjit.transform.dce import dce
from meshjit.transform.pipeline import simplify
from sharding.axes import AxisRef, SubAxis
from sharding.figures import DEVICES
from sharding.mesh import AbstractMesh, BaseMesh, Mesh
from sharding.spec import PartitionSpec
from tests.tools import fuzz_functions, fuzz_loops
from tests.tools.fuzz import CONTROL, REVERSIBLE, case, divides, gradient_case
from tests.tools.fuzz_memory import IN_MEMORY
from tests.tools.fuzz_parts import parts_case
from tests.tools.laws import partitioned_as_predicted, random_spec
from tests.tools.wire import traced

EQUAL: Final = 1 + 1e-9  # seconds that differ by less are the same
EFFORT: Final = 0.01
OTHERS: Final = 6  # plans from random specs
BRIEF: Final = Limits(effort=EFFORT)
SHAPES: Final = ((8,), (4, 2), (2, 2, 2), (3,), (2,), (3, 2), (2, 1), (1,), (4,), (2, 4))


@dataclasses.dataclass(frozen=True)
class Drawn:
    """`ties`: outputs that lie as inputs do. Half of the inputs, and of the outputs, are placed in a third of the cases, and half of
    the inputs are not donated."""

    seed: int
    program: Program
    mesh: AbstractMesh
    annotations: Annotations
    ties: dict[int, int]
    arrays: list[Any]
    figures: Any
    memory: float  # share of the peak that is the limit

    def __str__(self) -> str:
        said = f"inputs {self.annotations.inputs}, outputs {self.annotations.outputs}, ties {self.ties}"
        return f"{self.mesh}, {said}\n{self.figures}\n{self.program}"


def program_of(seed: int) -> tuple[Program, list[Any]]:
    """Straight programs, loops and branches, gradients of such, updates in place, loops over parts of one array: a fifth each."""
    kind = seed % 5
    if kind == 3:
        program, _, _, _, arrays = gradient_case(seed, 2 + seed % 6, REVERSIBLE)
    elif kind == 4:
        program, _, _, _, arrays = parts_case(seed)
    else:
        program, _, _, _, arrays = case(seed, 3 + seed % 11, (None, CONTROL, IN_MEMORY)[kind])
    return dce(program), arrays


def loop_of(seed: int) -> tuple[Program, list[Any]]:
    """Loops over stencils."""
    drawn = fuzz_loops.drawn_by(5 * seed + seed % 2)
    return dce(simplify(traced(drawn.function, drawn.types))), drawn.arrays


def drawn_by(seed: int, of: Callable[[int], tuple[Program, list[Any]]] = program_of) -> Drawn:
    program, arrays = of(seed)
    generator = np.random.default_rng((seed, 1))
    shape = SHAPES[int(generator.integers(len(SHAPES)))]
    mesh = AbstractMesh(shape, ("x", "y", "z")[: len(shape)])
    is_placed = generator.random() < 1 / 3
    sides = [[_spec(generator, v.rank, mesh) if is_placed and generator.random() < 0.5 else None for v in vs]
             for vs in (program.inputs, program.outputs)]  # fmt: skip
    ties = {o: i for o, out in enumerate(program.outputs) for i, v in enumerate(program.inputs) if v.type == out.type}
    ties = ties if generator.random() < 0.4 and len({*ties.values()}) == len(ties) else {}
    rates = {name: float(generator.choice(values)) for name, values in _RATES.items()}
    flops = {"float32": float(generator.choice((1e6, 1e8, 1e11)))}
    figures = dataclasses.replace(DEVICES["cpu"], flops=flops, **rates)
    memory = float(generator.choice((0.95, 0.7, 0.5, 0.3)))
    undonated = frozenset([i for i in range(len(program.inputs)) if generator.random() < 0.5])
    return Drawn(seed, program, mesh, Annotations(*sides, undonated), ties, arrays, figures, memory)


_RATES: Final = {
    "latency": (1e-12, 1e-9, 1e-6, 4e-5), "link": (1e7, 1e9, 1e12), "memory_bandwidth": (1e6, 1e8, 1e10),
    "step_latency": (1e-12, 1e-9, 1e-6), "latency_growth": (0.0, 1e-6),
}  # fmt: skip


def _spec(generator: np.random.Generator, rank: int, mesh: AbstractMesh) -> PartitionSpec | None:
    """Some dims are left open."""
    spec = random_spec(generator, rank, mesh)
    if spec is None or generator.random() < 0.6:
        return spec
    entries = [*spec, *[None] * (rank - len(spec))]
    return PartitionSpec(*[PartitionSpec.UNCONSTRAINED if generator.random() < 0.5 else e for e in entries])


def fails(drawn: Drawn, compiled: bool = False) -> str | None:
    """What is wrong; None where nothing is."""
    try:
        check(drawn, compiled)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a failure
        return f"{type(error).__name__}: {error}"
    return None


def check(drawn: Drawn, compiled: bool) -> None:
    mesh = _mesh_of_devices(drawn.mesh) if compiled else drawn.mesh
    target = target_for(mesh, figures=drawn.figures)
    plan = planned(drawn, mesh, target)
    assert plan.cost is not None and plan.optimum is not None
    seconds = plan.cost.seconds
    assert plan.optimum.bound <= seconds * EQUAL, f"cheaper than its bound: {plan.optimum}"
    machine = Machine(mesh, target, drawn.annotations.undonated_of(drawn.program))
    mine, its = (candidate_of(p, machine).seconds for p in (plan, make_plan(drawn.program, mesh, drawn.annotations, target)))
    assert drawn.ties or mine <= its * EQUAL, f"{mine} s, but propagation's takes {its}"
    if not drawn.ties:
        _check_others(drawn, mesh, target, plan.optimum.bound)
    limit = max(1.0, drawn.memory * plan.cost.peak_bytes)  # nothing is held of empty arrays
    plans, tightly = {BRIEF: plan}, Limits(memory=limit, effort=EFFORT)
    try:
        tight = planned(drawn, mesh, target, tightly)
    except DoesNotFit:
        pass
    else:
        assert tight.cost is not None and tight.cost.peak_bytes <= limit
        bound = plan.optimum.bound
        is_rewritten = any(trial.is_accepted for trial in tight.trials)  # of which the bound says nothing
        assert is_rewritten or tight.cost.seconds * EQUAL >= bound, f"{tight.cost.seconds} s in less memory, bound {bound}"
        plans[tightly] = tight
    with np.errstate(all="ignore"):
        expected = evaluate(drawn.program, drawn.arrays)
    for limits, each in plans.items():
        _replays(drawn, mesh, target, each)
        _is_kept(drawn, mesh, target, each, limits)
        results = _run(drawn, mesh, target, each) if compiled else _simulated(each, drawn.arrays)
        _compare(drawn.program, results, expected, each)


def _check_others(drawn: Drawn, mesh: BaseMesh, target: Target, bound: float, count: int = OTHERS) -> None:
    """Plans over whole axes that dims have use for, where more is annotated, by random specs, are not cheaper than the bound."""
    generator, program = np.random.default_rng((drawn.seed, 2)), drawn.program

    def more(specs: Sequence[PartitionSpec | None], vars: Sequence[Var]) -> list[PartitionSpec | None]:
        return [random_spec(generator, v.rank, drawn.mesh) if s is None else s for s, v in zip(specs, vars, strict=True)]

    for _ in range(count):
        inputs, outputs = more(drawn.annotations.inputs, program.inputs), more(drawn.annotations.outputs, program.outputs)
        annotations = dataclasses.replace(drawn.annotations, inputs=inputs, outputs=outputs)
        plan = make_plan(program, mesh, annotations, target)
        is_cheaper = plan.cost is None or plan.cost.seconds * EQUAL < bound
        assert not is_cheaper or _is_beyond(plan), f"{plan.cost} with {annotations}, bound {bound}"


def _is_beyond(plan: Plan) -> bool:
    """Whether something lies over a part of an axis, or on more devices than it has elements. Bounds say nothing of such plans:
    one element over an axis of 2 is a sum that one device adds up, which takes less than adding it up for both."""
    sides = [(plan.program.inputs, plan.inputs), (plan.program.outputs, plan.outputs)]
    for eqn, each in zip(plan.program.eqns, plan.equations, strict=True):
        sides += [(eqn.inputs, each.operands), (eqn.outputs, each.results)]
    pairs = [pair for vars, placements in sides for pair in zip(vars, placements, strict=True)]
    return any(_is_odd(plan, extent, axes) for var, p in pairs for extent, axes in zip(var.shape, p.dims, strict=True))


def _is_odd(plan: Plan, extent: int, axes: Sequence[AxisRef]) -> bool:
    has_parts = any(isinstance(axis, SubAxis) for axis in axes)
    return has_parts or (bool(axes) and not have_use([plan.mesh.axes_size((axis,)) for axis in axes], extent))


def planned(drawn: Drawn, mesh: BaseMesh, target: Target, limits: Limits = BRIEF) -> Plan:
    return make_automatic_plan(drawn.program, mesh, drawn.annotations, target, ties=drawn.ties, limits=limits)


def _replays(drawn: Drawn, mesh: BaseMesh, target: Target, plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        plan.save(path)
        again = planned(drawn, mesh, target, Limits(plan=str(path)))
    assert str(again) == str(plan), f"planned again it is another plan:\n{plan}\n{again}"
    assert again.collectives == plan.collectives


def _is_kept(drawn: Drawn, mesh: BaseMesh, target: Target, plan: Plan, limits: Limits) -> None:
    """The same plan follows from what is kept for the next process, and says the same of itself."""
    kept = json.loads(json.dumps(kept_of(plan)))
    again = plan_again(task_of(drawn.program, mesh, drawn.annotations, target, drawn.ties, limits), kept)
    assert str(again) == str(plan), f"kept, it is another plan:\n{plan}\n{again}"
    assert (again.collectives, again.cost, again.optimum) == (plan.collectives, plan.cost, plan.optimum)
    assert again.decisions == plan.decisions, f"kept, it is told otherwise:\n{plan.decisions}\n{again.decisions}"


def _simulated(plan: Plan, arrays: list[Any]) -> list[Any]:
    local = verify(partitioned_as_predicted(plan), "partition")
    shards = [scatter(np.asarray(a), p, plan.mesh) for a, p in zip(arrays, plan.inputs, strict=True)]
    with np.errstate(all="ignore"):
        results = simulate(local, plan.mesh, shards)
    shapes = [v.shape for v in plan.program.outputs]
    return [gather(r, p, s, plan.mesh) for r, p, s in zip(results, plan.outputs, shapes, strict=True)]


def _mesh_of_devices(mesh: AbstractMesh) -> Mesh:
    return Mesh(np.array(mj.devices()[: math.prod(mesh.axis_sizes)]).reshape(mesh.axis_sizes), mesh.axis_names)


def _run(drawn: Drawn, mesh: BaseMesh, target: Target, plan: Plan) -> list[Any]:
    """Through XLA; planned once more, as jit does. What jit simplifies first may hold some bytes more."""
    limits = Limits(memory=target.topology.memory if plan.target is None else plan.target.topology.memory, effort=EFFORT)
    try:
        planning = plan_program(drawn.program, mesh, drawn.annotations, (), target, limits, drawn.ties)
    except DoesNotFit:
        return _simulated(plan, drawn.arrays)
    executable = Executable(lower_plan(planning), [False] * len(drawn.program.outputs))
    operands = [place(a, s, committed=True) for a, s in zip(drawn.arrays, executable.in_shardings, strict=True)]
    return [np.asarray(x) for x in executable(operands)]


def _compare(program: Program, results: list[Any], expected: list[Any], plan: Plan) -> None:
    rounding = 1e-5 if divides(program) else 0.0
    for i, (got, want) in enumerate(zip(results, expected, strict=True)):
        if not np.allclose(got, want, rounding, rounding, equal_nan=True):
            wrong = int((got != want).sum())
            raise AssertionError(f"output {i}: {wrong} of {want.size} elements\n{plan}")


def function_fails(seed: int) -> str | None:
    """What is wrong with a function as users write it; None where nothing is, or where jit refuses it, too."""
    drawn = fuzz_functions.drawn_by(mj, seed)
    if drawn.explicit:
        return None
    generator = np.random.default_rng((seed, 1))
    figures = dataclasses.replace(DEVICES["cpu"], flops={"float32": 1e6}, **{n: float(generator.choice(v)) for n, v in _RATES.items()})
    shardings = [_sharding(generator, x.ndim, drawn.mesh) for x in drawn.arrays]
    donated = tuple(i for i in range(len(drawn.arrays)) if generator.random() < 0.3)
    arrays = [mj.numpy.asarray(x) for x in drawn.arrays]  # not under the mesh, which would commit them
    with mj.set_mesh(drawn.mesh), tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of donated arguments that are not used
        path = Path(folder) / "machine.toml"
        path.write_text(written(figures), encoding="utf-8")
        try:
            expected = evaluate(simplify(mj.jit(drawn.function).trace(*drawn.arrays).program), drawn.arrays)
        except (TypeError, ValueError, IndexError, NotImplementedError):
            return None
        try:
            with mj.config.using(device_model=str(path)):
                step = mj.auto(drawn.function, mesh=drawn.mesh, in_shardings=tuple(shardings), donate_argnums=donated, effort=EFFORT)
                for got, want in zip(step(*arrays), expected, strict=True):
                    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-4)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a failure
            return f"{type(error).__name__}: {error}\n{shardings}, donated {donated}, {figures}"
    return None


def _sharding(generator: np.random.Generator, rank: int, mesh: Any) -> Any:
    spec = _spec(generator, rank, mesh) if generator.random() < 0.4 else None
    return AUTO if spec is None else NamedSharding(mesh, spec)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true", help="run by XLA, not simulated")
    parser.add_argument("--loops", action="store_true", help="loops over stencils")
    parser.add_argument("--functions", action="store_true", help="functions as users write them")
    args = parser.parse_args()
    end, seed, failures, of = time.time() + 60 * args.minutes, args.seed, 0, loop_of if args.loops else program_of
    while time.time() < end:
        wrong = function_fails(seed) if args.functions else fails(drawn_by(seed, of), args.compiled)
        if wrong is not None:
            failures += 1
            print(f"seed {seed}{'' if args.functions else f' on {drawn_by(seed, of)}'}\n{wrong:.3000}", flush=True)
        seed += 1
    print(f"{seed - args.seed} programs, {failures} failures")


if __name__ == "__main__":
    main()
