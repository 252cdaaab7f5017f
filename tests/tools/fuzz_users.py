"""Random functions as users write them (`fuzz_functions`): compiled they give what the evaluator gives, partitioned too, and
what JAX gives.

    python -m tests.tools.fuzz_users --minutes 10 [--seed N] [--jax PYTHON] [--rules]

With --rules functions hold refs, rules for batches, transposes, implicit derivatives, policies and checks, too (`fuzz_rules`);
`--seed 1000000`, and beyond, draws further steps instead. PYTHON is an interpreter that has JAX; each chunk of seeds is then
run by it, too. Shrinking is by hand: draw fewer steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import meshjit as mj
from meshjit.core.program import Program
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.pipeline import simplify
from sharding.mesh import AbstractMesh
from tests.tools import fuzz_functions
from tests.tools.fuzz_functions import FURTHER, Drawn, Summary, drawn_by, is_alike, summary
from tests.tools.laws import check_law, random_spec

CHUNK = 50


def fails(seed: int) -> str | None:
    """What is wrong with one drawn function; None where nothing is. What both JAX and we refuse is nothing."""
    drawn = drawn_by(mj, seed)
    try:
        program = traced(drawn)
    except (TypeError, ValueError, IndexError) as error:
        return None if type(summary(mj, seed)) is str else f"tracing alone: {error}"
    try:
        expected = evaluate(program, drawn.arrays)
        law(program, drawn, seed)
        for got, wanted in zip(drawn.results(mj), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a failure
        return f"{type(error).__name__}: {error}"
    return None


def traced(drawn: Drawn) -> Program:
    with mj.set_mesh(drawn.mesh):
        arrays: list[Any] = list(drawn.arrays)
        if drawn.explicit:
            arrays = [mj.device_put(x, mj.NamedSharding(drawn.mesh, s)) for x, s in zip(arrays, drawn.specs, strict=True)]
        return simplify(mj.jit(drawn.function).trace(*arrays).program)


def law(program: Program, drawn: Drawn, seed: int) -> None:
    """Partitioned under drawn specs, on the mesh that the function is for; explicit axes say the specs."""
    mesh = AbstractMesh(drawn.mesh.axis_sizes, drawn.mesh.axis_names)
    generator = np.random.default_rng(seed)
    sides = (program.inputs, program.outputs)
    inputs, outputs = ([random_spec(generator, v.rank, mesh, v.dtype.kind in "fiuc") for v in vs] for vs in sides)
    check_law(program, mesh, drawn.specs if drawn.explicit else inputs, outputs, drawn.arrays, exact=False)


def beside_jax(python: str, first: int, last: int) -> dict[int, Summary]:
    """What JAX gives for these seeds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        call = [python, "-m", fuzz_functions.__name__, str(first), str(last), str(path)]
        environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "PYTHONPATH": ""}
        subprocess.run(call, check=True, env=environment, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
        return {int(seed): result for seed, result in json.loads(path.read_text()).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jax")
    parser.add_argument("--rules", action="store_true")
    args = parser.parse_args()
    first = args.seed + fuzz_functions.RULES * args.rules
    end, seed, failures = time.time() + 60 * args.minutes, first, 0
    while time.time() < end:
        from_jax = beside_jax(args.jax, seed, seed + CHUNK) if args.jax else {}
        for number in range(seed, seed + CHUNK):
            wrong = fails(number)
            its, mine = from_jax.get(number), summary(mj, number) if args.jax else None
            if wrong is None and its is not None and mine is not None and not is_alike(mine, its, number >= FURTHER):
                wrong = f"JAX gives {its}, we give {mine}"
            if wrong is not None:
                failures += 1
                print(f"seed {number}: {wrong[:1500]}", flush=True)
        seed += CHUNK
    print(f"{seed - first} functions, {failures} failures")


if __name__ == "__main__":
    main()
