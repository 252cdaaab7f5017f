"""Llama-shaped training with FSDP and tensor parallelism: dataclass pytrees, scanned layers, remat, custom_vjp norm, AdamW."""

import dataclasses
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P


@dataclass(frozen=True)
class Config:
    vocab: int = 96
    d_model: int = 64
    n_layers: int = 3
    n_heads: int = 8
    n_kv_heads: int = 4
    d_ff: int = 160
    dtype: jnp.dtype = jnp.bfloat16
    rope_theta: float = 10_000.0

    @property
    def head_dim(self):
        return self.d_model // self.n_heads


@functools.partial(jax.tree_util.register_dataclass, data_fields=["wq", "wk", "wv", "wo", "w1", "w2", "w3", "norm1", "norm2"], meta_fields=[])
@dataclass
class Layer:
    wq: jax.Array
    wk: jax.Array
    wv: jax.Array
    wo: jax.Array
    w1: jax.Array
    w2: jax.Array
    w3: jax.Array
    norm1: jax.Array
    norm2: jax.Array


@jax.tree_util.register_dataclass
@dataclass
class Llama:
    embed: jax.Array
    layers: Layer
    norm: jax.Array
    config: Config = dataclasses.field(metadata=dict(static=True))


SPECS = Layer(
    wq=P(None, "fsdp", "tensor"), wk=P(None, "fsdp", "tensor"), wv=P(None, "fsdp", "tensor"), wo=P(None, "tensor", "fsdp"),
    w1=P(None, "fsdp", "tensor"), w2=P(None, "tensor", "fsdp"), w3=P(None, "fsdp", "tensor"), norm1=P(None), norm2=P(None),
)


def init(config, key):
    def dense(key, *shape):
        return jax.random.truncated_normal(key, -2, 2, shape, jnp.float32) * shape[-2] ** -0.5

    c, keys = config, iter(jax.random.split(key, 8))
    n, kv = c.n_layers, c.n_kv_heads * c.head_dim
    layers = Layer(
        dense(next(keys), n, c.d_model, c.d_model), dense(next(keys), n, c.d_model, kv), dense(next(keys), n, c.d_model, kv),
        dense(next(keys), n, c.d_model, c.d_model), dense(next(keys), n, c.d_model, c.d_ff), dense(next(keys), n, c.d_ff, c.d_model),
        dense(next(keys), n, c.d_model, c.d_ff), jnp.ones((n, c.d_model)), jnp.ones((n, c.d_model)),
    )
    return Llama(jax.random.normal(next(keys), (c.vocab, c.d_model)) * 0.02, layers, jnp.ones(c.d_model), c)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x, scale, eps):
    return rms_norm_fwd(x, scale, eps)[0]


def rms_norm_fwd(x, scale, eps):
    x32 = x.astype(jnp.float32)
    inv = jax.lax.rsqrt(jnp.mean(jnp.square(x32), -1, keepdims=True) + eps)
    return (x32 * inv * scale).astype(x.dtype), (x, inv, scale)


def rms_norm_bwd(eps, res, g):
    x, inv, scale = res
    x32, g32 = x.astype(jnp.float32), g.astype(jnp.float32)
    xhat = x32 * inv
    gs = g32 * scale
    dx = inv * (gs - xhat * jnp.mean(gs * xhat, -1, keepdims=True))
    return dx.astype(x.dtype), jnp.sum(g32 * xhat, axis=tuple(range(g.ndim - 1)))


rms_norm.defvjp(rms_norm_fwd, rms_norm_bwd)


def rope(x, positions, theta):
    half = x.shape[-1] // 2
    freqs = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = positions[..., None, None] * freqs
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    x1, x2 = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1).astype(x.dtype)


def attention(config, layer, x, positions):
    b, t, _ = x.shape
    q = rope((x @ layer.wq).reshape(b, t, config.n_heads, config.head_dim), positions, config.rope_theta)
    k = rope((x @ layer.wk).reshape(b, t, config.n_kv_heads, config.head_dim), positions, config.rope_theta)
    v = (x @ layer.wv).reshape(b, t, config.n_kv_heads, config.head_dim)
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, -1) @ layer.wo


def forward(model, tokens, mesh):
    config = model.config
    constrain = lambda x, *spec: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))
    x = constrain(model.embed.astype(config.dtype)[tokens], "fsdp", None, None)
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
    def block(x, layer):
        layer = jax.tree.map(lambda w: w.astype(config.dtype), layer)
        x = x + attention(config, layer, rms_norm(x, layer.norm1, 1e-6), positions)
        h = rms_norm(x, layer.norm2, 1e-6)
        h = constrain(jax.nn.silu(h @ layer.w1) * (h @ layer.w3), "fsdp", None, "tensor")
        return constrain(x + h @ layer.w2, "fsdp", None, None), None

    x, _ = jax.lax.scan(block, x, model.layers)
    return jnp.einsum("btd,vd->btv", rms_norm(x, model.norm, 1e-6), model.embed.astype(config.dtype), preferred_element_type=jnp.float32)


def loss_fn(model, tokens, mesh):
    logits = forward(model, tokens[:, :-1], mesh)
    logp = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.take_along_axis(logp, tokens[:, 1:, None], axis=-1).mean()


def adamw(grads, opt, params, lr=3e-3, b1=0.9, b2=0.95, decay=0.1):
    count = opt["count"] + 1
    mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, opt["mu"], grads)
    nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g**2, opt["nu"], grads)

    def update(p, m, v):
        return p - lr * (m / (1 - b1**count) / (jnp.sqrt(v / (1 - b2**count)) + 1e-8) + decay * p)

    return jax.tree.map(update, params, mu, nu), {"mu": mu, "nu": nu, "count": count}


def main():
    mesh = jax.make_mesh((4, 2), ("fsdp", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    config = Config()
    shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), Llama(P("tensor", "fsdp"), SPECS, P(), config), is_leaf=lambda s: isinstance(s, P))
    model = jax.jit(init, static_argnums=0, out_shardings=shardings)(config, jax.random.key(0))
    opt = {"mu": jax.tree.map(jnp.zeros_like, model), "nu": jax.tree.map(jnp.zeros_like, model), "count": jnp.zeros((), jnp.int32)}

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(model, opt, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(model, tokens, mesh)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), grads)
        model, opt = adamw(grads, opt, model)
        return model, opt, {"loss": loss, "norm": norm}

    rng = np.random.default_rng(0)
    for i in range(5):
        tokens = (rng.integers(0, 4, (8, 33)).cumsum(1) * 3 % config.vocab).astype(np.int32)
        tokens = jax.device_put(tokens, NamedSharding(mesh, P("fsdp")))
        model, opt, metrics = step(model, opt, tokens)
        print(f"step {i}", {k: round(float(v), 2) for k, v in metrics.items()})
    print(model.layers.wq.sharding.spec, model.layers.w2.sharding.spec, model.config.head_dim)
    print(model.layers.wq.addressable_shards[0].data.shape, type(model).__name__, int(opt["count"]))


main()
