"""Collectives of bodies of `manual` that say which devices hold the same: JAX's varying manual axes.

A value varies over the mesh axes along which devices may hold different values. Where axes are checked, operands of one
equation vary over the same axes, because tracing puts a pvary in front of those that vary over fewer; so every derivative
follows from the ops: what was sent to all devices comes back as the sum of what they send.

    pvary(x) {axes}                        x, taken to vary over further axes; backwards psum_invariant
    psum_invariant(x) {axes}               the sum, the same on all devices; backwards pvary
    all_gather_invariant(x) {axes, size, dim}   concatenated, the same on all devices; backwards own_part
    own_part(x) {axes, size, dim}          of what all devices hold, the device's own part of dim
    pcast(x) {axes, source, to}            x as it is, with the mark `to` instead of `source`: "" varies; backwards the other way
                                           round, and unreduced for reduced
    ppermute(x) {axes, pairs}              (source, target) linear indices along the axes; zeros where no target
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.core.varying import REDUCED, UNREDUCED, marked
from meshjit.ops.base.families import require, require_zero
from meshjit.ops.collective.collectives import all_gather, all_reduce, axis_index, collective_permute
from meshjit.ops.collective.rules import Array, Values, axis_refs, batched, by_group, check_dim, collective, one_operand, scaled
from sharding.mesh import BaseMesh

Axes = frozenset[str]


def _without(varying: Sequence[Axes], params: Params) -> list[Axes]:
    return [frozenset().union(*varying) - set(params["axes"])]


def _float_samples(*calls: Params) -> Callable[[], list[Sample]]:
    types = [TensorType((4, 8), DTYPES[d]) for d in ("f32", "i32", "bf16")]
    return lambda: [Sample((t,), call) for t in types for call in calls]


# -- pvary, psum_invariant


pvary = collective(
    "pvary",
    partition=lambda local: list(local.operands),
    type_rule=lambda in_types, params: (one_operand("pvary", in_types),),
    emit=lambda e, operands, ins, outs, params: operands,
    simulate=lambda values, mesh, params: values,
    varying=lambda varying, params: [varying[0] | set(params["axes"])],
    transpose=lambda cts, operands, in_types, params: [psum_invariant(cts[0], axes=params["axes"])],
    batch=lambda operands, dims, params: batched(pvary, operands, dims, params),
    samples=_float_samples({"axes": ("x",)}, {"axes": ("x", "y")}),
)


def _sum(params: Params) -> Params:
    return {"axes": params["axes"], "kind": "sum"}


psum_invariant = collective(
    "psum_invariant",
    partition=lambda local: [all_reduce(*local.operands, **_sum(local.params))],
    type_rule=lambda in_types, params: all_reduce.type_rule(in_types, _sum(params)),
    emit=lambda e, operands, ins, outs, params: all_reduce.emit(e, operands, ins, outs, _sum(params)),
    simulate=lambda values, mesh, params: _rule(all_reduce)(values, mesh, _sum(params)),
    varying=_without,
    transpose=lambda cts, operands, in_types, params: [pvary(cts[0], axes=params["axes"])],
    batch=lambda operands, dims, params: batched(psum_invariant, operands, dims, params),
    samples=_float_samples({"axes": ("x",)}, {"axes": ("y", "x")}),
)


def _rule(op: Op) -> Callable[..., Values]:
    assert op.simulate is not None
    return op.simulate


# -- pcast

_DUAL = {"": "", UNREDUCED: REDUCED, REDUCED: UNREDUCED}


def _cast_back(cts: Sequence[Var], operands: Any, in_types: Types, params: Params) -> list[Var]:
    return [pcast(cts[0], axes=params["axes"], source=_DUAL[params["to"]], to=_DUAL[params["source"]])]


pcast = collective(
    "pcast",
    partition=lambda local: list(local.operands),
    type_rule=lambda in_types, params: (one_operand("pcast", in_types),),
    emit=lambda e, operands, ins, outs, params: operands,
    simulate=lambda values, mesh, params: values,
    varying=lambda varying, params: [
        (varying[0] - marked(params["axes"], params["source"])) | marked(params["axes"], params["to"])
    ],
    transpose=_cast_back,
    batch=lambda operands, dims, params: batched(pcast, operands, dims, params),
    samples=_float_samples(
        {"axes": ("x",), "source": "", "to": UNREDUCED}, {"axes": ("x", "y"), "source": REDUCED, "to": ""}
    ),
)


# -- all_gather_invariant, own_part

_PARTS = _float_samples({"axes": ("x",), "size": 4, "dim": 0}, {"axes": ("y", "x"), "size": 8, "dim": 1})

all_gather_invariant = collective(
    "all_gather_invariant",
    moves=("dim",),
    partition=lambda local: [all_gather(*local.operands, **local.params)],
    type_rule=all_gather.type_rule,
    emit=all_gather.emit,
    simulate=all_gather.simulate,
    varying=_without,
    transpose=lambda cts, operands, in_types, params: [own_part(cts[0], **params)],
    batch=lambda operands, dims, params: batched(all_gather_invariant, operands, dims, params, "dim"),
    samples=_PARTS,
)


def _part_type(in_types: Types, params: Params) -> Types:
    type = one_operand("own_part", in_types)
    check_dim("own_part", type, "dim", params["dim"], params["size"])
    return (scaled(type, params["dim"], over=params["size"]),)


def _part_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    index, dim = TensorType((), DTYPES["i32"]), params["dim"]
    (number,) = axis_index.emit(e, [], (), (index,), {"axes": params["axes"]})
    start = e.op("multiply", [number, e.constant(np.array(outs[0].shape[dim], np.int32))], [index])[0]
    starts = [start if d == dim else e.constant(np.array(0, np.int32)) for d in range(outs[0].rank)]
    sizes = ", ".join(map(str, outs[0].shape))
    return e.op("dynamic_slice", [operands[0], *starts], outs, f"slice_sizes = array<i64: {sizes}>")


def _part_simulate(values: Values, mesh: BaseMesh, params: Params) -> Values:
    def own(arrays: list[Array]) -> list[Array]:
        return [np.split(x, len(arrays), params["dim"])[i] for i, x in enumerate(arrays)]

    return by_group(values, mesh, params, own)


own_part = collective(
    "own_part",
    moves=("dim",),
    type_rule=_part_type,
    emit=_part_emit,
    simulate=_part_simulate,
    varying=lambda varying, params: [varying[0] | set(params["axes"])],
    transpose=lambda cts, operands, in_types, params: [all_gather_invariant(cts[0], **params)],
    batch=lambda operands, dims, params: batched(own_part, operands, dims, params, "dim"),
    samples=_PARTS,
)


# -- ppermute


def _permute_type(in_types: Types, params: Params) -> Types:
    for end, name in enumerate(("source", "target")):
        places = [pair[end] for pair in params["pairs"]]
        require(len(set(places)) == len(places), "ppermute", f"param pairs {params['pairs']} has a {name} twice")
    require_zero("ppermute", type := one_operand("ppermute", in_types))
    return (type,)


def positions(params: Params, mesh: BaseMesh) -> dict[str, Any]:
    """The params of the collective_permute that this is on a mesh: pairs of flat positions."""
    groups = mesh.replica_groups(axis_refs(params["axes"])).tolist()
    return {"pairs": tuple(sorted((group[s], group[t]) for group in groups for s, t in params["pairs"]))}


ppermute = collective(
    "ppermute",
    partition=lambda local: [collective_permute(*local.operands, **positions(local.params, local.mesh))],
    type_rule=_permute_type,
    emit=lambda e, operands, ins, outs, params: collective_permute.emit(e, operands, ins, outs, positions(params, e.mesh)),
    simulate=lambda values, mesh, params: _rule(collective_permute)(values, mesh, positions(params, mesh)),
    transpose=lambda cts, operands, in_types, params: [
        ppermute(cts[0], axes=params["axes"], pairs=tuple((t, s) for s, t in params["pairs"]))
    ],
    batch=lambda operands, dims, params: batched(ppermute, operands, dims, params),
    samples=_float_samples(
        {"axes": ("x",), "pairs": ((0, 1), (1, 0), (3, 2))},
        {"axes": ("y", "x"), "pairs": tuple((i, (i + 1) % 8) for i in range(8))},
    ),
)

