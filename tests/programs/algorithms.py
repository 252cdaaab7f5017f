"""Algorithms on arrays: a normalizing flow, a Kalman filter, beam search, molecules by pairs, keys, pickles and paths of trees."""
import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
# real NVP
def init(k, d, h, n):
    def layer(k):
        a, b = random.split(k)
        return {"w1": random.normal(a, (d // 2, h)) * 0.1, "w2": random.normal(b, (h, d)) * 0.1}
    return jax.vmap(layer)(random.split(k, n))
def forward(params, x):
    def step(carry, p):
        x, ld = carry
        a, b = jnp.split(x, 2, -1)
        s, t = jnp.split(jnp.tanh(a @ p["w1"]) @ p["w2"], 2, -1)
        return (jnp.concatenate([b * jnp.exp(s) + t, a], -1), ld + s.sum(-1)), None
    (z, ld), _ = lax.scan(step, (x, jnp.zeros(x.shape[0])), params)
    return z, ld
def nll(params, x):
    z, ld = forward(params, x)
    return -(jax.scipy.stats.norm.logpdf(z).sum(-1) + ld).mean()
p = init(random.key(0), 4, 8, 3); x = random.normal(random.key(1), (32, 4)) * 2 + 1
@jax.jit
def sgd(p, _):
    l, g = jax.value_and_grad(nll)(p, x)
    return jax.tree.map(lambda a, b: a - 0.1 * b, p, g), l
p, ls = lax.scan(sgd, p, None, length=20); print("flow", ls[::5])
# Kalman by associative scan
def combine(a, b):
    A1, b1, C1 = a; A2, b2, C2 = b
    return A2 @ A1, jnp.einsum("...ij,...j->...i", A2, b1) + b2, A2 @ C1 @ jnp.swapaxes(A2, -1, -2) + C2
A = jnp.broadcast_to(jnp.array([[1., .1], [0., .9]]), (16, 2, 2)); b = random.normal(random.key(2), (16, 2)); C = jnp.broadcast_to(jnp.eye(2) * .1, (16, 2, 2))
r = lax.associative_scan(combine, (A, b, C)); print("kalman", r[1][-1], r[2][-1])
# beam search
V, B, T = 7, 3, 5
logits = random.normal(random.key(3), (V, V))
def beam(logits):
    def step(c, _):
        seqs, scores, t = c
        last = seqs[jnp.arange(B), t]
        cand = scores[:, None] + jax.nn.log_softmax(logits[last])
        s, i = lax.top_k(cand.reshape(-1), B)
        seqs = seqs[i // V].at[:, t + 1].set(i % V)
        return (seqs, s, t + 1), s
    init = (jnp.zeros((B, T + 1), jnp.int32), jnp.array([0.] + [-1e9] * (B - 1)), 0)
    return lax.scan(step, init, None, length=T)
(s, sc, _), hist = jax.jit(beam)(logits); print("beam", s, sc)
print("vbeam", jax.vmap(beam)(jnp.stack([logits, -logits]))[0][0][:, 0])
# particles
def energy(pos, src, dst):
    d = pos[src] - pos[dst]; r2 = (d ** 2).sum(-1) + .1
    return (1 / r2 ** 3 - 1 / r2).sum()
src, dst = jnp.array(np.triu_indices(6, 1)); pos = random.uniform(random.key(4), (6, 3)) * 3
force = jax.grad(lambda q: -energy(q, src, dst))
def verlet(s, _):
    q, v, f = s; v = v + .005 * f; q = q + .01 * v; f = force(q); v = v + .005 * f
    return (q, v, f), energy(q, src, dst) + .5 * (v ** 2).sum()
(q, v, f), e = jax.jit(lambda q: lax.scan(verlet, (q, jnp.zeros_like(q), force(q)), None, length=50))(pos); print("md", e[::10])
deg = jax.ops.segment_sum(jnp.ones(15), src, 6); print(deg, jax.ops.segment_max(jnp.arange(15.), dst, 6))
# keys
ks = random.split(random.key(7), 6).reshape(2, 3)
print(ks.shape, ks.dtype, ks[0].shape, random.key_data(jnp.concatenate([ks[0], ks[1][:1]])).sum(), jnp.where(jnp.array([True, False, True]), ks[0], ks[1]).shape)
print(random.key_data(ks.at[0, 1].set(random.key(3)))[0, 1], (ks == ks.T.T).all(), random.key_data(jnp.roll(ks, 1, 1))[0, 0])
print(lax.scan(lambda k, _: (random.split(k)[0], random.uniform(k)), random.key(1), None, length=3)[1])
print(jax.jit(lambda k: lax.cond(True, lambda k: random.fold_in(k, 1), lambda k: k, k))(random.key(2)))
print(jax.vmap(lambda k: random.normal(k, (2,)))(ks[0]), random.wrap_key_data(random.key_data(ks)).shape)
for impl in ("rbg", "unsafe_rbg"):
    k = random.key(0, impl=impl); print(impl, random.key_impl(k), random.key_data(k), random.split(k).shape)
# numpy on tracers

print(np.linalg.norm(jnp.ones(4)), np.mean(jnp.arange(4.)), np.stack([jnp.ones(2), jnp.zeros(2)]).sum())
import pickle, copy
a = pickle.loads(pickle.dumps({"a": jnp.arange(3.), "t": jax.tree.structure({"b": 1, "c": (2, None)})})); print(a["a"], a["t"])
print(copy.deepcopy(jnp.arange(3)), float(jnp.float32(2.5)), f"{jnp.float32(2.5):.2f}", int(jnp.int32(3)), [1, 2, 3][jnp.int32(1)], range(jnp.int32(3)))
x = jnp.arange(4.)
print(x[10], x[-10], x.at[10].set(1), x.at[10].get(mode="fill", fill_value=-1), jax.jit(lambda x: x[7])(x))
for path, leaf in jax.tree_util.tree_flatten_with_path({"a": [1, {"b": 2}], "c": (3,)})[0]: print(jax.tree_util.keystr(path), jax.tree_util.keystr(path, simple=True, separator="/"), leaf)
print(repr(x), str(x), repr(jax.ShapeDtypeStruct((2,), jnp.float32)), jax.typeof(x))
