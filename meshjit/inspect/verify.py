"""verify: does a function on a mesh give what one device gives? Value by value, so that the first wrong line has a name.

The function runs twice, partitioned and whole, and hands over every value in between. A value that is further off than
rounding explains is not yet a mistake: errors grow on their way, and a comparison may flip. So its equation is computed
once more, in NumPy, from the very operands that the devices had. If that gives what the devices have, the equation is
right and its operands are to blame; if not, the equation (or a move of its operands) is wrong, and it is the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.api.shardings import UNSPECIFIED
from meshjit.api.stages import Planned
from meshjit.api.wrapped import Wrapped
from meshjit.core.plan import Plan
from meshjit.core.program import Eqn, Var
from meshjit.core.types import is_inexact
from meshjit.inspect.comparison import TOLERANCES, Difference, difference, follows_from_rounding, magnitudes, sways
from meshjit.inspect.running import ReplicasDiffer, Shards, assemble, run_partitioned, run_whole
from meshjit.inspect.verification import Deviation, Verification, VerificationError, mismatch_text
from meshjit.simulate.evaluate import evaluate_eqn
from meshjit.trees import WORDS as tree
from sharding.current import set_mesh
from sharding.mesh import Mesh


def verify(
    fun: Callable[..., Any],
    *args: Any,
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    mesh: Any = None,
    simulate: bool | None = None,
    tolerance: float = 1.0,
    **kwargs: Any,
) -> Verification:
    """Run `fun(*args, **kwargs)` partitioned and on one device, and compare every value of the computation.

    Args:
      fun: a function, or what `jit` made of one (then with the shardings and static arguments that `jit` was given).
      in_shardings, out_shardings: as for `jit`. Committed arguments count, as in a call.
      mesh: made current while the function is traced; an AbstractMesh, for more devices than there are, will do.
      simulate: run on imaginary devices, in NumPy; left out, only where the mesh has no real ones.
      tolerance: multiplies the errors that count as rounding, 1e-4 for float32, 4e-2 for bfloat16, and so on.

    Returns: a Verification, which prints how many values agree and how closely. Arguments are not donated. All values
    are held in the memory of the devices and of the host at once. What is inside of loops and branches is compared by its
    results, and looked into if these are wrong. Results are also taken from the program as it runs otherwise, without
    values in between.

    Raises: VerificationError with the user's line of the first equation that differs.
    """
    wrapped = fun if isinstance(fun, Wrapped) else Wrapped(fun, in_shardings=in_shardings, out_shardings=out_shardings)
    if wrapped is fun and (in_shardings is not UNSPECIFIED or out_shardings is not UNSPECIFIED):
        raise ValueError("verify: the function is jitted already\n  fix: give the shardings to jit, or pass the function itself")
    if mesh is None:
        planned = wrapped.trace(*args, **kwargs).plan()
    else:
        with set_mesh(mesh):
            planned = wrapped.trace(*args, **kwargs).plan()
    split = wrapped.parameters.split(args, kwargs)
    return verify_planned(planned, tree.leaves((split.args, split.kwargs)), simulate, tolerance)


def verify_planned(
    planned: Planned, leaves: Sequence[Any], simulate: bool | None = None, tolerance: float = 1.0
) -> Verification:
    """The same for a function that is planned already, and the leaves of its arguments."""
    plan, title = planned.plan, planned.call.title
    if simulate is None:
        simulate = not isinstance(plan.mesh, Mesh)
    if not simulate and (not isinstance(plan.mesh, Mesh) or plan.mesh.is_multi_process):
        why = "has devices of other processes" if isinstance(plan.mesh, Mesh) else "has no devices"
        raise ValueError(f"verify: {plan.mesh} {why}\n  fix: verify(..., simulate=True)")
    everything = [*leaves, *planned.traced_program.captured]
    arrays = [_host(everything[i], v, planned.call.input_name(i)) for i, v in zip(planned.kept, plan.program.inputs, strict=True)]
    device = None if simulate else plan.mesh.flat_devices[0]  # pyright: ignore
    whole = run_whole(plan.program, arrays, device)
    shards = run_partitioned(plan, arrays, on_devices=not simulate)
    return _Verifier(title, plan, arrays, whole, shards, simulate, tolerance).run()


def _host(value: Any, var: Var, name: str) -> Any:
    """An argument as a NumPy array of the type that the function was traced for."""
    if not isinstance(value, bool | int | float | complex) and not hasattr(value, "__array__"):
        raise TypeError(
            f"verify: argument {name} is a {type(value).__name__}\n  fix: pass an array; verify has to run the function"
        )
    return np.asarray(value).astype(var.dtype, copy=False)


# XLA fuses a program without values in between otherwise, and what divides by small numbers shows it: up to this part of
# the elements of a result may differ for that.
SPARED = 0.01
MOST_ROUNDS = 8  # of a wrong loop that are looked into
USUAL = "program without values in between, which XLA compiles otherwise"


class _Verifier:
    def __init__(
        self, title: str, plan: Plan, arrays: Sequence[Any], whole: dict[Var, Any], shards: Shards,
        simulated: bool, tolerance: float,
    ) -> None:  # fmt: skip
        self.title, self.plan, self.whole, self.shards = title, plan, whole, shards
        self.simulated, self.tolerance = simulated, tolerance
        self.held: dict[Var, Any] = dict(zip(plan.program.inputs, arrays, strict=True))  # what the devices hold
        self.worst: Deviation | None = None
        self.drifted: list[Deviation] = []
        self.unlike: list[tuple[int, Difference]] = []
        self.compared = self.elements = 0
        self.last: Eqn | None = None  # was blamed last, gives `given`, and sways so much if it is a loop that was looked into
        self.results: Sequence[Any] = ()
        self.sways: Sequence[Any] = ()

    def run(self) -> Verification:
        for number, eqn in enumerate(self.plan.program.eqns):
            for position, var in enumerate(eqn.outputs):
                self.value(number, eqn, position, var)
        for i, (var, (placement, shards)) in enumerate(zip(self.plan.program.outputs, self.shards.outputs, strict=True)):
            self.output(i, var, placement, shards, f"as result {i}, handed over at {placement}; the value itself is right")
        for i, (var, (placement, shards)) in enumerate(zip(self.plan.program.outputs, self.shards.usual, strict=False)):
            self.output(i, var, placement, shards, f"as result {i} of the {USUAL}; the value itself is right", SPARED)
        return self.report()

    def report(self) -> Verification:
        return Verification(
            self.title, self.plan.mesh, self.simulated, self.compared, self.elements, self.worst, tuple(self.drifted),
            tuple(self.unlike),
        )  # fmt: skip

    def value(self, number: int, eqn: Eqn, position: int, var: Var) -> None:
        placement, shards = self.shards.values[var]
        try:
            held = assemble(shards, placement, var.shape, self.plan.mesh)
        except ReplicasDiffer as error:
            return self.fail(number, position, self.replicas(error), f"device {error.device} holds another replica")
        self.held[var] = held
        deviation = difference(held, self.whole[var], tolerance=self.tolerance)
        here = Deviation(self.plan, number, position, deviation)
        if not deviation.agrees:
            self.blame(number, eqn, position, held)
            self.drifted.append(here)
        elif self.worst is None or deviation.error > self.worst.difference.error:
            self.worst = here
        self.compared += 1
        self.elements += var.type.size

    def blame(self, number: int, eqn: Eqn, position: int, held: Any) -> None:
        """Raise unless the equation gives what the devices have, from what they had, or a loop as good as that."""
        operands = [self.held[v] for v in eqn.inputs]
        with np.errstate(all="ignore"):
            want = self.again(eqn)[position]
            terms = magnitudes(eqn, operands, [self.addends(v) for v in eqn.inputs])
        sizes = [s for s in (None if terms is None else terms[position], self.addends(eqn.outputs[position])) if s is not None]
        tolerance = self.tolerance * self.coarseness(eqn, want)
        own = difference(held, want, np.maximum.reduce(sizes) if sizes else None, tolerance)
        if not own.agrees:
            if eqn.op.regions is not None:
                if not self.sways:
                    self.look_inside(number, eqn, operands)
                    self.sways = sways(eqn, operands, self.again(eqn))
                if follows_from_rounding(held, want, self.sways[position]):
                    return
            self.fail(number, position, own)

    def again(self, eqn: Eqn) -> Sequence[Any]:
        """What the equation gives from what the devices had; kept for its other results."""
        if self.last is not eqn:
            with np.errstate(all="ignore"):
                self.last, self.results, self.sways = eqn, evaluate_eqn(eqn, [self.held[v] for v in eqn.inputs]), ()
        return self.results

    def coarseness(self, eqn: Eqn, want: Any) -> float:
        """How much coarser than the result's the rounding is of operands that the devices hold as addends, which were added
        before the equation in their own dtype (bf16, say, of what becomes float32)."""
        bounds = [TOLERANCES[v.dtype] for v in eqn.inputs if is_inexact(v.dtype) and self.addends(v) is not None]
        return max(1.0, max(bounds, default=0.0) / TOLERANCES[want.dtype]) if is_inexact(want.dtype) else 1.0

    def look_inside(self, number: int, eqn: Eqn, operands: Sequence[Any]) -> None:
        """Raise for the first wrong equation inside of a loop or branch, simulated from the operands that it was given."""
        bodies = {id(plan.program): plan for plan in self.plan.equations[number].bodies}
        if not bodies or eqn.op.steps is None:
            return
        title = f"{self.title}, inside of {eqn.op.name}{f' at {eqn.source}' if eqn.source else ''},"
        steps = eqn.op.steps(*operands, **eqn.params)
        with np.errstate(all="ignore"):
            program, arrays = next(steps)
            for _ in range(MOST_ROUNDS):
                whole = run_whole(program, arrays, None)
                held = dict(zip(program.inputs, arrays, strict=True)) | whole
                if id(program) in bodies:
                    plan = bodies[id(program)]
                    shards = run_partitioned(plan, arrays, on_devices=False)
                    _Verifier(title, plan, arrays, whole, shards, True, self.tolerance).run()
                try:
                    program, arrays = steps.send([held[v] for v in program.outputs])
                except StopIteration:
                    return

    def addends(self, var: Var) -> Any:
        """Of a value that the devices hold as addends the sum of their sizes: what its rounding errors are measured by."""
        placement, shards = self.shards.values.get(var, (None, []))
        if placement is None or placement.partial_kind != "sum" or not is_inexact(var.dtype):
            return None
        return assemble([np.abs(s).astype(s.dtype) for s in shards], placement, var.shape, self.plan.mesh)

    def output(self, i: int, var: Var, placement: Any, shards: Sequence[Any], note: str, spared: float = 0.0) -> None:
        """A result as it is handed over: the value that was computed, elsewhere."""
        try:
            handed = assemble(shards, placement, var.shape, self.plan.mesh)
            deviation = difference(handed, self.held[var], tolerance=self.tolerance)
        except ReplicasDiffer as error:
            deviation, note = self.replicas(error), f"result {i} at {placement}: device {error.device} holds another replica"
        if deviation.agrees:
            return
        if deviation.count <= spared * deviation.size:
            self.unlike.append((i, deviation))
            return
        eqns = enumerate(self.plan.program.eqns)
        number, position = next(((n, e.outputs.index(var)) for n, e in eqns if var in e.outputs), (None, 0))
        self.fail(number, position, deviation, note)

    def replicas(self, error: ReplicasDiffer) -> Difference:
        return difference(error.second, error.first, tolerance=0.0)

    def fail(self, number: int | None, position: int, deviation: Difference, note: str = "") -> None:
        text = mismatch_text(self.report(), self.plan, number, position, deviation, note)
        raise VerificationError(text, None if number is None else self.plan.program.eqns[number], deviation)
