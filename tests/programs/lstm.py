"""A character LSTM: scan over time with a carried pair, gradient clipping, sampling and beam search."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

TEXT = "the quick brown fox jumps over the lazy dog. " * 8
CHARS = sorted(set(TEXT))
ids = np.array([CHARS.index(c) for c in TEXT], dtype=np.int32)
N, H = len(CHARS), 24


def init(key):
    k = jax.random.split(key, 4)
    ortho = jax.nn.initializers.orthogonal()
    return dict(
        embed=jax.random.normal(k[0], (N, H)) * 0.1,
        wx=jax.nn.initializers.lecun_normal()(k[1], (H, 4 * H)),
        wh=jnp.concatenate([ortho(kk, (H, H)) for kk in jax.random.split(k[2], 4)], axis=1),
        b=jnp.zeros(4 * H).at[H : 2 * H].set(1.0),
        out=jax.random.normal(k[3], (H, N)) * 0.1,
    )


def cell(params, carry, x):
    h, c = carry
    i, f, g, o = jnp.split(x @ params["wx"] + h @ params["wh"] + params["b"], 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h @ params["out"]


def zero_state(batch=()):
    return jnp.zeros((*batch, H)), jnp.zeros((*batch, H))


def loss_fn(params, inputs, targets):
    _, logits = lax.scan(partial(cell, params), zero_state((inputs.shape[0],)), params["embed"][inputs].swapaxes(0, 1), unroll=2)
    logp = jax.nn.log_softmax(logits.swapaxes(0, 1))
    return -jnp.mean(jnp.sum(logp * jax.nn.one_hot(targets, N), -1))


@jax.jit
def update(params, inputs, targets, lr):
    loss, grads = jax.value_and_grad(loss_fn)(params, inputs, targets)
    norm = jnp.sqrt(jax.tree.reduce(lambda s, g: s + jnp.sum(g**2), grads, 0.0))
    scale = jnp.where(norm > 1.0, 1.0 / norm, 1.0)
    return jax.tree.map(lambda p, g: p - lr * scale * g, params, grads), loss


@partial(jax.jit, static_argnums=2)
def greedy(params, first, length):
    def step(carry, _):
        state, token = carry
        state, logits = cell(params, state, params["embed"][token])
        token = jnp.argmax(logits).astype(jnp.int32)
        return (state, token), token

    return lax.scan(step, (zero_state(), first), None, length)[1]


@partial(jax.jit, static_argnames=("width", "length"))
def beam(params, first, width=3, length=6):
    def step(carry, _):
        states, tokens, scores = carry
        states, logits = jax.vmap(partial(cell, params))(states, params["embed"][tokens])
        total = scores[:, None] + jax.nn.log_softmax(logits)
        scores, flat = lax.top_k(total.ravel(), width)
        parents, tokens = jnp.divmod(flat, N)
        return (jax.tree.map(lambda s: s[parents], states), tokens, scores), (parents, tokens)

    scores = jnp.full(width, -jnp.inf).at[0].set(0.0)
    (_, _, scores), path = lax.scan(step, (zero_state((width,)), jnp.full(width, first), scores), length=length)
    return scores, path


def main():
    params = init(jax.random.PRNGKey(0))
    starts = itertools.cycle(range(0, len(ids) - 33, 16))
    for i in range(25):
        rows = np.stack([ids[s : s + 33] for s in itertools.islice(starts, 8)])
        params, loss = update(params, rows[:, :-1], rows[:, 1:], 0.8)
        if i % 8 == 0:
            print(f"{i:3d} {loss:.4f}")
    print("greedy", len(greedy(params, ids[0], 12)), "beam", beam(params, ids[0])[0].round(3))
    sharp = jax.jacrev(lambda e: cell(params, zero_state(), e)[1])(params["embed"][0])
    print("jacobian", sharp.shape, jnp.linalg.norm(sharp).round(4))


main()
