"""Code for single devices, topic by topic as JAX's notebook on shard_map goes: shards, collectives, derivatives, matrix products
that overlap what they send, and a network that is trained in three ways."""
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

np.set_printoptions(precision=3, suppress=True)
mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Auto))
line = jax.make_mesh((8,), ("i",), axis_types=(AxisType.Auto,))

# -- a product of blocks
a = jnp.arange(8 * 16.0).reshape(8, 16) / 64
b = jnp.arange(16 * 4.0).reshape(16, 4) / 32


@jax.jit
@partial(jax.shard_map, mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None))
def matmul(a_block, b_block):
    part = jnp.dot(a_block, b_block)
    return lax.psum(part, "y")


c = matmul(a, b)
print("product", np.allclose(c, a @ b, rtol=1e-5), c.shape, np.asarray(c).sum())
print("placed", c.sharding.spec)


# -- shapes inside
def shapes(block):
    print("a block is", block.shape, block.dtype)
    return block


jax.jit(jax.shard_map(shapes, mesh=mesh, in_specs=P("x", None), out_specs=P("x", None)))(a)
jax.jit(jax.shard_map(shapes, mesh=mesh, in_specs=P(("x", "y"), None), out_specs=P(("x", "y"), None)))(a)
total = jax.shard_map(lambda v: lax.psum(v.sum(keepdims=True), ("x", "y")), mesh=mesh, in_specs=P("x", "y"), out_specs=P(None, None))
print("sum", total(a), a.sum())
whole = jax.shard_map(lambda: lax.axis_index("x").reshape(1, 1) + 10 * lax.axis_index("y").reshape(1, 1),
                      mesh=mesh, in_specs=(), out_specs=P("x", "y"))
print("numbers of devices\n", np.asarray(whole()))
for spec in (P("x", "y"), P("x", None), P(None, "y")):
    ones = jax.shard_map(lambda: jnp.ones((2, 2)), mesh=mesh, in_specs=(), out_specs=spec, check_vma=False)
    print("put together by", spec, ones().shape)


# -- what varies
@partial(jax.shard_map, mesh=line, in_specs=P("i"), out_specs=P("i"))
def varies(v):
    constant = jnp.zeros(())
    print("types", jax.typeof(v), jax.typeof(constant), jax.typeof(lax.pcast(constant, "i", to="varying")),
          jax.typeof(lax.psum(v, "i")))
    return v


varies(jnp.arange(8.0))
try:
    jax.shard_map(lambda v: v * 2, mesh=line, in_specs=P("i"), out_specs=P())(jnp.arange(8.0))
except ValueError:
    print("ValueError: results differ between devices")
try:
    jax.jit(jax.shard_map(lambda v: lax.scan(lambda s, r: (s + r, None), 0.0, v)[0][None], mesh=line, in_specs=P("i"), out_specs=P("i")))(jnp.arange(16.0))
    print("a carry of mixed types is cast")
except TypeError:
    print("a carry of mixed types is refused")
cast = jax.shard_map(lambda v: lax.scan(lambda s, r: (s + r, None), lax.pcast(jnp.zeros(()), "i", to="varying"), v)[0][None],
                     mesh=line, in_specs=P("i"), out_specs=P("i"))
print("sums of shards", cast(jnp.arange(16.0)))

# -- collectives, each on a line of devices
v = jnp.array([3.0, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 1, 2])


def on_line(f, out=P("i"), **more):
    return jax.jit(jax.shard_map(f, mesh=line, in_specs=P("i"), out_specs=out, **more))(v)


print("psum", on_line(lambda s: lax.psum(s, "i"), P()))
print("pmean", on_line(lambda s: lax.pmean(s, "i"), P()))
print("pmax", on_line(lambda s: lax.pmax(s, "i"), P()))
print("all_gather", on_line(lambda s: lax.all_gather(s, "i"), P("i")).shape)
print("all_gather tiled", on_line(lambda s: lax.all_gather(s, "i", tiled=True)[:3]))
print("psum_scatter", on_line(lambda s: lax.psum_scatter(lax.all_gather(s, "i", tiled=True), "i", tiled=True)))
print("ppermute", on_line(lambda s: lax.ppermute(s, "i", [(i, (i + 1) % 8) for i in range(8)])))
print("half of them", on_line(lambda s: lax.ppermute(s, "i", [(i, i + 4) for i in range(4)])))
print("all_to_all", on_line(lambda s: lax.all_to_all(jnp.tile(s, 4), "i", 0, 0, tiled=True)))


def psum_of_others(x, axis_name):
    """A sum by a ring of permutes."""
    size, total = lax.axis_size(axis_name), x
    for _ in range(size - 1):
        x = lax.ppermute(x, axis_name, [(i, (i + 1) % size) for i in range(size)])
        total = total + x
    return total


print("a sum by permutes", on_line(lambda s: psum_of_others(s, "i"))[:4], v.reshape(8, 2).sum(0))


# -- three products whose operands are spread over the contraction
lhs = jnp.sin(jnp.arange(16 * 16.0)).reshape(16, 16)
rhs = jnp.cos(jnp.arange(16 * 16.0)).reshape(16, 16)
by_rows = partial(jax.jit, static_argnums=())


@by_rows
@partial(jax.shard_map, mesh=line, in_specs=(P("i", None), P("i", None)), out_specs=P("i", None))
def gathering(l, r):
    return l @ lax.all_gather(r, "i", tiled=True)


