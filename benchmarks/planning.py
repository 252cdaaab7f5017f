"""How long the way from a function to StableHLO takes: linear in the equations, and the same for 8 devices as for 4,096.

    python benchmarks/planning.py                  both tables
    python benchmarks/planning.py --profile        the functions that all of it spends its time in
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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import tree
from meshjit.core.garbage import rarely_collected
from meshjit.core.program import Program
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.emit.module import emit
from meshjit.partition.partition import partition
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import PartitionSpec as P
from meshjit.trace import Argument, trace_to_program
from meshjit.transform.fuse import fuse
from meshjit.transform.pipeline import simplify
from sharding.mesh import AbstractMesh

WIDTH, HIDDEN, VOCABULARY, BATCH = 8192, 32768, 16384, 65536  # large enough for 4,096 devices


def model(layers: int) -> tuple[Callable[[], Program], Annotations]:
    """What traces a training step of so many layers, and its annotations."""

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
    in_tree = tree.structure((tuple(range(len(leaves))), {}))
    specs = [spec for _, spec in leaves]
    return lambda: trace_to_program(step, arguments, in_tree).program, Annotations(specs, specs[: 4 * layers])


def clear_caches() -> None:
    """Forget everything that earlier plans left behind."""
    for cached in gc.get_objects():
        if isinstance(cached, functools._lru_cache_wrapper) and _is_ours(cached):
            cached.cache_clear()


def _is_ours(cached: Any) -> bool:
    return str(getattr(cached, "__module__", "")).split(".")[0] in ("sharding", "meshjit")


STAGES = ("trace", "simplify", "plan", "partition", "emit")


def lowered(layers: int, shape: tuple[int, int]) -> Iterator[Any]:
    """What each stage gives, as in `meshjit.runtime.lowering`."""
    trace, annotations = model(layers)
    mesh = AbstractMesh(shape, ("data", "model"))
    yield (program := trace())
    yield (program := verify(simplify(program)))
    yield (plan := make_plan(program, mesh, annotations))
    yield (local := verify(fuse(simplify(partition(plan)))))
    yield emit(local, mesh)


@rarely_collected
def row(layers: int, shape: tuple[int, int]) -> tuple[int, list[float]]:
    """Equations; seconds of each stage."""
    clear_caches()
    stages, seconds, equations = lowered(layers, shape), list[float](), 0
    for name in STAGES:
        start = time.process_time()
        result = next(stages)
        seconds.append(time.process_time() - start)
        equations = len(result.eqns) if name == "simplify" else equations
    return equations, seconds


def table(rows: Sequence[tuple[int, tuple[int, int]]], repeats: int = 3) -> None:
    heads = "".join(f"{stage + ' ms':>13}" for stage in STAGES)
    print(f"{'devices':>8} {'equations':>10}{heads} {'µs an equation':>15}")
    for layers, shape in rows:
        found = [row(layers, shape) for _ in range(repeats)]
        equations, least = found[0][0], [min(times) for times in zip(*(seconds for _, seconds in found), strict=True)]
        text = "".join(f"{each * 1e3:13.0f}" for each in least)
        print(f"{shape[0] * shape[1]:8} {equations:10}{text} {sum(least) / equations * 1e6:15.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    if arguments.profile:
        profile = cProfile.Profile()
        profile.runcall(row, arguments.layers[0], (4, 2))
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return
    print("in equations")
    table([(layers, (4, 2)) for layers in arguments.layers])
    print("in devices")
    table([(arguments.layers[0], shape) for shape in ((4, 2), (16, 16), (64, 64))])


if __name__ == "__main__":
    main()
