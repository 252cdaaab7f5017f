"""Shallow water on a grid that is periodic in x and closed in y: height and velocities, the same however they are placed.

    python examples/shallow_water.py                     meshjit: on one device, and on 4 x 2
    python examples/shallow_water.py --library jax       the same lines with JAX, where it is installed

The scheme is the usual one on a staggered grid (Arakawa's C grid), forward and backward in time: Sadourny, "The dynamics of
finite-difference models of the shallow-water equations", 1975, without rotation. Lengths in m, times in s.
"""

import argparse
import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")  # for JAX

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--library", choices=["meshjit", "jax"], default="meshjit")
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--grid", default="64,32", help="rows and columns")
options = parser.parse_args()
if options.library == "jax":
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
else:
    import meshjit as jax
    import meshjit.numpy as jnp
    from meshjit.sharding import AxisType, NamedSharding, PartitionSpec as P

GRAVITY, DEPTH, SPACING, TIME_STEP = 9.81, 100.0, 1000.0, 10.0


def step(state, _):
    """u[y, x] flows out of the cell to its right, v[y, x] into it from the row above; above row 0 there is a wall."""
    h, u, v = state
    u = u - TIME_STEP * GRAVITY / SPACING * (jnp.roll(h, -1, axis=1) - h)
    v = v.at[1:].add(-TIME_STEP * GRAVITY / SPACING * (h[1:] - h[:-1]))
    v = v.at[0].set(0.0)  # no water through the wall
    above = jnp.pad(h, ((1, 0), (0, 0)), mode="edge")[:-1]
    flux_u = (DEPTH + 0.5 * (h + jnp.roll(h, -1, axis=1))) * u
    flux_v = (DEPTH + 0.5 * (h + above)) * v
    below = jnp.zeros_like(v).at[:-1].set(flux_v[1:])
    h = h - TIME_STEP / SPACING * (flux_u - jnp.roll(flux_u, 1, axis=1) + below - flux_v)
    return (h, u, v), None


@jax.jit
def run(h, u, v):
    (h, u, v), _ = jax.lax.scan(step, (h, u, v), None, length=options.steps)
    return h, u, v, 0.5 * ((DEPTH + h) * (u**2 + v**2)).mean()


def start(rows, columns):
    y, x = np.mgrid[:rows, :columns]
    h = 5 * np.exp(-((y - rows / 3) ** 2 + (x - columns / 2) ** 2) / (rows / 8) ** 2)
    return [array.astype(np.float32) for array in (h, np.zeros_like(h), np.zeros_like(h))]


if __name__ == "__main__":
    rows, columns = (int(n) for n in options.grid.split(","))
    state = start(rows, columns)
    results = {}
    for shape in ((1, 1), (4, 2)):
        mesh = jax.make_mesh(shape, ("y", "x"), axis_types=(AxisType.Auto,) * 2)
        placed = [jax.device_put(array, NamedSharding(mesh, P("y", "x"))) for array in state]
        h, u, v, energy = results[shape] = run(*placed)
        told = f"kinetic energy after {options.steps} steps {float(energy):.2f} J/m2, water {float(h.mean()):.4f} m"
        print(f"{options.library} on {shape[0]} x {shape[1]}: {told}")
    one, many = ([np.asarray(array) for array in results[shape][:3]] for shape in results)
    is_same = all(np.allclose(x, y, atol=1e-4) for x, y in zip(one, many, strict=True))
    print("heights and velocities are the same on both" if is_same else "heights and velocities differ")
