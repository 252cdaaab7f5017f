"""Programs with float0 arrays, for meshjit and for JAX alike: derivatives with respect to integers, as arguments and results.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.tools.float0_cases jax > tests/goldens/float0.txt

Each case prints a line: its name, and its result as dtypes, shapes and elements, or its error.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

F0 = np.dtype([("float0", "V")])


def line(name: str, make: Callable[[], Any], jax: Any) -> str:
    try:
        return f"{name} | {jax.tree.map(_shown, make())}"
    except Exception as error:
        return f"{name} | {type(error).__name__}"


def _shown(x: Any) -> str:
    if isinstance(x, str | bool):
        return str(x)
    return f"float0{list(x.shape)}" if x.dtype == F0 else f"{x.dtype}{list(x.shape)} {np.asarray(x).tolist()}"


def cases(jax: Any) -> dict[str, Callable[[], Any]]:
    """name -> case."""
    jnp, lax = jax.numpy, jax.lax
    made: dict[str, Callable[[], Any]] = {}

    def case(make: Callable[[], Any]) -> None:
        made[make.__name__] = make

    x, i, b, v, z = jnp.float32(2.0), jnp.int32(3), jnp.array([True, False]), jnp.arange(3.0), np.zeros((), F0)

    @case
    def grad_allow_int():
        return jax.grad(lambda n: n * 2.0, allow_int=True)(3)

    @case
    def grad_allow_int_jit():
        return jax.jit(jax.grad(lambda n: n * 2.0, allow_int=True))(3)

    @case
    def jit_grad_tree():
        return jax.jit(jax.grad(lambda p: p["w"] * p["n"], allow_int=True))({"w": x, "n": i})

    @case
    def vjp_in_jit():
        return jax.jit(lambda x, n: jax.vjp(lambda x, n: x * n, x, n)[1](1.0))(x, i)

    @case
    def vjp_bool_mask_ct_of_jit():
        def f(b, m):
            return jnp.where(m, b, 0.0)

        return jax.jit(lambda ct: jax.vjp(f, v[:2], b)[1](ct))(v[:2])

    @case
    def float0_argument():
        return jax.jit(lambda a: a)(z)

    @case
    def float0_argument_array():
        return jax.jit(lambda a, b: (a, b * 2))(np.zeros((2, 3), F0), 1.0)

    @case
    def float0_result():
        return jax.jit(lambda: np.zeros((2,), F0))()

    @case
    def vjp_of_int_output():
        out, pull = jax.vjp(lambda x: (x * 2, jnp.int32(3)), x)
        return out, pull((1.0, np.zeros((), F0)))

    @case
    def vjp_of_int_output_in_jit():
        return jax.jit(lambda x: jax.vjp(lambda x: (x * 2, jnp.int32(3)), x)[1]((1.0, np.zeros((), F0))))(x)

    @case
    def jit_pull_int():
        out, pull = jax.vjp(lambda x: (x * 2, jnp.int32(3)), x)
        return jax.jit(pull)((1.0, np.zeros((), F0)))

    @case
    def vjp_int_ct_wrong():
        out, pull = jax.vjp(lambda x: (x * 2, jnp.int32(3)), x)
        return pull((1.0, jnp.int32(0)))

    @case
    def jvp_int_in():
        return jax.jvp(lambda n: n * 2.0, (i,), (z,))

    @case
    def jvp_int_in_float_tangent():
        return jax.jvp(lambda n: n * 2.0, (i,), (1.0,))

    @case
    def jvp_int_in_int_tangent():
        return jax.jvp(lambda n: n * 2.0, (i,), (jnp.int32(1),))

    @case
    def jvp_int_out():
        return jax.jvp(lambda x: (x * 2, (x > 0)), (x,), (1.0,))

    @case
    def jvp_mixed():
        return jax.jvp(lambda x, n: (x * n, n + 1), (x, i), (1.0, z))

    @case
    def jvp_in_jit():
        return jax.jit(lambda x, n: jax.jvp(lambda x, n: (x * n, n + 1), (x, n), (1.0, z)))(x, i)

    @case
    def jvp_float0_arg_of_jit():
        return jax.jit(lambda x, n, t: jax.jvp(lambda x, n: (x * n, n + 1), (x, n), (1.0, t)))(x, i, z)

    @case
    def linearize_int_out():
        y, f = jax.linearize(lambda x: (x * 2, jnp.int32(3)), x)
        return y, f(1.0)

    @case
    def linearize_int_in():
        y, f = jax.linearize(lambda x, n: x * n, x, i)
        return y, f(1.0, z)

    @case
    def linearize_in_jit():
        return jax.jit(lambda x, n: jax.linearize(lambda x, n: x * n, x, n)[1](1.0, z))(x, i)

    @case
    def custom_vjp_int():
        seen = []

        @jax.custom_vjp
        def f(x, n):
            return x * n, n

        f.defvjp(
            lambda x, n: (f(x, n), n), lambda n, ct: (seen.append((ct[1].dtype, ct[1].shape)), (ct[0] * n, np.zeros((), F0)))[1]
        )
        out, pull = jax.vjp(f, x, i)
        return out, pull((1.0, z)), str(seen)

    @case
    def custom_vjp_int_jit():
        @jax.custom_vjp
        def f(x, n):
            return x * n

        f.defvjp(lambda x, n: (f(x, n), n), lambda n, ct: (ct * n, np.zeros((), F0)))
        return jax.jit(jax.grad(f))(x, i), jax.jit(jax.grad(f, (0, 1), allow_int=True))(x, i)

    @case
    def custom_jvp_int():
        @jax.custom_jvp
        def f(x, n):
            return x * n

        seen = []

        @f.defjvp
        def r(p, t):
            seen.append(str(t[1].dtype))
            return f(*p), t[0] * p[1]

        return jax.jit(jax.grad(f))(x, i), seen

    @case
    def vmap_grad_int():
        return jax.vmap(jax.grad(lambda x, n: x * n, (0, 1), allow_int=True))(v, jnp.arange(3))

    @case
    def jit_vmap_grad_int():
        return jax.jit(jax.vmap(jax.grad(lambda x, n: x * n, (0, 1), allow_int=True)))(v, jnp.arange(3))

    @case
    def vmap_float0_arg():
        return jax.vmap(lambda a, x: (a, x * 2))(np.zeros((3,), F0), v)

    @case
    def vmap_float0_out_none():
        return jax.vmap(lambda x: (x, np.zeros((), F0)))(v)

    @case
    def scan_grad_int():
        def body(c, n):
            return c, jax.grad(lambda x, n: x * n, (0, 1), allow_int=True)(c, n)

        return lax.scan(body, x, jnp.arange(3))

    @case
    def scan_float0_xs():
        return lax.scan(lambda c, a: (c + 1, a), x, np.zeros((3,), F0))

    @case
    def scan_float0_carry():
        return lax.scan(lambda c, _: (c, None), z, None, length=3)

    @case
    def cond_float0():
        return lax.cond(True, lambda a: a, lambda a: a, z)

    @case
    def jacobian_int():
        return jax.jacrev(lambda n: n * 2.0, allow_int=True)(jnp.arange(2))

    @case
    def jacfwd_int_out():
        return jax.jacfwd(lambda x: (x * 2, jnp.int32(3)))(v)

    @case
    def jacrev_mixed():
        return jax.jit(jax.jacrev(lambda x, n: x * n, (0, 1), allow_int=True))(x, i)

    @case
    def tree_map_zeros():
        return jax.tree.map(
            lambda p, g: p if g.dtype == F0 else p - g,
            {"w": x, "n": i},
            jax.grad(lambda p: p["w"] * p["n"], allow_int=True)({"w": x, "n": i}),
        )

    @case
    def add_float0():
        return jnp.add(z, 1.0)

    @case
    def zeros_like_float0():
        return jnp.zeros_like(z)

    @case
    def zeros_float0():
        return jnp.zeros((2,), F0)

    @case
    def asarray_float0():
        return jnp.asarray(z)

    @case
    def device_put_float0():
        return jax.device_put(z)

    @case
    def second_order():
        return jax.jit(jax.hessian(lambda x, n: x * x * n))(x, i)

    @case
    def value_and_grad_checkpoint():
        return jax.jit(jax.value_and_grad(jax.checkpoint(lambda p: p["w"] * p["n"]), allow_int=True))({"w": x, "n": i})

    @case
    def eval_shape():
        return str(jax.eval_shape(jax.grad(lambda n: n * 2.0, allow_int=True), 3))

    @case
    def make_jaxpr():
        return [str(a) for a in jax.make_jaxpr(jax.grad(lambda n: n * 2.0, allow_int=True))(3).out_avals]

    @case
    def typeof():
        return str(jax.typeof(z))

    @case
    def to_tangent_aval():
        return str(jax.core.get_aval(i).to_tangent_aval() if hasattr(jax.core, "get_aval") else "")

    @case
    def linear_transpose_int():
        return jax.vjp(lambda n: n * 2, i)[1](z)

    @case
    def jit_static_check():
        return jax.jit(lambda t: t.dtype == F0)(z)

    @case
    def block():
        return jax.block_until_ready(jax.jit(jax.grad(lambda n: n * 2.0, allow_int=True))(3))

    @case
    def jit_vjp_fun_leaves():
        f = jax.jit(lambda x, n: jax.vjp(lambda x, n: x * n, x, n)[1])
        return f(x, i)(1.0)

    @case
    def shard_map_float0():
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("i",))
        return jax.shard_map(
            jax.grad(lambda x, n: (x * n).sum(), (0, 1), allow_int=True), mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P("i")
        )(jnp.arange(4.0), jnp.arange(4))

    @case
    def remat_float0_arg():
        return jax.checkpoint(lambda a, x: (a, x * 2))(z, x)

    @case
    def custom_vjp_float0_arg():
        @jax.custom_vjp
        def f(x, n):
            return x * 2

        f.defvjp(lambda x, n: (x * 2, None), lambda r, g: (g * 2, None))
        return jax.jit(f)(x, z), jax.grad(f)(x, z)

    @case
    def donated():
        return jax.jit(lambda a, b: (a, b * 2), donate_argnums=1)(z, jnp.float32(1.0))

    @case
    def jit_wrap_grad_ints_out_sharding():
        return jax.jit(jax.grad(lambda n: n * 2.0, allow_int=True), out_shardings=None)(3)

    @case
    def hvp():
        return jax.jit(lambda x, n: jax.jvp(jax.grad(lambda x, n: x * x * n, (0, 1), allow_int=True), (x, n), (1.0, z)))(x, i)

    @case
    def grad_of_jit_int():
        return jax.grad(jax.jit(lambda x, n: x * n), (0, 1), allow_int=True)(x, i)

    return made


def main(package: str) -> None:
    jax = importlib.import_module(package)
    for name, make in cases(jax).items():
        print(line(name, make, jax))


if __name__ == "__main__":
    main(sys.argv[1])
