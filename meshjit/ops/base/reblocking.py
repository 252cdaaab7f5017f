"""Reshapes on a mesh: which dims of two shapes belong together, and what shards exchange where their borders do not meet.

Two shapes of equal size fall into groups of dims, each as large on both sides, [4, 6, 5] -> [6, 4, 5] into (4 6 | 6 4) and
(5 | 5). What is sharded along the first dim of a group is in blocks that follow one another, before and after:

    [10, 3] -> [30] over 4 devices      rows 0-2  3-5  6-8  9       are elements 0-8    9-17   18-26   27-29
                                        blocks of the result are elements        0-7    8-15   16-23   24-29

so that a device gives no more than a few elements at its borders to its neighbours. A block of another dim of a group is
no block of the other side at all, unless the factors say so.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from meshjit import ops
from meshjit.core.local import LocalEquation
from meshjit.core.program import Var
from meshjit.ops.base.constants import zeros
from meshjit.ops.base.families import factor_names
from sharding.rule import FactorRule

Shape = tuple[int, ...]


class _Side:
    """One of the two shapes on its way through the common split: the factors of each dim, and what is left of one."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.factors: list[list[str]] = [[] for _ in shape]
        self.dim = -1
        self.room = 1

    def advance(self) -> bool:
        """Go on to the next dim that has room; False at the end."""
        while self.room == 1 and self.dim + 1 < len(self.shape):
            self.dim += 1
            self.room = self.shape[self.dim]
        return self.room != 1

    def take(self, name: str, size: int) -> None:
        self.factors[self.dim].append(name)
        self.room //= size

    @property
    def is_fresh(self) -> bool:
        """Whether nothing of the dim is taken yet."""
        return self.room == self.shape[self.dim]

    @property
    def dims(self) -> tuple[tuple[str, ...], ...]:
        return tuple(map(tuple, self.factors))


class _Split:
    """The rule in the making."""

    def __init__(self, in_shape: Shape, out_shape: Shape) -> None:
        self.left, self.right = _Side(in_shape), _Side(out_shape)
        self.names = iter(factor_names(2 * (len(in_shape) + len(out_shape)) + 1))
        self.sizes: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        self.uneven: set[str] = set()

    def run(self) -> FactorRule:
        left, right = self.left, self.right
        while left.advance() and right.advance():
            common = math.gcd(left.room, right.room)
            begins = left.is_fresh and right.is_fresh  # where both sides begin a dim, a group begins
            if begins and common not in (left.room, right.room):
                self.close("permute")
                continue
            if common > 1:
                name = self.named(common)
                left.take(name, common)
                right.take(name, common)
                if begins:
                    self.uneven.add(name)
            if left.room > 1 and right.room > 1:
                self.close()
        merged = {dim[0] for dim in (*left.dims, *right.dims) if len(dim) > 1}
        return FactorRule((left.dims,), (right.dims,), self.kinds, self.sizes, frozenset(self.uneven & merged))

    def named(self, size: int, kind: str | None = None) -> str:
        name = next(self.names)
        self.sizes[name] = size
        if kind is not None:
            self.kinds[name] = kind
        return name

    def close(self, first: str | None = None) -> None:
        """Pass over dims of both sides up to where they meet, with factors that are never sharded; the first dims, if so
        asked, with one of the kind `first` that is both."""
        products = {self.left: 1, self.right: 1}
        shared = None if first is None else self.named(min(self.left.room, self.right.room), first)
        pending = [self.left, self.right]
        while pending:
            for side in pending:
                products[side] *= side.room
                side.take(shared or self.named(side.room, "replicate"), side.room)
            shared = None
            short = self.left if products[self.left] < products[self.right] else self.right
            pending = [short] if products[self.left] != products[self.right] and short.advance() else []


