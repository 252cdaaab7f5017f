"""Steps of drawn functions (`fuzz_functions`) that hold rules of the user's and what changes in place: refs, batches with a rule of
their own, transposes, implicit derivatives, symbolic zeros, policies of checkpoints, checkify. `w` is the Writer that draws.
"""

from __future__ import annotations

from typing import Any


def in_place(w: Any) -> Any:
    """A ref that is read and written, also in a loop or a branch."""
    x, f, jnp, lax = w.pick(), w.function(), w.e.jnp, w.e.lax
    way = w.number(0, 4)
    if w.explicit or (w.forward and way == 3):
        return None
    ref = w.e.jax.new_ref(w.varied(x))
    if way == 0:
        ref[...] = w.like(ref[...], f(ref[...]))
    elif way == 1:
        ref[...] += w.varied(jnp.sign(x))
    elif way == 2:

        def body(i: Any, carry: Any) -> Any:
            ref[...] = w.like(ref[...], f(ref[...]))
            return carry

        lax.fori_loop(0, 2, body, 0)
    else:

        def step(carry: Any, k: Any) -> Any:
            ref[...] = ref[...] * 2 - carry
            return w.bounded(carry + k), ref[...]

        out = lax.scan(step, w.varied(x), w.varied(jnp.arange(3.0)))
        return out[1].sum(0) + ref[...]
    return ref[...] if not x.ndim or x.shape[0] == 0 else ref[...] + ref[0]


def with_batch(w: Any) -> Any:
    """A function whose batches are twice what they would be."""
    if w.explicit:
        return None
    f, jax = w.function(members=()), w.e.jax
    function = jax.custom_batching.custom_vmap(lambda x: f(x))

    @function.def_vmap
    def rule(size: int, batched: Any, x: Any) -> Any:
        return 2 * jax.vmap(f)(x), True

    x = w.pick(lambda v: v.ndim > 0 and v.shape[0] > 0)
    return function(w.pick()) if x is None or w.coin(3) else jax.vmap(function)(x)


def one_by_one(w: Any) -> Any:
    """Members of a batch one after another."""
    x = w.pick(lambda v: v.ndim > 0 and v.shape[0] > 0)
    if x is None or w.explicit:
        return None
    return w.e.jax.vmap(w.e.jax.custom_batching.sequential_vmap(w.function(members=())))(x)


def _linear(w: Any) -> Any:
    """A function that is linear in its argument."""
    jnp, lax, k = w.e.jnp, w.e.lax, w.number(1, 3)
    ways = [lambda v: k * v, lambda v: v + v, lambda v: v.reshape(-1), lambda v: jnp.pad(v, [(1, 0)] * v.ndim),
            lambda v: jnp.sum(v), lambda v: jnp.broadcast_to(v, (2, *v.shape)), lambda v: v.T,
            lambda v: lax.scan(lambda c, _: (c + v, c), w.varied(jnp.zeros_like(v)), None, length=2)[0],
            lambda v: jnp.concatenate([v[None], -v[None]]), lambda v: w.e.jax.jit(lambda u: 2 * u)(v),
            lambda v: lax.cond(k > 1, lambda u: u, lambda u: 3 * u, v), lambda v: w.e.jax.vmap(lambda u: u * k)(v[None])[0]]  # fmt: skip
    chosen = [w.one_of(ways) for _ in range(w.number(1, 4))]

    def function(v: Any) -> Any:
        for way in chosen:
            v = way(v)
        return v

    return function


def transposed(w: Any) -> Any:
    """A linear function and back, the way back of which may be transposed once more."""
    if w.explicit:
        return None
    x, f, jax = w.varied(w.pick()), _linear(w), w.e.jax
    back = jax.linear_transpose(f, x)
    if w.coin(3):
        there = jax.linear_transpose(lambda ct: back(ct)[0], f(x))
        return back(w.bounded(there(x)[0]))[0]
    return back(w.bounded(f(x)))[0]


def solved(w: Any) -> Any:
    """b / d by custom_linear_solve, with an aux or without."""
    if w.explicit:
        return None
    b, jnp, has_aux = w.varied(w.pick()), w.e.jnp, w.coin()
    y = w.varied(w.pick(lambda v: v.shape == b.shape))
    d = 1 + w.bounded(y) / 8

    def solve(matvec: Any, b: Any) -> Any:
        return (b / d, jnp.sum(b)) if has_aux else b / d

    ways = {"symmetric": True} if w.coin() else {"transpose_solve": solve}
    result = w.e.lax.custom_linear_solve(lambda v: d * v, b, solve, has_aux=has_aux, **ways)
    return result[0] if has_aux else result


