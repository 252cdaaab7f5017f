"""A language model's training step with too few annotations: what docs/inspect.md makes fast, step by step.

    meshjit inspect --topology v5e:4x4 --mesh data=4,model=4 --example arguments examples/language_model.py:step

`LAYERS` layers of attention and a feed-forward network in bfloat16 on float32 parameters, Adam, a vocabulary of 32,768.
`arguments` gives types and placements alone: nothing here needs devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import nn
from meshjit.sharding import NamedSharding, PartitionSpec as P, get_abstract_mesh

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, BATCH, LENGTH = 4, 1024, 16, 4096, 32768, 64, 512


def norm(x: Any, scale: Any) -> Any:
    wide = x.astype(mnp.float32)
    return (wide * mj.lax.rsqrt(mnp.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def attention(x: Any, layer: Any) -> Any:
    q, k, v = (mnp.einsum("btd,dhk->bthk", x, layer[name]) for name in ("query", "key", "value"))
    scores = mnp.einsum("bshk,bthk->bhst", q, k) / np.sqrt(q.shape[-1])
    weights = nn.softmax(mnp.where(mnp.tri(LENGTH, dtype=bool), scores, -1e9), axis=-1)
    return mnp.einsum("bthk,hkd->btd", mnp.einsum("bhst,bthk->bshk", weights, v), layer["out"])


def feed_forward(x: Any, layer: Any) -> Any:
    return nn.gelu(x @ layer["up"]) @ layer["down"]


def loss(parameters: Any, tokens: Any) -> Any:
    p = mj.tree.map(lambda a: a.astype(mnp.bfloat16), parameters)
    x = p["embedding"][tokens[:, :-1]]
    for layer in p["layers"]:
        x = x + attention(norm(x, layer["norm1"]), layer)
        x = x + feed_forward(norm(x, layer["norm2"]), layer)
    logits = (norm(x, p["norm"]) @ p["embedding"].T).astype(mnp.float32)
    words = nn.log_softmax(logits, axis=-1)
    return -mnp.mean(mnp.take_along_axis(words, tokens[:, 1:, None], axis=-1))


def step(state: Any, tokens: Any) -> Any:
    """One step of Adam: (parameters, mean, square) → the next ones, and the loss."""
    parameters, mean, square = state
    value, slopes = mj.value_and_grad(loss)(parameters, tokens)
    mean = mj.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, slopes)
    square = mj.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, slopes)
    parameters = mj.tree.map(lambda p, m, s: p - 1e-3 * m / (mnp.sqrt(s) + 1e-8), parameters, mean, square)
    return (parameters, mean, square), value


def shapes() -> Any:
    head = WIDTH // HEADS
    layer = {
        "query": (WIDTH, HEADS, head), "key": (WIDTH, HEADS, head), "value": (WIDTH, HEADS, head), "out": (HEADS, head, WIDTH),
        "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH), "norm1": (WIDTH,), "norm2": (WIDTH,),
    }  # fmt: skip
    return {"embedding": (VOCABULARY, WIDTH), "norm": (WIDTH,), "layers": [layer for _ in range(LAYERS)]}


def struct(shape: tuple[int, ...], spec: P, dtype: Any = np.float32) -> Any:
    return mj.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(get_abstract_mesh(), spec))


def arguments() -> Any:
    """What one writes first: the batch is sharded over `data`, nothing else."""
    whole = mj.tree.map(lambda shape: struct(shape, P()), shapes(), is_leaf=lambda x: isinstance(x, tuple))
    return (whole, whole, whole), struct((BATCH, LENGTH + 1), P("data"), np.int32)


SPECS = {
    "query": P("data", "model"), "key": P("data", "model"), "value": P("data", "model"), "out": P("model", None, "data"),
    "up": P("data", "model"), "down": P("model", "data"), "norm1": P(), "norm2": P(),
}  # fmt: skip


def sharded() -> Any:
    """What the guide ends with: parameters sharded over both axes, along heads and hidden units over `model`."""
    kinds = shapes()
    layers = [{name: struct(shape, SPECS[name]) for name, shape in layer.items()} for layer in kinds["layers"]]
    parameters = {
        "embedding": struct(kinds["embedding"], P("model", "data")), "norm": struct(kinds["norm"], P()), "layers": layers
    }  # fmt: skip
    return (parameters, parameters, parameters), struct((BATCH, LENGTH + 1), P("data"), np.int32)
