"""What a call of a compiled function costs on the calling thread, arguments placed: microseconds of its CPU time.

    python benchmarks/dispatch.py [--jax /path/to/a/python/with/jax]

    call      f(xs), as a user calls it: a repeated call runs in jaxlib's C++ (meshjit/runtime/fast.py)
    python    the same call by way of Python: flatten, keys, cache, jaxlib's execute_sharded, an Array per output
    execute   jaxlib's C++ alone, from handles to handles: nothing of meshjit, no Arrays
    jax       jax.jit on jax.Arrays of the same sharding, in a process of its own

All four by turns, some calls each, many times; the least of each counts: dispatch is deterministic, the rest is noise of
the machine. CPU time of one thread leaves out what other processes do, and what the devices' threads compute.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

CALLS, ROUNDS = 40, 60
DEVICES, LEAVES = (1, 8), (1, 10, 50)


def timed(call: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    """Microseconds per call of one round. Waits at its end, so that queues stay short."""
    start = time.thread_time()
    for _ in range(CALLS):
        result = call()
    seconds = time.thread_time() - start
    wait(result)
    return seconds / CALLS * 1e6


def serve_jax() -> None:
    """The process of JAX: a case per line in, a round's time out."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    calls: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        if line not in calls:
            devices, leaves = map(int, line.split())
            sharding = NamedSharding(Mesh(np.array(jax.devices()[:devices]), ("x",)), PartitionSpec("x"))
            values = [jax.device_put(np.ones(16, np.float32), sharding) for _ in range(leaves)]
            function = jax.jit(lambda xs: [x + 1 for x in xs])
            calls[line] = lambda function=function, values=values: function(values)
            calls[line]()
        print(timed(calls[line], jax.block_until_ready), flush=True)


def jax_rounds(python: str | None) -> Iterator[Callable[[int, int], float] | None]:
    """Asks the process of JAX for a round; None where there is no JAX."""
    if python is None:
        yield None
        return
    environ = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={max(DEVICES)}"}
    command = [python, __file__, "--serve-jax"]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None

        def ask(devices: int, leaves: int) -> float:
            print(devices, leaves, file=process.stdin, flush=True)
            return float(process.stdout.readline())  # pyright: ignore[reportOptionalMemberAccess]

        yield ask
        process.stdin.close()


def our_calls(devices: int, leaves: int) -> dict[str, Callable[[], Any]]:
    """The columns that are ours."""
    import numpy as np

    import meshjit as mj
    from meshjit.runtime import _jaxlib
    from meshjit.sharding import Mesh, NamedSharding
    from meshjit.sharding import PartitionSpec as P

    sharding = NamedSharding(Mesh(np.array(mj.devices()[:devices]), ("x",)), P("x"))
    values = [mj.device_put(np.ones(16, np.float32), sharding) for _ in range(leaves)]
    handles = [x.handle for x in values]
    function, found = mj.jit(lambda xs: [x + 1 for x in xs]), []
    function.listeners.append(found.append)
    for _ in range(4):
        function(values)
    plan = found[0].fast_call()._replace(out_pytree_def=found[0].treedef)
    execute = _jaxlib.fast_function("execute", lambda _: (None, plan))
    execute(handles)
    return {
        "call": lambda: function(values),
        "python": lambda: function._call_in_python((values,), {}),
        "execute": lambda: execute(handles),
    }


def wait(result: Any) -> None:
    """A result of any of `our_calls`."""
    leaf = result[0] if isinstance(result, tuple) else result
    leaf[-1].block_until_ready()


def measure(devices: int, leaves: int, jax: Callable[[int, int], float] | None) -> dict[str, float]:
    calls = our_calls(devices, leaves)
    best = dict.fromkeys([*calls, *(["jax"] if jax else [])], float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            best[name] = min(best[name], timed(call, wait))
        if jax:
            best["jax"] = min(best["jax"], jax(devices, leaves))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jax", default=sys.executable if importlib.util.find_spec("jax") else None, metavar="PYTHON")
    parser.add_argument("--serve-jax", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve_jax:
        return serve_jax()
    os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", str(max(DEVICES)))
    print(f"{'devices':>8}{'leaves':>8}{'call us':>10}{'python us':>11}{'execute us':>12}{'jax us':>9}{'call/jax':>10}")
    for jax in jax_rounds(arguments.jax):
        for devices in DEVICES:
            for leaves in LEAVES:
                best = measure(devices, leaves, jax)
                theirs = f"{best['jax']:>9.1f}{best['call'] / best['jax']:>10.2f}" if jax else f"{'-':>9}{'-':>10}"
                print(f"{devices:>8}{leaves:>8}{best['call']:>10.1f}{best['python']:>11.1f}{best['execute']:>12.1f}{theirs}")


if __name__ == "__main__":
    main()
