"""Take slices before a dim is split, and put pieces together after their dims are merged.

    slice(reshape(x: [.., 3*n]) -> [.., 3, n])[.., 1:2, :]   ->  reshape(slice(x)[.., n:2*n])
    slice(transpose(x))                                      ->  transpose(slice(x))
    reshape(pad(a) + pad(b): [.., 3, n]) -> [.., 3*n]         ->  pad(reshape(a)) + pad(reshape(b))
    reshape(concatenate(a, b): [.., 3, n]) -> [.., 3*n]       ->  concatenate(reshape(a), reshape(b))

The values are the same, and so is the work. But where the long dim is sharded over a number of devices that 3 is no
multiple of, a dim of extent 3 has no place for the axis: x would be gathered. A slice of x keeps it: of a fused
projection to queries, keys and values only the blocks of heads that lie on the wrong device are moved.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshjit.core.ops_in import ops_in
from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.base.arithmetic import add
from meshjit.ops.base.shape import reshape, transpose
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.transform.rewriting import Rewriter, uses_of


def slice_early(program: Program) -> Program:
    """The Program with slices before the reshapes and transposes that they follow, and merges before sums of pads."""
    if ops_in(program).isdisjoint((slice_, pad, concatenate)):
        return program
    slicer = _Slicer(program)
    return slicer.here.run({"slice": slicer.rule, "reshape": slicer.rule})


@dataclass(frozen=True)
class _Split:
    """One dim `whole` of a shape is dims major, major + 1, …, end - 1 of another; `inner` is the extent below major."""

    whole: int
    major: int
    end: int
    inner: int


def splits(short: Sequence[int], long: Sequence[int]) -> list[_Split]:
    """The dims of `short` that are several dims of `long`, as a reshape between the two has it; dims are row-major."""
    merges: list[_Split] = []
    j = 0
    for i, extent in enumerate(short):
        start, size = j, 1
        while j < len(long) and (size < extent or (size == extent and long[j] == 1 and extent != 1)):
            size *= long[j]
            j += 1
        if extent == 1 and j < len(long) and long[j] == 1:
            j, size = j + 1, 1
        if size != extent:
            return []  # several dims became several others: nothing that this pass knows
        if j - start > 1:
            merges.append(_Split(i, start, j, math.prod(long[start + 1 : j])))
    return merges if j == len(long) else []


class _Slicer:
    """The rules of the pass; `uses` counts for old values and for what became of them."""

    def __init__(self, program: Program) -> None:
        self.here = Rewriter(program)

    @functools.cached_property
    def uses(self) -> Counter[Var]:
        return uses_of(self.here.program)

    def rule(self, eqn: Eqn, here: Rewriter) -> Var | None:
        better = self.slice_before(eqn, here.makers.get(eqn.inputs[0])) if eqn.op is slice_ else self.merge_before(eqn)
        if better is not None:
            self.uses[better] = self.uses[eqn.outputs[0]]
        return better

    # -- slices

    def slice_before(self, eqn: Eqn, before: Eqn | None) -> Var | None:
        if before is None or 0 in eqn.outputs[0].shape:
            return None
        if before.op is transpose:
            order = before.params["permutation"]
            part = self.sliced(before.inputs[0], {k: _permuted_back(v, order) for k, v in eqn.params.items()})
            return None if part is None else transpose(part, permutation=order)
        if before.op is reshape:
            return self.slice_before_reshape(eqn, before.inputs[0])
        return None

    def slice_before_reshape(self, eqn: Eqn, x: Var) -> Var | None:
        """Of one dim, the major one of a split, a range is taken."""
        shape, out = eqn.inputs[0].shape, eqn.outputs[0].shape
        cut = [d for d, (n, m) in enumerate(zip(shape, out, strict=True)) if n != m]
        if len(cut) != 1 or any(n != 1 for n in eqn.params["strides"]):
            return None
        place = next((s for s in splits(x.shape, shape) if s.major == cut[0]), None)
        if place is None:
            return None
        start, limit = [0] * x.rank, list(x.shape)
        start[place.whole] = eqn.params["start"][place.major] * place.inner
        limit[place.whole] = eqn.params["limit"][place.major] * place.inner
        params = {"start": tuple(start), "limit": tuple(limit), "strides": (1,) * x.rank}
        part = self.sliced(x, params)
        return reshape(slice_(x, **params) if part is None else part, shape=out)

    def sliced(self, x: Var, params: Mapping[str, Any]) -> Var | None:
        """The slice of x taken before what makes x, if that is a split or leads to one."""
        probe = Eqn(slice_, (x,), (Var(slice_.type_rule((x.type,), params)[0]),), params)
        return self.slice_before(probe, self.here.makers.get(x))

    # -- pads and concatenations

    def merge_before(self, eqn: Eqn) -> Var | None:
        """A reshape that merges the dim along which its operand was put together with those below it."""
        x, shape = eqn.inputs[0], eqn.outputs[0].shape
        for place in splits(shape, x.shape):
            pieces = self.pieces(x, place.major, tuple(range(x.rank)))
            if pieces:
                return self.put_together(pieces, place, shape)
        return None

    def pieces(self, x: Var, dim: int, order: tuple[int, ...]) -> list[tuple[Eqn, tuple[int, ...]]]:
        """What x, whose dims in this order are meant, is made of along dim: pads to be added up, or one concatenation,
        each with the order of its dims. [] if x is made otherwise, or needed otherwise too."""
        before = self.here.makers.get(x)
        if before is None or self.uses[x] != 1:
            return []
        if before.op is transpose:
            permutation = before.params["permutation"]
            return self.pieces(before.inputs[0], permutation[dim], tuple(permutation[d] for d in order))
        if before.op is add:
            sides = [self.pieces(v, dim, order) for v in before.inputs]
            pads = all(side and side[0][0].op is pad for side in sides)
            return [piece for side in sides for piece in side] if pads else []
        if before.op is pad:
            return [(before, order)] if _pads_only(before, dim) else []
        return [(before, order)] if before.op is concatenate and before.params["dimension"] == dim else []

    def put_together(self, pieces: Sequence[tuple[Eqn, tuple[int, ...]]], place: _Split, shape: tuple[int, ...]) -> Var:
        first, order = pieces[0]
        if first.op is concatenate:
            parts = [self.merged(v, order, place, shape) for v in first.inputs]
            return concatenate(*parts, dimension=place.whole)
        total: Var | None = None
        for one, order in pieces:
            counts = {k: one.params[k][order[place.major]] * place.inner for k in ("low", "high")}
            params = {k: tuple(n if d == place.whole else 0 for d in range(len(shape))) for k, n in counts.items()}
            params["interior"] = (0,) * len(shape)
            part = pad(self.merged(one.inputs[0], order, place, shape), one.inputs[1], **params)
            total = part if total is None else add(total, part)
        assert total is not None
        return total

    def merged(self, x: Var, order: tuple[int, ...], place: _Split, shape: Sequence[int]) -> Var:
        """One piece with its dims in order, and those of the split merged."""
        if order != tuple(range(x.rank)):
            x = transpose(x, permutation=order)
        part = [x.shape[place.major] * place.inner if d == place.whole else n for d, n in enumerate(shape)]
        return reshape(x, shape=tuple(part))


def _permuted_back(values: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    back = [0] * len(order)
    for place, dim in enumerate(order):
        back[dim] = values[place]
    return tuple(back)


def _pads_only(eqn: Eqn, dim: int) -> bool:
    others = [n for name in ("low", "high") for d, n in enumerate(eqn.params[name]) if d != dim]
    return not any(others) and not any(eqn.params["interior"]) and min(eqn.params["low"][dim], eqn.params["high"][dim]) >= 0
