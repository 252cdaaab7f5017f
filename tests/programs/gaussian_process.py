"""Gaussian process regression: Cholesky, hyperparameters by BFGS, Laplace approximation, implicit differentiation of a solver."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jax.scipy.optimize import minimize

jax.config.update("jax_enable_x64", True)


def kernel(params, a, b):
    scaled = (a[:, None, :] - b[None, :, :]) / jnp.exp(params["scale"])
    return jnp.exp(2 * params["amplitude"]) * jnp.exp(-0.5 * jnp.sum(scaled**2, -1))


def negative_log_likelihood(params, x, y):
    n = x.shape[0]
    k = kernel(params, x, x) + (jnp.exp(2 * params["noise"]) + 1e-6) * jnp.eye(n)
    factor = cho_factor(k, lower=True)
    return 0.5 * y @ cho_solve(factor, y) + jnp.log(jnp.diag(factor[0])).sum() + 0.5 * n * jnp.log(2 * jnp.pi)


def posterior(params, x, y, xs):
    k = kernel(params, x, x) + (jnp.exp(2 * params["noise"]) + 1e-6) * jnp.eye(len(x))
    l = jnp.linalg.cholesky(k)
    cross = kernel(params, x, xs)
    v = solve_triangular(l, cross, lower=True)
    mean = cross.T @ cho_solve((l, True), y)
    return mean, jnp.diag(kernel(params, xs, xs)) - jnp.sum(v**2, axis=0)


@jax.custom_vjp
def fixed_point(a, x0):
    step = lambda x: jnp.cos(a * x)
    return jax.lax.while_loop(lambda s: jnp.abs(s[0] - s[1]) > 1e-12, lambda s: (step(s[0]), s[0]), (step(x0), x0))[0]


def fixed_point_fwd(a, x0):
    x = fixed_point(a, x0)
    return x, (a, x)


def fixed_point_bwd(res, g):
    a, x = res
    _, vjp_a = jax.vjp(lambda a: jnp.cos(a * x), a)
    slope = -jnp.sin(a * x) * a
    return vjp_a(g / (1 - slope))[0], jnp.zeros_like(x)


fixed_point.defvjp(fixed_point_fwd, fixed_point_bwd)


def main():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, (40, 1)), axis=0)
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=40)
    params = {"scale": jnp.zeros(1), "amplitude": jnp.array(0.0), "noise": jnp.array(-1.0)}
    flat, unravel = ravel_pytree(params)
    objective = jax.jit(lambda p: negative_log_likelihood(unravel(p), x, y))
    result = minimize(objective, flat, method="BFGS", tol=1e-6)
    best = unravel(result.x)
    print("nll", round(float(result.fun), 3), {k: np.round(v, 2).tolist() for k, v in best.items()})
    mean, var = jax.jit(posterior)(best, x, y, np.linspace(-3, 3, 5)[:, None])
    print("posterior", mean.round(3), var.round(4), mean.dtype)
    hessian = jax.hessian(objective)(result.x)
    print("laplace", jnp.linalg.slogdet(hessian)[0], jnp.linalg.eigvalsh(hessian).min() > 0)
    print("fixed point", fixed_point(0.9, 0.5), jax.grad(fixed_point)(0.9, 0.5), jax.vmap(jax.grad(fixed_point), (0, None))(jnp.array([0.3, 0.6]), 0.5))


main()
