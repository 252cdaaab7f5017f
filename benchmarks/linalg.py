"""Matrix functions against JAX on CPU devices: CPU seconds to lower and compile, milliseconds of a step, and their ratios.

    python benchmarks/linalg.py [--jax /path/to/a/python/with/jax] [--rounds 5] [--shape '256 of 16'] [--alone] [name ...]

A batch of 256 matrices of 16 x 16 sharded over 8 devices; one of 256 x 256 on one device; 16 of 128 x 128 sharded over 8.
Each side is a process of its own; they are asked by turns. The least of the rounds counts on both sides: the work is the same
each time, the rest is noise of the machine; of compiling the CPU time of all threads is taken. Compiling starts from
nothing each time, except for what is imported.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

NAMES = ("solve", "inv", "det", "cholesky", "qr", "eigh", "svd", "eig")
SHAPES = {"256 of 16": (256, 16, 16), "one of 256": (256, 256), "16 of 128": (16, 128, 128)}
DEVICES, CALLS = 8, 10


def serve(side: str) -> None:
    """One side: `compile name shape` or `step name shape` per line in, a number out."""
    import numpy as np

    if side == "jax":
        import jax as framework
        import jax.numpy as numpy
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
    else:
        import meshjit as framework
        import meshjit.numpy as numpy
        from meshjit.sharding import Mesh, NamedSharding, PartitionSpec
    mesh = Mesh(np.array(framework.devices()[:DEVICES]), ("x",))
    compiled: dict[tuple[str, str], tuple[Any, Any]] = {}
    for line in sys.stdin:
        what, name, shape = line.strip().split(" ", 2)
        if what == "compile":
            a = np.random.default_rng(0).normal(size=SHAPES[shape]).astype(np.float32)
            if name in ("cholesky", "eigh"):
                a = a @ a.swapaxes(-1, -2) / a.shape[-1] + np.eye(a.shape[-1], dtype=np.float32)
            x = framework.device_put(a, NamedSharding(mesh, PartitionSpec("x"))) if a.ndim > 2 else framework.device_put(a)
            framework.clear_caches()
            function = _function(name, numpy)
            start = time.process_time()
            compiled[name, shape] = (framework.jit(function).lower(x).compile(), x)
            print(time.process_time() - start, flush=True)
        else:
            call, x = compiled[name, shape]
            print(min(_seconds(lambda: framework.block_until_ready(call(x))) for _ in range(CALLS)), flush=True)  # noqa: B023


def _function(name: str, numpy: Any) -> Callable[[Any], Any]:
    functions = {"solve": lambda a: numpy.linalg.solve(a, a + 1)}
    plain = getattr(numpy.linalg, name)
    return functions.get(name, lambda a: tuple(found) if isinstance(found := plain(a), tuple) else found)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def start(python: str, side: str) -> Callable[[str], float]:
    """A process of one side; asks it for a number."""
    environ = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
        "MESHJIT_NUM_CPU_DEVICES": str(DEVICES),
        "JAX_PLATFORMS": "cpu",
    }
    command = [python, __file__, "--serve", side]
    process = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(question: str) -> float:
        assert process.stdin is not None and process.stdout is not None
        print(question, file=process.stdin, flush=True)
        return float(process.stdout.readline())

    return ask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="name")
    parser.add_argument("--jax", default=sys.executable if importlib.util.find_spec("jax") else None, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--alone", action="store_true", help="without JAX")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.serve)
    sides = {"meshjit": start(sys.executable, "meshjit")}
    if arguments.jax and not arguments.alone:
        sides["jax"] = start(arguments.jax, "jax")
    print(f"{'':22}{'compile s':>10}{'jax':>8}{'ratio':>7}{'step ms':>10}{'jax':>10}{'ratio':>7}")
    for shape in arguments.shape or SHAPES:
        for name in arguments.names:
            best: dict[tuple[str, str], float] = {}
            for _ in range(arguments.rounds):
                for what in ("compile", "step"):
                    for side, ask in sides.items():
                        key = (what, side)
                        best[key] = min(best.get(key, float("inf")), ask(f"{what} {name} {shape}"))
            print(f"{name + ', ' + shape:22}{row(best, 'compile', 1, 10)}{row(best, 'step', 1e3, 12)}")


def row(best: dict[tuple[str, str], float], what: str, scale: float, width: int) -> str:
    ours, theirs = best[what, "meshjit"] * scale, best.get((what, "jax"))
    if theirs is None:
        return f"{ours:>10.3f}{'-':>8}{'-':>7}"
    return f"{ours:>10.3f}{theirs * scale:>{width - 2}.3f}{ours / (theirs * scale):>7.2f}"


if __name__ == "__main__":
    main()
