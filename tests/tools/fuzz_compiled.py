"""Random programs compiled by XLA, against the simulator: what XLA makes of programs that are right. Runs in CI, and as long as you like:

    python -m tests.tools.fuzz_compiled --minutes 10 [--seed N]
    MESHJIT_PLATFORMS=cuda python -m tests.tools.fuzz_compiled --go-on       on the GPUs at hand

XLA:CPU has run fused updates in place although their new values were still to be read from the old ones. So these programs
are full of updates with shifted slices of the same value, behind and before reshapes, transposes, conversions, pads,
concatenations, scatters, collectives, in loops, some of their arguments donated.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import meshjit as mj
from meshjit.core.program import Program
from meshjit.plan.make import Annotations
from meshjit.runtime.executable import Executable
from meshjit.runtime.lowering import lower
from meshjit.runtime.placing import place
from meshjit.simulate.evaluate import evaluate
from sharding.mesh import Mesh
from tests.tools.fuzz import CONTROL, REVERSIBLE, case, divides, gradient_case, needed
from tests.tools.fuzz_memory import IN_MEMORY
from tests.tools.laws import random_spec

Drawn = tuple[Program, Mesh, list[Any], list[Any], list[Any], tuple[int, ...]]
SHAPES = ((1,), (8,), (4, 2), (2, 2, 2), (2,), (3,))


def drawn_by(seed: int) -> Drawn:
    """Program, mesh, specs of inputs and outputs, arrays, and the positions of donated inputs. Half of the seeds draw one device,
    a seventh gradients."""
    if seed % 7 == 6:
        program, _, _, _, arrays = gradient_case(seed, 2 + seed % 5, REVERSIBLE)
    else:
        program, _, _, _, arrays = case(seed, 2 + seed % 9, CONTROL if seed % 5 == 4 else IN_MEMORY)
    generator = np.random.default_rng(seed)
    shapes = [shape for shape in SHAPES if math.prod(shape) <= mj.device_count()]
    shape = (1,) if seed % 2 else shapes[int(generator.integers(len(shapes)))]
    devices = np.array(mj.devices()[: math.prod(shape)]).reshape(shape)
    mesh = Mesh(devices, ("x", "y", "z")[: len(shape)])
    specs = [[random_spec(generator, v.rank, mesh) for v in vs] for vs in (program.inputs, program.outputs)]
    donated = tuple(i for i in range(len(arrays)) if generator.random() < 0.3)
    return program, mesh, specs[0], specs[1], arrays, donated


def fails(program: Program, mesh: Mesh, inputs: Any, outputs: Any, arrays: Any, donated: Sequence[int]) -> str | None:
    """What is wrong with the compiled results; None where nothing is."""
    executable = Executable(lower(program, mesh, Annotations(inputs, outputs), donated), [False] * len(program.outputs))
    operands = [place(a, s, committed=True) for a, s in zip(arrays, executable.in_shardings, strict=True)]
    rounding = 1e-5 if divides(program) else 0.0
    for i, (got, expected) in enumerate(zip(executable(operands), evaluate(program, arrays), strict=True)):
        if not np.allclose(np.asarray(got), expected, rounding, rounding, equal_nan=True):
            return f"output {i}: {int((np.asarray(got) != expected).sum())} of {expected.size} elements\n{executable.lowering.local}"
    return None


def shrink(drawn: Drawn) -> Drawn:
    """A smaller case that still fails: a single output, no donation or spec without need."""
    program, mesh, inputs, outputs, arrays, donated = drawn
    for var in [v for eqn in program.eqns for v in eqn.outputs]:
        for output in (*outputs, None):
            smaller = needed(program, var)
            if (output is None or len(output) <= var.rank) and fails(smaller, mesh, inputs, [output], arrays, donated):
                return _plainer((smaller, mesh, inputs, [output], arrays, donated))
    return _plainer(drawn)


def _plainer(drawn: Drawn) -> Drawn:
    program, mesh, inputs, outputs, arrays, donated = drawn
    if donated and fails(program, mesh, inputs, outputs, arrays, ()):
        donated = ()
    for specs in (inputs, outputs):
        for i in range(len(specs)):
            kept, specs[i] = specs[i], None
            if not fails(program, mesh, inputs, outputs, arrays, donated):
                specs[i] = kept
    return program, mesh, inputs, outputs, arrays, donated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--go-on", action="store_true", help="count failures instead of stopping at the first")
    args = parser.parse_args()
    end, seed, failures = time.time() + 60 * args.minutes, args.seed, 0
    while time.time() < end:
        drawn = drawn_by(seed)
        if fails(*drawn):
            failures += 1
            program, mesh, inputs, outputs, arrays, donated = small = shrink(drawn)
            print(f"seed {seed} on {mesh}: inputs {inputs}, outputs {outputs}, donated {donated}\n{program}\n{fails(*small)}")
            if not args.go_on:
                raise SystemExit(1)
        seed += 1
    print(f"{seed - args.seed} programs, {failures} failures")


if __name__ == "__main__":
    main()
