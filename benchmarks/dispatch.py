"""What a call of a compiled function costs in Python: microseconds per call, arguments placed, for 1, 10 and 50 leaves.

    MESHJIT_NUM_CPU_DEVICES=8 python benchmarks/dispatch.py

Three columns split the whole: `call` is `f(x)`; `run` is the same without looking the function up (flatten, keys, cache);
`execute` is jaxlib alone, handles in and handles out. `call - execute` is what meshjit adds. Each number is the best of
several rounds: dispatch is deterministic, the rest is noise. One round blocks at its end, so that queues stay short.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")

import numpy as np  # noqa: E402

import meshjit as mj  # noqa: E402
from meshjit.sharding import Mesh, NamedSharding  # noqa: E402
from meshjit.sharding import PartitionSpec as P  # noqa: E402

ROUNDS, CALLS = 15, 40


def microseconds(call: Callable[[], Any]) -> float:
    """The best round's time per call."""
    call()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            result = call()
        best = min(best, (time.perf_counter() - start) / CALLS)
        mj.block_until_ready(result)
    return best * 1e6


def measure(devices: int, leaves: int) -> tuple[float, float, float]:
    """(call, run, execute) for a function that adds 1 to each of `leaves` small arrays."""
    mesh = Mesh(np.array(mj.devices()[:devices]), ("x",))
    sharding = NamedSharding(mesh, P("x"))
    values = [mj.device_put(np.ones(16, np.float32), sharding) for _ in range(leaves)]
    found: list[Any] = []
    function = mj.jit(lambda xs: [x + 1 for x in xs])
    function.listeners.append(found.append)
    function(values)
    (compiled,) = found
    handles = [x.handle for x in values]
    return (
        microseconds(lambda: function(values)),
        microseconds(lambda: compiled.run(values, True)),
        _raw(compiled.executable.run, handles, values),
    )


def _raw(run: Any, handles: Any, values: Any) -> float:
    """jaxlib alone; its results are no Arrays, so one Array of the arguments is waited for instead."""
    run(handles)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            results = run(handles)
        best = min(best, (time.perf_counter() - start) / CALLS)
        for handle in results:
            handle.block_until_ready()
    del values
    return best * 1e6


def main() -> None:
    print(f"{'devices':>8}{'leaves':>8}{'call us':>12}{'run us':>12}{'execute us':>12}{'added us':>12}")
    for devices in (1, 8):
        for leaves in (1, 10, 50):
            call, run, execute = measure(devices, leaves)
            print(f"{devices:>8}{leaves:>8}{call:>12.1f}{run:>12.1f}{execute:>12.1f}{call - execute:>12.1f}")


if __name__ == "__main__":
    main()
