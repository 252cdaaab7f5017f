"""Ring attention: each device keeps its queries, and keys and values go round by ppermute. Values and gradients, on 8 devices.

    python examples/ring_attention.py
"""

import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")

import numpy as np

import meshjit as jax
import meshjit.numpy as jnp
from meshjit import lax
from meshjit.sharding import PartitionSpec as P

MESH = jax.make_mesh((2, 4), ("data", "seq"))
SPEC = P("data", "seq")


def ring_attention(q, k, v):
    """Of the device's own queries [batch, length, heads, width], over all keys; softmax summed up block by block."""
    size = lax.axis_size("seq")
    ring = [(i, (i + 1) % size) for i in range(size)]

    def step(carry, _):
        k, v, total, high, weight = carry
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        new = jnp.maximum(high, scores.max(-1))
        p, scale = jnp.exp(scores - new[..., None]), jnp.exp(high - new)
        total = total * scale[..., None] + jnp.einsum("bhqk,bkhd->bhqd", p, v)
        k, v = lax.ppermute((k, v), "seq", ring)
        return (k, v, total, new, weight * scale + p.sum(-1)), None

    rows = q[..., 0].swapaxes(1, 2)
    start = (k, v, jnp.zeros_like(q.swapaxes(1, 2)), jnp.full_like(rows, -jnp.inf), jnp.zeros_like(rows))
    (_, _, total, _, weight), _ = lax.scan(step, start, None, length=size)
    return (total / weight[..., None]).swapaxes(1, 2)


attention = jax.shard_map(ring_attention, mesh=MESH, in_specs=(SPEC, SPEC, SPEC), out_specs=SPEC)


def loss(q, k, v):
    return (attention(q, k, v) ** 2).sum()


def program():
    """A function to jit, its arguments, and where they are."""
    arrays = [np.random.default_rng(i).normal(size=(2, 16, 2, 8)).astype(np.float32) for i in range(3)]
    return jax.value_and_grad(loss, (0, 1, 2)), arrays, MESH, [SPEC] * 3


def plain_attention(q, k, v):
    p = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", p, v)


if __name__ == "__main__":
    step, arrays, _, _ = program()
    value, gradients = jax.jit(step)(*arrays)
    print("loss", float(value), "gradients", [float(jnp.abs(g).sum()) for g in gradients])
    whole = jax.grad(lambda *a: (plain_attention(*a) ** 2).sum(), (0, 1, 2))(*arrays)
    print("as on one device", all(np.allclose(a, b, atol=1e-4) for a, b in zip(gradients, whole, strict=True)))