@functools.lru_cache(maxsize=4096)
def reshape_rule(in_shape: Shape, out_shape: Shape) -> FactorRule:
    """The factors that two shapes of equal size have in common, major to minor.

        [8, 1024] -> [8192]      a b -> (a b)
        [12] -> [3, 1, 4]        (a b) -> a 1 b
        [4, 6, 5] -> [6, 4, 5]   a b d -> a c d | replicate b c, permute a

    Where neither of the first extents of a group divides the other, both are sharded alike and blocks are exchanged; what
    then follows, up to where the dims meet again, has to be whole.
    """
    return _empty_rule(in_shape, out_shape) if 0 in in_shape else _Split(in_shape, out_shape).run()


def _equal_dims(left: Shape, right: Shape) -> list[tuple[int, int]]:
    """Pairs of equal dims from the front on, as far as they go; dims of 1 that only one side has are left out."""
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            pairs.append((i, j))
        elif 1 not in (left[i], right[j]):
            break
        i, j = i + (left[i] == right[j] or left[i] == 1), j + (left[i] == right[j] or left[i] != 1)
    return pairs


def _empty_rule(in_shape: Shape, out_shape: Shape) -> FactorRule:
    """Without elements any split is right: dims that are equal from either end stay together, the rest is never sharded."""
    names = factor_names(len(in_shape) + len(out_shape))
    ends = [(len(in_shape) - 1 - i, len(out_shape) - 1 - j) for i, j in _equal_dims(in_shape[::-1], out_shape[::-1])]
    front = _equal_dims(in_shape, out_shape)
    last = front[-1] if front else (-1, -1)
    same = {j: i for i, j in (*front, *((i, j) for i, j in ends if i > last[0] and j > last[1]))}
    operand = names[: len(in_shape)]
    result = tuple([operand[same[j]] if j in same else names[len(in_shape) + j] for j in range(len(out_shape))])
    kinds = dict.fromkeys([n for n in (*operand, *result) if (n in operand) != (n in result)], "replicate")
    rule = FactorRule((tuple((n,) for n in operand),), (tuple((n,) for n in result),), kinds)
    return rule.with_sizes([in_shape], [out_shape])


# -- partitioning


def reblock(local: LocalEquation) -> list[Var]:
    """The local reshape, and between its groups' dims what has to be exchanged. A group whose shards have as many elements
    on both sides is cut at the same places before and after."""
    (var,), (type,) = local.operands, local.result_types
    if type.size == 0 or var.type.size == 0:
        return [zeros(type)]
    before, after, shape = local.eqn.inputs[0].shape, local.eqn.outputs[0].shape, var.shape
    for left, right, have, width in _shifted(before, after, shape, type.shape):
        lead, tail = type.shape[: right.start], shape[left.stop :]
        dim = next(d for d in left if before[d] > 1)
        axes, extent = local.operand_placements[0].dims[dim], math.prod(before[d] for d in left)
        starts = [i * width for i in range(local.mesh.axes_size(axes))]
        flat = ops.reshape(var, shape=(*lead, have, *tail))
        var = ops.fetch_run(local, flat, len(lead), extent, axes, starts, width)
    return [ops.reshape(var, shape=type.shape)]


def _shifted(before: Shape, after: Shape, have: Shape, want: Shape) -> Iterator[tuple[range, range, int, int]]:
    """The groups whose shards have other numbers of elements before and after, and these; from the local shapes."""
    for left, right in groups(before, after):
        sizes = math.prod(have[d] for d in left), math.prod(want[d] for d in right)
        if sizes[0] != sizes[1]:
            yield left, right, *sizes


def groups(before: Shape, after: Shape) -> Iterator[tuple[range, range]]:
    """The dims of both shapes that belong together."""
    left = right = 0
    while left < len(before) or right < len(after):
        ends = [left, right]
        products = [1, 1]
        while ends == [left, right] or products[0] != products[1]:
            side = 0 if (products[0] <= products[1] and ends[0] < len(before)) or ends[1] == len(after) else 1
            products[side] *= (before, after)[side][ends[side]]
            ends[side] += 1
        yield range(left, ends[0]), range(right, ends[1])
        left, right = ends

