"""Ring attention with shard_map and a custom derivative; all-to-all experts; a pipeline by ppermute."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "seq"))
spec = P("data", "seq", None, None)


def scores(q, k, q_start, k_start):
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    mask = (q_start + jnp.arange(q.shape[1]))[:, None] >= (k_start + jnp.arange(k.shape[1]))[None]
    return jnp.where(mask, s, -1e9)


def ring_forward(q, k, v):
    size, me, block = lax.axis_size("seq"), lax.axis_index("seq"), q.shape[1]
    ring = [(i, (i + 1) % size) for i in range(size)]

    def body(i, carry):
        k, v, acc, high, total = carry
        s = scores(q, k, me * block, (me - i) % size * block)
        new = jnp.maximum(high, s.max(-1))
        p = jnp.exp(s - new[..., None])
        scale = jnp.exp(high - new)
        acc = acc * scale.swapaxes(1, 2)[..., None] + jnp.einsum("bhqk,bkhd->bqhd", p, v)
        return lax.ppermute(k, "seq", ring), lax.ppermute(v, "seq", ring), acc, new, total * scale + p.sum(-1)

    start = q[..., 0].swapaxes(1, 2)
    init = (k, v, jnp.zeros_like(q), jnp.full_like(start, -jnp.inf), jnp.zeros_like(start))
    _, _, acc, high, total = lax.fori_loop(0, size, body, init)
    return acc / total.swapaxes(1, 2)[..., None], high + jnp.log(total)


@jax.custom_vjp
def ring_attention(q, k, v):
    return ring_forward(q, k, v)[0]


def fwd(q, k, v):
    out, lse = ring_forward(q, k, v)
    return out, (q, k, v, out, lse)


def bwd(res, g):
    q, k, v, out, lse = res
    size, me, block = lax.axis_size("seq"), lax.axis_index("seq"), q.shape[1]
    ring = [(i, (i + 1) % size) for i in range(size)]
    delta = (g * out).sum(-1).swapaxes(1, 2)

    def body(carry, i):
        k, v, dq, dk, dv = carry
        p = jnp.exp(scores(q, k, me * block, (me - i) % size * block) - lse[..., None])
        ds = p * (jnp.einsum("bqhd,bkhd->bhqk", g, v) - delta[..., None]) * q.shape[-1] ** -0.5
        dv = dv + jnp.einsum("bhqk,bqhd->bkhd", p, g)
        dq = dq + jnp.einsum("bhqk,bkhd->bqhd", ds, k)
        dk = dk + jnp.einsum("bhqk,bqhd->bkhd", ds, q)
        k, v, dk, dv = (lax.ppermute(x, "seq", ring) for x in (k, v, dk, dv))
        return (k, v, dq, dk, dv), None

    zeros = jnp.zeros_like(q)
    (_, _, dq, dk, dv), _ = lax.scan(body, (k, v, zeros, zeros, zeros), jnp.arange(size))
    return dq, dk, dv


ring_attention.defvjp(fwd, bwd)
sharded = jax.jit(jax.shard_map(ring_attention, mesh=mesh, in_specs=(spec, spec, spec), out_specs=spec))


def reference(q, k, v):
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores(q, k, 0, 0)), v)


@partial(jax.shard_map, mesh=mesh, in_specs=(P("seq"), P("seq")), out_specs=P("seq"), axis_names={"seq"})
def experts(x, w):
    """Tokens go to the expert of their number, are transformed there, and come back."""
    n = lax.axis_size("seq")
    sent = lax.all_to_all(x.reshape(n, -1, x.shape[-1]), "seq", 0, 0)
    done = jax.nn.gelu(sent @ w[0])
    return lax.all_to_all(done, "seq", 0, 0).reshape(x.shape)


@partial(jax.shard_map, mesh=mesh, in_specs=(P("seq"), P(None, "data")), out_specs=P(None, "data"))
def pipeline(weights, batches):
    n, me = lax.axis_size("seq"), lax.axis_index("seq")
    state = jnp.zeros_like(batches[0])
    state = lax.pcast(state, ("seq",), to="varying")
    outputs = lax.pcast(jnp.zeros_like(batches), ("seq",), to="varying")
    for t in range(len(batches) + n - 1):
        state = jnp.where(me == 0, batches[min(t, len(batches) - 1)], state)
        state = jnp.tanh(state @ weights[0])
        if t >= n - 1:
            outputs = outputs.at[t - n + 1].set(jnp.where(me == n - 1, state, 0))
        state = lax.ppermute(state, "seq", [(i, (i + 1) % n) for i in range(n)])
    return lax.psum(outputs, "seq")


def main():
    keys = jax.random.split(jax.random.key(0), 4)
    q, k, v = (jax.device_put(jax.random.normal(key, (2, 32, 2, 8)), NamedSharding(mesh, spec)) for key in keys[:3])
    out = sharded(q, k, v)
    print("forward", float(jnp.abs(out - reference(q, k, v)).max()) < 1e-5, out.sharding.spec, float(out.sum()))
    loss = lambda f: lambda *a: jnp.sum(f(*a) ** 2)
    ours, theirs = (jax.grad(loss(f), (0, 1, 2))(q, k, v) for f in (sharded, reference))
    print("gradient", [bool(jnp.allclose(a, b, atol=1e-4)) for a, b in zip(ours, theirs)], float(ours[1].sum()))
    x, w = jax.random.normal(keys[3], (16, 4)), jax.random.normal(keys[0], (4, 4, 4))
    print("experts", experts(x, w).sum(), jax.jit(jax.grad(lambda w: (experts(x, w) ** 2).sum()))(w)[:, 0, 0])
    batches = jnp.arange(3 * 4 * 4.0).reshape(3, 4, 4) / 50
    print("pipeline", pipeline(w, batches)[:, 0, 0], jax.grad(lambda w: pipeline(w, batches).sum())(w)[:, 0, 0])


main()
