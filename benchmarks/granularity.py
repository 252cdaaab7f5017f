"""What jitting costs and gives, by how much of a program is jitted: the numbers of docs/jit.md.

    MESHJIT_NUM_CPU_DEVICES=8 python benchmarks/granularity.py
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")

import numpy as np  # noqa: E402

import meshjit as mj  # noqa: E402
import meshjit.numpy as mnp  # noqa: E402
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402


def milliseconds(call: Callable[[], Any], rounds: int = 20) -> float:
    """The best time of one call, its results computed; the first call does not count."""
    mj.block_until_ready(call())
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        mj.block_until_ready(call())
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def once(call: Callable[[], Any]) -> float:
    """Seconds of one call, the first one included."""
    start = time.perf_counter()
    mj.block_until_ready(call())
    return time.perf_counter() - start


def show(what: str, value: float, unit: str) -> None:
    print(f"{what:64} {value:10.3f} {unit}", flush=True)


# --- how much to jit


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + mnp.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def params_of(layers: int, width: int) -> list[Any]:
    generator = np.random.default_rng(0)
    return [mnp.asarray(generator.normal(size=(width, width)).astype(np.float32) / width**0.5) for _ in range(layers)]


def layer(x: Any, w: Any) -> Any:
    return gelu(x @ w)


def loss(params: Any, x: Any) -> Any:
    for w in params:
        x = layer(x, w)
    return (x**2).mean()


def step(params: Any, x: Any) -> Any:
    value, grads = mj.value_and_grad(loss)(params, x)
    return value, [w - 0.01 * g for w, g in zip(params, grads, strict=True)]


def how_much() -> None:
    for size in (1_000, 1_000_000):
        x = mnp.ones((size,))
        jitted = mj.jit(gelu)
        show(f"gelu of {size} elements, op by op", milliseconds(lambda x=x: gelu(x)), "ms")
        show(f"gelu of {size} elements, jitted", milliseconds(lambda x=x, f=jitted: f(x)), "ms")
    params, x = params_of(4, 128), mnp.ones((64, 128))
    whole, value_and_grad = mj.jit(step), mj.jit(mj.value_and_grad(loss))

    def pieces() -> Any:
        value, grads = value_and_grad(params, x)
        return value, [w - 0.01 * g for w, g in zip(params, grads, strict=True)]

    show("training step, nothing jitted", milliseconds(lambda: step(params, x), 5), "ms")
    show("training step, loss and gradient jitted, update op by op", milliseconds(pieces), "ms")
    show("training step jitted as a whole", milliseconds(lambda: whole(params, x)), "ms")


# --- nested


def nested() -> None:
    inner = mj.jit(layer)

    def model(params: Any, x: Any) -> Any:
        for w in params:
            x = inner(x, w)
        return x

    def flat(params: Any, x: Any) -> Any:
        for w in params:
            x = layer(x, w)
        return x

    def scanned(stacked: Any, x: Any) -> Any:
        return mj.lax.scan(lambda x, w: (layer(x, w), None), x, stacked)[0]

    params, x = params_of(32, 64), mnp.ones((16, 64))
    stacked = mnp.stack(params)
    for name, function, argument in (("plain", flat, params), ("each layer jitted", model, params), ("scan", scanned, stacked)):
        rounds = [_stages(function, argument, x) for _ in range(3)]
        for i, stage in enumerate(("trace", "plan and partition", "compile")):
            show(f"32 layers, {name}: {stage}", min(seconds[i] for seconds, _ in rounds) * 1e3, "ms")
        show(f"32 layers, {name}: run", milliseconds(lambda c=rounds[0][1], a=argument: c(a, x)), "ms")
    one = mj.jit(layer)
    show("32 layers as 32 calls of a jitted layer: run", milliseconds(lambda: _calls(one, params, x)), "ms")


def _stages(function: Callable[..., Any], argument: Any, x: Any) -> tuple[list[float], Any]:
    """Seconds of tracing, of planning and partitioning, and of compiling; and what came of it."""
    mj.clear_caches()
    clock = [time.perf_counter()]
    traced = mj.jit(function).trace(argument, x)
    clock.append(time.perf_counter())
    lowered = traced.lower()
    clock.append(time.perf_counter())
    compiled = lowered.compile()
    clock.append(time.perf_counter())
    return [b - a for a, b in zip(clock, clock[1:], strict=False)], compiled


def _calls(one: Any, params: Any, x: Any) -> Any:
    for w in params:
        x = one(x, w)
    return x


# --- static arguments, shapes, functions made anew


def recompilation() -> None:
    def power(x: Any, n: Any) -> Any:
        for _ in range(n):
            x = x * 1.01
        return x

    static = mj.jit(power, static_argnums=1)
    x = mnp.ones((1000,))
    once(lambda: static(x, 1))
    show("new static value: trace, plan, compile", once(lambda: static(x, 2)) * 1e3, "ms")
    show("the same static value again", milliseconds(lambda: static(x, 2)), "ms")
    traced = mj.jit(lambda x, n: mj.lax.fori_loop(0, n, lambda _, v: v * 1.01, x))
    once(lambda: traced(x, 1))
    show("another value of a traced argument", milliseconds(lambda: traced(x, 2)), "ms")
    f = mj.jit(gelu)
    once(lambda: f(mnp.ones((100,))))
    show("new shape: trace, plan, compile", once(lambda: f(mnp.ones((101,)))) * 1e3, "ms")
    show("a lambda jitted anew in each iteration", milliseconds(lambda: mj.jit(lambda x: gelu(x))(x), 5), "ms")
    show("one function jitted anew in each iteration: mj.jit(gelu)(x)", milliseconds(lambda: mj.jit(gelu)(x)), "ms")


# --- compile time against the size of the program


def size() -> None:
    for count in (4, 16, 64):
        params, x = params_of(count, 64), mnp.ones((16, 64))
        show(f"gradient of {count} layers, first call", once(lambda p=params, x=x: mj.jit(step)(p, x)), "s")
    mesh = Mesh(np.array(mj.devices()).reshape(4, 2), ("data", "model"))
    place = NamedSharding(mesh, P(None, "model"))
    params, x = mj.device_put(params_of(16, 64), place), mj.device_put(mnp.ones((16, 64)), NamedSharding(mesh, P("data")))
    show("gradient of 16 layers on a 4x2 mesh, first call", once(lambda: mj.jit(step)(params, x)), "s")


def donation() -> None:
    params, x = params_of(4, 512), mnp.ones((64, 512))
    for name, donate in (("kept", ()), ("donated", (0,))):
        memory = mj.jit(step, donate_argnums=donate).lower(params, x).compile().memory_analysis()
        total = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
        show(f"arguments and results of a training step, parameters {name}", total / 1e6, "MB")


def main() -> None:
    logging.getLogger("meshjit").setLevel(logging.ERROR)
    for part in (how_much, nested, recompilation, size, donation):
        print(f"\n{part.__name__.replace('_', ' ')}")
        part()


if __name__ == "__main__":
    main()
