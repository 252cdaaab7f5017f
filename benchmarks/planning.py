"""How long planning and partitioning take: linear in the equations, and the same for 8 devices as for 4,096.

    python benchmarks/planning.py                  both tables
    python benchmarks/planning.py --profile        the functions that planning spends its time in
    python benchmarks/planning.py --layers 8 64    other sizes

The model is a residual network of dense layers with its gradient and a step of momentum, its parameters sharded over both
axes of the mesh (fully sharded data parallelism and tensor parallelism), so that conflicts have to be settled. Processor
time is measured, the least of three runs with fresh caches, so that a busy machine disturbs little. No device is needed.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import gc
import pstats
import time
from collections.abc import Callable, Sequence
from typing import Any

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import tree
from meshjit.core.program import Program
from meshjit.core.types import TensorType
from meshjit.partition.partition import partition
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import PartitionSpec as P
from meshjit.trace import Argument, trace_to_program
from meshjit.transform.simplify import simplify
from sharding.mesh import AbstractMesh

WIDTH, HIDDEN, VOCABULARY, BATCH = 8192, 32768, 16384, 65536  # large enough for 4,096 devices


def model(layers: int) -> tuple[Program, Annotations]:
    """A training step of so many layers, and its annotations."""

    def loss(weights: Any, table: Any, tokens: Any) -> Any:
        x = table[tokens]
        for up, down in weights:
            x = x + mnp.dot(mnp.tanh(mnp.dot(x, up)), down)
        return mnp.mean(x * x)

    def step(*leaves: Any) -> Any:
        weights = [(leaves[2 * i], leaves[2 * i + 1]) for i in range(layers)]
        slow = leaves[2 * layers : 4 * layers]
        table, tokens = leaves[-2:]
        found = mj.grad(loss)(weights, table, tokens)
        flat = [g for pair in found for g in pair]
        moved = [0.9 * m + g for m, g in zip(slow, flat, strict=True)]
        return [*(w - 0.1 * m for w, m in zip(leaves, moved, strict=False)), *moved]

    pair = ((f"f32[{WIDTH},{HIDDEN}]", P("data", "model")), (f"f32[{HIDDEN},{WIDTH}]", P("model", "data")))
    leaves = [*pair * (2 * layers), (f"f32[{VOCABULARY},{WIDTH}]", P("model", "data")), (f"i32[{BATCH}]", P("data"))]
    arguments = [Argument(TensorType.parse(t), False, f"x{i}") for i, (t, _) in enumerate(leaves)]
    traced = trace_to_program(step, arguments, tree.structure((tuple(range(len(leaves))), {})))
    specs = [spec for _, spec in leaves]
    return simplify(traced.program), Annotations(specs, specs[: 4 * layers])


def clear_caches() -> None:
    """Forget everything that earlier plans left behind."""
    for cached in gc.get_objects():
        if isinstance(cached, functools._lru_cache_wrapper) and _is_ours(cached):
            cached.cache_clear()


def _is_ours(cached: Any) -> bool:
    return str(getattr(cached, "__module__", "")).split(".")[0] in ("sharding", "meshjit")


def seconds(run: Callable[[], Any], repeats: int = 3) -> float:
    found: list[float] = []
    for _ in range(repeats):
        clear_caches()
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def row(layers: int, shape: tuple[int, int]) -> tuple[int, float, float]:
    """Equations; seconds of planning; seconds of partitioning."""
    program, annotations = model(layers)
    mesh = AbstractMesh(shape, ("data", "model"))
    plan = make_plan(program, mesh, annotations)
    planning = seconds(lambda: make_plan(program, mesh, annotations))
    return len(program.eqns), planning, seconds(lambda: partition(plan))


def table(rows: Sequence[tuple[int, tuple[int, int]]]) -> None:
    print(f"{'devices':>8} {'equations':>10} {'plan ms':>9} {'partition ms':>13} {'µs an equation':>15}")
    for layers, shape in rows:
        equations, planning, partitioning = row(layers, shape)
        each = (planning + partitioning) / equations * 1e6
        text = f"{planning * 1e3:9.0f} {partitioning * 1e3:13.0f} {each:15.0f}"
        print(f"{shape[0] * shape[1]:8} {equations:10} {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    if arguments.profile:
        program, annotations = model(arguments.layers[0])
        profile = cProfile.Profile()
        mesh = AbstractMesh((4, 2), ("data", "model"))
        profile.runcall(lambda: partition(make_plan(program, mesh, annotations)))
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return
    print("in equations")
    table([(layers, (4, 2)) for layers in arguments.layers])
    print("in devices")
    table([(arguments.layers[0], shape) for shape in ((4, 2), (16, 16), (64, 64))])


if __name__ == "__main__":
    main()
