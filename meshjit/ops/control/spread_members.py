"""Members of a batch of code for single devices, spread over mesh axes that the code leaves alone: each device has its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshjit.core.op import Params
from meshjit.core.program import Builder, Program
from meshjit.core.region import programs_of
from meshjit.ops.collective.members import gather_members, scatter_members
from meshjit.ops.collective.varying import pvary
from sharding.axes import name_of
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec, entry_axes


def free_axes(spread: Any, size: int, params: Params) -> tuple[str, ...]:
    """The axes of `spread`, an entry of a spec, where `size` members can be spread over them; else none.

    They have to be axes of the mesh that divide the members, and neither specs nor collectives may name them. Members that
    the code brings together are not spread: every device needs all of them."""
    axes = tuple(map(name_of, entry_axes(spread)))
    mesh = AbstractMesh([n for _, n in params["mesh"]], [name for name, _ in params["mesh"]])
    if not axes or not {*axes} <= {*mesh.axis_names} or size % mesh.axes_size(axes):
        return ()
    if _brings_members_together(params["body"]):
        return ()
    taken = _named_by_collectives(params["body"]).union(*map(_named_by_spec, (*params["in_specs"], *params["out_specs"])))
    return () if taken & {*axes} else axes


def _brings_members_together(body: Program) -> bool:
    if any(eqn.op in (gather_members, scatter_members) for eqn in body.eqns):
        return True
    return any(_brings_members_together(p) for eqn in body.eqns for p in programs_of(eqn.params))


def _named_by_spec(spec: PartitionSpec) -> frozenset[str]:
    return frozenset(name_of(axis) for entry in spec for axis in entry_axes(entry)) | spec.unreduced | spec.reduced


def _named_by_collectives(body: Program) -> frozenset[str]:
    own = (name_of(axis) for eqn in body.eqns if eqn.op.is_local for axis in eqn.params.get("axes", ()))
    return frozenset(own).union(*(_named_by_collectives(p) for eqn in body.eqns for p in programs_of(eqn.params)))


def with_own_members(body: Program, dims: Sequence[int | None], axes: tuple[str, ...], checked: bool) -> Program:
    """The body, in which what all members share varies over the axes, as their members do: so its cotangents are added up."""
    if not checked:
        return body
    with Builder(body.name) as builder:
        inputs = [builder.input(v.type, v.hint) for v in body.inputs]
        shared = {"axes": tuple(sorted(axes))}
        values = [pvary(x, **shared) if dim is None else x for x, dim in zip(inputs, dims, strict=True)]
        return builder.build(builder.inline(body, values))
