"""A diffusion model of points in the plane (two rings): noise is learned, then removed step by step.

    python examples/diffusion.py

Ho, Jain, Abbeel, "Denoising diffusion probabilistic models", 2020. Data parallel over 8 devices; each draws its own part
of the noise, and together they draw what one device would.
"""

import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")

import numpy as np

import meshjit as jax
import meshjit.numpy as jnp
from meshjit.sharding import NamedSharding, PartitionSpec as P

MESH = jax.make_mesh((8,), ("data",))
ROWS = NamedSharding(MESH, P("data"))
STEPS = 40
BETAS = jnp.linspace(1e-3, 0.2, STEPS)
KEPT = jnp.cumprod(1 - BETAS)  # of the data's variance, after each step


def rings(key, count):
    angle, inner = jax.random.uniform(key, (count,), maxval=2 * np.pi), jnp.arange(count) % 2
    radius = 1.0 - 0.5 * inner
    return jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle)], axis=-1)


def initial(key, hidden=64):
    keys = jax.random.split(key, 3)
    sizes = [(2 + 16, hidden), (hidden, hidden), (hidden, 2)]
    return [(jax.random.normal(k, s) / s[0] ** 0.5, jnp.zeros(s[1])) for k, s in zip(keys, sizes, strict=True)]


def noise_in(params, x, number):
    """What a network takes for the noise in x after `number` steps."""
    angles = number[:, None] / STEPS * 2.0 ** jnp.arange(8)
    h = jnp.concatenate([x, jnp.sin(angles), jnp.cos(angles)], axis=-1)
    for weights, bias in params[:-1]:
        h = jax.nn.silu(h @ weights + bias)
    weights, bias = params[-1]
    return h @ weights + bias


def loss(params, key, count=1024):
    keys = jax.random.split(key, 3)
    x = jax.lax.with_sharding_constraint(rings(keys[0], count), ROWS)
    number, noise = jax.random.randint(keys[1], (count,), 0, STEPS), jax.random.normal(keys[2], (count, 2))
    kept = KEPT[number][:, None]
    return ((noise_in(params, kept**0.5 * x + (1 - kept) ** 0.5 * noise, number) - noise) ** 2).mean()


@jax.jit
def step(params, moments, number, key):
    """Adam."""
    value, gradients = jax.value_and_grad(loss)(params, key)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
    second = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g * g, moments[1], gradients)
    scale = 3e-3 * (1 - 0.99**number) ** 0.5 / (1 - 0.9**number)
    params = jax.tree.map(lambda p, m, v: p - scale * m / (v**0.5 + 1e-8), params, first, second)
    return params, (first, second), value


@jax.jit
def samples(params, key, count=2048):
    def denoised(x, inputs):
        number, key = inputs
        noise = noise_in(params, x, jnp.full(count, number))
        x = (x - BETAS[number] / (1 - KEPT[number]) ** 0.5 * noise) / (1 - BETAS[number]) ** 0.5
        return x + jnp.where(number > 0, BETAS[number] ** 0.5, 0.0) * jax.random.normal(key, x.shape), None

    first, rest = jax.random.split(key)
    x = jax.lax.with_sharding_constraint(jax.random.normal(first, (count, 2)), ROWS)
    return jax.lax.scan(denoised, x, (jnp.arange(STEPS)[::-1], jax.random.split(rest, STEPS)))[0]


if __name__ == "__main__":
    params = initial(jax.random.key(0))
    moments = jax.tree.map(jnp.zeros_like, (params, params))
    for number, key in enumerate(jax.random.split(jax.random.key(1), 201), start=1):
        params, moments, value = step(params, moments, float(number), key)
        if number % 50 == 1:
            print(f"step {number - 1}: loss {float(value):.2f}")
    points, noise = samples(params, jax.random.key(2)), jax.random.normal(jax.random.key(3), (2048, 2))
    for name, x in (("samples", points), ("noise", noise), ("data", rings(jax.random.key(4), 2048))):
        radius = jnp.hypot(*x.T)
        distance = jnp.minimum(abs(radius - 1.0), abs(radius - 0.5))
        print(f"{name} are {float(distance.mean()):.2f} from a ring, {float((distance < 0.15).mean()):.0%} of them within 0.15")
