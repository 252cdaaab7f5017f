"""Programs compiled for TPUs that need not be there: temporary memory, the compiler's estimate and wire bytes, beside JAX's.

    python benchmarks/ahead.py --jax PYTHON                  all programs; `PYTHON` has JAX, both environments have libtpu
    python benchmarks/ahead.py --jax PYTHON vit decode       programs whose names begin so
    python benchmarks/ahead.py vit-columns --text DIR        also the compiled text, to read
    python benchmarks/ahead.py --layers 2                    smaller models

On v5e:4x4, a mesh of (data, model). `vit`: training steps of a vision transformer (ViT-B/16; a class token, so 197 places, or
the mean of 196), its layers sharded over `model`, with four placements of the weight that makes the residual stream; `conv`: of
a residual conv net whose images are cut along their height; `gpt`: of a language model whose residual stream is sharded along
batch and sequence; `decode`: a step with the cache sharded along the sequence. Computation in bfloat16, parameters in float32.
Milliseconds are `optimal_seconds`, read modulo one second: the compiler counts -1 s for each instruction that it has no
estimate for, and little of the time of collectives, but every copy between HBM and VMEM, though these run beside the rest. So
millions of cycles stand beside it, the sum of what the compiled text says of its instructions (of a loop once): values in VMEM
read from there, and no copies.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

TOPOLOGY, AXES, SHAPE = "v5e:4x4", ("data", "model"), (4, 4)
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "MESHJIT_PLATFORMS": "cpu",
    "JAX_PLATFORMS": "cpu",
}
Built = tuple[Callable[..., Any], Any, Any]  # the function; (shape, dtype, spec) of arguments as a tree; the specs of results


class Programs:
    """Written for a framework that is handed in: this one and JAX have the same names."""

    def __init__(self, framework: str, layers: int | None) -> None:
        self.fw = importlib.import_module(framework)
        self.np, self.lax, self.nn, self.sharding, topologies = (
            importlib.import_module(f"{framework}.{name}")
            for name in ("numpy", "lax", "nn", "sharding", "experimental.topologies")
        )
        self.P: Any = self.sharding.PartitionSpec
        self.layers = layers
        devices = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGY).devices
        ordered = sorted(devices, key=lambda device: tuple(reversed(device.coords)))
        self.mesh = self.sharding.Mesh(numpy.array(ordered).reshape(SHAPE), AXES)

    def all(self) -> dict[str, Callable[[], Built]]:
        P = self.P
        return {
            "vit-columns": lambda: self.vision(P(None, "model")),
            "vit-rows": lambda: self.vision(P("model", None)),
            "vit-replicated": lambda: self.vision(P()),
            "vit-fsdp": lambda: self.vision(P("data", "model"), "data"),
            "vit-mean-columns": lambda: self.vision(P(None, "model"), pooled=True),
            "vit-mean-replicated": lambda: self.vision(P(), pooled=True),
            "conv-batch-height": lambda: self.convolutions(P("data", "model", None, None)),
            "conv-height": lambda: self.convolutions(P(None, "model", None, None)),
            "decode-sequence": self.decoding,
            "gpt-sequence": self.language,
        }

    # -- what all have in common

    def bfloat16(self, tree: Any) -> Any:
        return self.fw.tree_util.tree_map(lambda x: x.astype(self.np.bfloat16), tree)

    def descent(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        def step(parameters: Any, *batch: Any) -> Any:
            value, gradient = self.fw.value_and_grad(loss)(parameters, *batch)
            return self.fw.tree_util.tree_map(lambda p, g: p - 0.01 * g, parameters, gradient), value

        return step

    def adam(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        map_ = self.fw.tree_util.tree_map

        def step(state: Any, *batch: Any) -> Any:
            value, gradient = self.fw.value_and_grad(loss)(state["p"], *batch)
            m = map_(lambda m, g: 0.9 * m + 0.1 * g, state["m"], gradient)
            v = map_(lambda v, g: 0.95 * v + 0.05 * g * g, state["v"], gradient)
            p = map_(lambda p, m, v: p - 1e-3 * m / (self.np.sqrt(v) + 1e-8), state["p"], m, v)
            return {"p": p, "m": m, "v": v}, value

        return step

    def entropy(self, logits: Any, labels: Any) -> Any:
        chances = self.nn.log_softmax(logits.astype(self.np.float32), axis=-1)
        return -self.np.mean(self.np.take_along_axis(chances, labels[..., None], axis=-1))

    def array(self, shape: tuple[int, ...], *entries: Any, dtype: str = "float32") -> Any:
        return shape, dtype, self.P(*entries)

    # -- programs

    def vision(self, patches: Any, fsdp: str | None = None, pooled: bool = False) -> Built:
        """`patches`: the spec of the first weight, which makes the residual stream; those of layers are sharded over `model`, and
        over `fsdp`. `pooled`: classified by the mean of all places, not by a class token."""
        np, P = self.np, self.P
        width, heads, hidden, patch, side, batch, classes = 768, 12, 3072, 16, 224, 256, 1000
        places = (side // patch) ** 2 + (not pooled)
        into, out = P(fsdp, "model"), P("model", fsdp)

        def weight(a: int, b: int, spec: Any) -> Any:
            return (a, b), "float32", spec

        def bias(n: int) -> Any:
            return self.array((n,), "model")

        norm = {"scale": self.array((width,)), "shift": self.array((width,))}
        layer = {
            "norm1": norm,
            **{name: weight(width, width, into) for name in "qkv"},
            **{f"{name}_bias": bias(width) for name in "qkv"},
            "mixed": weight(width, width, out),
            "mixed_bias": self.array((width,)),
            "norm2": norm,
            "up": weight(width, hidden, into),
            "up_bias": bias(hidden),
            "down": weight(hidden, width, out),
            "down_bias": self.array((width,)),
        }
        parameters = {
            "patches": weight(patch * patch * 3, width, patches),
            **({} if pooled else {"class": self.array((1, 1, width))}),
            "positions": self.array((places, width)),
            "layers": [layer for _ in range(self.layers or 12)],
            "norm": norm,
            "head": weight(width, classes, into),
        }

        def normal(x: Any, p: Any) -> Any:
            wide = x.astype(np.float32)
            centred = wide - np.mean(wide, axis=-1, keepdims=True)
            scaled = centred * self.lax.rsqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-6)
            return scaled.astype(x.dtype) * p["scale"] + p["shift"]

        def attention(x: Any, p: Any) -> Any:
            b, t, _ = x.shape
            q, k, v = ((x @ p[name] + p[f"{name}_bias"]).reshape(b, t, heads, width // heads) for name in "qkv")
            scores = np.einsum("bthk,bshk->bhts", q, k).astype(np.float32) * (width // heads) ** -0.5
            mixed = np.einsum("bhts,bshk->bthk", self.nn.softmax(scores, axis=-1).astype(x.dtype), v)
            return mixed.reshape(b, t, width) @ p["mixed"] + p["mixed_bias"]

        def block(x: Any, p: Any) -> Any:
            x = x + attention(normal(x, p["norm1"]), p)
            return x + self.nn.gelu(normal(x, p["norm2"]) @ p["up"] + p["up_bias"]) @ p["down"] + p["down_bias"]

        def loss(p: Any, images: Any, labels: Any) -> Any:
            p, n = self.bfloat16(p), side // patch
            x = images.reshape(batch, n, patch, n, patch, 3).transpose(0, 1, 3, 2, 4, 5).reshape(batch, n * n, -1)
            x = x @ p["patches"]
            if not pooled:
                x = np.concatenate([np.broadcast_to(p["class"], (batch, 1, width)), x], axis=1)
            x = x + p["positions"]
            for layer in p["layers"]:
                x = block(x, layer)
            x = normal(x, p["norm"])
            return self.entropy((np.mean(x, axis=1) if pooled else x[:, 0]) @ p["head"], labels)

        images = self.array((batch, side, side, 3), "data", None, None, None, dtype="bfloat16")
        labels = self.array((batch,), "data", dtype="int32")
        return self.descent(loss), (parameters, images, labels), (self.specs(parameters), P())

    def convolutions(self, spec: Any) -> Built:
        np, batch, side, c = self.np, 128, 128, 64
        kernels = [(3, c, 1), (c, c, 1), (c, 2 * c, 2), (2 * c, 2 * c, 1), (2 * c, 4 * c, 2), (4 * c, 4 * c, 1)]
        parameters = {"kernels": [self.array((3, 3, a, b)) for a, b, _ in kernels], "head": self.array((4 * c, 16))}

        def loss(p: Any, x: Any, labels: Any) -> Any:
            p = self.bfloat16(p)
            for kernel, (a, b, stride) in zip(p["kernels"], kernels, strict=True):
                y = self.lax.conv_general_dilated(
                    x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
                x = self.nn.relu(y) + x if a == b else self.nn.relu(y)
            return self.entropy(np.dot(np.mean(x, axis=(1, 2)), p["head"]), labels)

        images, labels = ((batch, side, side, 3), "bfloat16", spec), self.array((batch,), spec[0], dtype="int32")
        return self.descent(loss), (parameters, images, labels), (self.specs(parameters), self.P())

    def root_mean_square(self, x: Any, scale: Any) -> Any:
        wide = x.astype(self.np.float32)
        return (wide * self.lax.rsqrt(self.np.mean(wide * wide, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)

    def language(self) -> Built:
        np, P = self.np, self.P
        layers, width, heads, hidden, words, batch, length = self.layers or 6, 2048, 16, 8192, 32768, 16, 1024
        head = width // heads
        layer = {
            **{name: self.array((width, heads, head), "data", "model", None) for name in ("q", "k", "v")},
            "mixed": self.array((heads, head, width), "model", None, "data"),
            "up": self.array((width, hidden), "data", "model"),
            "down": self.array((hidden, width), "model", "data"),
            "norm1": self.array((width,)),
            "norm2": self.array((width,)),
        }
        parameters = {
            "embedding": self.array((words, width), "model", "data"),
            "positions": self.array((length, width), None, "data"),
            "norm": self.array((width,)),
            "head": self.array((width, words), "data", "model"),
            "layers": [layer for _ in range(layers)],
        }
        stream = self.sharding.NamedSharding(self.mesh, P("data", "model", None))

        def block(x: Any, p: Any) -> Any:
            h = self.root_mean_square(x, p["norm1"])
            q, k, v = (np.einsum("btd,dhk->bthk", h, p[name]) for name in ("q", "k", "v"))
            scores = np.einsum("bthk,bshk->bhts", q, k).astype(np.float32) * head**-0.5
            scores = np.where(np.tril(np.ones((length, length), bool)), scores, -1e9)
            mixed = np.einsum("bhts,bshk->bthk", self.nn.softmax(scores, axis=-1).astype(x.dtype), v)
            x = self.lax.with_sharding_constraint(x + np.einsum("bthk,hkd->btd", mixed, p["mixed"]), stream)
            h = self.nn.gelu(np.einsum("btd,df->btf", self.root_mean_square(x, p["norm2"]), p["up"]))
            return self.lax.with_sharding_constraint(x + np.einsum("btf,fd->btd", h, p["down"]), stream)

        def loss(p: Any, tokens: Any, labels: Any) -> Any:
            p = self.bfloat16(p)
            x = self.lax.with_sharding_constraint(p["embedding"][tokens] + p["positions"], stream)
            for layer in p["layers"]:
                x = block(x, layer)
            return self.entropy(np.einsum("btd,dv->btv", self.root_mean_square(x, p["norm"]), p["head"]), labels)

        state = {name: parameters for name in "pmv"}
        tokens = self.array((batch, length), "data", None, dtype="int32")
        return self.adam(loss), (state, tokens, tokens), (self.specs(state), P())

    def decoding(self) -> Built:
        np, P = self.np, self.P
        layers, width, heads, hidden, words, batch, length = self.layers or 3, 4096, 32, 16384, 32768, 32, 4096
        head = width // heads

        def array(shape: tuple[int, ...], *entries: Any) -> Any:
            return self.array(shape, *entries, dtype="bfloat16")

        layer = {
            "q": array((width, heads, head), None, "model", None),
            "k": array((width, 1, head)),
            "v": array((width, 1, head)),
            "mixed": array((heads, head, width), "model", None, None),
            "up": array((width, hidden), None, "model"),
            "down": array((hidden, width), "model", None),
            "norm1": self.array((width,)),
            "norm2": self.array((width,)),
        }
        parameters = {"embedding": array((words, width), "model", None), "layers": [layer] * layers}
        cache = [{name: array((batch, length, 1, head), "data", "model", None, None) for name in "kv"}] * layers

        def step(parameters: Any, cache: Any, tokens: Any, position: Any) -> Any:
            x, new = parameters["embedding"][tokens], []
            for p, old in zip(parameters["layers"], cache, strict=True):
                h = self.root_mean_square(x, p["norm1"])
                q = np.einsum("bd,dhk->bhk", h, p["q"]).reshape(batch, 1, heads, head)
                here = (0, position, 0, 0)
                k, v = (
                    self.lax.dynamic_update_slice(old[n], np.einsum("bd,dhk->bhk", h, p[n])[:, None], here) for n in "kv"
                )
                scores = np.einsum("bgrk,bsgk->bgrs", q, k).astype(np.float32) * head**-0.5
                scores = self.nn.softmax(np.where(np.arange(length) <= position, scores, -1e9), axis=-1)
                mixed = np.einsum("bgrs,bsgk->bgrk", scores.astype(x.dtype), v).reshape(batch, heads, head)
                x = x + np.einsum("bhk,hkd->bd", mixed, p["mixed"])
                x = x + np.dot(self.nn.gelu(np.dot(self.root_mean_square(x, p["norm2"]), p["up"])), p["down"])
                new.append({"k": k, "v": v})
            words = np.argmax(np.einsum("bd,vd->bv", x, parameters["embedding"]), axis=-1).astype(np.int32)
            return new, words, position + 1

        arguments = (
            parameters,
            cache,
            self.array((batch,), "data", dtype="int32"),
            self.array((), dtype="int32"),
        )
        return step, arguments, (self.specs(cache), P("data"), P())

    # -- compiling

    def specs(self, tree: Any) -> Any:
        return mapped(lambda leaf: leaf[2], tree)

    def compiled(self, name: str) -> Any:
        function, arguments, results = self.all()[name]()
        place = lambda spec: self.sharding.NamedSharding(self.mesh, spec)  # noqa: E731
        types = mapped(lambda leaf: self.fw.ShapeDtypeStruct(leaf[0], getattr(self.np, leaf[1])), arguments)
        out = self.fw.tree_util.tree_map(place, results, is_leaf=lambda x: isinstance(x, self.P))
        jitted = self.fw.jit(
            function, in_shardings=mapped(lambda leaf: place(leaf[2]), arguments), out_shardings=out
        )
        return jitted.lower(*types).compile()


def mapped(f: Callable[[Any], Any], tree: Any) -> Any:
    """Over trees whose leaves are (shape, dtype, spec)."""
    if isinstance(tree, dict):
        return {key: mapped(f, x) for key, x in tree.items()}
    if isinstance(tree, list):
        return [mapped(f, x) for x in tree]
    is_leaf = len(tree) == 3 and isinstance(tree[1], str)
    return f(tree) if is_leaf else tuple(mapped(f, x) for x in tree)


def measured(framework: str, name: str, layers: int | None, folder: str | None) -> dict[str, float]:
    """In this process, of one program: MB of temporary memory, the estimate in ms, millions of cycles."""
    compiled = Programs(framework, layers).compiled(name)
    text = compiled.as_text()
    if folder:
        Path(folder, f"{name}.{framework}.txt").write_text(text)
    cycles = sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', text)))
    memory, cost = (x[0] if isinstance(x, list) else x for x in (compiled.memory_analysis(), compiled.cost_analysis()))
    return {"temp": memory.temp_size_in_bytes / 1e6, "ms": cost["optimal_seconds"] % 1 * 1e3, "cycles": cycles / 1e6}


def in_process(python: str, framework: str, name: str, layers: int | None, folder: str | None) -> dict[str, float]:
    """The same in a process of its own."""
    size = ["--layers", str(layers)] if layers else []
    text = ["--text", folder] if folder else []
    command = [python, __file__, name, "--framework", framework, *size, *text]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT | os.environ)
    return json.loads(run.stdout.splitlines()[-1])


NAMES = (
    *("vit-columns", "vit-rows", "vit-replicated", "vit-fsdp", "vit-mean-columns", "vit-mean-replicated"),
    *("conv-batch-height", "conv-height", "decode-sequence", "gpt-sequence"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[""], help="what names of programs begin with")
    parser.add_argument("--jax", metavar="PYTHON", help="a Python that has JAX and libtpu, to compile beside it")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--text", metavar="DIR", help="where to write the compiled text")
    parser.add_argument("--framework", help="in this process, one program, as JSON")
    given = parser.parse_args()
    if given.framework:
        print(json.dumps(measured(given.framework, given.names[0], given.layers, given.text)))
        return
    columns = "".join(f"{name:>10}{'JAX':>10}{'ratio':>7}" for name in ("temp MB", "ms", "M cycles"))
    print(f"{'program':20}{columns}")
    for name in (name for name in NAMES if name.startswith(tuple(given.names))):
        ours = in_process(sys.executable, "meshjit", name, given.layers, given.text)
        theirs = in_process(given.jax, "jax", name, given.layers, given.text) if given.jax else None
        columns = (
            f"{ours[k]:10.4g}" + (f"{theirs[k]:10.4g}{ours[k] / theirs[k]:7.2f}" if theirs else 17 * " ") for k in ours
        )
        print(f"{name:20}{''.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
