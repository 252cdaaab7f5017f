"""Drawn functions for `fuzz_structured`: loops of every kind over moves (`fuzz_stencils`, `fuzz_moves`), their derivatives and
batches, or a pattern (`fuzz_patterns`), on a drawn mesh with drawn specs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.types import TensorType
from sharding.mesh import AbstractMesh
from tests.tools.fuzz_moves import IN_LOOPS, MOVES
from tests.tools.fuzz_patterns import PATTERNS
from tests.tools.fuzz_stencils import FAMILIES, STENCILS, Hand, plus
from tests.tools.laws import random_spec

SHAPES: Final = ((2,), (3,), (4,), (8,), (2, 2), (2, 3), (2, 2, 2), (4, 2), (1,))


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A function, its arguments and their specs; `generator` draws what else is."""

    function: Callable[..., Any]
    arrays: list[np.ndarray[Any, Any]]
    mesh: AbstractMesh
    inputs: list[Any]
    generator: np.random.Generator

    @property
    def types(self) -> list[str]:
        return [str(TensorType(tuple(a.shape), a.dtype)) for a in self.arrays]


def drawn_by(seed: int) -> Drawn:
    """Two fifths are stencils alone, mostly along a sharded dim, a fifth patterns."""
    g = np.random.default_rng(seed)
    shape = SHAPES[seed % len(SHAPES)]
    mesh = AbstractMesh(shape, ("x", "y", "z")[: len(shape)])
    kind = seed % 5
    if kind == 4:
        function, arrays = PATTERNS[int(g.integers(len(PATTERNS)))](Hand(g, mesh))
    else:
        function, arrays = _loop(Hand(g, mesh), is_plain=kind < 2)
    inputs = [random_spec(g, a.ndim, mesh) for a in arrays]
    if kind == 0:  # sharded along the first dim, as stencils are
        inputs = [mj.P(mesh.axis_names if g.integers(2) else mesh.axis_names[0])] * len(arrays)
    elif kind == 1:
        inputs = inputs[:1] * len(arrays)
    return Drawn(function, arrays, mesh, inputs, g)


# -- loops over moves


def _extent(h: Hand) -> int:
    shards = math.prod(h.mesh.axis_sizes)
    multiples = shards, 2 * shards, 2 * shards, 3 * shards
    return h.one_of((1, 2, 3, 4, 5, 6, 7, 8, 8, 12, *multiples, shards + 1, 2 * shards - 1, 0 if h.coin(3) else 16))


def _loop(h: Hand, is_plain: bool) -> tuple[Callable[..., Any], list[Any]]:
    """Some fields, and what a loop of drawn moves makes of them; perhaps its derivative, or that of a batch."""
    dtypes = ("f4", "f4", "f4", "f4", "i4", "u1", "?", "c8", "bf16")
    dtype = h.one_of(dtypes)
    shape = tuple(_extent(h) for _ in range(h.one_of((1, 1, 2, 2, 2, 3))))
    if is_plain and not h.coin(4):
        shape = (h.one_of((h.mesh.axis_sizes[0], math.prod(h.mesh.axis_sizes))) * h.number(1, 7), *shape[1:])
    while math.prod(shape) > 2000:
        shape = shape[:-1]
    if h.coin(3):
        shape = (shape[0],) * len(shape) if len(shape) < 3 else shape
    arrays = [_values(h, shape, dtype) for _ in range(h.one_of((1, 1, 2, 2, 3)))]
    again = h.again()
    is_float = dtype == "f4"
    wrapper = h.one_of(WRAPPERS) if is_float and h.coin(5 if is_plain else 3) else _as_it_is
    smooth = wrapper is not _as_it_is

    def function(*fields: Any) -> Any:
        hand = again()
        hand.smooth = smooth
        return _run(hand, list(fields), is_plain)

    return wrapper(function), arrays


def _values(h: Hand, shape: Sequence[int], dtype: str) -> Any:
    numbers = h.generator.integers(-4, 5, shape)
    if dtype == "bf16":
        return numbers.astype(mnp.bfloat16)
    if dtype == "?":
        return numbers > 0
    return (numbers + (1j * h.generator.integers(-4, 5, shape) if dtype == "c8" else 0)).astype(dtype)


def _run(h: Hand, fields: list[Any], is_plain: bool) -> Any:
    h.is_plain = is_plain
    loop = h.one_of(LOOPS if not h.smooth else LOOPS[:-1])
    length = h.one_of((2, 3, 4, 5, 7, 8, 1, 10, 0))
    moves = STENCILS if is_plain else MOVES
    if h.coin():  # a few of them, so that they meet
        family = h.one_of(FAMILIES) if is_plain else moves
        moves = [h.one_of(family) for _ in range(h.number(1, 3))]
    if h.coin(4):
        fields[0] = _moved(h, fields[0], moves)
    fields = loop(h, fields, length, moves)
    return [_moved(h, fields[0], moves), *fields[1:]] if h.coin(4) else fields


def _step(h: Hand, fields: Sequence[Any], moves: Sequence[Any]) -> list[Any]:
    """One iteration: some of the fields move, some are what others were."""
    fields = list(fields)
    for _ in range(h.number(1, 4)):
        i, j = h.number(0, len(fields)), h.number(0, len(fields))
        fields[i] = plus(h, fields[i], _moved(h, fields[j], moves))
    return fields[1:] + fields[:1] if h.coin(3) else fields


