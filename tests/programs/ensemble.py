"""Ensembles with pmap: replicated parameters, pmean of gradients, per-device keys, in_axes and static arguments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

n = jax.local_device_count()


def model(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return (x @ w + b).squeeze(-1)


def init(key, sizes):
    keys = jax.random.split(key, len(sizes))
    return [(jax.random.normal(k, (a, b)) * a**-0.5, jnp.zeros(b)) for k, a, b in zip(keys, sizes[:-1], sizes[1:])]


@functools.partial(jax.pmap, axis_name="devices", donate_argnums=0)
def synchronous(params, x, y):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((model(p, x) - y) ** 2))(params)
    grads = jax.lax.pmean(grads, axis_name="devices")
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), jax.lax.pmean(loss, "devices")


@functools.partial(jax.pmap, in_axes=(0, 0, None, None), static_broadcasted_argnums=4)
def independent(params, key, x, y, steps):
    def step(params, key):
        rows = jax.random.randint(key, (8,), 0, x.shape[0])
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((model(p, x[rows]) - y[rows]) ** 2))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss

    return jax.lax.scan(step, params, jax.random.split(key, steps))


def main():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    y = np.sin(x.sum(1))
    params = init(jax.random.PRNGKey(0), [4, 16, 1])
    replicated = jax.tree.map(lambda p: jnp.broadcast_to(p, (n, *p.shape)), params)
    xs, ys = x.reshape(n, -1, 4), y.reshape(n, -1)
    for i in range(5):
        replicated, loss = synchronous(replicated, xs, ys)
    print("synchronous", loss.shape, np.asarray(loss)[:2].round(5), np.ptp(np.asarray(replicated[0][0]), axis=0).max())

    members = jax.vmap(lambda k: init(k, [4, 16, 1]))(jax.random.split(jax.random.PRNGKey(1), n))
    keys = jax.random.split(jax.random.PRNGKey(2), n)
    members, losses = independent(members, keys, x, y, 10)
    print("members", losses.shape, np.asarray(losses[:, -1]).round(4))
    spread = jax.pmap(lambda p: model(p, x), out_axes=1)(members)
    print("spread", spread.shape, float(spread.std(1).mean()))
    ranks = jax.pmap(lambda v: (jax.lax.axis_index("i"), jax.lax.psum(v, "i"), jax.lax.all_gather(v, "i").sum()), axis_name="i")(jnp.arange(n, dtype=jnp.float32))
    print("ranks", *(r.tolist() for r in ranks))


main()
