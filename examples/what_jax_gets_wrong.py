"""Programs whose results depend on the placement in JAX, and do not here. Each is run on one device and on 4 x 2.

    python examples/what_jax_gets_wrong.py                    meshjit
    python examples/what_jax_gets_wrong.py --library jax      JAX, where it is installed

`tests/test_known_failures.py` has others, with the reports that they come from; `examples/shallow_water.py` is a whole program.
"""

import argparse
import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")  # for JAX

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--library", choices=["meshjit", "jax"], default="meshjit")
if parser.parse_args().library == "jax":
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
else:
    import meshjit as jax
    import meshjit.numpy as jnp
    from meshjit.sharding import AxisType, NamedSharding, PartitionSpec as P

MESH = jax.make_mesh((4, 2), ("y", "x"), axis_types=(AxisType.Auto,) * 2)
X = np.random.default_rng(0).integers(-9, 10, (16, 8)).astype(np.float32)  # whole numbers: sums are exact in any order


def the_inside_then_a_border(x):
    x = x.at[1:-1, 1:-1].set(x[2:, 1:-1] - x[:-2, 1:-1])
    return x.at[-1].set(0.0)


def a_difference_then_a_wall(x):
    x = x.at[1:].add(x[:-1])
    return x.at[0].set(0.0)


def a_shift_then_a_copied_border(x):
    x = x.at[:-1].set(x[1:])
    return x.at[0].set(x[1])


def a_shift_then_a_periodic_border(x):
    x = x.at[:, 1:].set(x[:, :-1])
    return x.at[:, 0].set(x[:, -2]).at[:, -1].set(x[:, 1])


def slopes_then_a_copied_border(x):
    x = x.at[:-1].set(x[1:] - x[:-1])
    return x.at[-1].set(x[-2])


def the_inside_added_then_a_border(x):
    x = x.at[1:-1, 1:-1].add(x[1:-1, 2:] - x[1:-1, :-2])
    return x.at[0].set(0.0)


PROGRAMS = (
    the_inside_then_a_border, a_difference_then_a_wall, a_shift_then_a_copied_border, a_shift_then_a_periodic_border,
    slopes_then_a_copied_border, the_inside_added_then_a_border,
)  # fmt: skip


if __name__ == "__main__":
    for program in PROGRAMS:
        one = np.asarray(jax.jit(program)(X))
        many = np.asarray(jax.jit(program)(jax.device_put(X, NamedSharding(MESH, P("y", "x")))))
        wrong = int((one != many).sum())
        apart = f"{wrong} of {one.size} elements differ, by up to {abs(one - many).max():g}" if wrong else "the same"
        print(f"{program.__name__.replace('_', ' ')}: {apart}")
    for rows in (16, 15):
        try:
            placed = jax.device_put(X[:rows], NamedSharding(MESH, P("y", "x")))
            print(f"{rows} rows over 4 devices: sum {float(jax.jit(jnp.sum)(placed)):g}, it is {X[:rows].sum():g}")
        except ValueError as error:
            print(f"{rows} rows over 4 devices: {type(error).__name__}")