def _moved(h: Hand, u: Any, moves: Sequence[Any]) -> Any:
    if u.ndim == 0:
        return u
    kind = h.number(0, 16)
    if kind == 0 and not h.is_deep and not h.is_plain:
        return _branched(h, u, moves)
    if kind == 1 and not h.is_deep and not h.is_plain:
        return _nested(h, u, moves)
    if kind == 2 and h.smooth:
        again, index = h.again(), h.index
        return mj.checkpoint(lambda v: _simply(_at(again(), index), v, moves))(u)
    return _simply(h, u, moves)


def _simply(h: Hand, u: Any, moves: Sequence[Any]) -> Any:
    options = (*moves, *IN_LOOPS) if h.index is not None and not h.is_plain else moves
    move = h.one_of(options)
    if h.index is None and move.__name__ == "masked":
        move = MOVES[0]
    out = move(h, u)
    assert out.shape == u.shape and out.dtype == u.dtype, f"{move.__name__}: {u.shape} {u.dtype} to {out.shape} {out.dtype}"
    return out


def _at(h: Hand, index: Any, is_deep: bool = False) -> Hand:
    h.index, h.is_deep = index, h.is_deep or is_deep
    return h


def _branched(h: Hand, u: Any, moves: Sequence[Any]) -> Any:
    first, second, index = h.again(), h.again(), h.index
    is_true = (mnp.sum(mnp.real(u)) > 0) if h.coin() or index is None else index % 2 == 0
    pair = [lambda v, a=a: _simply(_at(a(), index, True), v, moves) for a in (first, second)]
    return lax.cond(is_true, *pair, u)


def _nested(h: Hand, u: Any, moves: Sequence[Any]) -> Any:
    again, length = h.again(), h.number(1, 4)
    return lax.fori_loop(0, length, lambda i, v: plus(again(), v, _simply(_at(again(), i, True), v, moves)), u)


def _fori(h: Hand, fields: list[Any], length: int, moves: Sequence[Any]) -> list[Any]:
    again = h.again()
    return list(lax.fori_loop(0, length, lambda i, fs: tuple(_step(_at(again(), i), fs, moves)), tuple(fields)))


def _scan(h: Hand, fields: list[Any], length: int, moves: Sequence[Any]) -> list[Any]:
    """With slices that are added, and results that are stacked."""
    again = h.again()
    constants = fields[1:] if h.coin() else []
    carried = fields[:1] if constants else fields
    xs = h.generator.integers(-1, 2, (length, *fields[0].shape)).astype(bool) if h.coin() else None
    kind, reverse, unroll, is_kept = h.number(0, 3), h.coin(), h.one_of((1, 1, 1, 2)), h.coin(3)

    def body(carry: Any, pair: Any) -> Any:
        i, x = pair
        hand = _at(again(), i)
        out = _step(hand, [*carry, *constants], moves)[: len(carry)]
        if x is not None:
            out[0] = mnp.where(x, out[0], carry[0])
        y = (None, lambda: out[-1], lambda: _moved(hand, out[0], moves))[kind]
        return tuple(out), None if y is None else y()

    body = mj.checkpoint(body) if is_kept and h.smooth else body
    places = mnp.arange(length, dtype=np.int32)
    carry, ys = lax.scan(body, tuple(carried), (places, None if xs is None else mnp.asarray(xs)), length, reverse, unroll)
    return [*carry, *([] if ys is None else [ys])]


def _while(h: Hand, fields: list[Any], length: int, moves: Sequence[Any]) -> list[Any]:
    again, limit = h.again(), h.number(0, 400)

    def more(state: Any) -> Any:
        i, *fs = state
        total = mnp.sum(mnp.abs(mnp.real(fs[0])).astype(np.int32))
        return (i < length) & (total < limit) if limit > 100 else i < length

    def body(state: Any) -> Any:
        i, *fs = state
        return (i + 1, *_step(_at(again(), i), fs, moves))

    return list(lax.while_loop(more, body, (mnp.zeros((), np.int32), *fields)))[1:]


def _unrolled(h: Hand, fields: list[Any], length: int, moves: Sequence[Any]) -> list[Any]:
    """Layers that Python writes one by one, perhaps as calls of one function, and two loops behind one another."""
    again, is_called = h.again(), h.coin(3)

    def layer(*fields: Any) -> list[Any]:
        return _step(_at(again(), None), fields, moves)

    layer = mj.jit(layer) if is_called else layer
    if h.coin(3):
        return _fori(h, _fori(h, fields, length, moves), 2, moves)
    for _ in range(length):
        fields = layer(*fields)
    return fields


LOOPS = (_fori, _fori, _scan, _scan, _unrolled, _while)


# -- derivatives and batches


def _as_it_is(f: Callable[..., Any]) -> Callable[..., Any]:
    return f


def _total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *fields: sum(mnp.sum(y * (k + 1)) for k, y in enumerate(f(*fields)))


def _gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *fields: list(mj.grad(_total(f), tuple(range(len(fields))))(*fields))


def _kept(f: Callable[..., Any]) -> Callable[..., Any]:
    policy = mj.checkpoint_policies.nothing_saveable
    return lambda *fields: [mj.grad(mj.checkpoint(_total(f), policy=policy))(*fields)]


def _pushed(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *fields: list(mj.jvp(f, fields, fields)[1])


def _batched(f: Callable[..., Any]) -> Callable[..., Any]:
    """Members are the fields, and twice them."""
    return lambda *fields: list(mj.vmap(f)(*[mnp.stack([u, -u], 0) for u in fields]))


WRAPPERS = (_gradient, _gradient, _kept, _pushed, _batched)
