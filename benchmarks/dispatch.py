"""What a call of a compiled function costs on the calling thread, arguments placed: microseconds of its CPU time.

    python benchmarks/dispatch.py [--jax /path/to/a/python/with/jax]

    call      f(xs), as a user calls it: a repeated call runs in jaxlib's C++ (meshjit/runtime/fast.py)
    python    the same call by way of Python: flatten, keys, cache, jaxlib's execute_sharded
    execute   jaxlib's C++ alone: nothing of meshjit
    jax       jax.jit on jax.Arrays of the same sharding, in a process of its own

Kinds of functions: `plain`; `donating` ones, each call of which is given the last one's results; with a `static` argument;
`captured`, which close over an array; `eager` is xs[0] + 1 outside of jit.

All columns by turns, some calls each, many times; the least of each counts: dispatch is deterministic, the rest is noise of
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
CASES = [("plain", d, n) for d in DEVICES for n in LEAVES]
CASES += [(kind, d, n) for kind in ("donating", "static") for d in DEVICES for n in (1, 10, 50)]
CASES += [("captured", 1, 1), ("captured", 1, 10), ("eager", 1, 1), ("eager", 8, 1)]
Case = tuple[str, int, int]


def calls_of(kind: str, jit: Any, values: list[Any]) -> tuple[Any, Callable[[], Any]]:
    """The function of a case, and a call of it, in meshjit and in JAX."""
    if kind == "donating":
        function, state = jit(lambda xs: [x + 1 for x in xs], donate_argnums=0), [values]

        def step() -> Any:
            state[0] = function(state[0])
            return state[0]

        return function, step
    if kind == "static":
        function = jit(lambda xs, n: [x + n for x in xs], static_argnames="n")
        return function, lambda: function(values, 3)
    if kind == "captured":
        last = values[-1]
        function = jit(lambda xs: [x + last for x in xs])
        return function, lambda: function(values)
    if kind == "eager":
        return None, lambda: [values[0] + 1]
    function = jit(lambda xs: [x + 1 for x in xs])
    return function, lambda: function(values)


def timed(call: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    """Microseconds per call of one round. Waits at its end, so that queues stay short."""
    for _ in range(CALLS // 4):  # another process may have had the caches meanwhile
        call()
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
            kind, *sizes = line.split()
            devices, leaves = map(int, sizes)
            sharding = NamedSharding(Mesh(np.array(jax.devices()[:devices]), ("x",)), PartitionSpec("x"))
            values = [jax.device_put(np.ones(16, np.float32), sharding) for _ in range(leaves)]
            _, calls[line] = calls_of(kind, jax.jit, values)
            calls[line]()
        print(timed(calls[line], jax.block_until_ready), flush=True)


def jax_rounds(python: str | None) -> Iterator[Callable[[Case], float] | None]:
    """Asks the process of JAX for a round; None where there is no JAX."""
    if python is None:
        yield None
        return
    environ = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={max(DEVICES)}"}
    command = [python, __file__, "--serve-jax"]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None

        def ask(case: Case) -> float:
            print(*case, file=process.stdin, flush=True)
            return float(process.stdout.readline())  # pyright: ignore[reportOptionalMemberAccess]

        yield ask
        process.stdin.close()


def our_calls(kind: str, devices: int, leaves: int) -> dict[str, Callable[[], Any]]:
    """The columns that are ours."""
    import numpy as np

    import meshjit as mj
    from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

    sharding = NamedSharding(Mesh(np.array(mj.devices()[:devices]), ("x",)), P("x"))
    values = [mj.device_put(np.ones(16, np.float32), sharding) for _ in range(leaves)]
    function, call = calls_of(kind, mj.jit, values)
    if kind != "plain":
        call()
        return {"call": call}
    return {
        "call": call,
        "python": lambda: function._call_in_python((values,), {}),
        "execute": _jaxlib_alone(function, values),
    }


def _jaxlib_alone(function: Any, values: list[Any]) -> Callable[[], Any]:
    from meshjit.runtime import _jaxlib

    plan = function.lower(values).compile().fast_call()
    execute = _jaxlib.fast_function("execute", lambda _: (None, plan, False))
    execute(values)
    return lambda: execute(values)


def wait(result: Any) -> None:
    """A result of any of `our_calls`."""
    leaf = result[0] if isinstance(result, tuple) else result
    leaf[-1].block_until_ready()


def measure(case: Case, jax: Callable[[Case], float] | None) -> dict[str, float]:
    calls = our_calls(*case)
    best = dict.fromkeys([*calls, *(["jax"] if jax else [])], float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            best[name] = min(best[name], timed(call, wait))
        if jax:
            best["jax"] = min(best["jax"], jax(case))
    return best


def row(case: Case, best: dict[str, float]) -> str:
    kind, devices, leaves = case
    shown = {name: f"{value:.1f}" for name, value in best.items()}
    if "jax" in best:
        shown["ratio"] = f"{best['call'] / best['jax']:.2f}"
    cells = [f"{shown.get(name, '-'):>11}" for name in ("call", "python", "execute", "jax", "ratio")]
    return f"{kind:<10}{devices:>8}{leaves:>8}{''.join(cells)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jax", default=sys.executable if importlib.util.find_spec("jax") else None, metavar="PYTHON")
    parser.add_argument("--only", choices=sorted({kind for kind, _, _ in CASES}), help="one kind of functions")
    parser.add_argument("--serve-jax", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve_jax:
        return serve_jax()
    os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", str(max(DEVICES)))
    columns = "".join(f"{name:>11}" for name in ("call us", "python us", "execute us", "jax us", "call/jax"))
    print(f"{'':<10}{'devices':>8}{'leaves':>8}{columns}")
    for jax in jax_rounds(arguments.jax):
        for case in CASES:
            if arguments.only in (None, case[0]):
                print(row(case, measure(case, jax)), flush=True)


if __name__ == "__main__":
    main()
