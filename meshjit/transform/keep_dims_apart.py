"""Keep dims apart that a reshape merges, through everything that does not look at their order.

    y = reshape(x: [B, T, D]) -> [B*T, D]           y stays [B, T, D] for the product and the activation,
    z = gelu(y @ w);  reshape(z) -> [B, T, F]       and the reshape back is nothing

With B and T both sharded, a device's tokens are no block of the B*T tokens, so merging would gather T. An op that computes
every token by itself does not depend on their order. If the factor of the merged dim passes through an op, the op is applied
to one of the dims, batched over the other. If the op reduces the factor, its rule `split` reduces both. Other ops get the
merged value. Of a reshape that merges more than two dims, the last is kept apart first, then those before it, one by one.
`plan/proposals/keep_dims_apart.py` says which reshapes are worth it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.rules import alike, resized, rule_of
from meshjit.core.types import TensorType
from meshjit.ops.base.batching import move
from meshjit.ops.base.reblocking import groups
from meshjit.ops.base.shape import reshape
from meshjit.transform.dce import dce
from meshjit.transform.fold import fold
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite

Chosen = Callable[[Eqn], bool]


@dataclass(frozen=True)
class Apart:
    """A value whose dim `dim`, of extent major * minor, is two dims of `var`."""

    var: Var
    dim: int
    major: int
    minor: int


def keep_dims_apart(program: Program, chosen: Chosen) -> Program:
    """The Program with the dims apart that chosen reshapes merge, in nested Programs too; itself if there are none."""
    program = in_regions(program, lambda nested: keep_dims_apart(nested, chosen), device=False)
    if not any(merge_of(eqn) and chosen(eqn) for eqn in program.eqns):
        return program
    keeper = _Keeper(chosen)
    program = rewrite(program, keeper.rule)
    while merges := keeper.further:
        keeper = _Keeper(lambda eqn, merges=merges: eqn.outputs[0] in merges)
        program = rewrite(program, keeper.rule)
    return dce(fold(program))


def merge_of(eqn: Eqn) -> tuple[int, int, int] | None:
    """(dim, major extent, minor extent) of the last dim of a reshape that is several dims of its operand; minor is the extent
    of the last of these."""
    return _merge_between(eqn.inputs[0].shape, eqn.outputs[0].shape) if eqn.op is reshape else None


def _merge_between(before: Sequence[int], after: Sequence[int]) -> tuple[int, int, int] | None:
    """The same of two shapes."""
    if len(before) < 2 or 0 in before:
        return None
    last = None
    for dims, (dim, *others) in [(dims, places) for dims, places in groups(tuple(before), tuple(after)) if places]:
        if len(dims) > 1 and not others:
            last = dim, math.prod(before[dims[0] : dims[-1]]), before[dims[-1]]
    return last


class _Keeper:
    """`further`: values in which a merge of more than two dims has merged the others."""

    def __init__(self, chosen: Chosen) -> None:
        self.chosen = chosen
        self.apart: dict[Var, Apart] = {}
        self.further: set[Var] = set()

    def rule(self, eqn: Eqn, here: Rewriter) -> Sequence[Var] | None:
        return self.reshaped(eqn) if eqn.op is reshape else self.passed(eqn)

    def reshaped(self, eqn: Eqn) -> Sequence[Var] | None:
        """A reshape of what is apart begins from that; a chosen merge begins something."""
        (x,), (out,) = eqn.inputs, eqn.outputs
        apart = self.apart.get(x)
        source = x if apart is None else apart.var
        result = out if apart is None else source if source.shape == out.shape else reshape(source, shape=out.shape)
        place = _merge_between(source.shape, out.shape)
        if place is not None and self.chosen(eqn):
            self.apart[result] = Apart(self.all_but_last(source, out.shape, *place), *place)
        return None if apart is None else [result]

    def all_but_last(self, source: Var, shape: tuple[int, ...], dim: int, major: int, minor: int) -> Var:
        """The source, as the shape has it, but for a dim that stays two."""
        shape = (*shape[:dim], major, minor, *shape[dim + 1 :])
        if source.shape == shape:
            return source
        var = reshape(source, shape=shape)
        if _merge_between(source.shape, shape) is not None:
            self.further.add(var)
        return var

    def passed(self, eqn: Eqn) -> Sequence[Var] | None:
        """The equation on values that are apart, if its rule lets the merged factor through, or it splits itself."""
        first = next((i for i, v in enumerate(eqn.inputs) if v in self.apart), None)
        if first is None or eqn.op.regions is not None or not eqn.outputs or not is_pure(eqn):
            return None
        apart = self.apart[eqn.inputs[first]]
        rule = rule_of(eqn)
        factors = rule.operands[first][apart.dim]
        if len(factors) != 1 or rule.sizes.get(factors[0]) != apart.major * apart.minor:
            return None
        places = [_place(dims, factors[0]) for dims in rule.operands]
        ends = [_place(dims, factors[0]) for dims in rule.results]
        if any(p == -1 for p in (*places, *ends)):
            return None
        if factors[0] in rule.kinds:
            return self.reduced(eqn, places, apart)
        # Ops that depend on the position along the dim, such as an index into it, count merged elements.
        if None in ends or factors[0] not in alike(eqn):
            return None
        return self.batched(eqn, places, ends, apart)

    def operand(self, x: Var, dim: int | None, like: Apart) -> Var:
        """The operand with its merged dim, if it has one, as two."""
        if dim is None:
            return x
        apart = self.apart.get(x)
        if apart is not None and (apart.dim, apart.major, apart.minor) == (dim, like.major, like.minor):
            return apart.var
        return reshape(x, shape=(*x.shape[:dim], like.major, like.minor, *x.shape[dim + 1 :]))

    def batched(self, eqn: Eqn, places: list[int | None], ends: list[int | None], like: Apart) -> Sequence[Var] | None:
        """The op with the minor dim in place of the merged one, batched over the major dim."""
        minor = like.minor
        ins = tuple(_with_extent(v, p, minor) for v, p in zip(eqn.inputs, places, strict=True))
        outs = tuple(_with_extent(v, p, minor) for v, p in zip(eqn.outputs, ends, strict=True))
        params = resized(eqn.op, eqn.params, ins, outs)
        if params is None:
            return None
        operands = [self.operand(v, p, like) for v, p in zip(eqn.inputs, places, strict=True)]
        results: list[Var] = []
        for old, new, dim, end in zip(eqn.outputs, *eqn.op.batch(operands, places, params), ends, strict=True):
            assert dim is not None and end is not None
            results.append(self.merged(Apart(move(new, dim, end), end, like.major, minor), old.shape))
        return results

    def reduced(self, eqn: Eqn, places: list[int | None], like: Apart) -> Sequence[Var] | None:
        if eqn.op.split is None:
            return None
        operands = [self.operand(v, p, like) for v, p in zip(eqn.inputs, places, strict=True)]
        return eqn.op.split(operands, places, eqn.params)

    def merged(self, apart: Apart, shape: tuple[int, ...]) -> Var:
        """The result merged, for those that do not take it apart."""
        result = reshape(apart.var, shape=shape)
        self.apart[result] = apart
        return result


def _place(dims: tuple[tuple[str, ...], ...], factor: str) -> int | None:
    """Which dim is this factor and no other; None if none has it, -1 if one has it among others."""
    for dim, factors in enumerate(dims):
        if factor in factors:
            return dim if len(factors) == 1 else -1
    return None


def _with_extent(var: Var, dim: int | None, extent: int) -> TensorType:
    return var.type if dim is None else var.type.with_shape((*var.shape[:dim], extent, *var.shape[dim + 1 :]))
