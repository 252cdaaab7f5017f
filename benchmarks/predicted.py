"""Predicted against measured step times: do plans come in the right order? Rank correlation (Spearman) over random plans.

    python benchmarks/predicted.py                             30 plans of three programs on 8 CPU devices, calibrated first
    python benchmarks/predicted.py --published                 the same, priced with the published figures instead
    python benchmarks/predicted.py --topology v5e:4x4          against the estimate of the TPU compiler; needs libtpu, no TPU

A random plan begins as what the planner makes of random specs for all arguments. A share of its equations is then spread in some
other way: of none in the first plan of a program, of all in the last. Where others use the processors of this machine, too,
times are what they worked. The TPU compiler's estimate is a sum over instructions, of which each that it cannot estimate counts
-1 s. It prices a collective by the memory that it touches, whatever the links, and lets nothing overlap. So it is compared with
the predicted work and the memory that collectives touch, too: the column "unlinked".
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.config import config
from meshjit.core.plan import DIGEST, digest_of, equation_plan
from meshjit.core.region import without_sharing
from meshjit.experimental.topologies import get_topology_desc, make_mesh as mesh_of
from meshjit.inspect.ahead import absent_accelerators, estimated_seconds
from meshjit.inspect.calibrate import Calibration
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic.prescribe import Prescribed
from meshjit.plan.automatic.saved import saved_of
from meshjit.plan.automatic.spreads import Rooms
from meshjit.plan.cost import Machine
from meshjit.plan.draft import first_draft
from meshjit.plan.make import Annotations
from meshjit.sharding import NamedSharding, PartitionSpec as P
from meshjit.targets.files import written
from sharding.spec import spec_of

PLANS = 10  # of each program
RUNS = 7


class Row(NamedTuple):
    """Seconds of a plan: predicted work and moving, work with the memory that collectives touch, all of it, measured."""

    program: str
    work: float
    moving: float
    unlinked: float
    predicted: float
    measured: float


def trained(loss: Callable[..., Any]) -> Callable[..., Any]:
    def step(params: Any, *batch: Any) -> Any:
        gradients = mj.grad(loss)(params, *batch)
        return mj.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

    return step


def mlp(params: Any, x: Any, y: Any) -> Any:
    for w in params[:-1]:
        x = mnp.tanh(x @ w)
    return mnp.mean((x @ params[-1] - y) ** 2)


def attention(params: Any, x: Any) -> Any:
    """One block of a transformer over f32[batch, length, width]."""
    q, k, v = (x @ params[name] for name in "qkv")
    heads = lambda a: a.reshape(*a.shape[:2], 8, -1)  # noqa: E731
    scores = mnp.einsum("bihd,bjhd->bhij", heads(q), heads(k)) / 8.0
    mixed = mnp.einsum("bhij,bjhd->bihd", nn.softmax(scores, -1), heads(v)).reshape(x.shape)
    x = x + mixed @ params["o"]
    x = x + nn.gelu(x @ params["up"]) @ params["down"]
    return mnp.mean(x**2)


def convolutions(params: Any, x: Any) -> Any:
    for w in params:
        x = nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    return mnp.mean(x**2)


def programs(scale: int) -> dict[str, tuple[Callable[..., Any], Any]]:
    """Function and types of the arguments; `scale` times as wide for machines that are quicker."""

    def f32(*shape: int) -> Any:
        return mj.ShapeDtypeStruct(shape, np.float32)

    w, b = 256 * scale, 64 * scale
    block = {name: f32(w, w) for name in "qkvo"} | {"up": f32(w, 4 * w), "down": f32(4 * w, w)}
    return {
        "mlp": (trained(mlp), ([f32(2 * w, 4 * w), f32(4 * w, 2 * w), f32(2 * w, w)], f32(16 * b, 2 * w), f32(16 * b, w))),
        "attention": (trained(attention), (block, f32(16, b, w))),
        "convolutions": (trained(convolutions), ([f32(3, 3, 32, 64), f32(3, 3, 64, 64)], f32(16, 8 * scale, 32, 32))),
    }


def random_spec(generator: random.Random, shape: Sequence[int], axes: Sequence[tuple[str, int]]) -> P:
    """A spec that spreads each axis over one dim that it divides, or over none."""
    dims: list[list[str]] = [[] for _ in shape]
    for axis, size in axes:
        room = [d for d, n in enumerate(shape) if n % (size * math.prod(dict(axes)[a] for a in dims[d])) == 0]
        dim = generator.choice([*room, None])
        if dim is not None:
            dims[dim].append(axis)
    return P(*[tuple(each) if len(each) > 1 else each[0] if each else None for each in dims])


def random_shardings(name: str, mesh: Any, types: Any, count: int) -> Iterator[Any]:
    """Trees of shardings like `types`, all different, the same every time."""
    generator, seen = random.Random(name), set[str]()
    while len(seen) < count:
        specs = mj.tree.map(lambda t: random_spec(generator, t.shape, list(mesh.shape.items())), types)
        if str(specs) not in seen:
            seen.add(str(specs))
            leaves, tree = mj.tree.flatten(types)
            named = [NamedSharding(mesh, s) for s in mj.tree.leaves(specs, is_leaf=lambda s: isinstance(s, P))]
            assert len(named) == len(leaves)
            yield mj.tree.unflatten(tree, named)


def random_plan(step: Callable[..., Any], mesh: Any, arguments: Any, share: float, seed: str) -> Any:
    """`step` lowered by the plan for these arguments, in which a share of the equations is spread at random."""
    lowered = mj.jit(step).lower(*arguments)
    if share == 0:
        return lowered
    program, generator = lowered.plan.program, random.Random(seed)
    annotations = Annotations([spec_of(p) for p in lowered.plan.inputs], [None] * len(program.outputs))
    draft = first_draft(without_sharing(program), annotations, Assigner(Machine(mesh, lowered.plan.target)))
    plans, homes = dict[Any, Any](), dict(draft.plan.placements)
    for eqn in draft.program.eqns:
        if eqn.inputs and eqn.outputs and generator.random() < share:
            rule = draft.flat.rules[eqn]
            plans[eqn] = equation_plan(rule, generator.choice(Rooms(mesh).spreads(eqn, rule)), mesh)
            homes |= {v: p.without_partial() for v, p in zip(eqn.outputs, plans[eqn].results, strict=True)}
    prescribed = draft.with_homes(homes, draft.plan.outputs, Prescribed(draft.machine, plans))
    saved = saved_of(prescribed, "")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({**saved, DIGEST: digest_of(saved)}, file)  # planning may compute equations elsewhere
        file.flush()
        return mj.auto(step, mesh=mesh, plan=file.name).lower(*arguments)


def ranks(values: Sequence[float]) -> np.ndarray[Any, Any]:
    """1 for the least; equal values share the mean of their places."""
    array = np.asarray(values, np.float64)
    return (array[:, None] > array).sum(1) + ((array[:, None] == array).sum(1) + 1) / 2


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's: 1 where both come in the same order, -1 in the reverse one."""
    x, y = (r - r.mean() for r in map(ranks, (a, b)))
    return float((x * y).sum() / math.sqrt((x * x).sum() * (y * y).sum()))