def rooted(w: Any) -> Any:
    """The square root of a positive value by custom_root."""
    if w.explicit:
        return None
    a, jnp, lax = w.varied(9 + w.bounded(w.pick())), w.e.jnp, w.e.lax
    solve = w.one_of((lambda f, guess: jnp.sqrt(a), lambda f, guess: lax.fori_loop(0, 20, lambda i, v: v - f(v) / (2 * v), guess)))
    return lax.custom_root(lambda v: v * v - a, a, solve, lambda g, y: y / g(w.varied(jnp.ones_like(y))))


def with_symbolic_jvp(w: Any) -> Any:
    """custom_jvp of two arguments that asks which are differentiated."""
    f, g, jax = w.function(smooth=True, forward=True), w.function(smooth=True, forward=True), w.e.jax
    function = jax.custom_jvp(lambda x, y: (f(x), g(y)))
    zero = jax.custom_derivatives.SymbolicZero

    def rule(primals: Any, tangents: Any) -> Any:
        pairs = []
        for h, x, t in zip((f, g), primals, tangents, strict=True):
            value = h(x)
            pairs.append((value, zero.from_primal_value(value)) if isinstance(t, zero) else jax.jvp(h, (x,), (3 * t,)))
        return tuple(v for v, _ in pairs), tuple(t for _, t in pairs)

    function.defjvp(rule, symbolic_zeros=True)
    x, y = function(w.pick(), w.pick() if w.coin() else w.e.lax.stop_gradient(w.pick()))
    return w.like(x, y)


def with_symbolic_vjp(w: Any) -> Any:
    """custom_vjp that asks which arguments are perturbed, and which cotangents are zeros."""
    if w.forward:
        return None
    f, g, jax, jnp = w.function(smooth=True), w.function(smooth=True), w.e.jax, w.e.jnp
    function = jax.custom_vjp(lambda x, y: (f(x), g(y)))
    zero = jax.custom_derivatives.SymbolicZero

    def forward(x: Any, y: Any) -> Any:
        return (f(x.value), g(y.value)), (x.value, y.value)

    def backward(kept: Any, cotangents: Any) -> Any:
        return tuple(
            jnp.zeros_like(x) if isinstance(ct, zero) else jax.vjp(h, x)[1](2 * ct)[0]
            for h, x, ct in zip((f, g), kept, cotangents, strict=True)
        )

    function.defvjp(forward, backward, symbolic_zeros=True)
    x, y = function(w.varied(w.pick()), w.varied(w.pick()))
    return x if w.coin() else w.like(x, y)


def kept_by_policy(w: Any) -> Any:
    """checkpoint that keeps some values."""
    jax, policies = w.e.jax, w.e.jax.checkpoint_policies
    name, f, g = w.e.checkpoint_name, w.function(), w.function()
    ways = [policies.everything_saveable, policies.dots_saveable, policies.dots_with_no_batch_dims_saveable,
            policies.save_only_these_names("a"), policies.save_any_names_but_these("a"), policies.save_anything_except_these_names("a"),
            policies.save_from_both_policies(policies.dots_saveable, policies.save_only_these_names("b")),
            lambda prim, *_, **params: prim.name in ("mul", "sign")]  # fmt: skip
    return jax.checkpoint(lambda x: name(g(name(f(x), "a")), "b"), policy=w.one_of(ways))(w.pick())


def checked(w: Any) -> Any:
    """checkify of a function with checks of its own, whose error is thrown away."""
    if w.manual or w.explicit:
        return None
    f, check, jnp = w.function(), w.e.checkify, w.e.jnp

    def function(x: Any) -> Any:
        check.check(jnp.sum(x) > 0, "{x}", x=jnp.sum(x))
        return f(x)

    chosen = w.one_of((check.user_checks, check.index_checks | check.user_checks, check.all_checks))
    _, out = check.checkify(function, errors=chosen)(w.pick())
    return out


def converted(w: Any) -> Any:
    """closure_convert of a function that closes over a value."""
    x, y, f = w.pick(), w.pick(), w.function()
    function, values = w.e.jax.closure_convert(lambda v: f(v, y), x)
    return function(x, *values)


def linearized(w: Any) -> Any:
    x, f = w.varied(w.pick()), w.function(smooth=True, forward=True)
    return w.e.jax.linearize(f, x)[1](x)


def handed_on(w: Any) -> Any:
    """The function that vjp gives, as an argument of jit."""
    x, f, jax = w.varied(w.pick()), w.function(smooth=True), w.e.jax
    y, pull = jax.vjp(f, x)
    return w.bounded(jax.jit(lambda p, ct: p(ct)[0])(pull, y))


SMOOTH = (in_place, transposed, solved, rooted, with_symbolic_jvp, with_symbolic_vjp, kept_by_policy, converted, linearized, handed_on)
ROUGH = (with_batch, one_by_one, checked)
