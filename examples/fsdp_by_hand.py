"""Fully sharded data parallelism by hand: weights are gathered layer by layer, gradients scattered. Training steps, on 8 devices.

    python examples/fsdp_by_hand.py
"""

import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")

import numpy as np

import meshjit as jax
import meshjit.numpy as jnp
from meshjit import lax
from meshjit.sharding import PartitionSpec as P

MESH = jax.make_mesh((8,), ("data",))


def train(params, x, y):
    """One step: params are the device's rows of each matrix, x and y its examples."""

    def loss(params):
        h = x
        for shard in params:
            h = jnp.tanh(h @ lax.all_gather(shard, "data", tiled=True))  # backwards a psum_scatter
        return lax.pmean(((h - y) ** 2).mean(), "data")

    value, gradients = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - 0.5 * g, params, gradients)


step = jax.shard_map(train, mesh=MESH, in_specs=(P("data"), P("data"), P("data")), out_specs=(P(), P("data")))


def program():
    """A function to jit, its arguments, and where they are."""
    random = np.random.default_rng(0)
    params = [(random.normal(size=(16, 16)) / 4).astype(np.float32) for _ in range(3)]
    x, y = (random.normal(size=(32, 16)).astype(np.float32) for _ in range(2))
    return step, [params, x, y], MESH, [[P("data")] * 3, P("data"), P("data")]


if __name__ == "__main__":
    _, (params, x, y), _, _ = program()
    for _ in range(5):
        value, params = jax.jit(step)(params, x, y)
        print("loss", float(value))
