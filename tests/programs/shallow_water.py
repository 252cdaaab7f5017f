"""Shallow water on a periodic grid, sharded in space; a spectral Poisson solve for the stream function; adjoint of the initial state."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec


class State(NamedTuple):
    h: jax.Array
    u: jax.Array
    v: jax.Array


G, DX, DT = 9.81, 1.0, 0.02
mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), axis_names=("y", "x"))
grid = NamedSharding(mesh, PartitionSpec("y", "x"))


def ddx(f):
    return (jnp.roll(f, -1, axis=1) - jnp.roll(f, 1, axis=1)) / (2 * DX)


def ddy(f):
    return (jnp.roll(f, -1, axis=0) - jnp.roll(f, 1, axis=0)) / (2 * DX)


def tendencies(s: State) -> State:
    return State(
        h=-(ddx(s.h * s.u) + ddy(s.h * s.v)),
        u=-(s.u * ddx(s.u) + s.v * ddy(s.u)) - G * ddx(s.h),
        v=-(s.u * ddx(s.v) + s.v * ddy(s.v)) - G * ddy(s.h),
    )


def rk4(s: State, _=None):
    add = lambda a, b, c: jax.tree.map(lambda x, y: x + c * y, a, b)
    k1 = tendencies(s)
    k2 = tendencies(add(s, k1, DT / 2))
    k3 = tendencies(add(s, k2, DT / 2))
    k4 = tendencies(add(s, k3, DT))
    new = jax.tree.map(lambda x, a, b, c, d: x + DT / 6 * (a + 2 * b + 2 * c + d), s, k1, k2, k3, k4)
    return new, {"mass": new.h.sum(), "energy": 0.5 * (new.h * (new.u**2 + new.v**2) + G * new.h**2).sum()}


@jax.jit
def simulate(s: State):
    return jax.lax.scan(rk4, s, length=40)


@jax.jit
def stream_function(s: State):
    vorticity = ddx(s.v) - ddy(s.u)
    ky, kx = jnp.meshgrid(jnp.fft.fftfreq(vorticity.shape[0]), jnp.fft.rfftfreq(vorticity.shape[1]), indexing="ij")
    k2 = (2 * jnp.pi) ** 2 * (kx**2 + ky**2)
    psi = jnp.fft.rfft2(vorticity) / jnp.where(k2 == 0, 1.0, -k2)
    return jnp.fft.irfft2(psi.at[0, 0].set(0.0), s=vorticity.shape)


def main():
    y, x = jnp.mgrid[0:64, 0:32]
    h = 1.0 + 0.1 * jnp.exp(-((x - 12.0) ** 2 + (y - 30.0) ** 2) / 20.0)
    s = jax.device_put(State(h, jnp.zeros_like(h), 0.01 * jnp.sin(2 * jnp.pi * x / 32)), grid)
    final, history = simulate(s)
    print("mass", history["mass"][::13], "energy", history["energy"][::13])
    print("final", final.h.sharding.spec, float(final.h.max()), float(jnp.abs(final.u).max()))
    psi = stream_function(final)
    print("psi", float(psi.std()), psi.shape)
    target = final.h
    misfit = jax.jit(lambda s: jnp.mean((simulate(s)[0].h - target) ** 2))
    sensitivity = jax.grad(misfit)(s._replace(h=jnp.ones_like(h)))
    print("adjoint", *(f"{float(jnp.linalg.norm(f)):.4g}" for f in sensitivity), sensitivity.h.shape)


main()
