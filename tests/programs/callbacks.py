"""Host code inside of compiled code: SciPy by pure_callback with a derivative, ordered logging, prints, checks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.experimental import checkify, io_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

log = []


@jax.custom_jvp
def jv(order, z):
    z = jnp.asarray(z)
    shape = jax.ShapeDtypeStruct(jnp.broadcast_shapes(jnp.shape(order), z.shape), z.dtype)
    return jax.pure_callback(lambda o, z: scipy.special.jv(o, z).astype(z.dtype), shape, order, z, vmap_method="broadcast_all")


@jv.defjvp
def jv_jvp(primals, tangents):
    (order, z), (_, dz) = primals, tangents
    return jv(order, z), 0.5 * (jv(order - 1, z) - jv(order + 1, z)) * dz


@jax.jit
def solve(x):
    def body(i, x):
        io_callback(lambda i, r: log.append((int(i), round(float(r), 4))), None, i, jnp.sum(x), ordered=True)
        return 0.5 * (x + 2.0 / x)

    return jax.lax.fori_loop(0, 4, body, x)


@jax.jit
def noisy(x):
    y = jnp.sin(x)
    jax.debug.print("sin({x}) = {y:.3f}", x=x, y=y, ordered=True)
    return jax.lax.cond(y > 0, lambda: jax.debug.callback(log.append, "positive") or y, lambda: -y)


def guarded(x, i):
    checkify.check(jnp.all(x >= 0), "negative: {}", x.min())
    return jnp.log(x)[i]


def main():
    z = jnp.linspace(0.5, 3.0, 6)
    print("bessel", jv(1.0, z).round(4), jax.grad(jv, 1)(2.0, 1.5).round(4), jax.vmap(jax.jit(jax.grad(jv, 1)), (None, 0))(1.0, z).round(4))
    print("root", solve(jnp.float32(1.0)))
    jax.effects_barrier()
    print("log", log)
    noisy(0.5), noisy(-0.5)
    jax.effects_barrier()
    print("log", log[-1])
    for i, x in enumerate(([1.0, 2.0], [-1.0, 2.0])):
        error, value = checkify.checkify(jax.jit(guarded))(jnp.array(x), i)
        print("check", error.get(), value)
    error, _ = checkify.checkify(lambda x: x / jnp.zeros(()), errors=checkify.div_checks)(1.0)
    print("division", (error.get() or "").split(" at ")[0][:16])
    mesh = Mesh(np.array(jax.devices()), ("d",))
    x = jax.device_put(jnp.arange(16.0), NamedSharding(mesh, P("d")))
    total = jax.jit(lambda x: jax.pure_callback(lambda v: np.float32(np.sum(v) + v.size), jax.ShapeDtypeStruct((), jnp.float32), x) * 2)(x)
    print("sharded", total)
    row = io_callback(functools.partial(np.full, (3,), dtype=np.float32), jax.ShapeDtypeStruct((3,), jnp.float32), 7.0)
    print("row", row)


main()
