"""What doing iterations of a stencil loop in blocks is worth: the heat equation on square grids, rows over 8 CPU devices.

    python benchmarks/stencils.py                  48 steps, grids of 64² to 2048²
    python benchmarks/stencils.py --sizes 256

Each program is compiled twice, with borders exchanged every step and as the compiler chooses; rounds of both by turns, the
median. The results are compared bit for bit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")

import numpy as np

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.partition import blocking
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

STEPS, ROUNDS = 48, 15


def ring(u: Any) -> Any:
    return u + 0.1 * (mnp.roll(u, 1, 0) + mnp.roll(u, -1, 0) + mnp.roll(u, 1, 1) + mnp.roll(u, -1, 1) - 4 * u)


def interior(u: Any) -> Any:
    change = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
    return u.at[1:-1, 1:-1].set(u[1:-1, 1:-1] + 0.1 * change)


def compiled(body: Callable[[Any], Any], u: Any, most: int) -> Callable[[], Any]:
    blocking.MOST_ITERATIONS = most  # pyright: ignore
    run = mj.jit(lambda u: lax.fori_loop(0, STEPS, lambda i, v: body(v), u))
    np.asarray(run(u))
    return lambda: run(u).block_until_ready()


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256, 512, 1024, 2048])
    sizes = parser.parse_args().sizes
    mesh = Mesh(np.array(mj.devices()[:8]), ("x",))
    most = blocking.MOST_ITERATIONS
    print(f"ms for {STEPS} steps: {'grid':>16} {'every step':>11} {'blocks':>8} {'ratio':>6}")
    for body in (ring, interior):
        for size in sizes:
            u = mj.device_put(np.random.default_rng(0).normal(size=(size, size)).astype(np.float32), NamedSharding(mesh, P("x")))
            runs = [compiled(body, u, 0), compiled(body, u, most)]
            same = np.array_equal(*(np.asarray(run()) for run in runs))
            times = [[seconds(run) for run in runs] for _ in range(ROUNDS)]
            before, after = (statistics.median(column) * 1e3 for column in zip(*times, strict=True))
            ratio = statistics.median(b / a for a, b in times)
            print(f"{body.__name__:>20} {size:>15} {before:11.2f} {after:8.2f} {ratio:6.2f}{'' if same else ' DIFFERENT'}")


if __name__ == "__main__":
    main()
