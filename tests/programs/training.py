"""A small language model on explicit axes and by shard_map; loss scaling, LoRA, a PINN, an ODE, Bayesian optimisation, policy gradients."""
import functools
from functools import partial
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.sharding import PartitionSpec as P, AxisType, NamedSharding
n = jax.device_count()
mesh = jax.make_mesh((n,), ("data",), axis_types=(AxisType.Explicit,))
jax.set_mesh(mesh)
D, H, V, T = 16, 4, 32, 8
def init(k):
    ks = random.split(k, 6)
    g = lambda k, *s: random.normal(k, s) * 0.05
    return dict(emb=g(ks[0], V, D), pos=g(ks[1], T, D), blocks=dict(qkv=g(ks[2], 2, D, 3 * D), o=g(ks[3], 2, D, D), up=g(ks[4], 2, D, 4 * D), down=g(ks[5], 2, 4 * D, D)))
def norm(x): return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
def block(x, p):
    b, t, _ = x.shape
    q, k, v = jnp.split(norm(x) @ p["qkv"], 3, -1)
    r = lambda a: a.reshape(b, t, H, D // H)
    x = x + jax.nn.dot_product_attention(r(q), r(k), r(v), is_causal=True).reshape(b, t, D) @ p["o"]
    return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"], None
def logits(p, tok):
    x = p["emb"].at[tok].get(out_sharding=P("data")) + p["pos"]
    x, _ = lax.scan(jax.checkpoint(block), x, p["blocks"])
    return norm(x) @ p["emb"].T
def loss(p, tok):
    lp = jax.nn.log_softmax(logits(p, tok)[:, :-1].astype(jnp.float32))
    return -jnp.take_along_axis(lp, tok[:, 1:, None], -1).mean()
p = init(random.key(0)); tok = jax.device_put(random.randint(random.key(1), (8, T), 0, V), P("data"))
print(jax.typeof(tok), jax.typeof(p["emb"]))
@partial(jax.jit, donate_argnums=0)
def step(s, tok):
    l, g = jax.value_and_grad(loss)(s[0], tok)
    m = jax.tree.map(lambda m, g: .9 * m + g, s[1], g)
    return (jax.tree.map(lambda p, m: p - .3 * m, s[0], m), m), l
s = (p, jax.tree.map(jnp.zeros_like, p))
for i in range(4): s, l = step(s, tok); print("gpt", l)
# shard_map data parallel
@jax.jit
@partial(jax.shard_map, in_specs=(P(), P("data")), out_specs=(P(), P()))
def dp(p, tok):
    def local(p):
        x = p["emb"][tok] + p["pos"]
        x, _ = lax.scan(block, x, p["blocks"])
        lp = jax.nn.log_softmax((norm(x) @ p["emb"].T)[:, :-1])
        return -jnp.take_along_axis(lp, tok[:, 1:, None], -1).mean()
    l, g = jax.value_and_grad(local)(p)
    return lax.pmean(l, "data"), jax.tree.map(lambda a: a / lax.axis_size("data"), g)
l, g = dp(s[0], tok); print("dp", l, jax.tree.map(lambda a: a.sum(), g)["blocks"]["o"])
# mixed precision with dynamic loss scale
def mp(c, _):
    p, scale, good = c
    f = lambda p: jnp.sum((p.astype(jnp.float16) * jnp.float16(300.)) ** 2).astype(jnp.float32) * scale
    g = jax.grad(f)(p) / scale
    ok = jnp.isfinite(g).all()
    p = jnp.where(ok, p - 1e-6 * g, p)
    return (p, jnp.where(ok, jnp.where(good >= 2, scale * 2, scale), scale / 2), jnp.where(ok, good + 1, 0)), (ok, scale)
print("mp", *lax.scan(mp, (jnp.array([.1, .2]), 2. ** 10, 0), None, length=8)[1])
# LoRA
W = random.normal(random.key(2), (6, 6)); ab = (jnp.zeros((6, 2)), random.normal(random.key(3), (2, 6)))
g = jax.grad(lambda ab, W: (jnp.tanh((W + ab[0] @ ab[1]) @ jnp.ones(6)) ** 2).sum())(ab, W); print("lora", g[0].sum(0), g[1].sum())
# PINN forward over reverse
net = lambda w, x: (jnp.tanh(x[None] @ w[0] + w[1]) @ w[2]).sum()
w = (random.normal(random.key(4), (2, 8)), jnp.zeros(8), random.normal(random.key(5), (8,)))
lap = lambda w, x: jnp.trace(jax.jacfwd(jax.grad(net, 1), 1)(w, x))
xs = random.uniform(random.key(6), (10, 2)); print("pinn", jax.grad(lambda w: (jax.vmap(lambda x: lap(w, x))(xs) ** 2).mean())(w)[2][:3])
print("hvp", jax.jvp(jax.grad(lambda x: net(w, x)), (xs[0],), (jnp.ones(2),))[1])
from jax.experimental.ode import odeint
ode = lambda a: odeint(lambda y, t, a: -a * y + jnp.sin(t), jnp.array([1., 2.]), jnp.linspace(0., 2., 5), a)
print("ode", ode(0.7)[-1], jax.grad(lambda a: ode(a).sum())(0.7))
# GP BO
def post(x, y, xs):
    k = lambda a, b: jnp.exp(-.5 * (a[:, None] - b[None]) ** 2)
    L = jnp.linalg.cholesky(k(x, x) + 1e-3 * jnp.eye(len(x))); a = jax.scipy.linalg.cho_solve((L, True), y)
    v = jax.scipy.linalg.solve_triangular(L, k(x, xs), lower=True)
    return k(xs, x) @ a, 1 - (v ** 2).sum(0)
x = jnp.array([-1., 0., 1.5]); f = lambda x: jnp.sin(3 * x) - x ** 2 * .3; grid = jnp.linspace(-2, 2, 41)
for i in range(3):
    m, s2 = jax.jit(post)(x, f(x), grid); ei = m + 2 * jnp.sqrt(jnp.maximum(s2, 0)); x = jnp.append(x, grid[jnp.argmax(ei)])
print("bo", x)
# RL
def env(s, a): s = s + jnp.where(a == 1, .1, -.1) + 0.0; return s, -jnp.abs(s - .5)
def rollout(theta, k):
    def st(c, k):
        s = c; lo = jnp.stack([theta[0] * s, theta[1] * s + theta[2]]); a = random.categorical(k, lo); s2, r = env(s, a)
        return s2, (jax.nn.log_softmax(lo)[a], r)
    return lax.scan(st, jnp.float32(0.1), random.split(k, 10))[1]
def pg(theta, ks):
    lp, r = jax.vmap(rollout, (None, 0))(theta, ks); ret = jnp.cumsum(r[:, ::-1], 1)[:, ::-1]
    return -(lp * lax.stop_gradient(ret - ret.mean(0))).mean()
th = jnp.zeros(3)
for i in range(3): th = th - .5 * jax.grad(pg)(th, random.split(random.key(i), 16))
print("pg", th)
def slice_sample(k, x):
    def cond(c): return ~c[2]
    def body(c):
        k, x, _ , lo, hi, x0, y = c; k, kk = random.split(k); x1 = random.uniform(kk, minval=lo, maxval=hi); ok = -.5 * x1 ** 2 > y
        return k, jnp.where(ok, x1, x), ok, jnp.where(ok | (x1 > x0), lo, x1), jnp.where(ok | (x1 < x0), hi, x1), x0, y
    k, a = random.split(k); y = -.5 * x ** 2 + jnp.log(random.uniform(a))
    return lax.while_loop(cond, body, (k, x, False, x - 2., x + 2., x, y))[1]
print("slice", jax.vmap(lambda k: lax.scan(lambda x, k: (slice_sample(k, x),) * 2, 0., random.split(k, 20))[0])(random.split(random.key(9), 4)))
