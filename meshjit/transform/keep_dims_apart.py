"""Keep dims apart that a reshape merges, through everything that does not look at their order.

    y = reshape(x: [B, T, D]) -> [B*T, D]           y stays [B, T, D] for the product and the activation,
    z = gelu(y @ w);  reshape(z) -> [B, T, F]       and the reshape back is nothing

With B and T both sharded, a device's tokens are no block of the B*T tokens, so merging would gather T. An op that computes
every token by itself does not depend on their order. If the factor of the merged dim passes through an op, the op is applied
to one of the dims, batched over the other. If the op reduces the factor, its rule `split` reduces both. Other ops get the
merged value. `plan/proposals/keep_dims_apart.py` says which reshapes are worth it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.rules import alike, resized, rule_of
from meshjit.core.types import TensorType
from meshjit.ops.base.batching import move
from meshjit.ops.base.shape import reshape
from meshjit.transform.dce import dce
from meshjit.transform.fold import fold
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite
from meshjit.transform.slice_early import splits

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
    if not any(merged(eqn) and chosen(eqn) for eqn in program.eqns):
        return program
    return dce(fold(rewrite(program, _Keeper(chosen).rule)))


def merged(eqn: Eqn) -> tuple[int, int, int] | None:
    """(dim, major extent, minor extent) of a reshape that merges two dims to one, and at most adds a dim of extent 1
    at the end, as indices have it."""
    if eqn.op is not reshape:
        return None
    (before,), (after,) = (tuple(v.shape for v in side) for side in (eqn.inputs, eqn.outputs))
    if len(before) == len(after) and after[-1:] == (1,):
        after = after[:-1]
    if len(before) != len(after) + 1:
        return None
    merges = splits(after, before)
    if len(merges) != 1 or merges[0].end - merges[0].major != 2:
        return None
    place = merges[0]
    return place.whole, eqn.inputs[0].shape[place.major], place.inner


class _Keeper:
    def __init__(self, chosen: Chosen) -> None:
        self.chosen = chosen
        self.apart: dict[Var, Apart] = {}

    def rule(self, eqn: Eqn, here: Rewriter) -> Sequence[Var] | None:
        return self.reshaped(eqn) if eqn.op is reshape else self.passed(eqn)

    def reshaped(self, eqn: Eqn) -> Sequence[Var] | None:
        """A chosen merge begins something; a reshape of what is apart begins from that."""
        (x,), (out,) = eqn.inputs, eqn.outputs
        apart = self.apart.get(x)
        if apart is not None:
            return [apart.var if apart.var.shape == out.shape else reshape(apart.var, shape=out.shape)]
        place = merged(eqn)
        if place is not None and self.chosen(eqn):
            is_longer = out.rank == x.rank
            self.apart[out] = Apart(reshape(x, shape=(*x.shape, 1)) if is_longer else x, *place)
        return None

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
