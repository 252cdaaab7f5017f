"""Programs with explicit axes, run by meshjit in the tests and by JAX to record what is expected.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python tests/tools/explicit_scenarios.py      (where JAX is installed)

writes tests/goldens/explicit_scenarios.json: for each expression the type that jit's trace gives its result, where jit and eager
calls put it, and its elements; or the kind of error. The expressions' arguments are `a(shape, *spec)` on a mesh X=4, Y=2.
"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

GOLDEN = Path(__file__).parents[1] / "goldens" / "explicit_scenarios.json"

SCENARIOS = """
# elementwise
on(lambda x: jnp.sin(x) * 2, a((8, 4), 'X', 'Y'))
on(lambda x: x + 1, a((8, 4), 'X'))
on(lambda x: x + np.ones((8, 4), np.float32), a((8, 4), 'X'))
on(lambda x, y: x + y, a((8, 4), 'X', 'Y'), a((8, 4), 'X', 'Y'))
on(lambda x, y: x + y, a((8, 4), 'X'), a((8, 4), None, 'Y'))
on(lambda x, y: x + y, a((8, 4), 'X'), a((8, 4)))
on(lambda x, y: x + y, a((8, 4), 'X'), a((8, 4), 'Y'))
on(lambda x, y: x + y, a((8, 8), 'X'), a((8, 8), None, 'X'))
on(lambda x, y: x * y, a((8, 4), 'X'), a((8, 4), ('X', 'Y')))
on(lambda x, y: x + y, a((8, 4), 'X', 'Y'), a((4,), 'Y'))
on(lambda x, y: x + y, a((8, 4), 'X', 'Y'), a((4,)))
on(lambda x, y: x + y, a((8, 1), 'X'), a((1, 4), None, 'Y'))
on(lambda x, y: x[:, None] + y[None, :], a((8,), 'X'), a((4,), 'Y'))
on(lambda x, y: x[:, None] + y[None, :], a((8,), 'X'), a((8,), 'X'))
on(lambda x, y: jnp.where(x > 3, x, y), a((8, 4), 'X'), a((8, 4), 'X'))
on(lambda x: jnp.where(x > 3, x, 0), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.clip(x, 1, 3), a((8, 4), 'X', 'Y'))
on(lambda x: x.astype(jnp.int32), a((8, 4), 'X', 'Y'))
on(lambda x: x > 3, a((8, 4), 'X', 'Y'))
on(lambda x: jax.nn.relu(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.nn.gelu(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.nn.softmax(x), a((8, 4), 'X'))
on(lambda x: jax.nn.softmax(x), a((8, 4), 'X', 'Y'))
on(lambda x: x ** 2, a((8, 4), ('X', 'Y')))
on(lambda x: jnp.power(x, 2.5), a((8, 4), ('X', 'Y')))
on(lambda x: -x, a((8, 4), None, ('X',)))
# reductions
on(lambda x: x.sum(), a((8, 4), 'X', 'Y'))
on(lambda x: x.sum(0), a((8, 4), 'X', 'Y'))
on(lambda x: x.sum(1), a((8, 4), 'X', 'Y'))
on(lambda x: x.sum(1, keepdims=True), a((8, 4), 'X', 'Y'))
on(lambda x: x.mean(0), a((8, 4), 'X', 'Y'))
on(lambda x: x.max(0), a((8, 4), 'X', 'Y'))
on(lambda x: x.min(1), a((8, 4), 'X', 'Y'))
on(lambda x: x.prod(1), a((8, 4), 'X', 'Y'))
on(lambda x: (x > 1).any(0), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.argmax(x, 0), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.argmax(x, 1), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.var(x, 0), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.std(x), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.linalg.norm(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.nn.logsumexp(x, 1), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.cumsum(x, 0), a((8, 4), None, 'Y'))
on(lambda x: jnp.cumsum(x, 0), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.sort(x, 0), a((8, 4), None, 'Y'))
# products
on(lambda x, y: x @ y, a((8, 4), 'X'), a((4, 16)))
on(lambda x, y: x @ y, a((8, 4), 'X'), a((4, 16), None, 'Y'))
on(lambda x, y: x @ y, a((8, 4), 'X', 'Y'), a((4, 16)))
on(lambda x, y: x @ y, a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: x @ y, a((8, 4), None, 'Y'), a((4, 16), 'Y', None))
on(lambda x, y: x @ y, a((8, 8), 'X'), a((8, 16), None, 'X'))
on(lambda x, y: x @ y, a((8, 8), None, 'X'), a((8, 16), 'Y'))
on(lambda x, y: x @ y, a((8, 8), None, 'X'), a((8, 16), None, 'X'))
on(lambda x, y: jnp.dot(x, y), a((8, 4), 'X'), a((4,)))
on(lambda x, y: jnp.matmul(x, y), a((2, 8, 4), 'Y', 'X'), a((2, 4, 16), 'Y'))
on(lambda x, y: jnp.matmul(x, y), a((2, 8, 4), 'Y', 'X'), a((4, 16)))
on(lambda x, y: jnp.matmul(x, y), a((4, 8, 4), 'X'), a((4, 4, 16), 'Y'))
on(lambda x, y: jnp.einsum('bd,df->bf', x, y), a((8, 4), 'X'), a((4, 16), None, 'Y'))
on(lambda x, y: jnp.einsum('bd,df->fb', x, y), a((8, 4), 'X'), a((4, 16), None, 'Y'))
on(lambda x, y: jnp.einsum('bd,df->bf', x, y), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x: jnp.einsum('ij->ji', x), a((8, 4), 'X', 'Y'))
on(lambda x, y: jnp.outer(x, y), a((8,), 'X'), a((4,), 'Y'))
on(lambda x, y: jnp.vdot(x, y), a((8,), 'X'), a((8,), 'X'))
on(lambda x, y: jnp.tensordot(x, y, 1), a((8, 4), 'X'), a((4, 16), None, 'Y'))
on(lambda x, y: jax.lax.dot_general(x, y, (((1,), (0,)), ((), ()))), a((8, 4), 'X'), a((4, 16), None, 'Y'))
# out_sharding
on(lambda x, y: jnp.einsum('bd,df->bf', x, y, out_sharding=P('X')), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jnp.einsum('bd,df->bf', x, y, out_sharding=P('X', 'Y')), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jnp.einsum('bd,df->bf', x, y, out_sharding=NamedSharding(mesh, P('Y'))), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jnp.dot(x, y, out_sharding=P('X', None)), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jnp.matmul(x, y, out_sharding=P('X', None)), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jnp.tensordot(x, y, 1, out_sharding=P('X', None)), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jax.lax.dot(x, y, out_sharding=P('X', None)), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jax.lax.dot_general(x, y, (((1,), (0,)), ((), ())), out_sharding=P('X', None)), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x: jnp.reshape(x, (2, 4, 4), out_sharding=P(None, 'X', 'Y')), a((8, 4), 'X', 'Y'))
on(lambda x: x.reshape(2, 4, 4, out_sharding=P(None, 'X', 'Y')), a((8, 4), 'X', 'Y'))
on(lambda x: jax.lax.reshape(x, (2, 4, 4), out_sharding=P(None, 'X', 'Y')), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.ravel(x, out_sharding=P('X')), a((8, 4), 'X', 'Y'))
on(lambda x: x.ravel(out_sharding=P('X')), a((8, 4), 'X', 'Y'))
on(lambda: jnp.zeros((8, 4), out_sharding=P('X')))
on(lambda: jnp.ones((8, 4), out_sharding=P('X', 'Y')))
on(lambda: jnp.full((8, 4), 3., out_sharding=P('X', 'Y')))
on(lambda: jnp.empty((8, 4), out_sharding=P('X', 'Y')) * 0)
on(lambda: jnp.arange(8., out_sharding=P('X')))
on(lambda: jnp.eye(8, out_sharding=P('X')))
on(lambda: jnp.linspace(0., 1., 8, out_sharding=P('X')))
on(lambda x: jnp.zeros_like(x), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.ones_like(x, out_sharding=P('Y')), a((8, 4), 'X'))
on(lambda x: jnp.full_like(x, 2., out_sharding=P('Y')), a((8, 4), 'X'))
on(lambda x: jnp.broadcast_to(x, (8, 4), out_sharding=P('X', 'Y')), a((4,), 'Y'))
on(lambda x: jax.lax.broadcast_in_dim(x, (8, 4), (1,), out_sharding=P('X', 'Y')), a((4,), 'Y'))
on(lambda x: jax.lax.broadcast(x, (8,), out_sharding=P('X', 'Y')), a((4,), 'Y'))
on(lambda: jax.lax.broadcasted_iota(jnp.int32, (8, 4), 1, out_sharding=P('X', 'Y')))
on(lambda: jax.lax.full((8, 4), 1., out_sharding=P('X', 'Y')))
on(lambda: jnp.array(np.ones((8, 4), np.float32), out_sharding=P('X')))
on(lambda x: jnp.sum(x, 0, out_sharding=P('X')), a((8, 4), 'Y'))
on(lambda x: jnp.take(x, jnp.array([1, 2]), axis=0, out_sharding=P(None, 'Y')), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.repeat(x, 2, axis=0, out_sharding=P('X', 'Y')), a((8, 4), 'X', 'Y'))
on(lambda x, i: x.at[i].get(out_sharding=P('X', None)), a((8, 4), 'X'), i([0, 1, 2, 3]))
on(lambda x, i: x.at[i].get(out_sharding=P()), a((8, 4), 'X'), i([0, 1, 2, 3]))
on(lambda x, i: x.at[i].set(1., out_sharding=P('X')), a((8, 4), 'X'), i([0, 1, 2, 3]))
on(lambda x, i: x.at[i].add(1., out_sharding=P('X', 'Y')), a((8, 4), 'X', 'Y'), i([0, 1, 2, 3]))
on(lambda x: x.at[0].get(out_sharding=P('Y')), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.reshape(x, (2, 4, 4), out_sharding=P('Q')), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.reshape(x, (2, 4, 4), out_sharding='X'), a((8, 4), 'X', 'Y'))
# random numbers
on(lambda: jax.random.normal(jax.random.key(1), (8, 4), out_sharding=P('X')))
on(lambda: jax.random.uniform(jax.random.key(1), (8, 4), out_sharding=P('X', 'Y')))
on(lambda: jax.random.randint(jax.random.key(1), (8, 4), 0, 9, out_sharding=P('X', 'Y')))
on(lambda: jax.random.bernoulli(jax.random.key(1), 0.5, (8, 4), out_sharding=P('X', 'Y')))
on(lambda: jax.random.truncated_normal(jax.random.key(1), -1., 1., (8, 4), out_sharding=P('X', 'Y')))
on(lambda: jax.random.bits(jax.random.key(1), (8, 4), out_sharding=P('X', 'Y')))
on(lambda: jax.random.gumbel(jax.random.key(1), (8, 4), out_sharding=P('X', 'Y')))
on(lambda: jax.random.exponential(jax.random.key(1), (8, 4), out_sharding=P('X', 'Y')))
on(lambda: jax.random.laplace(jax.random.key(1), (8, 4), out_sharding=P('X', 'Y')))
on(lambda: jax.random.cauchy(jax.random.key(1), (8, 4), out_sharding=P('X', 'Y')))
on(lambda: jax.random.rademacher(jax.random.key(1), (8, 4), out_sharding=P('X', 'Y')))
on(lambda: jax.random.permutation(jax.random.key(1), 8, out_sharding=P('X')))
on(lambda: jax.random.normal(jax.random.key(1), (8, 4)))
on(lambda: jax.nn.initializers.normal()(jax.random.key(1), (8, 4), out_sharding=P('X', 'Y')))
on(lambda: jax.nn.initializers.zeros(jax.random.key(1), (8, 4), out_sharding=P('X', 'Y')))
on(lambda: jax.nn.initializers.glorot_uniform()(jax.random.key(1), (8, 4), out_sharding=P('X', 'Y')))
# shapes
on(lambda x: x.T, a((8, 4), 'X', 'Y'))
on(lambda x: jnp.transpose(x, (1, 2, 0)), a((2, 8, 4), None, 'X', 'Y'))
on(lambda x: x[None], a((8, 4), 'X', 'Y'))
on(lambda x: jnp.expand_dims(x, 1), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.squeeze(x, 1), a((8, 1, 4), 'X', None, 'Y'))
on(lambda x: x.reshape(8, 4), a((4, 8), 'X', 'Y'))
on(lambda x: x.reshape(32), a((8, 4), 'X'))
on(lambda x: x.reshape(32), a((8, 4), None, 'Y'))
on(lambda x: x.reshape(32), a((8, 4), 'X', 'Y'))
on(lambda x: x.reshape(32), a((4, 8), 'X', 'Y'))
on(lambda x: x.reshape(4, 2, 4), a((8, 4), 'X'))
on(lambda x: x.reshape(2, 4, 4), a((8, 4), 'X'))
on(lambda x: x.reshape(4, 2, 4), a((8, 4), ('X', 'Y')))
on(lambda x: x.reshape(8, 1, 4), a((8, 4), 'X', 'Y'))
on(lambda x: x.reshape(8, 4, 1, 1), a((1, 8, 4), None, 'X', 'Y'))
on(lambda x: x.reshape(8, 2, 2), a((8, 4), 'X', 'Y'))
on(lambda x: x.reshape(2, 16), a((8, 4)))
on(lambda x: x.reshape(16, 2), a((8, 4), 'X'))
on(lambda x: x.reshape(-1), a((1, 8), None, 'X'))
on(lambda x: jnp.broadcast_to(x, (8, 4)), a((4,), 'Y'))
on(lambda x: jnp.broadcast_to(x, (8, 4)), a((8, 1), 'X'))
on(lambda x, y: jnp.concatenate([x, y]), a((8, 4), 'X', 'Y'), a((8, 4), 'X', 'Y'))
on(lambda x, y: jnp.concatenate([x, y], 1), a((8, 4), 'X'), a((8, 4), 'X'))
on(lambda x, y: jnp.concatenate([x, y], 1), a((8, 4), 'X'), a((8, 4), 'Y'))
on(lambda x, y: jnp.concatenate([x, y], 1), a((8, 4), 'X'), a((8, 4)))
on(lambda x, y: jnp.stack([x, y]), a((8, 4), 'X'), a((8, 4), 'X'))
on(lambda x, y: jnp.stack([x, y]), a((8, 4), 'X'), a((8, 4), 'Y'))
on(lambda x: jnp.pad(x, ((0, 0), (1, 1))), a((8, 4), 'X'))
on(lambda x: jnp.pad(x, ((4, 4), (0, 0))), a((8, 4), 'X'))
on(lambda x: jnp.tile(x, (1, 2)), a((8, 4), 'X'))
on(lambda x: jnp.flip(x, 0), a((8, 4), 'X'))
on(lambda x: jnp.swapaxes(x, 0, 1), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.moveaxis(x, 0, -1), a((8, 4, 2), 'X', None, 'Y'))
on(lambda x: jnp.split(x, 2, axis=1)[0], a((8, 4), 'X'))
on(lambda x: jnp.split(x, 2, axis=0)[0], a((8, 4), 'X'))
# parts
on(lambda x: x[:, 0], a((8, 4), 'X'))
on(lambda x: x[0], a((8, 4), None, 'Y'))
on(lambda x: x[0], a((8, 4), 'X', 'Y'))
on(lambda x: x[:4], a((8, 4), 'X', 'Y'))
on(lambda x: x[:, :2], a((8, 4), 'X', 'Y'))
on(lambda x: x[:, 1:4], a((8, 4), 'X'))
on(lambda x: x[..., None], a((8, 4), 'X', 'Y'))
on(lambda x, i: x[i], a((8, 4), 'X'), i([0, 1, 2, 3]))
on(lambda x, i: x[i], a((8, 4), None, 'Y'), i([0, 1, 2, 3]))
on(lambda x, i: x[i], a((8, 4), None, 'Y'), i([0, 1, 2, 3], 'X'))
on(lambda x, i: jax.lax.dynamic_slice(x, (i, 0), (4, 4)), a((8, 4), None, 'Y'), 1)
on(lambda x, i: jax.lax.dynamic_slice(x, (i, 0), (4, 4)), a((8, 4), 'X', 'Y'), 1)
on(lambda x, i: jax.lax.dynamic_index_in_dim(x, i, 0), a((8, 4), None, 'Y'), 1)
on(lambda x, y: jax.lax.dynamic_update_slice(x, y, (2, 0)), a((8, 4), None, 'Y'), a((4, 4), None, 'Y'))
on(lambda x, y: jax.lax.dynamic_update_slice(x, y, (2, 0)), a((8, 4), 'X', 'Y'), a((4, 4), None, 'Y'))
on(lambda x: x.at[0].set(1.), a((8, 4), None, 'Y'))
on(lambda x: x.at[:, 0].set(1.), a((8, 4), 'X'))
on(lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1), a((8, 4), 'X'))
on(lambda x: jax.nn.one_hot(x, 4), i([0, 1, 2, 3], 'X'))
# new arrays under a mesh
on(lambda: jnp.zeros((8, 4)))
on(lambda: jnp.arange(8.))
on(lambda: jnp.array([1., 2.]))
on(lambda x: x * 2, np.ones((8, 4), np.float32))
on(lambda x: x + jnp.arange(4.), a((8, 4), 'X', 'Y'))
on(lambda x: x + jnp.ones((8, 1)), a((8, 4), 'X', 'Y'))
# reshard, auto_axes, explicit_axes
on(lambda x: reshard(x, P('Y', 'X')), a((8, 4), 'X', 'Y'))
on(lambda x: reshard(x, P()), a((8, 4), 'X', 'Y'))
on(lambda x: reshard(x, P(None, ('X', 'Y'))), a((8, 8), 'X', 'Y'))
on(lambda x: reshard(x, NamedSharding(mesh, P('Y'))), a((8, 4), 'X'))
on(lambda x: reshard(x, None), a((8, 4), 'X'))
on(lambda x, y: reshard(x, P('Y')) + y, a((8, 4), 'X'), a((8, 4), 'Y'))
on(lambda x, y: auto_axes(lambda p, q: p + q, out_sharding=P('X'))(x, y), a((8, 4), 'X'), a((8, 4), 'Y'))
on(lambda x, y: auto_axes(lambda p, q: p @ q)(x, y, out_sharding=P('X', None)), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x: auto_axes(lambda p: noted(p) * 2, out_sharding=P('X', 'Y'))(x), a((8, 4), 'X', 'Y'))
on(lambda x: auto_axes(lambda p: noted(p) * 2, axes='X', out_sharding=P('X', 'Y'))(x), a((8, 4), 'X', 'Y'))
on(lambda x: auto_axes(lambda p: p * 2)(x), a((8, 4), 'X', 'Y'))
within(automesh, lambda: on(lambda x: explicit_axes(lambda p: noted(p) * 2, in_sharding=P('X', 'Y'))(x), np.ones((8, 4), np.float32)))
within(automesh, lambda: on(lambda x: explicit_axes(lambda p: noted(p) * 2, axes=('X',), in_sharding=P('X'))(x), np.ones((8, 4), np.float32)))
within(automesh, lambda: on(lambda x: explicit_axes(lambda p: p + p.T, in_sharding=P('X', 'Y'))(x), np.ones((8, 8), np.float32)))
within(automesh, lambda: on(lambda x: reshard(x, P('X')), np.ones((8, 4), np.float32)))
within(automesh, lambda: on(lambda x: jnp.reshape(x, (32,), out_sharding=P('X')), np.ones((8, 4), np.float32)))
on(lambda x: wsc(x, P('X')), a((8, 4), 'X'))
on(lambda x: wsc(x, P('Y')), a((8, 4), 'X'))
# derivatives
on(lambda x: jax.grad(lambda p: (p ** 2).sum())(x), a((8, 4), 'X', 'Y'))
on(lambda x, w: jax.grad(lambda w: ((x @ w) ** 2).sum())(w), a((8, 4), 'X'), a((4, 16)))
on(lambda x, w: jax.grad(lambda w: ((x @ w) ** 2).sum())(w), a((8, 4), 'X'), a((4, 16), None, 'Y'))
on(lambda x, w: jax.grad(lambda x, w: ((x @ w) ** 2).sum(), (0, 1))(x, w)[0], a((8, 4), 'X'), a((4, 16), None, 'Y'))
on(lambda x, w: jax.grad(lambda w: (jnp.dot(x, w, out_sharding=P('X', None)) ** 2).sum())(w), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, w: jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)[1], a((8, 4), 'X'), a((4, 16), None, 'Y'))
on(lambda x: jax.grad(lambda p: (noted(jnp.sin(p)) * 2).sum())(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.jvp(jnp.sin, (x,), (x,))[1], a((8, 4), 'X', 'Y'))
on(lambda x: jax.vjp(jnp.sin, x)[1](x)[0], a((8, 4), 'X', 'Y'))
on(lambda x, c: jax.vjp(jnp.sin, x)[1](c)[0], a((8, 4), 'X', 'Y'), a((8, 4), 'X'))
on(lambda x, c: jax.vjp(jnp.sin, x)[1](c)[0], a((8, 4), 'X', 'Y'), a((8, 4)))
on(lambda x: jax.vjp(jnp.sin, x)[1](np.ones((8, 4), np.float32))[0], a((8, 4), 'X', 'Y'))
on(lambda x: jax.vjp(jnp.sin, x)[1](jnp.ones_like(x))[0], a((8, 4), 'X', 'Y'))
on(lambda x, c: jax.linearize(jnp.sin, x)[1](c), a((8, 4), 'X', 'Y'), a((8, 4), 'X'))
on(lambda x, c: jax.linearize(jnp.sin, x)[1](c), a((8, 4), 'X', 'Y'), a((8, 4), 'X', 'Y'))
on(lambda x, c: jax.jvp(jnp.sin, (x,), (c,))[1], a((8, 4), 'X', 'Y'), a((8, 4), 'X', 'Y'))
on(lambda x: jax.jacrev(jnp.sin)(x), a((8,), 'X'))
on(lambda x: jax.jacfwd(jnp.sin)(x), a((8,), 'X'))
on(lambda x, b: jax.grad(lambda b: ((x + b) ** 2).sum())(b), a((8, 4), 'X', 'Y'), a((4,)))
on(lambda x: jax.checkpoint(lambda p: noted(jnp.sin(p)))(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.grad(jax.checkpoint(lambda p: jnp.sin(p).sum()))(x), a((8, 4), 'X', 'Y'))
# functions of one array
on(lambda x: jnp.linalg.norm(x), a((8, 4), None, 'Y'))
on(lambda x: jnp.linalg.norm(x, keepdims=True), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.imag(x), a((8, 4), 'X', 'Y'))
on(lambda x: x.imag, a((8, 4), None, 'Y'))
on(lambda x: jnp.isreal(x), a((8, 4), 'X', 'Y'))
on(lambda x: jnp.iscomplex(x), a((8, 4), 'X', 'Y'))
# derivatives that are zero
on(lambda x, y: jax.grad(lambda x, y: (x ** 2).sum(), (0, 1))(x, y)[1], a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x: jax.value_and_grad(lambda x: jnp.sign(x).sum())(x)[1], a((8, 4), 'X', 'Y'))
on(lambda x: jax.grad(lambda x: jnp.argmax(x).astype(jnp.float32))(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.grad(lambda x: (x > 0).sum().astype(jnp.float32))(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.grad(lambda x: jnp.floor(x).sum())(reshard(x, P(reduced={'X'}))), a((8, 4), 'X', 'Y'))
on(lambda x, y: jax.vjp(lambda x, y: x * 2, x, y)[1](x)[1], a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x: jax.jvp(jnp.floor, (x,), (x,))[1], a((8, 4), 'X', 'Y'))
on(lambda x, y: jax.jvp(lambda x: (x, y), (x,), (x,))[1][1], a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x, y: jax.linearize(lambda x: (x, y), x)[1](x)[1], a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x, y: jax.linear_transpose(lambda x, y: x * 2, x, y)(x)[1], a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x: jax.jacrev(jnp.sign)(x), a((8,), 'X'))
on(lambda x: jax.jacfwd(jnp.sign)(x), a((8,), 'X'))
on(lambda x, y: jax.grad(lambda x, y: ruled(x, y)[0].sum(), (0, 1))(x, y)[0], a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x, y: jax.grad(lambda x, y: ruled(x, y)[1].sum(), (0, 1))(x, y)[1], a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x, y: jax.jvp(lambda x: pushed(x, y), (x,), (x,))[1][1], a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x, y: jax.grad(lambda x, y: jax.lax.scan(lambda c, x: (c * 2, None), y, x)[0].sum())(x, y), a((2, 8, 4), None, 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x, y: jax.grad(lambda x, y: jax.lax.cond(x.sum() > 0, lambda x, y: x, lambda x, y: x * 0, x, y).sum(), 1)(x, y), a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x: jax.jvp(lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, lambda x: jnp.zeros_like(x), x), (x,), (x,))[1], a((8, 4), 'X', 'Y'))
on(lambda x, y: jax.grad(lambda x, y: jax.checkpoint(lambda x, y: x * 2)(x, y).sum(), 1)(x, y), a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x, y: jax.grad(lambda x, y: jax.jit(lambda x, y: x * 2)(x, y).sum(), 1)(x, y), a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x, y: jax.grad(lambda x, y: mapped(lambda x, y: x * 2, (P('X', 'Y'), P('Y')), P('X', 'Y'))(x, y).sum(), 1)(x, y), a((8, 4), 'X', 'Y'), a((8, 4), 'Y'))
on(lambda x: jax.lax.scan(lambda c, _: (jax.grad(lambda p: jnp.floor(p).sum())(c), None), x, None, length=2)[0], a((8, 4), 'X', 'Y'))
# batches
on(lambda x: jax.vmap(lambda p: noted(p) * 2)(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.vmap(lambda p: p.sum())(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.vmap(lambda p: jnp.zeros(4))(x), a((8, 4), 'X'))
on(lambda x: jax.vmap(jnp.zeros_like, out_axes=1)(x), a((8, 4), 'X', 'Y'))
on(lambda x, y: jax.vmap(lambda p: y * 2, out_axes=-1)(x), a((8, 4), 'X'), a((4,), 'Y'))
on(lambda x, y: jax.vmap(lambda p, q: q, (0, None))(x, y), a((8, 4), 'X'), a((4,), 'Y'))
on(lambda x, y: jax.vmap(lambda p: y)(x), a((8, 4)), a((4,), 'Y'))
on(lambda x: jax.vmap(lambda p: jnp.ones(4), out_axes=None)(x), a((8, 4), 'X'))
on(lambda x: jax.vmap(lambda p: jax.lax.psum(p, 'i'), axis_name='i')(x), a((8, 4), 'X'))
on(lambda x: jax.vmap(lambda p: jax.vmap(lambda q: jnp.zeros(2), out_axes=-1)(p), out_axes=1)(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.vmap(lambda p: jax.lax.cond(p[0] > 0, lambda p: p, jnp.zeros_like, p))(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.lax.scan(lambda c, _: (jax.vmap(jnp.zeros_like)(c), None), x, None, length=1)[0], a((8, 4), 'X', 'Y'))
on(lambda x: jax.vmap(jax.grad(lambda p: jnp.sign(p).sum()))(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.vmap(lambda p: noted(p) * 2, in_axes=1, out_axes=1)(x), a((8, 4), 'X', 'Y'))
on(lambda x, y: jax.vmap(lambda p, q: p + q)(x, y), a((8, 4), 'X'), a((8, 4), 'X', 'Y'))
on(lambda x, y: jax.vmap(lambda p, q: p + q)(x, y), a((8, 4), 'X'), a((8, 4), 'Y'))
on(lambda x, y: jax.vmap(lambda p, q: p @ q, (0, None))(x, y), a((8, 4), 'X'), a((4, 16), None, 'Y'))
on(lambda x: jax.vmap(lambda p: reshard(p, P('Y')))(x), a((8, 4), 'X'))
# loops and branches
on(lambda x: jax.lax.scan(lambda c, _: (noted(c) * 2, None), x, None, length=3)[0], a((8, 4), 'X', 'Y'))
on(lambda x: jax.lax.scan(lambda c, y: (c + y, noted(y)), x[0], x)[1], a((8, 4), None, 'Y'))
on(lambda x: jax.lax.scan(lambda c, y: (c + y, noted(c)), jnp.zeros(4), x)[0], a((8, 4), None, 'Y'))
on(lambda x: jax.lax.scan(lambda c, y: (c + y, noted(c)), x[0], x)[1], a((8, 4), None, 'Y'))
on(lambda x: jax.lax.scan(lambda c, y: (c, y), x.sum(0), x)[1], a((8, 4), 'X', 'Y'))
on(lambda x: jax.lax.scan(lambda c, _: (reshard(c, P('Y', 'X')), None), x, None, length=3)[0], a((8, 8), 'X', 'Y'))
on(lambda x: jax.lax.fori_loop(0, 3, lambda k, c: noted(c) * 2, x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.lax.while_loop(lambda c: c.sum() < 1000, lambda c: c * 2, x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.lax.while_loop(lambda c: c.sum() < 1000, lambda c: reshard(c, P('Y')), x), a((8, 4), 'X'))
on(lambda x: jax.lax.cond(x.sum() > 0, lambda c: noted(c) * 2, lambda c: c, x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.lax.cond(x.sum() > 0, lambda c: reshard(c, P('Y')), lambda c: c, x), a((8, 4), 'X'))
on(lambda x: jax.lax.map(lambda c: noted(c) * 2, x), a((8, 4), None, 'Y'))
on(lambda x: jax.jit(lambda c: noted(c) * 2)(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.jit(lambda c: noted(c) * 2, out_shardings=NamedSharding(mesh, P('Y')))(x), a((8, 4), 'X'))
# placements of jit
jitted(lambda x: x * 2, a((8, 4), 'X'), in_shardings=P('X'))
jitted(lambda x: x * 2, a((8, 4), 'X'), in_shardings=P('Y'))
jitted(lambda x: noted(x) * 2, np.ones((8, 4), np.float32), in_shardings=P('X'))
jitted(lambda x: x * 2, a((8, 4), 'X'), out_shardings=P('Y'))
jitted(lambda x: x * 2, a((8, 4), 'X'), out_shardings=None)
jitted(lambda x: x * 2, a((8, 4), 'X', None))
# neural networks
on(lambda x, k: jax.lax.conv(x, k, (1, 1), 'SAME'), a((8, 3, 6, 6), 'X'), a((4, 3, 3, 3)))
on(lambda x, k: jax.lax.conv(x, k, (1, 1), 'SAME'), a((8, 4, 6, 6), 'X', 'Y'), a((4, 4, 3, 3), None, 'Y'))
on(lambda x, e: jnp.einsum('bsd,de->bse', x, e), a((4, 8, 4), 'X', 'Y'), a((4, 2)))
on(lambda x: jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 2), (1, 2), 'VALID'), a((8, 4), 'X'))
on(lambda x: jnp.linalg.cholesky(x @ x.mT + jnp.eye(4)), a((4, 4, 4), 'X'))
# specs as they were written
spec(jax.jit(lambda x: x * 2)(auto((8, 4, 2), 'X', None, None)))
spec(auto((8, 4, 2), 'X', None, None) * 2)
spec(jax.jit(lambda x: x * 2)(one((8, 4), 'p', 'q')))
spec(one((8, 4), 'p', 'q') + 1)
auto((8, 4, 2), 'X', None, None).sharding == jax.jit(lambda x: x * 2)(auto((8, 4, 2), 'X', None, None)).sharding
NamedSharding(mesh, P('X')) == NamedSharding(mesh, P('X'), memory_kind='device')
NamedSharding(mesh, P('X')).memory_kind
a((8, 4), 'X').sharding.memory_kind
spec(jax.jit(lambda x, y: (x, y * 2))(auto((8, 4), 'X', None), auto((8, 4), None, 'Y'))[1])
spec(jax.jit(lambda x: x * 2)(a((8, 4, 2), 'X', None, None)))
spec(jax.jit(lambda x: x * 2)(a((8, 4, 2), 'X')))
spec(jax.jit(lambda x: x * 2)(auto((8, 4, 2), 'X')))
spec(jax.jit(lambda x: x.T)(auto((8, 4), 'X', None)))
NamedSharding(mesh, P('X')) == NamedSharding(mesh, P('X', None))
P('X') == P('X', None)
P('X', unreduced={'Y'}) == P('X')
P('X', unreduced={'Y'}).unreduced
P('X', reduced={'Y'}).reduced
P('X', unreduced={'X'})
P(unreduced={'X'}, reduced={'X'})
# sums that are not finished
on(lambda x, y: reshard(noted(jnp.einsum('bd,df->bf', x, y, out_sharding=P(None, None, unreduced={'Y'}))), P()), a((8, 4), None, 'Y'), a((4, 16), 'Y'))
on(lambda x, y: reshard(jnp.einsum('bd,df->bf', x, y, out_sharding=P('X', None, unreduced={'Y'})), P('X')), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: reshard(jnp.einsum('bd,df->bf', x, y, out_sharding=P('X', None, unreduced={'Y'})) + jnp.einsum('bd,df->bf', x, y, out_sharding=P('X', None, unreduced={'Y'})), P('X')), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jnp.einsum('bd,df->bf', x, y, out_sharding=P('X', None, unreduced={'Y'})) + 1, a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jnp.sin(jnp.einsum('bd,df->bf', x, y, out_sharding=P('X', None, unreduced={'Y'}))), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jnp.einsum('bd,df->bf', x, y, out_sharding=P(None, None, unreduced={'X'})), a((8, 4), None, 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jnp.dot(x, y, out_sharding=P('X', None, unreduced={'Y'})), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jnp.matmul(x, y, out_sharding=P('X', None, unreduced={'Y'})), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jnp.einsum('bd,df->fb', x, y, out_sharding=P(None, 'X', unreduced={'Y'})), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x: jax.lax.reduce_sum(x, (1,), out_sharding=P('X', unreduced={'Y'})), a((8, 4), 'X', 'Y'))
on(lambda x: jax.lax.reduce_sum(x, (0, 1), out_sharding=P(unreduced={'X', 'Y'})), a((8, 4), 'X', 'Y'))
on(lambda x: jax.lax.reduce_sum(x, (1,), out_sharding=P(unreduced={'Y'})), a((8, 4), 'X'))
on(lambda: jnp.zeros((8, 4), out_sharding=P('X', unreduced={'Y'})))
on(lambda u: u + u, part('X'))
on(lambda u: jax.lax.stop_gradient(u), part('X'))
on(lambda u: jax.grad(lambda u: reshard(jax.lax.stop_gradient(u) + u, P('X')).sum())(u), part('X'))
on(lambda u, c: jax.vjp(lambda u: u + u, u)[1](c)[0], part('X'), a((8, 16), 'X'))
on(lambda u, c: jax.vjp(lambda u: u + u, u)[1](reshard(c, P('X', None, reduced={'Y'})))[0], part('X'), a((8, 16), 'X'))
on(lambda u: jax.vjp(lambda u: u + u, u)[1](u)[0], part('X'))
on(lambda u: [noted(reshard(u, s)) for s in (P('X'), P(), P('X', 'Y'), P(('X', 'Y')), P('X', reduced={'Y'}))][2], part('X'))
on(lambda u: reshard(u, P(None, 'X', unreduced={'Y'})), part('X'))
on(lambda x: reshard(x, P('X', unreduced={'Y'})), a((8, 16), 'X'))
on(lambda x: reshard(x, P('X', unreduced={'Y'})), a((8, 16), 'X', 'Y'))
on(lambda x: reshard(reshard(x, P('X', reduced={'Y'})), P('X')), a((8, 16), 'X'))
on(lambda u: u * 2, part('X'))
on(lambda u, r: u * reshard(r, P('X', reduced={'Y'})), part('X'), a((8, 16), 'X'))
on(lambda u: u + 1, part('X'))
on(lambda u: u > 0, part('X'))
on(lambda u: u @ u.T, part())
on(lambda u: u.T, part('X'))
on(lambda u: u.reshape(8, 4, 4), part('X'))
on(lambda u: jnp.concatenate([u, u], 1), part('X'))
on(lambda u: jnp.stack([u, u]), part('X'))
on(lambda u: jnp.pad(u, ((0, 0), (1, 1))), part('X'))
on(lambda u: u.astype(jnp.bfloat16), part('X'))
on(lambda u: u.sum(1), part('X'))
on(lambda u: jnp.broadcast_to(u, (2, 8, 16)), part('X'))
on(lambda u: u.copy(), part('X'))
on(lambda u: jax.lax.fori_loop(0, 3, lambda i, c: c + c, u), part('X'))
on(lambda u: jax.lax.cond(True, lambda u: u + u, lambda u: u, u), part('X'))
on(lambda u: jax.lax.cond(True, lambda u: reshard(u, P('X')), lambda u: u, u), part('X'))
on(lambda u: jax.checkpoint(lambda u: u + u)(u), part('X'))
on(lambda x, y: jax.lax.scan(lambda c, _: (c + jnp.dot(x, y, out_sharding=P('X', None, unreduced={'Y'})), None), jnp.zeros((8, 16), out_sharding=P('X', unreduced={'Y'})), None, length=3)[0], a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: jax.vmap(lambda v: jnp.einsum('d,df->f', v, y, out_sharding=P(None, unreduced={'Y'})))(x), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda u: auto_axes(lambda u: u * u, out_sharding=P('X'))(u), part('X'))
on(lambda x, w: jax.grad(lambda w: ((x @ w) ** 2).sum())(reshard(w, P(reduced={'X'}))), a((8, 4), 'X'), a((4, 16)))
on(lambda x, w: jax.grad(lambda w: ((x @ noted(reshard(w, P(reduced={'X'})))) ** 2).sum())(w), a((8, 4), 'X'), a((4, 16)))
on(lambda x, y: jax.grad(lambda x, y: (reshard(jnp.dot(x, y, out_sharding=P('X', None, unreduced={'Y'})), P('X')) ** 2).sum(), (0, 1))(x, y)[1], a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda u: jax.grad(lambda u: (reshard(u, P('X')) ** 2).sum())(u), part('X'))
on(lambda x, y: jax.jvp(lambda x, y: jnp.dot(x, y, out_sharding=P('X', None, unreduced={'Y'})), (x, y), (x, y))[1], a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda w: jnp.sin(reshard(w, P(reduced={'X'}))) + 1, a((4, 16)))
on(lambda w: reshard(w, P(reduced={'X'})).sum(), a((4, 16)))
on(lambda r, x: reshard(r, P(reduced={'X'})) * x, a((8,)), a((8,), 'X'))
jitted(lambda u: u + u, part('X'), in_shardings=NamedSharding(mesh, P('X', None, unreduced={'Y'})))
jitted(lambda u: u + u, part('X'), in_shardings=NamedSharding(mesh, P('X', None)))
jitted(lambda u: u + u, part('X'), out_shardings=NamedSharding(mesh, P('X', None)))
jitted(lambda x, y: x @ y, a((8, 4), 'X'), a((4, 16)), out_shardings=NamedSharding(mesh, P('X', None, unreduced={'Y'})))
np.asarray(part('X'))
[float(np.asarray(s.data).sum()) for s in part('X').addressable_shards]
part('X').sharding.is_fully_replicated, part('X').sharding.shard_shape((8, 16))
NamedSharding(automesh, P(unreduced={'X'}))
NamedSharding(mesh, P(unreduced={'Q'}))
# code for single devices, with sums that are not finished
on(lambda v: mapped(lambda x: jax.lax.pcast(x, 'X', to='unreduced'), P('X'), P(unreduced={'X'}))(v), a((8,), 'X'))
on(lambda v: mapped(lambda x: x * 2, P('X'), P(unreduced={'X'}))(v), a((8,), 'X'))
on(lambda v: mapped(lambda x: x * 2, P(), P(unreduced={'X'}))(v), a((8,)))
on(lambda u: mapped(lambda x: jax.lax.psum(noted(x), 'Y'), P('X', unreduced={'Y'}), P('X'))(u), part('X'))
on(lambda u: mapped(lambda x: jax.lax.psum_scatter(x, 'Y', scatter_dimension=1, tiled=True), P('X', unreduced={'Y'}), P('X', 'Y'))(u), part('X'))
on(lambda u: mapped(lambda x: jax.lax.pmean(x, 'Y'), P('X', unreduced={'Y'}), P('X'))(u), part('X'))
on(lambda u: jax.shard_map(lambda x: jax.lax.psum(x, 'Y'), out_specs=P('X'))(u), part('X'))
on(lambda u: mapped(lambda x: jax.lax.psum(x, 'Y'), P('X'), P('X'))(u), part('X'))
on(lambda v: mapped(lambda x: x, P('Y'), P('Y'))(v), a((8,), 'X'))
on(lambda v: mapped(lambda x: x, P(), P())(v), a((8,), 'X'))
on(lambda v: mapped(lambda x: x, P('X'), P('X'))(v), a((8,)))
on(lambda w, v: mapped(lambda x, y: noted(x[:2]) * y, (P(reduced={'X'}), P('X')), P('X'))(reshard(w, P(reduced={'X'})), v), a((8,)), a((8,), 'X'))
on(lambda w: mapped(lambda x: jax.lax.pcast(x, 'X', to='reduced'), P(), P(reduced={'X'}))(w), a((8,)))
on(lambda w: mapped(lambda x: x, P(), P(reduced={'X'}))(w), a((8,)))
on(lambda w: mapped(lambda x: jax.lax.psum(x, 'X'), P(reduced={'X'}), P())(reshard(w, P(reduced={'X'}))), a((8,)))
on(lambda u: mapped(lambda x: x + x, P('X', unreduced={'Y'}), P('X', unreduced={'Y'}))(u), part('X'))
on(lambda u: mapped(lambda x: x + 1, P('X', unreduced={'Y'}), P('X', unreduced={'Y'}))(u), part('X'))
on(lambda u: mapped(lambda x: jax.lax.pcast(x, 'Y', to='varying'), P('X', unreduced={'Y'}), P('X', 'Y'))(u), part('X'))
on(lambda u: mapped(lambda x: jax.lax.ppermute(x, 'Y', [(0, 1)]), P('X', unreduced={'Y'}), P('X'))(u), part('X'))
on(lambda u: mapped(lambda x: jax.lax.psum(x, ('X', 'Y')), P('X', unreduced={'Y'}), P())(u), part('X'))
on(lambda u: mapped(lambda x: jax.lax.psum(jax.lax.scan(lambda c, _: (c + c, None), x, None, length=2)[0], 'Y'), P('X', unreduced={'Y'}), P('X'))(u), part('X'))
on(lambda v: mapped(lambda x: jax.lax.all_gather(x, 'X', to='reduced', tiled=True), P('X'), P(reduced={'X'}))(v), a((8,), 'X'))
on(lambda p, v: jax.grad(lambda p: mapped(lambda x, y: jax.lax.pcast(x, 'X', to='reduced')[:2] * y, (P(), P('X')), P('X'))(p, v).sum())(p), a((8,)), a((8,), 'X'))
on(lambda r, v: jax.grad(lambda p: (mapped(lambda x, y: x[:2] * y, (P(reduced={'X'}), P('X')), P('X'))(p, v) ** 2).sum())(reshard(r, P(reduced={'X'}))), a((8,)), a((8,), 'X'))
on(lambda v: jax.grad(lambda v: (mapped(lambda x: jax.lax.psum(jax.lax.pcast(x, 'X', to='unreduced'), 'X'), P('X'), P())(v) ** 2).sum())(v), a((8,), 'X'))
on(lambda u: jax.grad(lambda u: (mapped(lambda x: jax.lax.psum(x, 'Y'), P('X', unreduced={'Y'}), P('X'))(u) ** 2).sum())(u), part('X'))
on(lambda v: jax.grad(lambda v: (mapped(lambda x, y: jax.lax.pcast(jax.lax.all_gather(x, 'X', to='reduced', tiled=True), 'X', to='varying')[:2] * y, (P('X'), P('X')), P('X'))(v, v) ** 2).sum())(v), a((8,), 'X'))
on(lambda u: jax.grad(lambda u: (mapped(lambda x: jax.lax.psum_scatter(x, 'Y', scatter_dimension=1, tiled=True), P('X', unreduced={'Y'}), P('X', 'Y'))(u) ** 2).sum())(u), part('X'))
on(lambda u: mapped(lambda x: jax.lax.psum(x, 'Y'), P('X', unreduced={'Y'}), P('X'), check_vma=False)(u), part('X'))
on(lambda u: mapped(lambda x: x, P('X', unreduced={'Y'}), P('X', unreduced={'Y'}), axis_names={'Y'})(u), part('X'))
# code for the devices of some of the axes
on(lambda x: mapped(lambda x: noted(x) * 2, P('X'), P('X'), axis_names={'X'})(x), a((8, 4), 'X', 'Y'))
on(lambda x: mapped(lambda x: x.T, P('X'), P(None, 'X'), axis_names={'X'})(x), a((8, 4), 'X', 'Y'))
on(lambda x: mapped(lambda x: x, P('X'), P('X'), axis_names={'X'})(x), a((8, 4), 'Y', 'X'))
on(lambda x, y: mapped(lambda x, y: x @ y, (P('X'), P()), P('X'), axis_names={'X'})(x, y), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x, y: mapped(lambda x, y: jnp.dot(x, y, out_sharding=P()), (P('X'), P()), P('X'), axis_names={'X'})(x, y), a((8, 4), 'X', 'Y'), a((4, 16), 'Y'))
on(lambda x: mapped(lambda x: reshard(x, P('Y')), P('X'), P('X'), axis_names={'X'})(x), a((8, 4), 'X', 'Y'))
on(lambda x: mapped(lambda x: reshard(x, P('X')), P('X'), P('X'), axis_names={'X'})(x), a((8, 4), 'X', 'Y'))
on(lambda x: mapped(lambda x: jax.lax.psum(x, 'X'), P('X'), P(), axis_names={'X'})(x), a((8, 4), 'X', 'Y'))
on(lambda x: jax.grad(lambda x: mapped(lambda x: jnp.sin(x), P('X'), P('X'), axis_names={'X'})(x).sum())(x), a((8, 4), 'X', 'Y'))
on(lambda x: mapped(lambda x: jax.lax.scan(lambda c, _: (c * 2, None), x, None, length=2)[0], P('X'), P('X'), axis_names={'X'})(x), a((8, 4), 'X', 'Y'))
on(lambda x: x[np.array([0, 2])], a((8, 4), "X"))
on(lambda x: mapped(lambda x: x * 2, P('X'), P('X'))(x), a((6,)))
"""


def names(jax: ModuleType, jnp: ModuleType, placement: ModuleType) -> dict[str, Any]:
    """What the expressions may use, of JAX or of meshjit."""
    import numpy as np

    types = placement.AxisType
    mesh = jax.make_mesh((4, 2), ("X", "Y"), axis_types=(types.Explicit,) * 2)
    automesh = jax.make_mesh((4, 2), ("X", "Y"), axis_types=(types.Auto,) * 2)
    ones = jax.make_mesh((1, 1), ("p", "q"), axis_types=(types.Auto,) * 2)
    notes: list[str] = []

    def made(on: Any, shape: Any, *entries: Any) -> Any:
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7
        return jax.device_put(x, placement.NamedSharding(on, placement.PartitionSpec(*entries)))

    def indices(values: Any, *entries: Any) -> Any:
        return jax.device_put(np.array(values), placement.NamedSharding(mesh, placement.PartitionSpec(*entries)))

    def noted(x: Any) -> Any:
        notes.append(type_text(jax.typeof(x)))
        return x

    def typed(f: Any) -> Any:
        def traced(*args: Any) -> Any:
            result = f(*args)
            noted(result) if hasattr(result, "dtype") else None
            return result

        return traced

    def part(*entries: Any) -> Any:
        """A sum over Y that is not finished."""
        spec = placement.PartitionSpec(*entries, *[None] * (2 - len(entries)), unreduced={"Y"})
        with jax.set_mesh(mesh):
            return jnp.dot(made(mesh, (8, 4), *(entries or (None,)), "Y"), made(mesh, (4, 16), "Y"), out_sharding=spec)

    def mapped(f: Any, in_specs: Any, out_specs: Any, **options: Any) -> Any:
        return jax.shard_map(f, in_specs=in_specs, out_specs=out_specs, **options)

    @jax.custom_vjp
    def ruled(x: Any, y: Any) -> Any:
        return x * 2, y * 2

    ruled.defvjp(lambda x, y: (ruled(x, y), None), lambda _, cts: (noted(cts[0]), noted(cts[1])))

    @jax.custom_jvp
    def pushed(x: Any, y: Any) -> Any:
        return x * 2, y * 2

    pushed.defjvp(lambda primals, tangents: (pushed(*primals), tuple(map(noted, tangents))))

    def current() -> Any:
        return placement.get_mesh() if not placement.get_mesh().empty else mesh

    def jitted(f: Any, *args: Any, **options: Any) -> str:
        notes.clear()
        with jax.set_mesh(current()):
            return f"{where(jax.jit(typed(f), **options)(*args))} of {', '.join(notes)}"

    def on(f: Any, *args: Any) -> str:
        text = jitted(f, *args)
        try:
            with jax.set_mesh(current()):
                return f"{text}; eager {where(f(*args))}"
        except Exception as error:
            return f"{text}; eager {kind(error)}"

    def within(mesh: Any, use: Any) -> Any:
        with jax.set_mesh(mesh):
            return use()

    return {
        "jax": jax, "jnp": jnp, "np": np, "P": placement.PartitionSpec, "NamedSharding": placement.NamedSharding, "mesh": mesh,
        "automesh": automesh, "a": lambda *s: made(mesh, *s), "part": part, "mapped": mapped, "ruled": ruled, "pushed": pushed, "auto": lambda *s: made(automesh, *s), "one": lambda *s: made(ones, *s),
        "i": indices, "noted": noted, "on": on, "jitted": jitted, "within": within, "reshard": placement.reshard,
        "auto_axes": getattr(placement, "auto_axes", None), "explicit_axes": getattr(placement, "explicit_axes", None),
        "spec": lambda x: spec_text(x.sharding.spec), "wsc": jax.lax.with_sharding_constraint,
    }  # fmt: skip


def type_text(type: Any) -> str:
    """float32[8@X,4] and f32[8@X,4] are the same."""
    return re.sub(r"(float|int|uint)(\d+)\[", lambda m: m[1][0].replace("u", "ui")[-2:] + m[2] + "[", str(type).lstrip("~")).replace("ui", "u")


def spec_text(spec: Any) -> str:
    extra = "".join(f"; {n} {','.join(sorted(getattr(spec, n, ())))}" for n in ("unreduced", "reduced") if getattr(spec, n, ()))
    return f"P({', '.join(repr(entry) for entry in getattr(spec, 'partitions', spec))}{extra})"


def where(value: Any) -> str:
    """Spec and elements: their sum, and the sum of each times its number."""
    import numpy as np

    if isinstance(value, tuple):
        return repr(value)
    spec = spec_text(value.sharding.spec) if hasattr(value.sharding, "spec") else "one device"
    flat = np.asarray(whole(value)).astype(np.float64).ravel()
    return f"{spec} sum {flat.sum():.4g} at {(flat * np.arange(flat.size)).sum():.4g}"


def whole(value: Any) -> Any:
    """An unreduced value with its sum finished, and bools as numbers."""
    spec: Any = getattr(value.sharding, "spec", None)
    if not getattr(spec, "unreduced", ()):
        return value
    reshard = __import__(type(spec).__module__.split(".")[0].replace("sharding", "meshjit") + ".sharding").sharding.reshard
    return reshard(value, type(spec)(*spec.partitions))


def kind(error: Exception) -> str:
    kinds = ("ShardingTypeError", "ValueError", "TypeError", "RuntimeError", "NotImplementedError", "AttributeError")
    names = [base.__name__ for base in type(error).__mro__]
    return f"raises {next((name for name in names if name in kinds), type(error).__name__)}"


def outcome(expression: str, scope: dict[str, Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = eval(expression, scope)
            return value if isinstance(value, str) else repr(sorted(value) if isinstance(value, frozenset) else value)
        except Exception as error:
            return kind(error)


def expressions() -> list[str]:
    return [line for line in SCENARIOS.strip().splitlines() if not line.startswith("#")]


def record() -> None:
    import importlib

    jax, jnp, placement = (importlib.import_module(n) for n in ("jax", "jax.numpy", "jax.sharding"))
    scope = names(jax, jnp, placement)
    GOLDEN.write_text(json.dumps({e: outcome(e, scope) for e in expressions()}, indent=1) + "\n")


if __name__ == "__main__":
    record()
