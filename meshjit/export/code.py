"""What an exported function does: its Program, and all that a call needs to know beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.api import constraint
from meshjit.api.call import infos_of
from meshjit.api.placements import placements
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.api.stages import Traced
from meshjit.core.program import Program
from meshjit.runtime import client
from meshjit.trace import Tracer, bind_program
from meshjit.trace.refs import check_without_refs
from sharding.mesh import AbstractMesh, Mesh, named_mesh
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec


@dataclass(frozen=True)
class Code:
    """`program.inputs` are the leaves of `(args, kwargs)`, then `captured`. Treedefs are those of WORDS, so there is an input, a
    weak flag and a spec for the words of keys as for other arrays. `mesh` is None for one device."""

    program: Program
    captured: tuple[Any, ...]
    in_tree: Any
    out_tree: Any
    in_weak: tuple[bool, ...]
    out_weak: tuple[bool, ...]
    mesh: AbstractMesh | None = None
    in_specs: tuple[PartitionSpec | None, ...] = ()
    out_specs: tuple[PartitionSpec | None, ...] = ()

    @property
    def device_count(self) -> int:
        return 1 if self.mesh is None else self.mesh.device_count

    def inputs(self) -> list[ShapeDtypeStruct]:
        """What users see of the arguments' leaves, with their shardings."""
        types = self.program.input_types[: self.in_tree.num_leaves]
        return infos_of(self.in_tree, list(zip(types, self.in_weak, self._shardings(self.in_specs, len(types)), strict=True)))

    def outputs(self) -> list[ShapeDtypeStruct]:
        types = self.program.output_types
        return infos_of(self.out_tree, list(zip(types, self.out_weak, self._shardings(self.out_specs, len(types)), strict=True)))

    def _shardings(self, specs: Sequence[PartitionSpec | None], count: int) -> list[NamedSharding | None]:
        if self.mesh is None:
            return [None] * count
        return [None if spec is None else NamedSharding(self.mesh, spec) for spec in specs]

    def run(self, leaves: Sequence[Any], mesh: Mesh | None) -> list[Any]:
        """The results for these leaves, in the active trace or at once; placed as the function that was exported placed them."""
        if mesh is None:
            return bind_program(self.program, [*leaves, *self.captured])
        leaves = [_placed(x, mesh, spec) for x, spec in zip(leaves, self.in_specs, strict=True)]
        results = bind_program(self.program, [*leaves, *self.captured], mesh=mesh)
        return [_placed(x, mesh, spec) for x, spec in zip(results, self.out_specs, strict=True)]

    def mesh_for(self, leaves: Sequence[Any], name: str) -> Mesh | None:
        """Devices to run on, under the names of axes that the function was exported with: those where an argument is, those of
        the mesh in context, or the first. ValueError where there are too few."""
        if self.mesh is None:
            return None
        for leaf in leaves:
            sharding = None if isinstance(leaf, Tracer) else getattr(leaf, "sharding", None)
            if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
                if sharding.mesh.device_count == self.mesh.device_count:
                    return self.on(sharding.mesh)
        context = named_mesh()
        if isinstance(context, Mesh) and context.device_count == self.mesh.device_count:
            return self.on(context)
        devices = client.devices()
        if len(devices) < self.mesh.device_count:
            raise ValueError(
                f"{name} was exported for {self.mesh}, which needs {self.mesh.device_count} devices; there are {len(devices)}\n"
                "  fix: export it without shardings, or for a mesh of as many devices"
            )
        grid = np.empty(self.mesh.device_count, dtype=object)
        grid[:] = devices[: self.mesh.device_count]
        return Mesh(grid.reshape(self.mesh.axis_sizes), self.mesh.axis_names)

    def on(self, mesh: Any) -> Any:
        """`mesh`'s devices under this function's axes."""
        assert self.mesh is not None
        if (mesh.axis_names, mesh.axis_sizes) == (self.mesh.axis_names, self.mesh.axis_sizes):
            return mesh
        return Mesh(mesh.devices.reshape(self.mesh.axis_sizes), self.mesh.axis_names)


def _placed(x: Any, mesh: Mesh, spec: PartitionSpec | None) -> Any:
    return x if spec is None else constraint.with_sharding_constraint(x, NamedSharding(mesh, spec))


def code_of(traced: Traced) -> Code:
    """The code of a traced function, and where its shardings say that arguments and results are."""
    call, program = traced.call, traced.traced_program
    check_without_refs(call.title, program)
    places = placements(call, program)
    weak = tuple(key.weak for key in call.keys)
    code = Code(program.program, tuple(program.captured), call.in_tree, program.out_tree, weak, program.out_weak)
    if not places.committed or places.mesh.device_count == 1:
        return code
    mesh = AbstractMesh(places.mesh.axis_sizes, places.mesh.axis_names)
    specs = tuple(places.annotations.inputs[: len(call.keys)]), tuple(places.annotations.outputs)
    return Code(code.program, code.captured, code.in_tree, code.out_tree, weak, code.out_weak, mesh, *specs)
