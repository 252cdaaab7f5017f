"""Python in the middle of programs, as JAX's page on external callbacks has it: pure ones, input and output, debugging."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P


def raising(fun):
    @functools.wraps(fun)
    def call(*args):
        try:
            return fun(*args)
        except Exception as error:  # which
            return type(error).__name__

    return call


# -- pure ones
def host_function(x):
    return np.sin(x).astype(x.dtype)


@jax.jit
def f(x):
    return jax.pure_callback(host_function, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


x = jnp.arange(5.0)
print("pure", f(x))


def batched(method):
    shapes = []

    def host(x, y):
        shapes.append((x.shape, y.shape))
        return x * y

    def one(x, y):
        return jax.pure_callback(host, jax.ShapeDtypeStruct(jnp.broadcast_shapes(x.shape, y.shape), x.dtype), x, y, vmap_method=method)

    result = jax.jit(jax.vmap(one, in_axes=(0, None)))(jnp.arange(6.0).reshape(3, 2), jnp.ones(2))
    jax.effects_barrier()
    return np.asarray(result).tolist(), shapes


for method in ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all"):
    print(method, *batched(method))
print("none", raising(batched)(None))
print("not a method", raising(lambda: jax.pure_callback(host_function, x, x, vmap_method="any"))())
print("gradient", raising(jax.grad(lambda x: f(x).sum()))(x))


@jax.custom_jvp
def with_rule(x):
    return f(x)


with_rule.defjvp(lambda p, t: (with_rule(*p), jnp.cos(p[0]) * t[0]))
print("with a rule", jax.grad(lambda x: with_rule(x).sum())(x), jax.jit(jax.vmap(jax.grad(with_rule)))(x) if False else "")
print("in a scan", jax.lax.scan(lambda c, _: (f(c) + 1, c.sum()), x, None, length=3)[1])
print("in a branch", jax.lax.cond(x.sum() > 0, f, lambda x: x, x))
two = jax.pure_callback(lambda x: (x.sum(), {"n": np.int32(x.size)}), (jax.ShapeDtypeStruct((), x.dtype), {"n": jax.ShapeDtypeStruct((), jnp.int32)}), x)
print("a tree", two[0], two[1]["n"])
print("wrong shape", raising(jax.jit(lambda x: jax.pure_callback(lambda x: x[:2], x, x)))(x) in ("RuntimeError", "JaxRuntimeError", "XlaRuntimeError"))

# -- on a mesh
mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4])
spread = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, P("i")))
print("sharded", jax.jit(f)(spread))
seen = []


def per_device(v):
    def host(v):
        seen.append(v.tolist())
        return v * 2

    return jax.pure_callback(host, jax.ShapeDtypeStruct(v.shape, v.dtype), v)


by_hand = jax.jit(jax.shard_map(per_device, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False))
print("each device", by_hand(spread).block_until_ready())
jax.effects_barrier()
print("saw", sorted(seen))

# -- input and output
generator = np.random.RandomState(0)


def numpy_random(shape):
    return io_callback(lambda: generator.randint(10, size=shape).astype(np.int32), jax.ShapeDtypeStruct(shape, jnp.int32), ordered=True)


@jax.jit
def draws():
    return numpy_random((3,)), numpy_random((3,))


print("drawn", *draws())
log = []


@jax.jit
def logs(x):
    def step(i, c):
        io_callback(lambda i, c: log.append((int(i), float(c))), None, i, c, ordered=True)
        return c + 1

    return jax.lax.fori_loop(0, 4, step, x)


print("last", logs(1.0))
jax.effects_barrier()
print("log", log)
log.clear()
jax.vmap(lambda x: io_callback(lambda x: log.append(float(x)), None, x))(jnp.arange(3.0))
jax.effects_barrier()
print("mapped", sorted(log))
print("mapped in order", raising(jax.vmap(lambda x: io_callback(lambda x: None, None, x, ordered=True)))(jnp.arange(3.0)))
print("gradient of input", raising(jax.grad(lambda x: io_callback(lambda x: x, jax.ShapeDtypeStruct((), jnp.float32), x)))(1.0))

# -- debugging
told = []


@jax.jit
def told_of(x):
    y = jnp.sin(x)
    jax.debug.callback(lambda x, y: told.append((float(x), round(float(y), 4))), x, y)
    return y.sum()


told_of(1.0), jax.grad(told_of)(2.0)
jax.effects_barrier()
print("told", told)
told.clear()
jax.vmap(told_of)(jnp.arange(3.0))
jax.effects_barrier()
print("of members", sorted(told))


@jax.jit
def prints(x):
    jax.debug.print("x = {x}, its sum {:.2f}", x.sum(), x=x)

    def body(i, c):
        jax.debug.print("step {i} of {c}", i=i, c=c, ordered=True)
        return c * 2

    return jax.lax.fori_loop(0, 3, body, x.sum())


print(prints(jnp.arange(3.0)))
jax.effects_barrier()
shards = []
jax.jit(lambda x: (jax.debug.callback(lambda x: shards.append(x.tolist()), x, partitioned=True), x + 1)[1])(spread)
jax.effects_barrier()
print("every device", sorted(shards))
jax.debug.visualize_array_sharding(jax.device_put(jnp.zeros((8, 8)), NamedSharding(mesh, P("i"))))
told.clear()
jax.jit(lambda x: (jax.debug.inspect_array_sharding(x, callback=lambda s: told.append(s.is_fully_replicated)), x * 2)[1])(spread)
print("placed", told)
