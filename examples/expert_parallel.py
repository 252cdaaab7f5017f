"""A mixture of experts, one per device: tokens go to their experts and back by all_to_all. Values and gradients, on 8 devices.

    python examples/expert_parallel.py
"""

import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")

import numpy as np

import meshjit as jax
import meshjit.numpy as jnp
from meshjit import lax
from meshjit.sharding import PartitionSpec as P

MESH = jax.make_mesh((8,), ("expert",))
CAPACITY = 4  # tokens that a device may send to one expert


def mixture(x, router, w):
    """x: the device's tokens [tokens, width]; w: its expert [1, width, width]."""
    experts = lax.axis_size("expert")
    gates = jax.nn.softmax(x @ router)
    choice = gates.argmax(-1)
    mask = jax.nn.one_hot(choice, experts)
    place = (jnp.cumsum(mask, axis=0) * mask).sum(-1) - 1
    slot = mask[:, :, None] * jax.nn.one_hot(place.astype(int), CAPACITY)[:, None, :]  # [tokens, experts, capacity]
    sent = jnp.einsum("tec,td->ecd", slot, x)
    mine = lax.all_to_all(sent, "expert", 0, 1, tiled=True)  # [1, experts * capacity, width]
    back = lax.all_to_all(jnp.tanh(mine @ w), "expert", 1, 0, tiled=True)
    return jnp.einsum("tec,ecd->td", slot, back) * (gates * mask).sum(-1, keepdims=True)


layer = jax.shard_map(mixture, mesh=MESH, in_specs=(P("expert"), P(), P("expert")), out_specs=P("expert"))


def loss(x, router, w):
    return (layer(x, router, w) ** 2).sum()


def program():
    """A function to jit, its arguments, and where they are."""
    random = np.random.default_rng(0)
    shapes = (64, 16), (16, 8), (8, 16, 16)
    arrays = [random.normal(size=s).astype(np.float32) for s in shapes]
    return jax.value_and_grad(loss, (0, 1, 2)), arrays, MESH, [P("expert"), P(), P("expert")]


if __name__ == "__main__":
    step, arrays, _, _ = program()
    value, gradients = jax.jit(step)(*arrays)
    print("loss", float(value), "gradients", [float(jnp.abs(g).sum()) for g in gradients])
