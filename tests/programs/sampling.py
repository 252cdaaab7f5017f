"""Hamiltonian Monte Carlo with adaptation: chains in vmap, loops in loops, distributions of jax.scipy.stats."""

from collections import namedtuple
from functools import partial

import jax
import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np
from jax import lax, random

Info = namedtuple("Info", ["accepted", "energy"])


def make_log_density(x, y):
    def log_density(theta):
        w, log_sigma = theta["w"], theta["log_sigma"]
        prior = stats.norm.logpdf(w, 0.0, 2.0).sum() + stats.norm.logpdf(log_sigma, scale=1.0)
        return prior + stats.norm.logpdf(y, x @ w, jnp.exp(log_sigma)).sum()

    return log_density


def leapfrog(log_density, theta, momentum, eps, steps):
    gradient = jax.grad(log_density)
    half = lambda t, m, e: jax.tree.map(lambda m, g: m + 0.5 * e * g, m, gradient(t))

    def body(_, state):
        theta, momentum = state
        momentum = half(theta, momentum, eps)
        theta = jax.tree.map(lambda t, m: t + eps * m, theta, momentum)
        return theta, half(theta, momentum, eps)

    return lax.fori_loop(0, steps, body, (theta, momentum))


def hmc_step(log_density, key, theta, eps, steps=8):
    kick, accept = random.split(key)
    leaves, treedef = jax.tree.flatten(theta)
    momentum = treedef.unflatten([random.normal(k, x.shape, x.dtype) for k, x in zip(random.split(kick, len(leaves)), leaves)])
    energy = lambda t, m: -log_density(t) + 0.5 * sum(jnp.vdot(p, p) for p in jax.tree.leaves(m))
    new, new_momentum = leapfrog(log_density, theta, momentum, eps, steps)
    delta = energy(theta, momentum) - energy(new, new_momentum)
    accepted = jnp.log(random.uniform(accept)) < delta
    return lax.cond(accepted, lambda: new, lambda: theta), Info(accepted, jnp.minimum(1.0, jnp.exp(delta)))


@partial(jax.jit, static_argnums=(0, 3))
def chain(log_density, key, theta, samples):
    def warm(carry, key):
        theta, log_eps = carry
        theta, info = hmc_step(log_density, key, theta, jnp.exp(log_eps))
        return (theta, log_eps + 0.1 * (info.energy - 0.8)), None

    def draw(theta, key):
        theta, info = hmc_step(log_density, key, theta, eps)
        return theta, (theta, info)

    k1, k2 = random.split(key)
    (theta, log_eps), _ = lax.scan(warm, (theta, jnp.log(0.01)), random.split(k1, 60))
    eps = jnp.exp(log_eps)
    _, (draws, info) = lax.scan(draw, theta, random.split(k2, samples))
    return draws, info, eps


def main():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(50, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5]) + 0.3 * rng.normal(size=50)).astype(np.float32)
    log_density = make_log_density(x, y)
    start = {"w": jnp.zeros((4, 3)), "log_sigma": jnp.zeros(4)}
    run = jax.vmap(chain, in_axes=(None, 0, 0, None))
    draws, info, eps = run(log_density, random.split(random.key(0), 4), start, 100)
    print("w", draws["w"].mean((0, 1)).round(1), draws["w"].shape)
    print("sigma", np.exp(draws["log_sigma"]).mean().round(1))
    print("healthy", bool(info.accepted.mean() > 0.5), bool((eps > 0.001).all()))

    bounds, position = [], jnp.array([-1.5, 2.0])
    f = lambda p: (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
    rate = 1e-3
    for _ in range(5):  # a line search in Python, on values
        value, g = jax.value_and_grad(f)(position)
        while f(position - rate * g) > value:
            rate /= 2
        position = position - rate * g
        bounds.append(float(value))
    print("descent", bounds, position)
    metropolis = lax.while_loop(lambda s: s[1] < 10, lambda s: (random.split(s[0])[0], s[1] + 1), (random.key(5), 0))
    print("loop", metropolis[1], jnp.issubdtype(metropolis[0].dtype, jax.dtypes.prng_key))


main()
