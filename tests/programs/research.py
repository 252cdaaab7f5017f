"""A notebook's code: no jit, values looked at while differentiating, Python objects as arguments, NumPy functions on arrays."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass
class Schedule:
    base: float
    warmup: int

    def __call__(self, step):
        return self.base * min(1.0, (step + 1) / self.warmup)


def huber(x, delta=1.0):
    if abs(x) < delta:
        return 0.5 * x**2
    return delta * (abs(x) - 0.5 * delta)


def newton(f, x, tol=1e-6):
    steps = 0
    while abs(f(x)) > tol and steps < 50:
        x = x - f(x) / jax.grad(f)(x)
        steps += 1
    return x, steps


def power_series(x, terms):
    total, term = 0.0, 1.0
    for n in range(terms):
        total = total + term
        term = term * x / (n + 1)
        if abs(term) < 1e-7:
            break
    return total


def objective(params, schedule, activation, mode, data, *, verbose=False):
    x, y = data
    hidden = activation(x @ params["w"] + params["b"])
    error = hidden.mean(1) - y
    if mode == "robust":
        value = jnp.mean(jnp.where(jnp.abs(error) < 0.1, error**2, 0.1 * jnp.abs(error)))
    else:
        value = jnp.mean(error**2)
    if verbose and value > 0.01:
        print("large", bool(value > 0.01), schedule.base)
    return value, {"mode": mode, "worst": jnp.abs(error).max(), "schedule": schedule}


def main():
    print("huber", jax.grad(huber)(0.5), jax.grad(huber)(-3.0), jax.value_and_grad(huber)(2.0, delta=5.0))
    print("newton", newton(lambda x: x**3 - 2.0, 1.0)[0], jax.grad(lambda a: newton(lambda x: x**2 - a, 1.0)[0])(2.0))
    print("series", jax.grad(power_series)(1.0, 30), jax.jvp(lambda x: power_series(x, 20), (0.5,), (2.0,)))
    params = {"w": jnp.full((3, 4), 0.1), "b": jnp.zeros(4)}
    data = np.linspace(0, 1, 15).reshape(5, 3).astype(np.float32), np.linspace(-1, 1, 5).astype(np.float32)
    schedule = Schedule(0.5, 3)
    for step, mode in enumerate(["robust", "plain", "plain"]):
        (value, aux), grads = jax.value_and_grad(objective, has_aux=True)(params, schedule, jnp.tanh, mode, data, verbose=True)
        params = jax.tree.map(lambda p, g: p - schedule(step) * g, params, grads)
        print(step, float(value), aux["mode"], round(float(aux["worst"]), 5), aux["schedule"] is schedule)
    f = jax.jit(lambda x: jnp.tanh(x) + jnp.sum(x * np.float32(2)))
    print("numpy", f(jnp.arange(3.0)), np.asarray(params["w"]).mean().round(6), math.floor(jnp.float32(2.5)))
    y, pull = jax.vjp(lambda x: x * (3 if x > 2 else 1), 2.5)
    print("vjp", y, pull(1.0), jax.linearize(lambda x: x**2 if x > 1 else x, 3.0)[1](1.0))
    choices = ["left", "right"]
    print("index", choices[jnp.argmax(jnp.array([0.1, 0.9]))], [i for i in range(jnp.int32(3))], f"{jnp.float32(1.5):.2f}")
    print("mapped", jax.vmap(lambda c, x: c["scale"] * x if c["on"] else x, (None, 0))({"scale": 2.0, "on": True}, jnp.arange(3.0)))
    static = jax.checkpoint(lambda x, flag: jnp.sin(x) if flag else x, static_argnums=1)
    print("remat", jax.grad(static)(1.0, True), jax.grad(static)(1.0, False))
    print("jaxpr", [e.primitive.name for e in jax.make_jaxpr(lambda x: jnp.sin(x) * 2.0)(1.0).jaxpr.eqns])


main()
