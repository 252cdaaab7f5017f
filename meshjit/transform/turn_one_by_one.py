"""Mirrors at the ends of a sharded dim: a few elements in reverse order, as one slice each.

    concatenate(reverse(slice(u)[1:3]), u)     ->     concatenate(slice(u)[2:3], slice(u)[1:2], u)

A slice of what was put together is then made of slices of u, which `align` sees as shifts, and borders are all that is
exchanged. So is a slice of what is mirrored in other dims besides, for the mirror of the slice stands in its place. Where the
dim lies whole on each device one reverse is less to do, so that `numpy.pad` writes that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.slicing.concatenation import concatenate, reverse
from meshjit.ops.slicing.slices import slice_
from meshjit.transform.choose_frames import Shards
from meshjit.transform.dce import dce
from meshjit.transform.fold_slices import fold_slices
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite

_MOST: Final = 4  # elements of a mirror; a longer one leaves so many slices that more is exchanged than for the reverse


def turn_one_by_one(program: Program, shards: Shards) -> Program:
    """The Program with short mirrors along sharded dims element by element, in nested Programs too; itself if there are none."""
    program = in_regions(program, lambda nested: turn_one_by_one(nested, shards), device=False)

    def rule(eqn: Eqn, here: Rewriter) -> Var | None:
        dim = eqn.params["dimension"]
        if shards(eqn.outputs[0], dim) < 2:
            return None
        parts = [one_by_one(v, dim, here) for v in eqn.inputs]
        if not any(parts):
            return None
        return concatenate(*(x for v, part in zip(eqn.inputs, parts, strict=True) for x in part or [v]), dimension=dim)

    turned = Rewriter(program).run({"concatenate": rule})
    return program if turned is program else dce(fold_slices(rewrite(turned, {"slice": _of_mirror})))


def _of_mirror(eqn: Eqn, here: Rewriter) -> Eqn | None:
    """A slice of a mirror, of whose mirrored dims it takes all, as the mirror of a slice."""
    before = here.makers.get(eqn.inputs[0])
    if before is None or before.op is not reverse:
        return None
    x, dims = before.inputs[0], before.params["dimensions"]
    if any(eqn.outputs[0].shape[d] != x.shape[d] for d in dims):
        return None
    return replace(before, inputs=(slice_(x, **eqn.params),), outputs=eqn.outputs, source=eqn.source)


def one_by_one(var: Var, dim: int, here: Rewriter) -> list[Var]:
    """The elements along dim that a reverse puts in this order, all or a slice of them; [] if the value is made otherwise."""
    eqn = here.makers.get(var)
    cut: Mapping[str, Any] = {"start": (0,) * var.rank, "limit": var.shape, "strides": (1,) * var.rank}
    if eqn is not None and eqn.op is slice_:
        cut, eqn = eqn.params, here.makers.get(eqn.inputs[0])
    if eqn is None or eqn.op is not reverse or eqn.params["dimensions"] != (dim,) or var.shape[dim] > _MOST:
        return []
    x = eqn.inputs[0]
    places = [x.shape[dim] - 1 - k for k in range(cut["start"][dim], cut["limit"][dim], cut["strides"][dim])]
    return [slice_(x, **{name: _put(cut[name], dim, k) for name, k in _one_at(place).items()}) for place in places]


def _one_at(place: int) -> dict[str, int]:
    return {"start": place, "limit": place + 1, "strides": 1}


def _put(values: Sequence[int], dim: int, value: int) -> tuple[int, ...]:
    return (*values[:dim], value, *values[dim + 1 :])
