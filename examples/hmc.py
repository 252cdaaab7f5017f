"""Hamiltonian Monte Carlo: 64 chains on 8 devices sample the posterior of a logistic regression.

    python examples/hmc.py

Neal, "MCMC using Hamiltonian dynamics", 2011. Chains are sharded, data is on every device: no step sends anything.
"""

import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")

import numpy as np

import meshjit as jax
import meshjit.numpy as jnp
from meshjit.sharding import NamedSharding, PartitionSpec as P

MESH = jax.make_mesh((8,), ("chains",))
CHAINS = NamedSharding(MESH, P("chains"))
TRUE = np.array([1.0, -2.0, 0.5], np.float32)


def data(count=500):
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 3)).astype(np.float32)
    return x, (random.uniform(size=count) < 1 / (1 + np.exp(-x @ TRUE))).astype(np.float32)


X, Y = data()


def log_posterior(w):
    """Under a normal prior with standard deviation 2."""
    z = X @ w
    return (Y * z - jnp.logaddexp(0.0, z)).sum() - (w @ w) / 8


def moved(w, p, size, steps):
    """The leapfrog scheme."""
    slope = jax.grad(log_posterior)

    def leap(state, _):
        w, p = state
        w = w + size * p
        return (w, p + size * slope(w)), None

    p = p + 0.5 * size * slope(w)
    (w, p), _ = jax.lax.scan(leap, (w, p), None, length=steps)
    return w, p - 0.5 * size * slope(w)


def transition(w, key, size=0.1, steps=10):
    first, second = jax.random.split(key)
    p = jax.random.normal(first, w.shape)
    new, momentum = moved(w, p, size, steps)
    gain = log_posterior(new) - log_posterior(w) - 0.5 * (momentum @ momentum - p @ p)
    is_taken = jnp.log(jax.random.uniform(second)) < gain
    return jnp.where(is_taken, new, w), is_taken


@jax.jit
def run(w, key, draws=200):
    """Positions f32[draws, chains, 3], and which were moves."""

    def draw(w, key):
        keys = jax.lax.with_sharding_constraint(jax.random.split(key, w.shape[0]), CHAINS)
        w, is_taken = jax.vmap(transition)(w, keys)
        return w, (w, is_taken)

    return jax.lax.scan(draw, w, jax.random.split(key, draws))[1]


if __name__ == "__main__":
    start = jax.device_put(np.zeros((64, 3), np.float32), CHAINS)
    draws, is_taken = run(start, jax.random.key(0))
    draws = draws[50:]
    between, within = draws.mean(0).var(0), draws.var(0).mean(0)
    print(f"taken: {float(is_taken.mean()):.0%}, chains agree to {float(jnp.sqrt(1 + between / within).max()):.3f} (1 is equal)")
    for name, mean, deviation in zip("abc", draws.mean((0, 1)), draws.std((0, 1)), strict=True):
        print(f"{name}: {float(mean):.2f} +- {float(deviation):.2f}")
    print("with which the data was made:", *TRUE)
    print("draws are placed as", draws.sharding.spec)
    print(run.lower(start, jax.random.key(0)).report().headline)
