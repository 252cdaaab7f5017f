"""Code for the devices of a mesh, in a Program for another mesh of the same devices: said with the axes of the latter.

    manual {mesh=(('a', 2), ('b', 4)), in_specs=(P('a', 'b'),), …, foreign=True}            on x=4, y=2 becomes
    manual {mesh=(('x', 4), ('y', 2)), in_specs=(P(x:(1)2, (x:(2)2, 'y')),), …}

and collectives over b in the body become collectives over x:(2)2 and y, whose groups hold the same devices in the same order.
Runs before all other passes, when nothing asks any more which values vary: that is known by names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshjit.core.ops_in import has_regions
from meshjit.core.program import Eqn, Program
from meshjit.core.region import programs_of, run_programs, with_regions_changed
from sharding.axes import AxisRef
from sharding.mesh import AbstractMesh, BaseMesh
from sharding.placement import Placement
from sharding.spec import PartitionSpec, placement_of
from sharding.translate import translate


def rename_axes(program: Program, mesh: BaseMesh) -> Program:
    """The Program with all code for devices in the words of `mesh`; itself if there is none of another mesh."""
    if not has_regions(program):
        return program
    eqns = tuple([_renamed(e, mesh) for e in program.eqns])
    if all(a is b for a, b in zip(eqns, program.eqns, strict=True)):
        return program
    return Program(program.name, program.inputs, eqns, program.outputs)


def can_rename(eqn: Eqn) -> bool:
    """Whether code for devices is for all axes of its mesh, holds no other such code, and has no unfinished sums at its ends."""
    params = eqn.params
    specs = (*params["in_specs"], *params["out_specs"])
    return not params["auto"] and not any(s.unreduced or s.reduced for s in specs) and not _holds_another(params["body"])


def _holds_another(body: Program) -> bool:
    nested = (p for eqn in body.eqns for p in run_programs(eqn))
    pinned = any(eqn.op.pinned is not None and eqn.op.regions is not None for eqn in body.eqns)
    return pinned or any(_holds_another(p) for p in nested)


def _renamed(eqn: Eqn, mesh: BaseMesh) -> Eqn:
    if not eqn.params.get("foreign", False):
        has_programs = eqn.op.regions is not None and any(True for _ in programs_of(eqn.params))
        return with_regions_changed(eqn, lambda p: rename_axes(p, mesh)) if has_programs else eqn
    params = {name: value for name, value in eqn.params.items() if name != "foreign"}
    own = AbstractMesh([size for _, size in params["mesh"]], [name for name, _ in params["mesh"]])
    sides = {name: tuple([_spec(s, own, mesh) for s in params[name]]) for name in ("in_specs", "out_specs")}
    return eqn.with_params({**params, **sides, "mesh": mesh.shape_tuple, "body": _body(params["body"], own, mesh)})


def _body(body: Program, own: BaseMesh, mesh: BaseMesh) -> Program:
    def renamed(eqn: Eqn) -> Eqn:
        if eqn.op.is_local and "axes" in eqn.params:
            return eqn.with_params({**eqn.params, "axes": _axes(eqn.params["axes"], own, mesh)})
        return with_regions_changed(eqn, lambda p: _body(p, own, mesh))

    return Program(body.name, body.inputs, tuple([renamed(e) for e in body.eqns]), body.outputs)


def _axes(axes: Iterable[Any], own: BaseMesh, mesh: BaseMesh) -> tuple[AxisRef, ...]:
    """One axis after the other, major to minor: the devices of a group stay in their order."""
    placement = translate(Placement(tuple([(axis,) for axis in axes])), own, mesh)
    assert placement is not None, f"{axes} of {own} on {mesh}"
    return tuple([part for dim in placement.dims for part in dim])


def _spec(spec: PartitionSpec, own: BaseMesh, mesh: BaseMesh) -> PartitionSpec:
    placement = translate(placement_of(spec, len(spec)), own, mesh)
    assert placement is not None, f"{spec} of {own} on {mesh}"
    return PartitionSpec(*(axes or None for axes in placement.dims))