@by_rows
@partial(jax.shard_map, mesh=line, in_specs=(P("i", None), P("i", None)), out_specs=P("i", None))
def overlapping(l, r):
    size, index = lax.axis_size("i"), lax.axis_index("i")
    block = l.shape[1] // size
    perm = [(j, (j - 1) % size) for j in range(size)]

    def step(k, carry):
        acc, r = carry
        mine = lax.dynamic_slice_in_dim(l, ((index + k) % size) * block, block, 1)
        return acc + mine @ r, lax.ppermute(r, "i", perm)

    start = lax.pcast(jnp.zeros((l.shape[0], r.shape[1])), "i", to="varying")
    return lax.fori_loop(0, size, step, (start, r))[0]


@by_rows
@partial(jax.shard_map, mesh=line, in_specs=(P(None, "i"), P("i", None)), out_specs=P("i", None))
def scattering(l, r):
    return lax.psum_scatter(l @ r, "i", tiled=True)


for f in (gathering, overlapping, scattering):
    print(f.__name__, np.allclose(f(lhs, rhs), lhs @ rhs, atol=1e-4))


# -- derivatives
@jax.jit
@jax.grad
@partial(jax.shard_map, mesh=line, in_specs=P("i"), out_specs=P())
def slope(s):
    return lax.psum(jnp.sum(jnp.sin(s) ** 2), "i")


print("gradient", slope(v)[:4])


# -- a network on a batch: the plain one, by data, by parameters, and by both
def init(sizes):
    layers = []
    for n, (i, o) in enumerate(zip(sizes, sizes[1:])):
        layers.append((jnp.sin(jnp.arange(i * o * 1.0) * (n + 1)).reshape(i, o) / np.sqrt(i), jnp.zeros(o)))
    return layers


def predict(params, inputs):
    for w, c in params:
        outputs = jnp.dot(inputs, w) + c
        inputs = jax.nn.relu(outputs)
    return outputs


def loss(params, batch):
    inputs, targets = batch
    return jnp.mean(jnp.sum((predict(params, inputs) - targets) ** 2, axis=-1))


params = init([32, 64, 64, 16])
batch = jnp.cos(jnp.arange(64 * 32.0)).reshape(64, 32), jnp.sin(jnp.arange(64 * 16.0)).reshape(64, 16)
print("loss", loss(params, batch))
expected = jax.grad(loss)(params, batch)


def same(gradients):
    return all(np.allclose(p, q, atol=1e-4) for p, q in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected)))


@jax.jit
def by_data(params, batch):
    @partial(jax.shard_map, mesh=line, in_specs=(P(), P("i")), out_specs=P())
    def f(params, shard):
        return lax.pmean(loss(params, shard), "i")

    return f(params, batch)


print("data parallel", by_data(params, batch), same(jax.jit(jax.grad(by_data))(params, batch)))


def gathered_predict(params, inputs):
    for w, c in params:
        w, c = lax.all_gather(w, "i", tiled=True), lax.all_gather(c, "i", tiled=True)
        outputs = jnp.dot(inputs, w) + c
        inputs = jax.nn.relu(outputs)
    return outputs


@jax.jit
def fully_sharded(params, batch):
    @partial(jax.shard_map, mesh=line, in_specs=(P("i"), P("i")), out_specs=P())
    def f(params, shard):
        inputs, targets = shard
        ahead = jax.checkpoint(gathered_predict)(params, inputs)
        return lax.pmean(jnp.mean(jnp.sum((ahead - targets) ** 2, axis=-1)), "i")

    return f(params, batch)


print("fully sharded", fully_sharded(params, batch), same(jax.jit(jax.grad(fully_sharded))(params, batch)))

both = jax.make_mesh((2, 4), ("batch", "feats"), axis_types=(AxisType.Auto, AxisType.Auto))


def tensor_predict(params, inputs):
    for w, c in params:
        block = jnp.dot(inputs, w)
        outputs = lax.psum_scatter(block, "feats", scatter_dimension=1, tiled=True) + c
        inputs = jax.nn.relu(outputs)
    return outputs


@jax.jit
def by_both(params, batch):
    @partial(jax.shard_map, mesh=both, in_specs=([(P("feats", None), P("feats"))] * 3, (P("batch", "feats"), P("batch", "feats"))),
             out_specs=P())
    def f(params, shard):
        inputs, targets = shard
        ahead = tensor_predict(params, inputs)
        return lax.pmean(jnp.mean(lax.psum(jnp.sum((ahead - targets) ** 2, axis=-1), "feats")), "batch")

    return f(params, batch)


print("by data and features", by_both(params, batch), same(jax.jit(jax.grad(by_both))(params, batch)))


# -- a pipeline
stages = jnp.stack([jnp.eye(8) * (1 + k / 10) for k in range(8)])
micro = jnp.arange(16 * 4 * 8.0).reshape(16, 4, 8) / 100


@jax.jit
@partial(jax.shard_map, mesh=line, in_specs=(P("i"), P("i")), out_specs=P("i"))
def pipeline(w, inputs):
    size, index = lax.axis_size("i"), lax.axis_index("i")
    shift = partial(lax.ppermute, axis_name="i", perm=[(i, (i + 1) % size) for i in range(size)])
    outputs = jnp.zeros_like(inputs)
    state = jnp.zeros_like(inputs[0])
    for n in range(inputs.shape[0] * size + size - 1):
        state = jnp.where(index == 0, inputs[(n // size) % inputs.shape[0] if False else n % inputs.shape[0]], state)
        state = jnp.tanh(state @ w[0])
        at = (n - size + 1) % inputs.shape[0]
        outputs = jnp.where(index == size - 1, outputs.at[at].set(state), outputs)
        state, inputs, outputs = shift(state), shift(inputs) if n % 2 else inputs, outputs
    return outputs


piped = pipeline(stages, micro)
print("pipeline", piped.shape, np.asarray(piped).sum())
