"""A variational autoencoder and a small denoising diffusion model: reparametrisation, EMA, sampling in a loop."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import grad, jit, lax, random, vmap
from jax.scipy.special import logsumexp


def dense_init(key, n_in, n_out):
    k1, k2 = random.split(key)
    return random.normal(k1, (n_in, n_out)) / jnp.sqrt(n_in), 0.01 * random.normal(k2, (n_out,))


def mlp_init(key, sizes):
    return [dense_init(k, m, n) for k, m, n in zip(random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:])]


def mlp(params, x):
    *hidden, (w, b) = params
    for hw, hb in hidden:
        x = jax.nn.softplus(x @ hw + hb)
    return x @ w + b


def elbo(params, key, x):
    mean, logvar = jnp.split(mlp(params["encoder"], x), 2, axis=-1)
    z = mean + jnp.exp(0.5 * logvar) * random.normal(key, mean.shape)
    logits = mlp(params["decoder"], z)
    log_lik = jnp.sum(jnp.where(x > 0.5, -jnp.logaddexp(0.0, -logits), -jnp.logaddexp(0.0, logits)), -1)
    kl = 0.5 * jnp.sum(jnp.exp(logvar) + mean**2 - 1.0 - logvar, -1)
    return log_lik - kl


def importance_bound(params, x, key, samples=16):
    bounds = vmap(lambda k: elbo(params, k, x))(random.split(key, samples))
    return logsumexp(bounds, axis=0) - jnp.log(samples)


def train_vae():
    key = random.PRNGKey(1)
    x = (np.random.default_rng(1).random((32, 20)) < np.linspace(0.1, 0.9, 20)).astype(np.float32)
    params = {"encoder": mlp_init(random.fold_in(key, 0), [20, 16, 8]), "decoder": mlp_init(random.fold_in(key, 1), [4, 16, 20])}

    @jit
    def run(params, key):
        def body(carry, key):
            params, velocity = carry
            loss, grads = jax.value_and_grad(lambda p: -elbo(p, key, x).mean())(params)
            velocity = jax.tree_util.tree_map(lambda v, g: 0.8 * v + g, velocity, grads)
            return (jax.tree_util.tree_map(lambda p, v: p - 1e-2 * v, params, velocity), velocity), loss

        return lax.scan(body, (params, jax.tree_util.tree_map(jnp.zeros_like, params)), random.split(key, 30))

    (params, _), losses = run(params, key)
    print("elbo", losses[::10], losses[-1])
    print("iwae", jit(importance_bound, static_argnames="samples")(params, x, key, samples=8).mean())


def train_ddpm(steps=20):
    betas = jnp.linspace(1e-3, 0.2, steps)
    alphas = 1 - betas
    bars = jnp.cumprod(alphas)
    key = random.key(7)
    angle = jnp.linspace(0, 2 * jnp.pi, 64, endpoint=False)
    points = jnp.stack([jnp.cos(angle), 0.5 * jnp.sin(angle)], axis=1)
    params = mlp_init(key, [3, 32, 2])

    def predict(params, x, t):
        return mlp(params, jnp.concatenate([x, jnp.full((*x.shape[:-1], 1), t / steps)], -1))

    def loss(params, key):
        k1, k2 = random.split(key)
        t = random.randint(k1, (64,), 0, steps)
        noise = random.normal(k2, points.shape)
        noisy = jnp.sqrt(bars[t])[:, None] * points + jnp.sqrt(1 - bars[t])[:, None] * noise
        return jnp.mean((vmap(predict, (None, 0, 0))(params, noisy, t) - noise) ** 2)

    @jit
    def step(i, state):
        params, ema, key = state
        key, sub = random.split(key)
        params = jax.tree.map(lambda p, g: p - 0.05 * g, params, grad(loss)(params, sub))
        return params, jax.tree.map(lambda e, p: 0.95 * e + 0.05 * p, ema, params), key

    params, ema, key = lax.fori_loop(0, 50, step, (params, params, key))

    def sample(i, carry):
        x, key = carry
        t = steps - 1 - i
        key, sub = random.split(key)
        mean = (x - betas[t] / jnp.sqrt(1 - bars[t]) * predict(ema, x, t)) / jnp.sqrt(alphas[t])
        return mean + jnp.where(t > 0, jnp.sqrt(betas[t]), 0.0) * random.normal(sub, x.shape), key

    x, _ = jit(lambda c: lax.fori_loop(0, steps, sample, c))((random.normal(key, (8, 2)), key))
    print("loss", loss(params, key), "samples", x[:2].round(3), jnp.abs(x).max())


train_vae()
train_ddpm()
