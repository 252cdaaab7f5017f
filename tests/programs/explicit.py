"""Shardings in types: set_mesh, typeof, out_sharding, reshard, a training step whose placements are stated and checked."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec as P, auto_axes, reshard

mesh = jax.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit, AxisType.Explicit))
jax.set_mesh(mesh)


def describe(name, x):
    print(name, jax.typeof(x).str_short(short_dtypes=True))


@jax.jit
def add_rows(x, row):
    describe("traced", x)
    out = x + row
    describe("sum", out)
    return out.T


def main():
    x = reshard(np.arange(32.0, dtype=np.float32).reshape(8, 4), P("X", "Y"))
    row = reshard(np.ones((1, 4), np.float32), P(None, "Y"))
    describe("argument", x)
    describe("result", add_rows(x, row))
    a = jax.device_put(np.ones((8, 16), np.float32), P("X", None))
    w = jax.device_put(np.full((16, 12), 0.05, np.float32), P(None, "Y"))
    describe("matmul", a @ w)
    describe("contracted", jnp.einsum("ij,jk->ik", reshard(a, P(None, "Y")), reshard(w, P("Y", None)), out_sharding=P("X", None)))
    describe("reduced", jnp.sum(a @ w, axis=1))
    describe("reshaped", x.reshape(2, 4, 4, out_sharding=P("X", None, "Y")))
    describe("new", jnp.zeros((4, 8), out_sharding=P("Y")))
    for f in (lambda: x + reshard(x, P("Y", "X")), lambda: reshard(a, P(None, "Y")) @ reshard(w, P("Y", None))):
        try:
            f()
        except Exception as error:
            print("refused", type(error).__name__ in ("ShardingTypeError", "ValueError", "TypeError", "ShardingError"))

    @auto_axes
    def shuffled(x):
        return x.reshape(4, 8)[::-1]

    describe("auto", shuffled(x, out_sharding=P("X", None)))

    def loss(w, a):
        return jnp.mean(jnp.tanh(a @ w) ** 2)

    value, gradient = jax.jit(jax.value_and_grad(loss))(w, a)
    describe("loss", value)
    describe("gradient", gradient)
    print("values", float(value), float(gradient.sum()), gradient.sharding == w.sharding)
    print("mesh", jax.sharding.get_abstract_mesh().axis_names, jax.sharding.get_mesh() == mesh)


main()
