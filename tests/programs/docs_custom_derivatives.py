"""Rules of one's own for derivatives, topic by topic as JAX's tutorial has them."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import custom_jvp, custom_vjp, grad, jit, jvp, lax, vjp, vmap

np.set_printoptions(precision=4, suppress=True)


# -- both kinds, first of all
@custom_jvp
def f(x, y):
    return jnp.sin(x) * y


@f.defjvp
def f_jvp(primals, tangents):
    x, y = primals
    x_dot, y_dot = tangents
    return f(x, y), jnp.cos(x) * x_dot * y + jnp.sin(x) * y_dot


y, y_dot = jvp(f, (2.0, 3.0), (1.0, 0.0))
print("jvp", y, y_dot, grad(f)(2.0, 3.0))


@custom_vjp
def g(x, y):
    return jnp.sin(x) * y


g.defvjp(lambda x, y: (g(x, y), (jnp.cos(x), jnp.sin(x), y)), lambda res, ct: (res[0] * ct * res[2], res[1] * ct))
print("vjp", grad(g)(2.0, 3.0), jit(grad(g, 1))(2.0, 3.0))


# -- numbers that are too large
def naive(x):
    return jnp.log(1.0 + jnp.exp(x))


print("naive", jit(naive)(3.0), vmap(jit(grad(naive)))(jnp.arange(3.0)), grad(naive)(100.0))


@custom_jvp
def softened(x):
    return jnp.log(1.0 + jnp.exp(x))


@softened.defjvp
def softened_jvp(primals, tangents):
    (x,), (x_dot,) = primals, tangents
    return softened(x), (1 - 1 / (1 + jnp.exp(x))) * x_dot


print("mended", grad(softened)(100.0), vmap(jit(grad(softened)))(jnp.arange(3.0)), grad(grad(softened))(1.0))


# -- a convention at the edge
@custom_jvp
def ratio(x):
    return x / (1 + jnp.sqrt(x))


ratio.defjvp(lambda primals, tangents: (ratio(*primals), ((jnp.sqrt(primals[0]) + 2) / (2 * (jnp.sqrt(primals[0]) + 1) ** 2)) * tangents[0]))
print("at the edge", grad(ratio)(0.0), grad(lambda x: x / (1 + jnp.sqrt(x)))(0.0))


# -- clipping of gradients
@partial(custom_vjp, nondiff_argnums=(0, 1))
def clip_gradient(low, high, x):
    return x


clip_gradient.defvjp(lambda low, high, x: (x, None), lambda low, high, _, ct: (jnp.clip(ct, low, high),))
print("clipped", vmap(grad(lambda t: 3 * jnp.sin(clip_gradient(-0.75, 0.75, t))))(jnp.linspace(0, 6, 5)))


@jax.custom_gradient
def clip_too(x):
    return x, lambda ct: jnp.clip(ct, -0.5, 0.5)


print("clipped again", grad(lambda t: 3 * jnp.sin(clip_too(t)))(0.3))


# -- a fixed point, differentiated where it ends
@partial(custom_vjp, nondiff_argnums=(0,))
def fixed_point(step, a, guess):
    def unfinished(carry):
        before, now = carry
        return jnp.abs(before - now) > 1e-6

    return lax.while_loop(unfinished, lambda c: (c[1], step(a, c[1])), (guess, step(a, guess)))[1]


def fixed_point_fwd(step, a, guess):
    end = fixed_point(step, a, guess)
    return end, (a, end)


def fixed_point_bwd(step, res, end_bar):
    a, end = res
    _, vjp_a = vjp(lambda a: step(a, end), a)
    (a_bar,) = vjp_a(fixed_point(partial(backwards, step), (a, end, end_bar), end_bar))
    return a_bar, jnp.zeros_like(end)


def backwards(step, packed, u):
    a, end, end_bar = packed
    _, vjp_x = vjp(lambda x: step(a, x), end)
    return end_bar + vjp_x(u)[0]


fixed_point.defvjp(fixed_point_fwd, fixed_point_bwd)


def newton(a):
    return fixed_point(lambda a, x: 0.5 * (x + a / x), a, a)


print("roots", newton(2.0), grad(newton)(2.0), jit(vmap(grad(newton)))(jnp.array([1.0, 2.0, 3.0])), grad(grad(newton))(2.0))


# -- what rules are told of
@partial(custom_jvp, nondiff_argnums=(0,))
def applied(function, x):
    return function(x)


@applied.defjvp
def applied_jvp(function, primals, tangents):
    (x,), (x_dot,) = primals, tangents
    return function(x), 2.0 * x_dot


print("a function as an argument", applied(lambda x: x**3, 3.0), grad(applied, 1)(lambda x: x**3, 3.0))


@custom_jvp
def three(x, y, z):
    return x * y * z


three.defjvps(lambda t, ans, x, y, z: y * z * t, None, lambda t, ans, x, y, z: 10 * x * y * t)
print("one rule per argument", grad(three, (0, 1, 2))(2.0, 3.0, 4.0))


@custom_vjp
def of_a_tree(p):
    return {"out": p["x"] ** 2 + jnp.sin(p["y"]), "n": p["n"]}


of_a_tree.defvjp(lambda p: (of_a_tree(p), p), lambda p, ct: ({"x": 2 * p["x"] * ct["out"], "y": None, "n": None},))
print("trees", grad(lambda x, y: of_a_tree({"x": x, "y": y, "n": 3})["out"], (0, 1))(1.5, 2.5))


# -- to look at cotangents on their way
@custom_vjp
def watched(x):
    return x


def watched_bwd(_, ct):
    jax.debug.print("cotangent {}", ct)
    return (ct,)


watched.defvjp(lambda x: (x, None), watched_bwd)
print("watched", jit(grad(lambda x: jnp.sin(watched(x**2))))(0.5))
jax.effects_barrier()


# -- under every transformation, many at once
def forms(h, x):
    yield "jit", jit(h)(x)
    yield "grad", grad(lambda v: h(v).sum())(x)
    yield "vmap", vmap(h)(x)
    yield "jit of vmap of grad", jit(vmap(grad(h)))(x)
    yield "in a scan", grad(lambda v: lax.scan(lambda c, _: (h(c), None), v, None, length=3)[0].sum())(x)
    yield "remat", grad(lambda v: jax.checkpoint(h)(v).sum())(x)
    yield "in a branch", grad(lambda v: lax.cond(v.sum() > 0, h, lambda q: q, v).sum())(x)


for name, value in forms(softened, jnp.array([0.5, 1.5, -2.0])):
    print(name, value)
for name, value in forms(jax.custom_vjp(jnp.sin) if False else clip_too, jnp.array([0.5, 1.5])):
    print(name, value)
print("forward over reverse", jax.jacfwd(grad(softened))(0.7), jax.hessian(softened)(0.7))
try:
    jvp(clip_too, (1.0,), (1.0,))
except TypeError as error:
    print("TypeError", "forward-mode" in str(error))
