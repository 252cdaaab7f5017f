"""Steps of simulations and solvers: flows, grids, qubits, particles, transport. `models.py` says for what."""

from __future__ import annotations

from typing import Any

import numpy as np
from annotated import BOTH, I32, Arg


def turbulence(fw: Any, large: bool) -> Any:
    """A step of a pseudo-spectral flow in three dims: products in space, derivatives among the waves."""
    n = 512 if large else 16

    def step(u: Any) -> Any:
        k = fw.np.fft.fftfreq(n) * n
        waves = (k[:, None, None], k[:, None], k)
        square = sum(w * w for w in waves)
        hat = fw.np.fft.fftn(u, axes=(1, 2, 3))
        curl = [1j * (waves[(i + 1) % 3] * hat[(i + 2) % 3] - waves[(i + 2) % 3] * hat[(i + 1) % 3]) for i in range(3)]
        vorticity = fw.np.fft.ifftn(fw.np.stack(curl), axes=(1, 2, 3)).real
        force = fw.np.fft.fftn(fw.np.cross(u, vorticity, axis=0), axes=(1, 2, 3))
        divergence = sum(waves[i] * force[i] for i in range(3)) / fw.np.maximum(square, 1.0)
        force = fw.np.stack([force[i] - waves[i] * divergence for i in range(3)])
        hat = (hat + 1e-3 * force) * fw.np.exp(-1e-5 * square)
        return fw.np.fft.ifftn(hat, axes=(1, 2, 3)).real

    return step, (Arg((3, n, n, n), None, "data", "model"),)


def multigrid(fw: Any, large: bool) -> Any:
    """A cycle over grids of half the extent each, with Jacobi's iterations on each."""
    n, least = (8192, 64) if large else (64, 8)

    def around(u: Any) -> Any:
        return sum(fw.np.roll(u, s, a) for s in (1, -1) for a in (0, 1))

    def smooth(u: Any, f: Any, h: float) -> Any:
        for _ in range(3):
            u = 0.2 * u + 0.8 * (around(u) + h * h * f) / 4
        return u

    def cycle(u: Any, f: Any, h: float) -> Any:
        u = smooth(u, f, h)
        if u.shape[0] > least:
            rest = f - (4 * u - around(u)) / (h * h)
            half = rest.reshape(u.shape[0] // 2, 2, u.shape[1] // 2, 2).mean((1, 3))
            coarse = cycle(fw.np.zeros_like(half), half, 2 * h)
            u = u + fw.np.repeat(fw.np.repeat(coarse, 2, 0), 2, 1)
        return smooth(u, f, h)

    grid = Arg((n, n), "data", "model")
    return (lambda u, f: cycle(u, f, 1.0 / n)), (grid, grid)


def qubits(fw: Any, large: bool) -> Any:
    """Gates on the register of a quantum computer, as one vector: single ones on every qubit, and pairs of neighbours."""
    count = 30 if large else 8

    def step(state: Any, angles: Any) -> Any:
        for q in range(count):
            c, s = fw.np.cos(angles[q]), fw.np.sin(angles[q])
            parts = state.reshape(2**q, 2, -1)
            first, second = parts[:, 0], parts[:, 1]
            state = fw.np.stack([c * first - 1j * s * second, c * second - 1j * s * first], 1).reshape(-1)
        for q in range(0, count - 1, 2):
            parts = state.reshape(2**q, 2, 2, -1)
            sign = fw.np.array([[1.0, 1.0], [1.0, -1.0]])
            state = (parts * sign[:, :, None]).reshape(-1)
        return state

    return step, (Arg((2**count,), BOTH, dtype=np.complex64), Arg((count,)))


def particles(fw: Any, large: bool) -> Any:
    """Particles in the field that they make: charges added to a grid, a Poisson equation by transforms, a push."""
    count, n = (2**26, 1024) if large else (512, 16)

    def step(state: Any, background: Any) -> Any:
        x, v = state
        cell = fw.np.floor(x).astype(I32) % n
        charge = fw.np.zeros((n, n)).at[cell[:, 0], cell[:, 1]].add(1.0) - background
        k = fw.np.fft.fftfreq(n) * (2 * np.pi)
        square = k[:, None] ** 2 + k[None] ** 2
        potential = fw.np.fft.fft2(charge) / fw.np.where(square == 0, 1.0, square)
        field = fw.np.stack([fw.np.fft.ifft2(-1j * w * potential).real for w in (k[:, None], k[None])], -1)
        v = v + 0.1 * field[cell[:, 0], cell[:, 1]]
        return (fw.np.mod(x + 0.1 * v, n), v), fw.np.sum(v * v)

    each = Arg((count, 2), BOTH)
    return step, ((each, each), Arg((n, n)))


def sinkhorn(fw: Any, large: bool) -> Any:
    """A plan of transport between two clouds of points, by scaling rows and columns in turn."""
    n, m, dims = (65536, 65536, 64) if large else (64, 32, 4)

    def transport(x: Any, y: Any) -> Any:
        cost = (x * x).sum(-1)[:, None] - 2 * x @ y.T + (y * y).sum(-1)

        def iterate(_: Any, pair: Any) -> Any:
            f, g = pair
            f = -fw.nn.logsumexp((g[None] - cost) / 0.1, 1) * 0.1
            return f, -fw.nn.logsumexp((f[:, None] - cost) / 0.1, 0) * 0.1

        f, g = fw.lax.fori_loop(0, 20, iterate, (fw.np.zeros(n), fw.np.zeros(m)))
        return f, fw.np.sum(fw.np.exp((f[:, None] + g - cost) / 0.1) * cost)

    return transport, (Arg((n, dims), BOTH), Arg((m, dims)))
