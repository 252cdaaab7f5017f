"""Programs that count how often the body of a function runs in Python, for meshjit and for JAX alike.

    python -m tests.tools.trace_counts jax meshjit      prints the counts of both (JAX where it is installed)

Each case is a function of (jax, jnp, lax, counted) that calls some body several times; `counted(f)` is f, counted. The number of
runs that JAX 0.10.2 needs stands in COUNTS, in `tests/test_trace_once.py`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

CASES: dict[str, Callable[..., Any]] = {}


def case(function: Callable[..., Any]) -> Callable[..., Any]:
    CASES[function.__name__] = function
    return function


def runs(name: str, jax: Any) -> int:
    """How often the counted functions of a case ran."""
    count = 0

    def counted(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def body(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            return f(*args, **kwargs)

        return body

    jax.clear_caches()
    CASES[name](jax, jax.numpy, jax.lax, counted)
    return count


# -- loops and branches, called twice with equal types


@case
def scan_twice(jax, jnp, lax, counted):
    body = counted(lambda c, x: (c + x, c))
    for k in range(3):
        lax.scan(body, jnp.float32(k), jnp.arange(4.0) + k)


@case
def scan_twice_in_jit(jax, jnp, lax, counted):
    body = counted(lambda c, x: (c + x, c))

    def twice(x):
        c, _ = lax.scan(body, jnp.float32(0), x)
        return lax.scan(body, c, x)

    jax.jit(twice)(jnp.arange(4.0))


@case
def scan_in_two_jits(jax, jnp, lax, counted):
    body = counted(lambda c, x: (c + x, c))
    jax.jit(lambda x: lax.scan(body, jnp.float32(0), x))(jnp.arange(4.0))
    jax.jit(lambda x: lax.scan(body, jnp.float32(0), x * 2))(jnp.arange(4.0))


@case
def scan_other_shapes(jax, jnp, lax, counted):
    body = counted(lambda c, x: (c + x.sum(), c))
    for n in (2, 3, 2):
        lax.scan(body, jnp.float32(0), jnp.ones((4, n)))


@case
def scan_other_length(jax, jnp, lax, counted):
    body = counted(lambda c, x: (c + x, c))
    for n in (2, 3, 4):
        lax.scan(body, jnp.float32(0), jnp.ones(n))


@case
def scan_under_grad(jax, jnp, lax, counted):
    body = counted(lambda c, x: (c * x, None))

    def f(x):
        return lax.scan(body, x, jnp.arange(1.0, 4.0))[0]

    for k in range(3):
        jax.grad(f)(jnp.float32(k))


@case
def scan_under_vmap(jax, jnp, lax, counted):
    body = counted(lambda c, x: (c * x, None))

    def f(x):
        return lax.scan(body, x, jnp.arange(1.0, 4.0))[0]

    for _ in range(3):
        jax.vmap(f)(jnp.arange(3.0))


@case
def scan_weak_carry(jax, jnp, lax, counted):
    body = counted(lambda c, x: (c * x, None))
    for _ in range(2):
        lax.scan(body, 1.0, jnp.arange(1.0, 4.0))


@case
def scan_promoted_carry(jax, jnp, lax, counted):
    body = counted(lambda c, x: (c * x, None))
    for _ in range(2):
        lax.scan(body, 1, jnp.arange(1.0, 4.0))


@case
def scan_captures_array(jax, jnp, lax, counted):
    w = jnp.arange(3.0)
    body = counted(lambda c, x: (c + w * x, None))
    for _ in range(3):
        lax.scan(body, jnp.zeros(3), jnp.arange(4.0))


@case
def scan_captures_tracer(jax, jnp, lax, counted):
    def f(w):
        body = counted(lambda c, x: (c + w * x, None))
        a, _ = lax.scan(body, jnp.zeros(3), jnp.arange(4.0))
        b, _ = lax.scan(body, a, jnp.arange(4.0))
        return b

    jax.jit(f)(jnp.arange(3.0))


@case
def scan_in_x64(jax, jnp, lax, counted):
    body = counted(lambda c, x: (c + x, c))
    lax.scan(body, jnp.float32(0), jnp.ones(4, jnp.float32))
    with jax.enable_x64(True):
        lax.scan(body, jnp.float32(0), jnp.ones(4, jnp.float32))
    lax.scan(body, jnp.float32(0), jnp.ones(4, jnp.float32))


@case
def scan_in_precision(jax, jnp, lax, counted):
    body = counted(lambda c, x: (c + x @ x, c))
    lax.scan(body, jnp.zeros(()), jnp.ones((4, 3)))
    with jax.default_matmul_precision("float32"):
        lax.scan(body, jnp.zeros(()), jnp.ones((4, 3)))
    lax.scan(body, jnp.zeros(()), jnp.ones((4, 3)))


@case
def while_twice(jax, jnp, lax, counted):
    cond, body = counted(lambda c: c < 10), counted(lambda c: c + 3)
    for k in range(3):
        lax.while_loop(cond, body, jnp.int32(k))


@case
def while_weak(jax, jnp, lax, counted):
    cond, body = counted(lambda c: c < 10), counted(lambda c: c + 3)
    for k in range(3):
        lax.while_loop(cond, body, k)


@case
def while_under_jvp(jax, jnp, lax, counted):
    cond, body = counted(lambda c: c[0] < 10), counted(lambda c: (c[0] + 3, c[1] * 2))
    for k in range(3):
        jax.jvp(lambda x: lax.while_loop(cond, body, (0, x))[1], (jnp.float32(k),), (jnp.float32(1),))


@case
def fori_static(jax, jnp, lax, counted):
    body = counted(lambda i, c: c + i)
    for k in range(3):
        lax.fori_loop(0, 4, body, jnp.float32(k))


@case
def fori_dynamic(jax, jnp, lax, counted):
    body = counted(lambda i, c: c + i)
    for k in range(3):
        lax.fori_loop(0, jnp.int32(k), body, jnp.float32(k))


@case
def fori_other_bounds(jax, jnp, lax, counted):
    body = counted(lambda i, c: c + i)
    for k in range(3):
        lax.fori_loop(0, 4 + k, body, jnp.float32(k))


@case
def cond_twice(jax, jnp, lax, counted):
    f, g = counted(lambda x: x + 1), counted(lambda x: x * 2)
    for k in range(3):
        lax.cond(k > 1, f, g, jnp.float32(k))


@case
def cond_under_grad(jax, jnp, lax, counted):
    f, g = counted(lambda x: x + 1), counted(lambda x: x * 2)
    for k in range(3):
        jax.grad(lambda x: lax.cond(x > 1, f, g, x))(jnp.float32(k))


@case
def cond_same_function(jax, jnp, lax, counted):
    f = counted(lambda x: x + 1)
    lax.cond(True, f, f, jnp.float32(1))


@case
def cond_no_operands(jax, jnp, lax, counted):
    f, g = counted(lambda: jnp.float32(1)), counted(lambda: jnp.float32(2))
    for k in range(3):
        lax.cond(k > 1, f, g)


@case
def switch_twice(jax, jnp, lax, counted):
    branches = [counted(lambda x, k=k: x + k) for k in range(3)]
    for k in range(3):
        lax.switch(k, branches, jnp.float32(k))


@case
def map_twice(jax, jnp, lax, counted):
    f = counted(lambda x: x * 2)
    for k in range(3):
        lax.map(f, jnp.arange(4.0) + k)


@case
def map_batched(jax, jnp, lax, counted):
    f = counted(lambda x: x * 2)
    for k in range(3):
        lax.map(f, jnp.arange(4.0) + k, batch_size=2)


@case
def associative_scan_twice(jax, jnp, lax, counted):
    f = counted(lambda a, b: a * b)
    for k in range(3):
        lax.associative_scan(f, jnp.arange(4.0) + k)


@case
def associative_scan_in_jit(jax, jnp, lax, counted):
    f = counted(lambda a, b: a * b)
    jax.jit(lambda x: lax.associative_scan(f, lax.associative_scan(f, x)))(jnp.arange(8.0))


@case
def reduce_twice(jax, jnp, lax, counted):
    f = counted(lambda a, b: a * b + 0)
    for k in range(3):
        lax.reduce(jnp.arange(4.0) + k, jnp.float32(1), f, (0,))


@case
def reduce_window_twice(jax, jnp, lax, counted):
    f = counted(lambda a, b: a * b + 0)
    for k in range(3):
        lax.reduce_window(jnp.arange(4.0) + k, jnp.float32(1), f, (2,), (1,), "VALID")


# -- jit


@case
def jit_in_jit(jax, jnp, lax, counted):
    inner = jax.jit(counted(lambda x: x + 1))
    jax.jit(lambda x: inner(inner(x)))(jnp.float32(0))
    jax.jit(lambda x: inner(inner(x) * 2))(jnp.float32(0))


@case
def jit_then_nested(jax, jnp, lax, counted):
    inner = jax.jit(counted(lambda x: x + 1))
    inner(jnp.float32(0))
    jax.jit(lambda x: inner(x) * 2)(jnp.float32(0))


@case
def nested_then_jit(jax, jnp, lax, counted):
    inner = jax.jit(counted(lambda x: x + 1))
    jax.jit(lambda x: inner(x) * 2)(jnp.float32(0))
    inner(jnp.float32(0))


@case
def jit_under_grad(jax, jnp, lax, counted):
    inner = jax.jit(counted(lambda x: x * x))
    for k in range(3):
        jax.grad(inner)(jnp.float32(k))


@case
def jit_under_vmap(jax, jnp, lax, counted):
    inner = jax.jit(counted(lambda x: x * x))
    for k in range(3):
        jax.vmap(inner)(jnp.arange(3.0) + k)


@case
def jit_plain_grad_vmap(jax, jnp, lax, counted):
    inner = jax.jit(counted(lambda x: x * x))
    inner(jnp.float32(1))
    jax.grad(inner)(jnp.float32(1))
    jax.vmap(inner)(jnp.arange(3.0))


@case
def jit_of_grad(jax, jnp, lax, counted):
    f = jax.jit(jax.grad(counted(lambda x: x * x)))
    for k in range(3):
        f(jnp.float32(k))


@case
def jit_of_vmap_nested(jax, jnp, lax, counted):
    f = jax.jit(jax.vmap(counted(lambda x: x * x)))
    for k in range(3):
        jax.jit(lambda x, k=k: f(x) + k)(jnp.arange(3.0))


@case
def jit_twice_of_one_function(jax, jnp, lax, counted):
    f = counted(lambda x: x * x)
    jax.jit(f)(jnp.float32(1))
    jax.jit(f)(jnp.float32(1))


@case
def jit_trace_lower_call(jax, jnp, lax, counted):
    f = jax.jit(counted(lambda x: x * x))
    f.trace(jnp.float32(1))
    f.lower(jnp.float32(1))
    f(jnp.float32(1))
    f.eval_shape(jnp.float32(1))


@case
def jit_captures_tracer(jax, jnp, lax, counted):
    def outer(w):
        inner = jax.jit(counted(lambda x: x * w))
        return inner(inner(w))

    jax.jit(outer)(jnp.float32(2))


@case
def jit_captures_array(jax, jnp, lax, counted):
    w = jnp.arange(3.0)
    inner = jax.jit(counted(lambda x: x * w))
    inner(jnp.zeros(3))
    for k in range(2):
        jax.jit(lambda x, k=k: inner(inner(x)) + k)(jnp.zeros(3))


@case
def make_jaxpr_twice(jax, jnp, lax, counted):
    f = counted(lambda x: x * x)
    g = jax.make_jaxpr(f)
    g(1.0)
    g(1.0)


@case
def eval_shape_twice(jax, jnp, lax, counted):
    f = counted(lambda x: x * x)
    jax.eval_shape(f, 1.0)
    jax.eval_shape(f, 1.0)


@case
def scan_of_jit(jax, jnp, lax, counted):
    inner = jax.jit(counted(lambda x: x + 1))
    lax.scan(lambda c, x: (inner(c), inner(x)), jnp.float32(0), jnp.arange(4.0))


# -- derivatives


@case
def remat_under_grad(jax, jnp, lax, counted):
    f = jax.checkpoint(counted(lambda x: jnp.sin(x) * x))
    for k in range(3):
        jax.grad(f)(jnp.float32(k))


@case
def remat_of_one_function(jax, jnp, lax, counted):
    f = counted(lambda x: jnp.sin(x) * x)
    for k in range(3):
        jax.grad(jax.checkpoint(f))(jnp.float32(k))


@case
def remat_in_jit(jax, jnp, lax, counted):
    f = jax.checkpoint(counted(lambda x: jnp.sin(x) * x))
    jax.jit(jax.grad(lambda x: f(f(f(x)))))(jnp.float32(1))
    jax.jit(jax.grad(lambda x: f(f(x))))(jnp.float32(1))


@case
def remat_captures(jax, jnp, lax, counted):
    w = jnp.arange(3.0)
    f = jax.checkpoint(counted(lambda x: jnp.sin(x) * w))
    jax.jit(jax.grad(lambda x: f(f(f(x))).sum()))(jnp.ones(3))


@case
def remat_eager(jax, jnp, lax, counted):
    f = jax.checkpoint(counted(lambda x: jnp.sin(x) * x))
    for k in range(3):
        f(jnp.float32(k))


@case
def grad_twice(jax, jnp, lax, counted):
    f = jax.grad(counted(lambda x: x * x))
    for k in range(3):
        f(jnp.float32(k))


@case
def vmap_twice(jax, jnp, lax, counted):
    f = jax.vmap(counted(lambda x: x * x))
    for k in range(3):
        f(jnp.arange(3.0) + k)


@case
def vmap_in_jit_twice(jax, jnp, lax, counted):
    f = jax.vmap(counted(lambda x: x * x))
    jax.jit(lambda x: f(f(x)))(jnp.arange(3.0))


@case
def custom_jvp_calls(jax, jnp, lax, counted):
    f = jax.custom_jvp(counted(lambda x: x * x))
    f.defjvp(lambda p, t: (f(*p), 2 * p[0] * t[0]))
    for k in range(3):
        jax.jit(lambda x, k=k: f(f(x)) + k)(jnp.float32(k))


@case
def custom_vjp_grads(jax, jnp, lax, counted):
    f = jax.custom_vjp(lambda x: x * x)
    f.defvjp(counted(lambda x: (x * x, x)), counted(lambda r, g: (2 * r * g,)))
    for k in range(3):
        jax.grad(f)(jnp.float32(k))


@case
def custom_vjp_in_jit(jax, jnp, lax, counted):
    f = jax.custom_vjp(lambda x: x * x)
    f.defvjp(counted(lambda x: (x * x, x)), counted(lambda r, g: (2 * r * g,)))
    jax.jit(jax.grad(lambda x: f(f(f(x)))))(jnp.float32(2))


@case
def custom_vjp_in_scan(jax, jnp, lax, counted):
    f = jax.custom_vjp(lambda x: x * x)
    f.defvjp(counted(lambda x: (x * x, x)), counted(lambda r, g: (2 * r * g,)))
    g = jax.jit(jax.grad(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0]))
    for k in range(3):
        g(jnp.float32(k))


@case
def linearize_of_jit(jax, jnp, lax, counted):
    f = jax.jit(counted(lambda x: jnp.sin(x)))
    for k in range(3):
        jax.linearize(f, jnp.float32(k))


@case
def hessian_of_jit(jax, jnp, lax, counted):
    f = jax.jit(counted(lambda x: jnp.sin(x).sum()))
    jax.hessian(f)(jnp.ones(3))
    jax.hessian(f)(jnp.ones(3))


# -- devices


def _mesh(jax):
    return jax.sharding.Mesh(np.array(jax.devices()[:4]), ("i",))


@case
def shard_map_eager(jax, jnp, lax, counted):
    f = jax.shard_map(counted(lambda x: lax.psum(x, "i")), mesh=_mesh(jax), in_specs=jax.P("i"), out_specs=jax.P())
    for k in range(3):
        f(jnp.arange(4.0) + k)


@case
def shard_map_in_jit(jax, jnp, lax, counted):
    body, spec = counted(lambda x: lax.psum(x, "i")), jax.P("i")
    f = jax.shard_map(body, mesh=_mesh(jax), in_specs=spec, out_specs=spec, check_vma=False)
    jax.jit(lambda x: f(f(x)))(jnp.arange(4.0))
    jax.jit(lambda x: f(f(x)) + 1)(jnp.arange(4.0))


@case
def shard_map_under_grad(jax, jnp, lax, counted):
    f = jax.shard_map(counted(lambda x: lax.psum((x * x).sum(), "i")), mesh=_mesh(jax), in_specs=jax.P("i"), out_specs=jax.P())
    for k in range(3):
        jax.grad(f)(jnp.arange(4.0) + k)


@case
def shard_map_of_jit_eager(jax, jnp, lax, counted):
    g = jax.jit(counted(lambda x: x + 1))
    f = jax.shard_map(lambda x: g(g(x)), mesh=_mesh(jax), in_specs=jax.P("i"), out_specs=jax.P("i"))
    for k in range(3):
        f(jnp.arange(4.0) + k)


@case
def pmap_twice(jax, jnp, lax, counted):
    f = jax.pmap(counted(lambda x: lax.psum(x, "i")), axis_name="i")
    for k in range(3):
        f(jnp.arange(4.0) + k)


@case
def pmap_in_jit(jax, jnp, lax, counted):
    f = jax.pmap(counted(lambda x: lax.psum(x, "i")), axis_name="i")
    jax.jit(lambda x: f(f(x)))(jnp.arange(4.0))


@case
def pmap_under_grad(jax, jnp, lax, counted):
    f = jax.pmap(counted(lambda x: lax.psum(x * x, "i")), axis_name="i")
    for k in range(3):
        jax.grad(lambda x: f(x).sum())(jnp.arange(4.0) + k)


def main(names: list[str]) -> None:
    modules = [importlib.import_module(name) for name in names]
    for name in CASES:
        print(f'    "{name}": {", ".join(_shown(name, module) for module in modules)},')


def _shown(name: str, jax: Any) -> str:
    try:
        return str(runs(name, jax))
    except Exception as error:
        return f"{type(error).__name__} {str(error)[:80]}"


if __name__ == "__main__":
    main(sys.argv[1:] or ["meshjit"])
