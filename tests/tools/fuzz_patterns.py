"""Drawn functions with the structure of models (`fuzz_structured`): caches, ring buffers, attention in blocks, experts, pipelines.

Every pattern draws extents and gives a function with its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from tests.tools.fuzz_stencils import Hand, small

Pattern = tuple[Callable[..., Any], list[Any]]


def _extent(h: Hand) -> int:
    return h.one_of((1, 2, 3, 4, 4, 6, 7, 8, 8, 12))


def _floats(h: Hand, *shape: int) -> Any:
    return h.generator.integers(-3, 4, shape).astype(np.float32)


def _ints(h: Hand, below: int, *shape: int) -> Any:
    return h.generator.integers(0, below, shape).astype(np.int32)


def decoding(h: Hand) -> Pattern:
    """Tokens one after the other, with keys and values that are written to a cache, which may be a ring buffer."""
    batch, heads, width, length, trips = _extent(h), _extent(h), h.one_of((1, 2, 4)), _extent(h), h.number(1, 6)
    is_ring, is_stacked = h.coin(), h.coin()
    start = h.number(0, length)

    def function(keys: Any, values: Any, x: Any) -> Any:
        def step(state: Any, i: Any) -> Any:
            keys, values, x = state
            at = (start + i) % length if is_ring else start + i
            k, v = small(x + 1)[:, None], small(2 * x)[:, None]
            if is_stacked:
                keys = lax.dynamic_update_slice(keys, k, (0, at, 0, 0))
                values = lax.dynamic_update_slice(values, v, (0, at, 0, 0))
            else:
                keys, values = keys.at[:, at].set(k[:, 0]), values.at[:, at].set(v[:, 0])
            scores = mnp.einsum("bhd,bthd->bht", x, keys)
            mask = mnp.arange(length) <= start + i
            scores = mnp.where(mask, mnp.clip(scores, -3, 3), 0)
            x = small(mnp.einsum("bht,bthd->bhd", scores, values))
            return (keys, values, x), mnp.argmax(x, axis=-1)

        state, tokens = lax.scan(step, (keys, values, x), mnp.arange(trips))
        return [*state, tokens]

    shape = batch, length, heads, width
    return function, [_floats(h, *shape), _floats(h, *shape), _floats(h, batch, heads, width)]


def history(h: Hand) -> Pattern:
    """A ring buffer: each step writes a row, and reads the one of some steps before."""
    rows, width, trips = _extent(h), _extent(h), h.number(1, 8)
    back, is_rolled = h.number(0, rows + 1), h.coin()

    def function(buffer: Any, x: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            buffer, x = state
            old = buffer[(i - back) % rows]
            x = small(x + old)
            if is_rolled:
                return mnp.roll(buffer, 1, 0).at[0].set(x), x
            return lax.dynamic_update_index_in_dim(buffer, x, i % rows, 0), x

        return list(lax.fori_loop(0, trips, step, (buffer, x)))

    return function, [_floats(h, rows, width), _floats(h, width)]


def attention(h: Hand) -> Pattern:
    """Keys in blocks, with the running maximum and sum; perhaps its gradient."""
    rows, blocks, size, width = _extent(h), h.number(1, 5), _extent(h), h.one_of((1, 2, 4))
    is_derived, is_kept, is_causal = h.coin(), h.coin(), h.coin()

    def attend(q: Any, k: Any, v: Any) -> Any:
        def step(state: Any, block: Any) -> Any:
            best, total, out = state
            i, k, v = block
            scores = q @ k.T * 0.25
            if is_causal:
                scores = mnp.where(i * size + mnp.arange(size) <= mnp.arange(rows)[:, None], scores, -1e9)
            now = mnp.maximum(best, mnp.max(scores, axis=1))
            p, scale = mnp.exp(scores - now[:, None]), mnp.exp(best - now)
            return (now, total * scale + mnp.sum(p, 1), out * scale[:, None] + p @ v), None

        step = mj.checkpoint(step) if is_kept else step
        start = mnp.full(rows, -1e9, np.float32), mnp.zeros(rows, np.float32), mnp.zeros((rows, width), np.float32)
        parts = mnp.arange(blocks), k.reshape(blocks, size, width), v.reshape(blocks, size, width)
        (_, total, out), _ = lax.scan(step, start, parts)
        return out / total[:, None]

    def function(q: Any, k: Any, v: Any) -> Any:
        if is_derived:
            return list(mj.grad(lambda *a: mnp.sum(attend(*a) ** 2), (0, 1, 2))(q, k, v))
        return [attend(q, k, v)]

    return function, [_floats(h, rows, width), _floats(h, blocks * size, width), _floats(h, blocks * size, width)]


def experts(h: Hand) -> Pattern:
    """Tokens go to experts of some capacity: by one_hot, or sorted."""
    tokens, count, width, capacity, kind = _extent(h), _extent(h), h.one_of((1, 2, 4)), _extent(h), h.number(0, 3)
    is_derived = h.coin()

    def by_one_hot(x: Any, w: Any, chosen: Any) -> Any:
        one = mj.nn.one_hot(chosen, count, dtype=np.float32)
        place = mnp.cumsum(one, 0) * one - 1
        dispatch = one[..., None] * mj.nn.one_hot(place.astype(np.int32), capacity, dtype=np.float32)
        inside = mnp.einsum("tec,td->ecd", dispatch, x)
        return mnp.einsum("tec,ecd->td", dispatch, mnp.einsum("ecd,edf->ecf", inside, w))

    def by_sorting(x: Any, w: Any, chosen: Any) -> Any:
        order = mnp.argsort(chosen, stable=True)
        sizes = mnp.bincount(chosen, length=count).astype(np.int32)
        ends = lax.ragged_dot(x[order], w, sizes)
        return mnp.zeros_like(ends).at[order].set(ends)

    def by_slots(x: Any, w: Any, chosen: Any) -> Any:
        order = mnp.argsort(chosen, stable=True)
        sizes = mj.ops.segment_sum(mnp.ones_like(chosen), chosen, count)
        begin = mnp.cumsum(sizes) - sizes
        place = mnp.arange(tokens) - begin[chosen[order]]
        slots = mnp.zeros((count, capacity, width), x.dtype).at[chosen[order], place].set(x[order], mode="drop")
        made = mnp.einsum("ecd,edf->ecf", slots, w)
        back = made.at[chosen[order], place].get(mode="fill", fill_value=0)
        return mnp.zeros_like(x).at[order].set(back)

    def function(x: Any, w: Any, chosen: Any) -> Any:
        run = (by_one_hot, by_sorting, by_slots)[kind]
        if is_derived:
            return list(mj.grad(lambda x, w: mnp.sum(run(x, w, chosen) * (1 + mnp.arange(width))), (0, 1))(x, w))
        return [run(x, w, chosen)]

    return function, [_floats(h, tokens, width), _floats(h, count, width, width), _ints(h, count, tokens)]


def vocabulary(h: Hand) -> Pattern:
    """Rows looked up, a masked loss over the same table, and its gradient."""
    size, width, batch, length = _extent(h), _extent(h), _extent(h), h.one_of((1, 2, 4))
    is_derived, is_one_hot = h.coin(), h.coin()

    def loss(table: Any, tokens: Any, targets: Any) -> Any:
        x = mj.nn.one_hot(tokens, size, dtype=np.float32) @ table if is_one_hot else table[tokens]
        logits = x @ table.T * 0.125
        picked = mnp.take_along_axis(mj.nn.log_softmax(logits), targets[..., None], axis=-1)[..., 0]
        mask = (tokens != 0).astype(np.float32)
        return -mnp.sum(picked * mask) / mnp.maximum(mnp.sum(mask), 1)

    def function(table: Any, tokens: Any, targets: Any) -> Any:
        if is_derived:
            return list(mj.value_and_grad(loss)(table, tokens, targets))
        return [loss(table, tokens, targets)]

    return function, [_floats(h, size, width), _ints(h, size, batch, length), _ints(h, size, batch, length)]


def pipeline(h: Hand) -> Pattern:
    """Stages side by side; what they hold moves on by a roll over the dim of stages."""
    stages, batches, rows, width = _extent(h), h.number(1, 6), _extent(h), h.one_of((1, 2, 4))
    is_derived = h.coin()

    def run(weights: Any, inputs: Any) -> Any:
        def step(state: Any, i: Any) -> Any:
            held, out = state
            held = mnp.roll(held, 1, 0).at[0].set(inputs[mnp.minimum(i, batches - 1)])
            held = small(mnp.einsum("srd,sde->sre", held, weights))
            at = i - stages + 1
            new = lax.dynamic_update_index_in_dim(out, held[-1], mnp.maximum(at, 0), 0)
            return (held, mnp.where(at >= 0, new, out)), None

        start = mnp.zeros((stages, rows, width), np.float32), mnp.zeros((batches, rows, width), np.float32)
        return lax.scan(step, start, mnp.arange(batches + stages - 1))[0][1]

    def function(weights: Any, inputs: Any) -> Any:
        return list(mj.grad(lambda *a: mnp.sum(run(*a)), (0, 1))(weights, inputs)) if is_derived else [run(weights, inputs)]

    return function, [_floats(h, stages, width, width), _floats(h, batches, rows, width)]


def accumulation(h: Hand) -> Pattern:
    """Gradients of small batches, added up in a loop, which may keep layers by a policy."""
    batches, rows, width, layers = h.number(1, 5), _extent(h), _extent(h), h.number(1, 4)
    is_strided, kind = h.coin(), h.number(0, 4)
    policies = mj.checkpoint_policies
    policy = (None, policies.nothing_saveable, policies.dots_saveable, policies.dots_with_no_batch_dims_saveable)[kind]

    def loss(weights: Any, x: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            return small(x @ w), None

        return mnp.sum(lax.scan(mj.checkpoint(layer, policy=policy) if kind else layer, x, weights)[0] ** 2)

    def function(weights: Any, x: Any) -> Any:
        if is_strided:
            parts = mnp.swapaxes(x.reshape(rows, batches, width), 0, 1)
        else:
            parts = x.reshape(batches, rows, width)

        def step(state: Any, part: Any) -> Any:
            value, grads = mj.value_and_grad(loss)(weights, part)
            return (state[0] + value, state[1] + grads), None

        start = mnp.zeros((), np.float32), mnp.zeros_like(weights)
        value, grads = lax.scan(step, start, parts)[0]
        return [value, weights - grads]

    return function, [_floats(h, layers, width, width), _floats(h, batches * rows, width)]


def particles(h: Hand) -> Pattern:
    """Particles add to cells of a grid that then moves; each reads the cell in which it is."""
    count, cells, trips = _extent(h), _extent(h), h.number(1, 5)
    shift = h.shift(cells)

    def function(place: Any, grid: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            place, grid = state
            grid = small(grid.at[place].add(1.0))
            grid = small(mnp.roll(grid, shift) + grid)
            place = (place + mnp.where(grid[place] > 0, 1, -1)) % cells
            return place.astype(np.int32), grid

        return list(lax.fori_loop(0, trips, step, (place, grid)))

    return function, [_ints(h, cells, count), _floats(h, cells)]


def recurrence(h: Hand) -> Pattern:
    """A linear recurrence along the sequence by an associative scan, in chunks whose last states go on in a loop."""
    chunks, size, width = h.number(1, 5), _extent(h), _extent(h)
    is_derived = h.coin()

    def combine(a: Any, b: Any) -> Any:
        return a[0] * b[0], mnp.clip(b[0] * a[1] + b[1], -50, 50) if not is_derived else b[0] * a[1] + b[1]

    def run(decay: Any, x: Any) -> Any:
        def chunk(last: Any, part: Any) -> Any:
            decay, x = part
            factors, values = lax.associative_scan(combine, (decay, x), axis=0)
            values = values + factors * last
            return values[-1], values

        parts = mnp.sign(decay).reshape(chunks, size, width), x.reshape(chunks, size, width)
        return lax.scan(chunk, mnp.zeros(width, np.float32), parts)[1]

    def run_plainly(decay: Any, x: Any) -> Any:
        return run(0.0 * decay + 1, x)

    def function(decay: Any, x: Any) -> Any:
        if is_derived:
            return list(mj.grad(lambda *a: mnp.sum(run_plainly(*a) ** 2), (0, 1))(decay, x))
        return [run_plainly(decay, x)]

    return function, [_floats(h, chunks * size, width), _floats(h, chunks * size, width)]


PATTERNS = (decoding, history, attention, experts, vocabulary, pipeline, accumulation, particles, recurrence)
