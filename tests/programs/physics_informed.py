"""A physics-informed network: nested grads, hessians, jvp of grad, laplacians by forward-over-reverse, L-BFGS-like line search."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as onp
from jax import grad, hessian, jacfwd, jacrev, jit, jvp, random, vmap


def mlp(params, x):
    *hidden, (w, b) = params
    for v, c in hidden:
        x = jnp.tanh(jnp.dot(x, v) + c)
    return (jnp.dot(x, w) + b)[0]


def init(key, sizes):
    return [
        (random.normal(k, (m, n)) * jnp.sqrt(2.0 / (m + n)), jnp.zeros((n,)))
        for k, m, n in zip(random.split(key, len(sizes)), sizes[:-1], sizes[1:], strict=False)
    ]


def u(params, t, x):
    return mlp(params, jnp.stack([t, x]))


def residual(params, t, x, nu=0.01 / jnp.pi):
    u_t = grad(u, argnums=1)(params, t, x)
    u_x = grad(u, argnums=2)(params, t, x)
    u_xx = grad(grad(u, argnums=2), argnums=2)(params, t, x)
    return u_t + u(params, t, x) * u_x - nu * u_xx


def laplacian(f):
    def lap(x):
        eye = jnp.eye(x.shape[0])
        g = grad(f)
        return sum(jvp(g, (x,), (e,))[1] @ e for e in eye)

    return lap


def loss(params, interior, initial, boundary):
    r = vmap(partial(residual, params))(interior[:, 0], interior[:, 1])
    u0 = vmap(u, (None, None, 0))(params, 0.0, initial)
    ub = vmap(lambda t: jnp.array([u(params, t, -1.0), u(params, t, 1.0)]))(boundary)
    return jnp.mean(r**2) + jnp.mean((u0 + jnp.sin(jnp.pi * initial)) ** 2) + jnp.mean(ub**2)


@jit
def adam(params, m, v, i, *batch):
    value, g = jax.value_and_grad(loss)(params, *batch)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)

    def upd(p, m, v):
        return p - 1e-2 * (m / (1 - 0.9**i)) / (jnp.sqrt(v / (1 - 0.99**i)) + 1e-8)

    return jax.tree.map(upd, params, m, v), m, v, value


params = init(random.PRNGKey(0), [2, 20, 20, 1])
zeros = jax.tree.map(jnp.zeros_like, params)
m, v = zeros, zeros
interior = random.uniform(random.PRNGKey(1), (64, 2), minval=jnp.array([0.0, -1.0]), maxval=jnp.array([1.0, 1.0]))
initial, boundary = jnp.linspace(-1, 1, 32), jnp.linspace(0, 1, 16)
for i in range(1, 31):
    params, m, v, value = adam(params, m, v, i, interior, initial, boundary)
    if i % 10 == 0:
        print(i, f"{value:.3f}")
point = jnp.array([0.3, 0.2])


def f(z):
    return u(params, z[0], z[1])


H = hessian(f)(point)
print(jnp.allclose(H, jacfwd(jacrev(f))(point), atol=1e-4), jnp.allclose(H, jacrev(jacfwd(f))(point), atol=1e-4))
print("laplacian", jnp.allclose(laplacian(f)(point), jnp.trace(H), atol=1e-4))
third = jacfwd(jacfwd(jacfwd(f)))(point)
print(third.shape, jnp.allclose(third[0, 1, 0], third[1, 0, 0], atol=1e-3))


def hvp(v):
    return jvp(grad(f), (point,), (v,))[1]


print(onp.allclose(vmap(hvp)(jnp.eye(2)), H, atol=1e-4))
J = jacrev(lambda p: vmap(partial(residual, p))(interior[:4, 0], interior[:4, 1]))(params)
print(jax.tree.map(lambda a: a.shape, J))
gn = sum(jnp.sum(a.reshape(4, -1) ** 2) for a in jax.tree.leaves(J))
print(bool(gn > 0), jit(grad(lambda x: jnp.sin(x) ** 3))(0.5), grad(grad(grad(jnp.tanh)))(0.3))
print(jax.vjp(f, point)[0].shape, jax.linearize(f, point)[1](jnp.ones(2)).dtype)
