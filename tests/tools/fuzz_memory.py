"""Drawn equations that XLA has got wrong: updates that read what they update, views, conversions, what XLA expands, checkpoints.

Values stay small integers in f32; what is rounded on the way is rounded to an integer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder, Var
from meshjit.core.types import DTYPES
from meshjit.ops.base.constants import scalar
from tests.tools.fuzz import (
    Drawer,
    binary,
    chosen,
    joined,
    padded,
    reduced,
    reshaped,
    reversed_,
    scaled,
    sliced,
    transposed,
    unary,
)
from tests.tools.fuzz_control import control
from tests.tools.fuzz_indexing import dynamically_sliced, dynamically_updated, gathered, scattered

I32, F32, C64 = DTYPES["i32"], DTYPES["f32"], DTYPES["c64"]
Step = Callable[[Drawer], Var | None]


def _block(x: Var, starts: Sequence[int], shape: Sequence[int]) -> Var:
    limit = tuple(a + n for a, n in zip(starts, shape, strict=True))
    return REGISTRY["slice"](x, start=tuple(starts), limit=limit, strides=(1,) * x.rank)


def _shifted(d: Drawer, x: Var, shape: Sequence[int]) -> Var:
    """A few blocks of x, from anywhere, added and subtracted."""
    total = None
    for _ in range(d.number(1, 4)):
        block = _block(x, [d.number(0, n - m + 1) for n, m in zip(x.shape, shape, strict=True)], shape)
        if d.number(0, 4) == 0:
            block = REGISTRY["reverse"](block, dimensions=(d.number(0, x.rank),))
        total = block if total is None else REGISTRY[("add", "subtract", "maximum")[d.number(0, 3)]](total, block)
    assert total is not None
    return total


def _view(d: Drawer, x: Var) -> Var:
    """The same elements, perhaps in other dims: what XLA calls a bitcast."""
    kind = d.number(0, 5)
    if kind == 0:
        at = d.number(0, x.rank + 1)
        return REGISTRY["reshape"](x, shape=(*x.shape[:at], 1, *x.shape[at:]))
    if kind == 1:
        return transposed(_over(d, x)) or x
    if kind == 2:
        return reshaped(_over(d, x)) or x
    if kind == 3:
        return REGISTRY["bitcast_convert"](REGISTRY["bitcast_convert"](x, dtype=I32), dtype=F32)
    return x


def _over(d: Drawer, x: Var) -> Drawer:
    """A drawer that sees x alone."""
    other = type(d)(d.generator, d.steps)
    other.values = [x]
    return other


def stencil(d: Drawer) -> Var | None:
    """`x.at[block].set(something of shifted blocks of x)`, the value or the operand perhaps seen as other dims."""
    x = d.pick(lambda v: v.rank > 0 and v.rank < 5 and v.type.size > 1)
    if x is None:
        return None
    shape = tuple(d.number(max(1, n // 3), n + 1) for n in x.shape)
    starts = [d.number(0, n - m + 1) for n, m in zip(x.shape, shape, strict=True)]
    source = x if d.number(0, 3) else _same(d, x)
    update = _shifted(d, source, shape)
    if d.number(0, 2):
        return REGISTRY["update_slice"](x, update, start=tuple(starts))
    return REGISTRY["dynamic_update_slice"](x, update, *(scalar(s, I32) for s in starts))


def window_scattered(d: Drawer) -> Var | None:
    """One window of x, computed from shifted blocks of x, scattered into it, at a known place or a computed one."""
    x = d.pick(lambda v: v.rank > 0 and v.rank < 5 and v.type.size > 1)
    if x is None:
        return None
    shape = tuple(d.number(max(1, n // 3), n + 1) for n in x.shape)
    if d.number(0, 2):
        place = REGISTRY["constant"](value=np.array([d.number(-1, n - m + 2) for n, m in zip(x.shape, shape, strict=True)], np.int32))
    else:
        start = REGISTRY["convert"](REGISTRY["reduce_max"](x, axes=tuple(range(x.rank))), dtype=I32)
        place = REGISTRY["broadcast_in_dim"](start, shape=(x.rank,), dimensions=())
    if d.number(0, 2):  # as one of a batch of one
        place, batch = REGISTRY["reshape"](place, shape=(1, x.rank)), 1
    else:
        batch = 0
    updates = _shifted(d, x if d.number(0, 3) else _same(d, x), shape)
    updates = REGISTRY["reshape"](updates, shape=((1,) * batch + shape))
    return REGISTRY["scatter"](
        x, place, updates, update_window_dims=tuple(range(batch, batch + x.rank)), inserted_window_dims=(),
        input_batching_dims=(), scatter_indices_batching_dims=(), scatter_dims_to_operand_dims=tuple(range(x.rank)),
        kind=("add", "set", "max")[d.number(0, 3)], mode=("clip", "fill")[d.number(0, 2)],
        indices_are_sorted=bool(d.number(0, 2)), unique_indices=bool(d.number(0, 2)),
    )  # fmt: skip


def window_gathered(d: Drawer) -> Var | None:
    """One window of x, at a computed place."""
    x = d.pick(lambda v: v.rank > 0 and v.rank < 5 and v.type.size > 0)
    if x is None:
        return None
    start = REGISTRY["convert"](REGISTRY["reduce_max"](x, axes=tuple(range(x.rank))), dtype=I32)
    place = REGISTRY["broadcast_in_dim"](start, shape=(x.rank,), dimensions=())
    return REGISTRY["gather"](
        x, place, offset_dims=tuple(range(x.rank)), collapsed_slice_dims=(), operand_batching_dims=(),
        start_indices_batching_dims=(), start_index_map=tuple(range(x.rank)),
        slice_sizes=tuple(d.number(1, n + 1) for n in x.shape), mode="clip", fill_value=None, indices_are_sorted=False,
    )  # fmt: skip


def _same(d: Drawer, x: Var) -> Var:
    """What equals x but is not x: there and back through another view."""
    view = _view(d, x)
    return view if view.shape == x.shape else REGISTRY["reshape"](view, shape=x.shape)


def viewed(d: Drawer) -> Var | None:
    x = d.pick(lambda v: 0 < v.rank < 4)
    return x and _view(d, x)


def converted(d: Drawer) -> Var | None:
    x = d.pick()
    return x and REGISTRY["convert"](REGISTRY["convert"](x, dtype=I32), dtype=F32)


def complexed(d: Drawer) -> Var | None:
    """Times a complex constant, and one part of it; a scalar, too."""
    x = d.pick()
    if x is None:
        return None
    factor = np.full(x.shape, complex(d.number(-1, 2), d.number(-1, 2)), np.complex64)
    product = REGISTRY["multiply"](REGISTRY["convert"](x, dtype=C64), REGISTRY["constant"](value=factor))
    if d.number(0, 3) == 0:
        return REGISTRY["convert"](product, dtype=F32)
    return REGISTRY[("real", "imag")[d.number(0, 2)]](product)


def expanded(d: Drawer) -> Var | None:
    """An op that XLA makes others of, rounded: its results at integers are never half-way."""
    x = d.pick()
    name = ("erf", "erfc", "atan", "asinh", "lgamma", "digamma", "sinh", "acosh", "tan")[d.number(0, 9)]
    if x is None:
        return None
    low, high = (REGISTRY["constant"](value=np.full(x.shape, n, np.float32)) for n in (1, 4))
    return REGISTRY["round_nearest_even"](REGISTRY[name](REGISTRY["clamp"](low, x, high)))


def paired(d: Drawer) -> Var | None:
    """A sort of two operands, or the greatest elements, and where they stand."""
    x = d.pick(lambda v: v.rank > 0 and v.type.size > 0)
    if x is None:
        return None
    places = REGISTRY["iota"](dtype=I32, shape=x.shape, dimension=x.rank - 1)
    if d.number(0, 2):
        values, places = REGISTRY["sort"](x, places, dimension=x.rank - 1, num_keys=1, is_stable=True)
    else:
        values, places = REGISTRY["top_k"](x, k=d.number(1, x.shape[-1] + 1))
    d.values.append(values)
    return REGISTRY["convert"](places, dtype=F32)


def checkpointed(steps: Sequence[Step]) -> Step:
    """A body behind the barrier that a checkpoint's second run stands behind."""

    def draw(d: Drawer) -> Var | None:
        x, other = d.pick(), d.pick()
        if x is None or other is None:
            return None
        with Builder("body") as builder:
            inner = type(d)(d.generator)
            inner.values = [builder.input(x.type), builder.input(other.type)]
            for _ in range(d.number(1, 4)):
                result = steps[d.number(0, len(steps))](inner)
                if result is not None and result.type.size <= 512:
                    inner.values.append(result)
            body = builder.build([inner.values[-1]])
        params = {"body": body, "policy": ("nothing_saveable",), "prevent_cse": True, "again": bool(d.number(0, 2))}
        return REGISTRY["checkpoint"](x, other, **params)

    return draw


BASIC: Sequence[Step] = (
    stencil, stencil, stencil, window_scattered, window_scattered, window_gathered, viewed, viewed, viewed, converted, unary, binary, scaled, transposed, reshaped, sliced,
    padded, joined, reversed_, chosen, reduced, dynamically_sliced, dynamically_updated, dynamically_updated, gathered,
    scattered, scattered, complexed, expanded, paired,
)  # fmt: skip
IN_MEMORY: Sequence[Step] = (*BASIC, *BASIC, *control(BASIC), checkpointed([*BASIC, *control(BASIC)]))
