"""Gamma-distributed numbers of keys of `rbg` and `unsafe_rbg`: one element after another, each until it accepts.

Every element has a key of its own, which the keys are split into. Keys of a batch are one list of keys, as in JAX, so that
elements differ: drawn in a batch, all words would be of its first key (`random/philox.py`).
Source: Marsaglia and Tsang, A simple method for generating gamma variables (2000); jax.random.gamma, where it loops.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.keys import UNSAFE_RBG, KeyType, PRNGKeyArray
from meshjit.lax.custom_batching import custom_vmap
from meshjit.lax.custom_jvp import custom_jvp
from meshjit.lax.elementwise import random_gamma_grad
from meshjit.lax.loops import map as map_slices, while_loop
from meshjit.numpy.promote import broadcast_to
from meshjit.random.floats import normal_floats
from meshjit.random.laws import exponential_floats, unit
from meshjit.random.philox import words_of
from meshjit.random.threefry import APART, split_data


@functools.cache
def gamma_of_keys(kind: KeyType, partitionable: bool, log_space: bool) -> Any:
    """A function (words u32[k, 4] of k keys, a f[k, n]) -> f[k, n], differentiable by a."""

    @custom_vmap
    def draws(words: Any, a: Any) -> Any:
        keys = mnp.reshape(_split(kind, words, a.shape[1], partitionable), (-1, 4))
        one = functools.partial(_draw, kind, partitionable, log_space)
        return mnp.reshape(map_slices(lambda x: one(*x), (keys, mnp.reshape(a, (-1,)))), a.shape)

    @draws.def_vmap
    def of_batch(size: int, batched: Any, *operands: Any) -> tuple[Any, bool]:
        whole = [x if flag else broadcast_to(x, (size, *x.shape)) for x, flag in zip(operands, batched, strict=True)]
        words, a = (mnp.reshape(x, (-1, x.shape[-1])) for x in whole)
        return mnp.reshape(draws(words, a), whole[1].shape), True

    @custom_jvp
    def differentiable(words: Any, a: Any) -> Any:
        return draws(words, a)

    @differentiable.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
        value = draws(*primals)
        if not log_space:
            return value, tangents[1] * random_gamma_grad(primals[1], value)
        sample = mnp.exp(value)
        sample = mnp.where(sample == 0, np.finfo(sample.dtype).tiny, sample)
        return value, tangents[1] * (random_gamma_grad(primals[1], sample) / sample)

    return differentiable


def _split(kind: KeyType, words: Any, count: int, partitionable: bool) -> Any:
    """The words of `count` keys of each key, u32[k, count, 4]."""
    if kind == UNSAFE_RBG:  # in a batch, of the first
        return mnp.reshape(words_of((words.shape[0], APART * count, 4))(words[0])[:, ::APART], (-1, count, 4))
    return map_slices(lambda key: split_data(PRNGKeyArray(kind, key), (count,), partitionable).words, words)


def _draw(kind: KeyType, partitionable: bool, log_space: bool, words: Any, a: Any) -> Any:
    """One number."""
    dtype, one, third = a.dtype, np.ones((), a.dtype), np.asarray(1 / 3, a.dtype)

    def keys(words: Any, count: int = 2) -> list[Any]:
        split = split_data(PRNGKeyArray(kind, words), (count,), partitionable).words
        return [split[i] for i in range(count)]

    def floats(law: Any, words: Any) -> Any:
        return law(PRNGKeyArray(kind, words), (), dtype, partitionable)

    is_large = a >= one  # smaller ones are drawn of a + 1, and made smaller in the end
    d = mnp.where(is_large, a, a + one) - third
    c = third / mnp.sqrt(d)

    def is_refused(state: Any) -> Any:
        _, square, v, u = state
        likely = u >= one - np.asarray(0.0331, dtype) * (square * square)
        return likely & (mnp.log(u) >= square * np.asarray(0.5, dtype) + d * ((one - v) + mnp.log(v)))

    def proposal(state: Any) -> Any:
        rest, own, accept = keys(state[0], 3)
        _, x, v = while_loop(lambda s: s[2] <= 0, candidate, (own, mnp.zeros((), dtype), -one))
        return rest, x * x, (v * v) * v, floats(unit, accept)

    def candidate(state: Any) -> Any:
        rest, own = keys(state[0])
        x = mnp.asarray(floats(normal_floats, own))
        return rest, x, one + x * c

    first, last = keys(words)
    _, _, v, _ = while_loop(is_refused, proposal, (first, mnp.zeros((), dtype), one, 2 * one))
    if log_space:
        logs = -floats(exponential_floats, last)
        boost = mnp.where(is_large | (logs == 0), np.zeros((), dtype), logs * (one / a))
        return mnp.log(d) + mnp.log(v) + boost
    boost = mnp.where(is_large, one, (1 - floats(unit, last)) ** (one / a))
    return d * v * boost
