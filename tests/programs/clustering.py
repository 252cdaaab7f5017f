"""k-means with a convergence loop, Gaussian mixtures by EM, PCA by SVD: sharded points."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.ops import segment_sum
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("points",), axis_types=(jax.sharding.AxisType.Auto,))


@functools.partial(jax.jit, static_argnames=["k", "max_iterations"])
def kmeans(key, points, *, k, max_iterations=50):
    start = jax.random.choice(key, points, (k,), replace=False)

    def assign(centers):
        return jnp.argmin(jnp.sum((points[:, None] - centers) ** 2, axis=-1), axis=1)

    def body(state):
        i, centers, _ = state
        labels = assign(centers)
        counts = segment_sum(jnp.ones(len(points)), labels, num_segments=k)
        sums = segment_sum(points, labels, k)
        new = jnp.where(counts[:, None] > 0, sums / jnp.maximum(counts, 1)[:, None], centers)
        return i + 1, new, jnp.abs(new - centers).max()

    i, centers, _ = jax.lax.while_loop(lambda s: (s[0] < max_iterations) & (s[2] > 1e-5), body, (0, start, jnp.inf))
    return i, centers, assign(centers)


@jax.jit
def em(points, means):
    def step(carry, _):
        means, covs, weights = carry
        logp = jax.vmap(jax.scipy.stats.multivariate_normal.logpdf, in_axes=(None, 0, 0), out_axes=1)(points, means, covs)
        logits = logp + jnp.log(weights)
        resp = jax.nn.softmax(logits, axis=1)
        total = resp.sum(0)
        means = jnp.einsum("nk,nd->kd", resp, points) / total[:, None]
        centered = points[:, None] - means
        covs = jnp.einsum("nk,nkd,nke->kde", resp, centered, centered) / total[:, None, None] + 1e-4 * jnp.eye(points.shape[1])
        return (means, covs, total / len(points)), jax.nn.logsumexp(logits, axis=1).sum()

    k, d = means.shape
    return jax.lax.scan(step, (means, jnp.tile(jnp.eye(d), (k, 1, 1)), jnp.full(k, 1 / k)), None, length=10)


def main():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(c, 0.4, (40, 3)) for c in ((0, 0, 0), (3, 1, 0), (0, 3, 2))]).astype(np.float32)
    x = jax.device_put(points, NamedSharding(mesh, P("points", None)))
    i, centers, labels = kmeans(jax.random.key(1), x, k=3)
    order = jnp.lexsort(centers.T[::-1])
    print("centers", np.asarray(centers)[np.asarray(order)].round(3), "sizes", jnp.sort(jnp.bincount(labels, length=3)))
    (means, covs, weights), history = em(x, centers[order])
    print("em", means.round(2), weights.round(3), history[-1].round(1))
    centered = x - x.mean(0, keepdims=True)
    u, s, vt = jnp.linalg.svd(centered, full_matrices=False)
    print("pca", s.round(3), jnp.abs(vt[0]).round(3))
    print("unique", jnp.unique(labels, return_counts=True)[1].sum(), jnp.histogram(x[:, 0], bins=4)[0])


main()