def touched_seconds(plan: Any) -> float:
    """In which the operands and results of a plan's collectives could be read from memory."""
    grows = {"all_gather": 1, "reduce_scatter": -1}
    sizes = [(c, plan.mesh.axes_size(c.axes) ** grows.get(c.kind, 0)) for c in plan.collectives]
    return sum(c.trips * c.nbytes * (1 + growth) for c, growth in sizes) / plan.target.topology.memory_bandwidth


def rows(mesh: Any, scale: int, count: int, measure: Callable[[Any], float]) -> Iterator[Row]:
    """Every plan: predicted and measured."""
    for name, (step, types) in programs(scale).items():
        for number, shardings in enumerate(random_shardings(name, mesh, types, count)):
            arguments = mj.tree.map(lambda t, s: mj.ShapeDtypeStruct(t.shape, t.dtype, sharding=s), types, shardings)
            lowered = random_plan(step, mesh, arguments, number / max(1, count - 1), f"{name} {number}")
            cost = lowered.plan.cost
            assert cost is not None
            unlinked = cost.work_seconds + touched_seconds(lowered.plan)
            yield Row(name, cost.work_seconds, cost.move_seconds, unlinked, cost.seconds, measure(lowered))


def on_cpu(lowered: Any, calibration: Calibration) -> float:
    compiled = lowered.compile()
    infos = mj.tree.leaves(compiled.in_avals)
    shardings = mj.tree.leaves(compiled.input_shardings)
    generator = np.random.default_rng(0)
    values = [generator.standard_normal(t.shape).astype(t.dtype) / 32 for t in infos]
    arrays = [mj.device_put(value, sharding) for value, sharding in zip(values, shardings, strict=True)]
    tree = mj.tree.structure(compiled.in_avals)
    args, kwargs = mj.tree.unflatten(tree, arrays)
    leaf = lambda: mj.tree.leaves(compiled(*args, **kwargs))[0]  # noqa: E731
    return calibration.seconds(leaf)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topology", help="v5e:4x4: the compiler's estimate instead of a measurement")
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--plans", type=int, default=PLANS)
    parser.add_argument("--scale", type=int)
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if arguments.topology:
            stack.enter_context(absent_accelerators())
            shape = tuple(map(int, arguments.topology.partition(":")[2].split("x")))
            mesh = mesh_of(get_topology_desc(arguments.topology, "tpu"), shape, ("x", "y", "z")[: len(shape)])
            scale, measure = arguments.scale or 8, lambda lowered: estimated_seconds(lowered.compile())
        else:
            mesh, scale = mj.make_mesh((4, 2), ("x", "y")), arguments.scale or 1
            calibration = Calibration(mj.devices()[:8])
            measure = lambda lowered: on_cpu(lowered, calibration)  # noqa: E731
            if not arguments.published:
                figures, _ = calibration.figures()
                path = "/tmp/calibrated.toml"
                with open(path, "w", encoding="utf-8") as file:
                    file.write(written(figures))
                stack.enter_context(config.using(device_model=path))
                print(written(figures))
        report(rows(mesh, scale, arguments.plans, measure))


def report(rows: Iterator[Row]) -> None:
    print(f"{'program':>14} {'work ms':>9} {'moving ms':>10} {'unlinked':>9} {'predicted':>9} {'measured':>9} {'ratio':>6}")
    table = list[Row]()
    for row in rows:
        table.append(row)
        times = " ".join(f"{each * 1e3:{width}.3f}" for each, width in zip(row[1:], (9, 10, 9, 9, 9), strict=True))
        print(f"{row.program:>14} {times} {row.measured / row.predicted:6.2f}", flush=True)
    groups = [(name, list(group)) for name, group in itertools.groupby(table, key=lambda row: row.program)]
    for name, each in [*groups, (f"all {len(table)}", table)]:
        measured = [row.measured for row in each]
        whole, unlinked = (rank_correlation([getattr(row, of) for row in each], measured) for of in ("predicted", "unlinked"))
        print(f"rank correlation of {name}: {whole:.3f}; without links {unlinked:.3f}")


if __name__ == "__main__":
    start = time.perf_counter()
    main()
    print(f"{time.perf_counter() - start:.0f} s")
