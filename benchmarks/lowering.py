"""What lowering a training step costs: a Llama-shaped model of 8 billion parameters, unrolled or scanned, here and in JAX.

    python benchmarks/lowering.py                               2, 8 and 32 layers unrolled, 32 scanned; 8x8 devices
    python benchmarks/lowering.py --layers 32 --devices 4096 --scan
    python benchmarks/lowering.py --jax ~/jax/bin/python        the same program with JAX of that environment, and ratios
    python benchmarks/lowering.py --layers 32 --profile         the functions that take the time

The step: grouped-query attention with rotary positions, SwiGLU, RMSNorm, every layer behind a checkpoint, Adam; bfloat16
computation on float32 parameters; parameters sharded over both axes of a mesh (data, model). Nothing is compiled and no
device is needed. Processor time is measured, the least of `--repeats` runs in one process with fresh caches of plans.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import json
import pstats
import subprocess
import time
from collections.abc import Callable
from typing import Any

WIDTH, HEADS, GROUPS, HIDDEN, VOCABULARY = 4096, 32, 8, 14336, 128256
BATCH, LENGTH = 512, 2048
EXAMPLES = 4  # on each device along the data axis: what the step holds then fits the memory of all meshes here
STAGES = ("trace", "simplify", "plan", "partition", "emit")


class Model:
    """The training step, written for a framework that is handed in: this one and JAX have the same names."""

    def __init__(self, framework: str, layers: int, scan: bool, batch: int = BATCH, checkpoints: bool = True) -> None:
        self.fw = importlib.import_module(framework)
        self.np, self.lax, self.nn = (importlib.import_module(f"{framework}.{name}") for name in ("numpy", "lax", "nn"))
        self.spec: Any = importlib.import_module(f"{framework}.sharding").PartitionSpec
        self.layers, self.scan, self.batch, self.checkpoints = layers, scan, batch, checkpoints

    def parameters(self) -> Any:
        """(shape, spec) of every parameter."""
        head, spec = WIDTH // HEADS, self.spec
        layer = {
            "queries": ((WIDTH, HEADS, head), spec("data", "model", None)),
            "keys": ((WIDTH, GROUPS, head), spec("data", "model", None)),
            "values": ((WIDTH, GROUPS, head), spec("data", "model", None)),
            "mixed": ((HEADS, head, WIDTH), spec("model", None, "data")),
            "gate": ((WIDTH, HIDDEN), spec("data", "model")),
            "up": ((WIDTH, HIDDEN), spec("data", "model")),
            "down": ((HIDDEN, WIDTH), spec("model", "data")),
            "norm1": ((WIDTH,), spec()),
            "norm2": ((WIDTH,), spec()),
        }
        stacked = {name: ((self.layers, *shape), spec(None, *own)) for name, (shape, own) in layer.items()}
        return {
            "embedding": ((VOCABULARY, WIDTH), spec("model", "data")),
            "norm": ((WIDTH,), spec()),
            "head": ((WIDTH, VOCABULARY), spec("data", "model")),
            "layers": stacked if self.scan else [dict(layer) for _ in range(self.layers)],
        }

    def arguments(self) -> tuple[Any, Any]:
        """(shape, dtype) of every argument as ShapeDtypeStructs, and their specs, as trees."""
        parameters, tokens = self.parameters(), ((self.batch, LENGTH), self.spec("data", None))
        state = {name: parameters for name in ("parameters", "mean", "square")}

        def pick(tree: Any, leaf: Callable[[Any], Any]) -> Any:
            if isinstance(tree, tuple):
                return leaf(tree)
            if isinstance(tree, list):
                return [pick(x, leaf) for x in tree]
            return {key: pick(x, leaf) for key, x in tree.items()}

        def struct(dtype: Any) -> Callable[[Any], Any]:
            return lambda pair: self.fw.ShapeDtypeStruct(pair[0], dtype)

        types = pick(state, struct(self.np.float32)), *[pick(tokens, struct(self.np.int32))] * 2
        return types, (pick(state, lambda pair: pair[1]), tokens[1], tokens[1])

    def step(self, state: Any, tokens: Any, labels: Any) -> Any:
        map_ = self.fw.tree_util.tree_map
        loss, gradient = self.fw.value_and_grad(self.loss)(state["parameters"], tokens, labels)
        mean = map_(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradient)
        square = map_(lambda v, g: 0.95 * v + 0.05 * g * g, state["square"], gradient)
        update = map_(
            lambda p, m, v: p - 3e-4 * (m / (self.np.sqrt(v) + 1e-8) + 0.1 * p), state["parameters"], mean, square
        )
        return {"parameters": update, "mean": mean, "square": square}, loss

    def loss(self, parameters: Any, tokens: Any, labels: Any) -> Any:
        np = self.np
        parameters = self.fw.tree_util.tree_map(lambda x: x.astype(np.bfloat16), parameters)
        x, block = parameters["embedding"][tokens], self.fw.checkpoint(self.block) if self.checkpoints else self.block
        if self.scan:
            x, _ = self.lax.scan(lambda x, layer: (block(x, layer), None), x, parameters["layers"])
        else:
            for layer in parameters["layers"]:
                x = block(x, layer)
        logits = np.einsum("btd,dv->btv", self.norm(x, parameters["norm"]), parameters["head"]).astype(np.float32)
        words = self.nn.log_softmax(logits, axis=-1)
        return -np.mean(np.take_along_axis(words, labels[..., None], axis=-1))

    def block(self, x: Any, layer: Any) -> Any:
        np = self.np
        x = x + self.attention(self.norm(x, layer["norm1"]), layer)
        h = self.norm(x, layer["norm2"])
        gate, up = np.einsum("btd,df->btf", h, layer["gate"]), np.einsum("btd,df->btf", h, layer["up"])
        return x + np.einsum("btf,fd->btd", self.nn.silu(gate) * up, layer["down"])

    def attention(self, h: Any, layer: Any) -> Any:
        np = self.np
        queries, keys, values = (np.einsum("btd,dhk->bthk", h, layer[n]) for n in ("queries", "keys", "values"))
        queries, keys = self.turned(queries), self.turned(keys)
        queries = queries.reshape(self.batch, LENGTH, GROUPS, HEADS // GROUPS, -1)
        scores = np.einsum("btgrk,bsgk->bgrts", queries, keys).astype(np.float32) * (WIDTH // HEADS) ** -0.5
        scores = np.where(np.tril(np.ones((LENGTH, LENGTH), bool)), scores, -1e9)
        weights = self.nn.softmax(scores, axis=-1).astype(values.dtype)
        mixed = np.einsum("bgrts,bsgk->btgrk", weights, values).reshape(self.batch, LENGTH, HEADS, -1)
        return np.einsum("bthk,hkd->btd", mixed, layer["mixed"])

    def turned(self, x: Any) -> Any:
        """Rotary positions."""
        np, half = self.np, x.shape[-1] // 2
        speed = 500000.0 ** (-np.arange(half, dtype=np.float32) / half)
        angle = np.arange(x.shape[1], dtype=np.float32)[:, None] * speed
        cosine, sine = (f(angle)[None, :, None, :].astype(x.dtype) for f in (np.cos, np.sin))
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)

    def norm(self, x: Any, scale: Any) -> Any:
        wide = x.astype(self.np.float32)
        return (wide * self.lax.rsqrt(self.np.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(x.dtype) * scale

    def staged(self, shape: tuple[int, int]) -> Any:
        """The step with the shardings of its arguments and results, on a mesh without devices; and its arguments."""
        sharding = importlib.import_module(f"{self.fw.__name__}.sharding")
        mesh = sharding.AbstractMesh(shape, ("data", "model"))
        types, specs = self.arguments()
        placed = self.fw.tree_util.tree_map(
            lambda spec: sharding.NamedSharding(mesh, spec), specs, is_leaf=lambda x: isinstance(x, self.spec)
        )
        out = placed[0], sharding.NamedSharding(mesh, self.spec())
        return self.fw.jit(self.step, in_shardings=placed, out_shardings=out), types


def lowered(framework: str, layers: int, shape: tuple[int, int], scan: bool) -> dict[str, float]:
    """Processor seconds of each stage."""
    step, types = Model(framework, layers, scan, EXAMPLES * shape[0]).staged(shape)
    clock = Clock()
    traced = step.trace(*types)
    clock.stop("trace")
    if framework == "jax":
        traced.lower(lowering_platforms=("cpu",))
        clock.stop("emit")
        return clock.seconds
    from meshjit.runtime import lowering as stages

    before, stages._timed = stages._timed, clock.timed  # pyright: ignore
    try:
        traced.lower()
    finally:
        stages._timed = before  # pyright: ignore
    clock.stop("rest")
    return clock.seconds


class Clock:
    """Processor seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.at = time.process_time()

    def stop(self, name: str) -> None:
        """What passed since the last stop was `name`."""
        now = time.process_time()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.at
        self.at = now

    def timed(self, _: dict[str, float], name: str, run: Callable[[], Any]) -> Any:
        self.stop("rest")
        result = run()
        self.stop(name)
        return result


