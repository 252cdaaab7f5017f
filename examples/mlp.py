"""A multilayer perceptron that learns a function of two numbers, on a mesh: batches over "data", hidden units over "model".

    python examples/mlp.py
"""

import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")


import meshjit as jax
import meshjit.numpy as jnp
from meshjit.sharding import NamedSharding, PartitionSpec as P

MESH = jax.make_mesh((4, 2), ("data", "model"))
SPECS = {"in": P(None, "model"), "bias": P("model"), "out": P("model", None)}  # who holds which hidden units


def initial(key, hidden=256):
    first, second = jax.random.split(key)
    params = {
        "in": jax.random.normal(first, (2, hidden)),
        "bias": jnp.zeros(hidden),
        "out": jax.random.normal(second, (hidden, 1)) / hidden**0.5,
    }
    return {name: jax.device_put(value, NamedSharding(MESH, SPECS[name])) for name, value in params.items()}


def predict(params, x):
    return jnp.tanh(x @ params["in"] + params["bias"]) @ params["out"]


def loss(params, x, y):
    return ((predict(params, x) - y) ** 2).mean()


@jax.jit
def step(params, key):
    x = jax.random.uniform(key, (1000, 2), minval=-1, maxval=1)  # rows over "data"; 1000 need not divide
    x = jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P("data", None)))
    y = jnp.sin(3 * x[:, :1]) * x[:, 1:]
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.02 * g, params, gradients), value


if __name__ == "__main__":
    params = initial(jax.random.key(0))
    for number, key in enumerate(jax.random.split(jax.random.key(1), 101)):
        params, value = step(params, key)
        if number % 25 == 0:
            print(f"step {number}: loss {float(value):.4f}")
    print(params["in"].sharding.spec, params["out"].sharding.spec)
    print(step.lower(params, key).report().headline)
