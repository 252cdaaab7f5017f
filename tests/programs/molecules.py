"""Molecular dynamics: neighbour forces by grad, a safe norm with custom_jvp, vibrations from the Hessian, parameters through a trajectory."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


@jax.custom_jvp
def safe_norm(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(x * x, axis=-1))


@safe_norm.defjvp
def safe_norm_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    r = safe_norm(x)
    return r, jnp.sum(x * dx, -1) / jnp.where(r == 0, 1.0, r)


@jax.custom_jvp
def switch(r, cutoff):
    return jnp.where(r < cutoff, (1 - (r / cutoff) ** 2) ** 2, 0.0)


switch.defjvps(
    lambda dr, out, r, cutoff: jnp.where(r < cutoff, -4 * r / cutoff**2 * (1 - (r / cutoff) ** 2), 0.0) * dr,
    None,
)


def energy(params, positions, box):
    delta = positions[:, None] - positions[None]
    delta = delta - box * jnp.round(delta / box)
    r = safe_norm(delta)
    mask = ~jnp.eye(len(positions), dtype=bool)
    s6 = jnp.where(mask, (params["sigma"] / jnp.where(mask, r, 1.0)) ** 6, 0.0)
    return 0.5 * jnp.sum(4 * params["epsilon"] * (s6**2 - s6) * switch(r, 2.5))


def step(params, state, dt=2e-3, box=5.0):
    x, v, f = state
    v = v + 0.5 * dt * f
    x = (x + dt * v) % box
    f = -jax.grad(energy, argnums=1)(params, x, box)
    return x, v + 0.5 * dt * f, f


@jax.jit
def simulate(params, x, v):
    f = -jax.grad(energy, 1)(params, x, 5.0)
    body = jax.checkpoint(lambda s, _: (step(params, s), energy(params, s[0], 5.0)))
    return jax.lax.scan(body, (x, v, f), None, length=30)


def main():
    rng = np.random.default_rng(5)
    lattice = np.stack(np.meshgrid(*[np.arange(3) * 1.4] * 3), -1).reshape(-1, 3)
    x = jnp.asarray(lattice + 0.02 * rng.normal(size=lattice.shape), dtype=jnp.float32)
    v = jnp.asarray(0.3 * rng.normal(size=x.shape), jnp.float32)
    params = dict(sigma=jnp.float32(1.0), epsilon=jnp.float32(0.7))
    (x1, v1, _), energies = simulate(params, x, v)
    total = energies + 0.0
    print("energy", total[::10], float(jnp.mean(v1**2)))
    g = jax.grad(lambda p: jnp.mean(simulate(p, x, v)[1]))(params)
    print("parameters", {k: round(float(v), 3) for k, v in g.items()})
    few = x[:4]
    h = jax.hessian(lambda flat: energy(params, flat.reshape(-1, 3), 5.0))(few.ravel())
    print("hessian", h.shape, float(jnp.abs(h - h.T).max()) < 1e-3, jnp.linalg.eigvalsh(h)[-3:].round(1))
    batched = jax.vmap(jax.grad(energy, 1), in_axes=(None, 0, None))(params, jnp.stack([x, x1]), 5.0)
    print("batched", batched.shape, float(jnp.linalg.norm(batched)))
    print("at zero", jax.grad(safe_norm)(jnp.zeros(3)), jax.jacfwd(safe_norm)(jnp.ones(3)), jax.jvp(switch, (1.0, 2.5), (1.0, 0.0)))


main()
