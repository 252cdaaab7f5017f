"""Checks that survive jit, as JAX's guide to checkify shows them: of users, of indices, of divisions, of NaNs."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify


def first_line(error):
    message = error.get()
    return None if message is None else message.split("\n")[0].split(" (`")[0]


def f(x, i):
    checkify.check(i >= 0, "index needs to be non-negative, got {i}", i=i)
    y = x[i]
    z = jnp.sin(y)
    return z


jitted = jax.jit(checkify.checkify(f))
error, z = jitted(jnp.ones((5,)), -2)
print(first_line(error))
error, z = jitted(jnp.ones((5,)), 2)
print(first_line(error), z)
try:
    jitted(jnp.ones((5,)), -1)[0].throw()
except checkify.JaxRuntimeError as error:
    print("thrown", str(error).split("\n")[0].split(" (`")[0])

errors = checkify.user_checks | checkify.index_checks | checkify.float_checks
checked = checkify.checkify(f, errors=errors)
for x, i in ((jnp.ones((5,)), 100), (jnp.ones((5,)), -1), (jnp.array([jnp.inf, 1]), 0)):
    error, _ = checked(x, jnp.asarray(i))
    message = error.get()
    print("kind", [word for word in ("out-of-bounds", "non-negative", "nan generated") if word in message])


# -- as values, through batches, loops and branches
def positive_log(x):
    checkify.check(x > 0, "must be positive")
    return jnp.log(x)


error, values = jax.vmap(checkify.checkify(positive_log))(jnp.array([1.0, -1.0, 2.0]))
print("of members", "must be positive" in error.get(), "mapped index 1" in error.get())
error, _ = checkify.checkify(jax.vmap(positive_log))(jnp.array([1.0, -1.0, 2.0]))
print("inside", first_line(error))
error, _ = checkify.checkify(lambda xs: jax.lax.scan(lambda c, x: (c + positive_log(x), c), 0.0, xs))(jnp.array([3.0, 0.0]))
print("in a loop", first_line(error))
error, _ = jax.jit(checkify.checkify(lambda x: jax.lax.cond(x > 0, positive_log, lambda v: positive_log(v), x)))(-2.0)
print("in a branch", first_line(error))
error, out = checkify.checkify(lambda x: jax.lax.while_loop(lambda c: c > 1, lambda c: (checkify.check(c < 50, "large {c}", c=c), c / 2)[1], x))(100.0)
print("while", first_line(error), out)

# -- by kind
for name, kinds, function, argument in (
    ("division", checkify.div_checks, lambda x: 1 / x, 0.0),
    ("not a number", checkify.nan_checks, lambda x: jnp.log(x), -1.0),
    ("index", checkify.index_checks, lambda x: jnp.arange(3)[x.astype(int) if hasattr(x, "astype") else x], 7),
    ("float", checkify.float_checks, lambda x: 1 / x, 0.0),
    ("automatic", checkify.automatic_checks, lambda x: jnp.sqrt(x), -1.0),
    ("all", checkify.all_checks, lambda x: jnp.sqrt(x), 4.0),
    ("nothing asked", checkify.user_checks, lambda x: 1 / x, 0.0),
):
    error, _ = jax.jit(checkify.checkify(function, errors=kinds))(argument)
    message = error.get()
    print(name, message if message is None else [w for w in ("division by zero", "nan generated", "out-of-bounds") if w in message])


# -- with derivatives
def loss(x):
    checkify.check(jnp.all(x < 10), "too large: {}", x.max())
    return jnp.sum(x**2)


error, gradient = checkify.checkify(jax.grad(loss))(jnp.array([1.0, 20.0]))
print("gradient", first_line(error), gradient)
error, gradient = jax.jit(checkify.checkify(jax.grad(loss)))(jnp.array([1.0, 2.0]))
print("gradient", first_line(error), gradient)
error, value = checkify.checkify(lambda x: checkify.check(False, "always"))(1.0)
print("always", first_line(error))
try:
    jax.jit(loss)(jnp.ones(2))
except ValueError as error:
    print("without checkify", isinstance(error, ValueError))


# -- checks of checks
def discharged(x):
    error, y = checkify.checkify(positive_log)(x)
    checkify.check_error(error)
    return y


error, _ = checkify.checkify(discharged)(-3.0)
print("again", first_line(error))
checkify.debug_check(True, "nothing asks")
print("done")
