"""A pipeline: each device is one stage, and microbatches go from stage to stage by ppermute. Values and gradients, on 8 devices.

    python examples/pipeline.py
"""

import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")

import numpy as np

import meshjit as jax
import meshjit.numpy as jnp
from meshjit import lax
from meshjit.sharding import PartitionSpec as P

MESH = jax.make_mesh((8,), ("stage",))


def stages(w, x):
    """w: the stage's weights [1, width, width]; x: all microbatches [count, rows, width], which the first stage reads."""
    size, me, count = lax.axis_size("stage"), lax.axis_index("stage"), x.shape[0]
    onwards = [(i, i + 1) for i in range(size - 1)]

    def tick(here, t):
        given = x[jnp.clip(t, 0, count - 1)]
        out = jnp.tanh(jnp.where(me == 0, given, here) @ w[0])
        return lax.ppermute(out, "stage", onwards), out

    idle = lax.pcast(jnp.zeros_like(x[0]), "stage", to="varying")
    _, outs = lax.scan(tick, idle, jnp.arange(count + size - 1))
    last = jnp.where(me == size - 1, outs[size - 1 :], 0)
    return lax.psum(last, "stage")


pipeline = jax.shard_map(stages, mesh=MESH, in_specs=(P("stage"), P()), out_specs=P())


def loss(w, x):
    return (pipeline(w, x) ** 2).mean()


def program():
    """A function to jit, its arguments, and where they are."""
    random = np.random.default_rng(0)
    w = (random.normal(size=(8, 16, 16)) / 4).astype(np.float32)
    return jax.value_and_grad(loss), [w, random.normal(size=(4, 2, 16)).astype(np.float32)], MESH, [P("stage"), P()]


if __name__ == "__main__":
    step, (w, x), _, _ = program()
    value, gradient = jax.jit(step)(w, x)
    print("loss", float(value), "gradient", float(jnp.abs(gradient).sum()))
    for stage in w:
        x = np.tanh(x @ stage)
    print("as on one device", bool(np.allclose(value, (x**2).mean(), rtol=1e-5)))
