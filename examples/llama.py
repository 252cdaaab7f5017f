"""A decoder as Llama is built (RMSNorm, rotary positions, grouped queries, SwiGLU), trained with FSDP and tensor parallelism.

    python examples/llama.py

Weights are stored over both axes of the mesh. Each matrix names one dim for "tensor", of which the matrix product keeps its
share, and one for "fsdp", along which it is gathered before use, layer by layer. docs/sharding.md goes through these lines.
"""

import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")

import dataclasses

import numpy as np

import meshjit as jax
import meshjit.numpy as jnp
from meshjit.sharding import NamedSharding, PartitionSpec as P

MESH = jax.make_mesh((4, 2), ("fsdp", "tensor"))


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int = 2
    width: int = 64
    heads: int = 4
    groups: int = 2  # heads of keys and values
    hidden: int = 128
    words: int = 64


WEIGHTS = {  # the dims of a layer's matrices, the stacked layers before them
    "q": P(None, "fsdp", "tensor", None),
    "k": P(None, "fsdp", "tensor", None),
    "v": P(None, "fsdp", "tensor", None),
    "o": P(None, "tensor", None, "fsdp"),
    "gate": P(None, "fsdp", "tensor"),
    "up": P(None, "fsdp", "tensor"),
    "down": P(None, "tensor", "fsdp"),
    "norm1": P(None, None),
    "norm2": P(None, None),
}
RESIDUAL = NamedSharding(MESH, P("fsdp", None, None))  # rows over "fsdp", whole vectors on each device of "tensor"


def initial(config, seed=0):
    random = np.random.default_rng(seed)
    size = config.width // config.heads
    shapes = {
        "q": (config.width, config.heads, size),
        "k": (config.width, config.groups, size), "v": (config.width, config.groups, size),
        "o": (config.heads, size, config.width), "gate": (config.width, config.hidden), "up": (config.width, config.hidden),
        "down": (config.hidden, config.width), "norm1": (config.width,), "norm2": (config.width,),
    }  # fmt: skip
    layers = {name: _weights(random, (config.layers, *shape), WEIGHTS[name], "norm" in name) for name, shape in shapes.items()}
    embedding = _weights(random, (config.words, config.width), P("tensor", "fsdp"))
    return {"layers": layers, "embedding": embedding, "norm": _weights(random, (config.width,), P(None), True)}


def _weights(random, shape, spec, ones=False):
    values = np.ones(shape) if ones else random.normal(size=shape) * 0.05
    return jax.device_put(values.astype(np.float32), NamedSharding(MESH, spec))


def normalized(x, scale):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def rotated(x):
    """Rotary positions: pairs of features turn by an angle that grows with the place."""
    length, size = x.shape[1], x.shape[-1]
    angles = jnp.arange(length)[:, None] / 10000 ** (jnp.arange(size // 2) / (size // 2))
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def layer(x, w):
    h = normalized(x, w["norm1"])
    q, k, v = (jnp.einsum("btd,dhs->bths", h, w[name]) for name in "qkv")
    mixed = jax.nn.dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
    x = jax.lax.with_sharding_constraint(x + jnp.einsum("bths,hsd->btd", mixed, w["o"]), RESIDUAL)
    h = normalized(x, w["norm2"])
    x = x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
    return jax.lax.with_sharding_constraint(x, RESIDUAL), None


def loss(params, words):
    x = jax.lax.with_sharding_constraint(params["embedding"][words[:, :-1]], RESIDUAL)
    x, _ = jax.lax.scan(jax.checkpoint(layer), x, params["layers"])
    logits = normalized(x, params["norm"]) @ params["embedding"].T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), words[:, 1:, None], axis=-1).mean()


@jax.jit
def step(params, words):
    value, gradients = jax.value_and_grad(loss)(params, words)
    return jax.tree.map(lambda p, g: p - 0.5 * g, params, gradients), value


def batch(seed, rows=16, length=33, words=64):
    """Sequences in which each word is the last one plus a step of the row's own."""
    random = np.random.default_rng(seed)
    first, stride = random.integers(words, size=(rows, 1)), random.integers(1, 4, size=(rows, 1))
    return jax.device_put((first + stride * np.arange(length)) % words, NamedSharding(MESH, P("fsdp", None)))


if __name__ == "__main__":
    params = initial(Config())
    for number in range(61):
        params, value = step(params, batch(number))
        if number % 20 == 0:
            print(f"step {number}: loss {float(value):.3f}")
    print("gate is stored as", params["layers"]["gate"].sharding.spec)
    report = step.lower(params, batch(0)).report()
    print(report.headline)
    for total in report.totals("axis"):
        print(f"  over {total.name}: {total.wire_bytes / 1e3:.0f} kB")
