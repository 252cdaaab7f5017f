"""A small convolutional network that tells disks from squares. Images are sharded by row: convolutions exchange borders.

    python examples/vision.py
"""

import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")

import numpy as np

import meshjit as jax
import meshjit.numpy as jnp
from meshjit.sharding import NamedSharding, PartitionSpec as P

MESH = jax.make_mesh((2, 4), ("data", "rows"))
IMAGES = NamedSharding(MESH, P("data", "rows"))


def images(seed, count=64, size=30):
    """Noisy images and what they show: 1 for a disk, 0 for a square. 30 rows over 4 devices: 8, 8, 8 and 6."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    is_disk = random.integers(2, size=count)
    center, radius = random.uniform(10, size - 10, size=(2, count, 1, 1)), random.uniform(5, 8, size=(count, 1, 1))
    distance_y, distance_x = abs(y - center[0]), abs(x - center[1])
    disk = distance_y**2 + distance_x**2 < radius**2
    square = np.maximum(distance_y, distance_x) < radius * 0.89  # of the same area
    shape = np.where(is_disk[:, None, None], disk, square) + random.normal(size=(count, size, size)) * 0.2
    return jax.device_put(shape.astype(np.float32)[..., None], IMAGES), jnp.array(is_disk, jnp.float32)


def initial(key):
    keys = jax.random.split(key, 3)
    normal = jax.nn.initializers.he_normal(in_axis=(0, 1, 2))
    return {
        "first": normal(keys[0], (5, 5, 1, 8)), "second": normal(keys[1], (3, 3, 8, 16)),
        "head": jax.random.normal(keys[2], (16,)) * 0.1, "bias": jnp.zeros(()),
    }  # fmt: skip


def convolved(x, kernel, stride):
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def logits(params, x):
    x = jax.nn.relu(convolved(x, params["first"], 2))
    x = jax.nn.relu(convolved(x, params["second"], 2))
    return x.max(axis=(1, 2)) @ params["head"] + params["bias"]


def loss(params, x, y):
    z = logits(params, x)
    return (jnp.maximum(z, 0) - z * y + jnp.log1p(jnp.exp(-abs(z)))).mean()


@jax.jit
def step(params, momentum, x, y):
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return jax.tree.map(lambda p, m: p - 0.03 * m, params, momentum), momentum, value


if __name__ == "__main__":
    params = initial(jax.random.key(0))
    momentum = jax.tree.map(jnp.zeros_like, params)
    for number in range(121):
        params, momentum, value = step(params, momentum, *images(number))
        if number % 40 == 0:
            print(f"step {number}: loss {float(value):.3f}")
    x, y = images(10_000, 256)
    print(f"right: {float(((jax.jit(logits)(params, x) > 0) == y).mean()):.0%} of 256 new images")
    print(step.lower(params, momentum, x, y).report().headline)
