"""Placements in types, as JAX's notebook on explicit sharding goes: what types say, what is ambiguous, derivatives, escapes."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, auto_axes, explicit_axes, get_abstract_mesh, reshard
from jax.sharding import NamedSharding, PartitionSpec as P

some = np.arange(8.0, dtype=np.float32)
print("a type", jax.typeof(some))


@jax.jit
def shows(x):
    print("while it is traced", jax.typeof(x))
    return x + x


shows(some)
mesh = jax.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit, AxisType.Explicit))
jax.set_mesh(mesh)
print("mesh", get_abstract_mesh().axis_names, get_abstract_mesh().axis_types)

replicated = np.arange(8.0, dtype=np.float32).reshape(4, 2)
print("replicated", jax.typeof(jnp.asarray(replicated)))
sharded = reshard(replicated, P("X", None))
print("sharded", jax.typeof(sharded), sharded.sharding.spec)

a = reshard(np.arange(4.0, dtype=np.float32)[:, None], P("X", None))
b = reshard(np.arange(8.0, dtype=np.float32)[None, :], P(None, "Y"))


@jax.jit
def outer(x, y):
    z = x + y
    print("x", jax.typeof(x), "y", jax.typeof(y), "z", jax.typeof(z))
    return z


print("outer", np.asarray(outer(a, b)).sum())


@jax.jit
def mixed(x):
    pairs = [jnp.sin(x), x.T, x.sum(0), x.sum(), x[:, None], jnp.stack([x, x]), x.reshape(4, 1, 8), jnp.where(x > 1, x, 0)]
    for y in pairs:
        print(jax.typeof(y))
    return x


mixed(reshard(np.ones((4, 8), np.float32), P("X", "Y")))


# -- what is ambiguous
def fails(name, f, *args):
    try:
        print(name, jax.typeof(f(*args)))
    except Exception as error:
        print(name, type(error).__name__)


x = reshard(np.ones((4, 4), np.float32), P("X", "Y"))
y = reshard(np.ones((4, 4), np.float32), P("Y", "X"))
fails("sum of two placements", jnp.add, x, y)
fails("one axis twice", jnp.matmul, x, reshard(y, P("Y", "X")))
fails("a product", lambda x, y: jnp.matmul(x, y, out_sharding=P("X", None)), x, reshard(y, P("Y", None)))
fails("a product of nobody says where", jnp.matmul, x, reshard(y, P("Y", None)))
fails("merged dims", lambda x: x.reshape(-1), reshard(x, P(None, "Y")))
fails("merged dims, said", lambda x: jnp.reshape(x, -1, out_sharding=P("X")), x)
fails("rows by number, said", lambda x: x.at[np.array([0, 2])].get(out_sharding=P(None, "Y")), x)
fails("rows of a table", lambda t: t.at[np.array([[0, 1], [2, 3]])].get(out_sharding=P("X", None, None)), reshard(y, P(None, None)))


# -- functions without types
@jax.jit
def escapes(x, y):
    def inside(x, y):
        print("in auto_axes", jax.typeof(x), get_abstract_mesh().axis_types)
        return x + y

    z = auto_axes(inside, out_sharding=P("X", None))(x, y)
    print("outside", jax.typeof(z))
    return z


print("escaped", float(escapes(x, y).sum()))


@auto_axes
def decorated(x, y):
    return x * y


print("decorated", jax.typeof(decorated(x, y, out_sharding=P(None, "Y"))))


# -- some axes, of a mesh that has both
both = jax.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit, AxisType.Auto))
with jax.set_mesh(both):
    m = jax.device_put(np.arange(32.0, dtype=np.float32).reshape(4, 8), P("X", "Y"))

    @jax.jit
    def partly(m):
        print("partly", jax.typeof(m), jax.typeof(m @ m.T if False else m * 2))
        return jnp.sum(m, 1)

    print("rows", np.asarray(partly(m)).tolist(), jax.typeof(partly(m)))

automatic = jax.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Auto, AxisType.Auto))
with jax.set_mesh(automatic):

    @jax.jit
    def enters(x):
        def inside(x):
            print("in explicit_axes", jax.typeof(x))
            return x * 2

        return explicit_axes(inside, axes=("X", "Y"), in_sharding=P("X", "Y"))(x)

    print("entered", float(enters(np.ones((4, 8), np.float32)).sum()))

# -- derivatives, loops, batches
w = reshard(np.linspace(-1, 1, 32).reshape(8, 4).astype(np.float32), P(None, "Y"))
u = reshard(np.linspace(0, 1, 32).reshape(4, 8).astype(np.float32), P("X", None))


@jax.jit
def loss(w, u):
    h = jnp.tanh(u @ w)
    print("hidden", jax.typeof(h))
    return (h**2).sum()


g = jax.grad(loss)(w, u)
print("gradient", jax.typeof(g), np.asarray(g).sum())


@jax.jit
def looped(u):
    def step(c, _):
        return jnp.sin(c) + 1, c.sum(1)

    last, rows = jax.lax.scan(step, u, None, length=3)
    print("loop", jax.typeof(last), jax.typeof(rows))
    return last, rows


print("looped", float(looped(u)[0].sum()), float(looped(u)[1].sum()))
mapped = jax.jit(jax.vmap(lambda r: (jnp.cumsum(r), r.sum())))(u)
print("mapped", jax.typeof(mapped[0]), jax.typeof(mapped[1]), float(mapped[0].sum()))
new = jnp.zeros((4, 8), out_sharding=P("X", None)) if True else None
print("new", jax.typeof(new), jax.typeof(jnp.ones((2, 4))))