def measured(framework: str, layers: int, shape: tuple[int, int], scan: bool, repeats: int) -> dict[str, float]:
    """The stages of the fastest of some runs."""
    runs = list[dict[str, float]]()
    for _ in range(repeats):
        if framework != "jax":
            from planning import clear_caches

            clear_caches()
        else:
            importlib.import_module(framework).clear_caches()
        runs.append(lowered(framework, layers, shape, scan))
    return min(runs, key=lambda seconds: sum(seconds.values()))


def mesh_shape(devices: int) -> tuple[int, int]:
    """As square as it goes, the model's axis the shorter one and at most 8 long, as there are 8 groups of heads."""
    model = max(m for m in (1, 2, 4, 8) if m * m <= devices and devices % m == 0)
    return devices // model, model


def in_jax(python: str, layers: int, devices: int, scan: bool, repeats: int) -> dict[str, float]:
    """The same in a process of JAX's environment."""
    size = ["--layers", str(layers), "--devices", str(devices), "--repeats", str(repeats), "--scan" if scan else "--unroll"]
    command = [python, __file__, "--framework", "jax", "--json", *size]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--devices", type=int, nargs="+", default=[64])
    parser.add_argument("--scan", action="store_true", help="only with lax.scan")
    parser.add_argument("--unroll", action="store_true", help="only with a loop in Python")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--framework", default="meshjit")
    parser.add_argument("--jax", metavar="PYTHON", help="a Python that has JAX, to measure it beside")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    forms = [scan for scan, named in ((False, given.unroll), (True, given.scan)) if named or given.scan == given.unroll]
    cases = [(layers, devices, scan) for scan in forms for layers in given.layers for devices in given.devices]
    if given.profile:
        layers, devices, scan = cases[0]
        profile = cProfile.Profile()
        profile.runcall(lowered, given.framework, layers, mesh_shape(devices), scan)
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        return
    if not given.json:
        stages = "".join(f"{stage + ' s':>12}" for stage in STAGES)
        print(f"{'layers':>6} {'form':>8} {'devices':>7}{stages}{'all s':>10}{'JAX s':>8}{'ratio':>7}")
    for layers, devices, scan in cases:
        seconds = measured(given.framework, layers, mesh_shape(devices), scan, given.repeats)
        if given.json:
            print(json.dumps(seconds))
            continue
        row = f"{layers:6} {'scan' if scan else 'unroll':>8} {devices:7}"
        row += "".join(f"{seconds.get(s, 0.0):12.2f}" for s in STAGES) + f"{sum(seconds.values()):10.2f}"
        if given.jax:
            theirs = sum(in_jax(given.jax, layers, devices, scan, given.repeats).values())
            row += f"{theirs:8.2f}{sum(seconds.values()) / theirs:7.2f}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
