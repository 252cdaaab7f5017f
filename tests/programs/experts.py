"""A mixture of experts: tokens routed to devices by hand, shard_map with all_to_all and ragged_all_to_all."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

EXPERTS, TOKENS, WIDTH, HIDDEN = 8, 64, 16, 32
mesh = jax.make_mesh((8,), ("expert",), axis_types=(AxisType.Auto,))


def init(key):
    k1, k2, k3 = jax.random.split(key, 3)
    return {
        "router": jax.random.normal(k1, (WIDTH, EXPERTS)) * 0.5,
        "up": jax.random.normal(k2, (EXPERTS, WIDTH, HIDDEN)) / WIDTH**0.5,
        "down": jax.random.normal(k3, (EXPERTS, HIDDEN, WIDTH)) / HIDDEN**0.5,
    }


def dense(params, x):
    """Every expert for every token, the chosen one kept."""
    gates = jax.nn.softmax(x @ params["router"])
    chosen = jnp.argmax(gates, -1)
    every = jax.vmap(lambda up, down: jax.nn.gelu(x @ up) @ down)(params["up"], params["down"])
    picked = jnp.take_along_axis(every, chosen[None, :, None], 0)[0]
    return picked * jnp.take_along_axis(gates, chosen[:, None], 1)


def capacity_routed(params, x, capacity):
    """Tokens of one device, in slots per expert; what does not fit is dropped."""
    gates = jax.nn.softmax(x @ params["router"])
    chosen = jnp.argmax(gates, -1)
    onehot = jax.nn.one_hot(chosen, EXPERTS, dtype=jnp.int32)
    position = (jnp.cumsum(onehot, 0) - 1) * onehot
    slot = position.sum(-1)
    keep = slot < capacity
    dispatch = (
        jax.nn.one_hot(chosen, EXPERTS)[:, :, None] * jax.nn.one_hot(jnp.where(keep, slot, capacity), capacity + 1)[:, None, :-1]
    )
    sent = jnp.einsum("tec,td->ecd", dispatch, x)
    received = lax.all_to_all(sent, "expert", split_axis=0, concat_axis=0, tiled=False)
    up, down = params["up"][0], params["down"][0]
    out = jax.nn.gelu(received @ up) @ down
    back = lax.all_to_all(out, "expert", 0, 0)
    combined = jnp.einsum("tec,ecd->td", dispatch, back)
    return combined * jnp.take_along_axis(gates, chosen[:, None], 1)


specs = {"router": P(), "up": P("expert"), "down": P("expert")}


def routed(params, x, capacity):
    f = jax.shard_map(
        partial(capacity_routed, capacity=capacity), mesh=mesh, in_specs=(specs, P("expert")), out_specs=P("expert")
    )
    return f(params, x)


params = init(jax.random.key(0))
x = jax.random.normal(jax.random.key(1), (TOKENS, WIDTH))
params = jax.tree.map(lambda p, s: jax.device_put(p, NamedSharding(mesh, s)), params, specs)
x = jax.device_put(x, NamedSharding(mesh, P("expert")))

full = jax.jit(lambda p, x: routed(p, x, TOKENS // 8))(params, x)
print("all fit:", np.allclose(full, dense(params, x), atol=1e-4))
tight = jax.jit(lambda p, x: routed(p, x, 2))(params, x)
print("dropped:", int((jnp.abs(tight).sum(-1) == 0).sum()))


@partial(jax.jit, static_argnums=2)
def step(params, x, capacity):
    def loss(params):
        return jnp.mean((routed(params, x, capacity) - jnp.sin(x)) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.5 * g, params, grads), value


for _ in range(4):
    params, value = step(params, x, 8)
    print(f"loss {value:.4f}")
print({k: v.sharding.spec for k, v in params.items()})
