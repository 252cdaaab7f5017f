"""Three ways to compute on many devices, as JAX's guide to sharded computation shows them: by the compiler, in types, by hand."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

print("devices", len(jax.devices()), jax.device_count())
plain = jnp.arange(32.0).reshape(4, 8)
print("one device", plain.devices() == {jax.devices()[0]}, len(plain.addressable_shards))

mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Auto))
sharding = NamedSharding(mesh, P("x", "y"))
print("spec", sharding.spec, "shard", sharding.shard_shape((4, 8)), "whole", sharding.is_fully_replicated)
for device, index in list(sharding.devices_indices_map((4, 8)).items())[:3]:
    print("device", device.id, "holds", index)
spread = jax.device_put(plain, sharding)
print("shards", sorted({s.data.shape for s in spread.addressable_shards}), spread.sharding.spec)
shard = spread.addressable_shards[5]
print("shard 5", shard.index, np.asarray(shard.data).tolist(), shard.replica_id)


# -- by the compiler
@jax.jit
def contract(x):
    return x.sum(axis=0)


result = contract(spread)
print("sum", np.asarray(result).tolist(), result.sharding.spec)


@jax.jit
def constrained(x):
    y = jax.lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P("y")))
    return y + 1


print("constrained", constrained(spread).sharding.spec, float(constrained(spread).sum()))
placed = jax.jit(lambda x: x.T, out_shardings=NamedSharding(mesh, P("y", None)))(spread)
print("out_shardings", placed.sharding.spec, placed.shape)
print("in one line", jax.jit(lambda x: x @ x.T)(spread).sum())

# -- in types
explicit = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Explicit))
with jax.set_mesh(explicit):
    a = jax.device_put(plain, P("x", "y"))
    print("type", jax.typeof(a))

    @jax.jit
    def traced(a):
        s = jnp.sum(a, axis=1)
        print("inside", jax.typeof(a), jax.typeof(s), jax.typeof(a.T), jax.typeof(a * 2))
        return s

    print("summed", np.asarray(traced(a)).tolist(), traced(a).sharding.spec)
    moved = jax.sharding.reshard(a, P(None, "y"))
    print("moved", jax.typeof(moved))
    try:
        a + moved
    except Exception as error:
        print("two placements", type(error).__name__)


# -- by hand
@jax.jit
def by_hand(x):
    def f(block):
        print("block", block.shape)
        return jax.lax.psum(block.sum(0, keepdims=True), "x")

    return jax.shard_map(f, mesh=mesh, in_specs=P("x", "y"), out_specs=P(None, "y"))(x)


print("by hand", np.asarray(by_hand(spread)).tolist())


# -- a layer of a network, each way
def layer(x, weights, bias):
    return jax.nn.sigmoid(x @ weights + bias)


w = jnp.linspace(-1, 1, 8 * 4).reshape(8, 4)
c = jnp.linspace(0, 1, 4)
expected = layer(plain, w, c)
data = jax.device_put(plain, NamedSharding(mesh, P("x")))
weights = jax.device_put(w, NamedSharding(mesh, P(None, "y")))
print("automatic", np.allclose(jax.jit(layer)(data, weights, c), expected, atol=1e-6))
with jax.set_mesh(explicit):
    result = jax.jit(layer)(jax.device_put(plain, P("x")), jax.device_put(w, P(None, "y")), jax.device_put(c, P("y")))
    print("explicit", np.allclose(result, expected, atol=1e-6), jax.typeof(result))
rows = jax.shard_map(layer, mesh=mesh, in_specs=(P("x"), P(None, "y"), P("y")), out_specs=P("x", "y"))
print("by hand", np.allclose(jax.jit(rows)(plain, w, c), expected, atol=1e-6))
print("gradients", np.allclose(jax.jit(jax.grad(lambda w: rows(plain, w, c).sum()))(w), jax.grad(lambda w: layer(plain, w, c).sum())(w), atol=1e-5))
