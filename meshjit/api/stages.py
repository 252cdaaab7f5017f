"""The stages between a function and its results: Traced → Lowered → Compiled (as jax.stages), with the Plan in between."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit import tree
from meshjit.api.compiled import Compiled
from meshjit.api.leaves import stack_level
from meshjit.api.shardings import UNSPECIFIED, MeshFinder, broadcast, find_mesh, keywords_not_placed, spec_for, spec_of
from meshjit.core.plan import Plan
from meshjit.core.printer import print_program
from meshjit.core.program import Program
from meshjit.plan.make import Annotations, make_plan
from meshjit.runtime.array import LeafKey
from meshjit.runtime.executable import Executable, Lowering, default_mesh, fits, lower, whole_spec
from meshjit.trace import Traced as TracedProgram
from sharding.mesh import current_mesh
from sharding.named import NamedSharding, Sharding
from sharding.spec import PartitionSpec, ShardingError


@dataclass(frozen=True)
class OutInfo:
    """Shape, dtype and sharding of one result; what `jax.ShapeDtypeStruct` is for a result."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sharding: Any = None


@dataclass(frozen=True)
class Call:
    """What one call (or one `lower`) asks for: its leaves' keys, their names, and what the user said about placement."""

    title: str
    names: Sequence[str]
    keys: Sequence[LeafKey]
    in_tree: Any
    in_shardings: Any  # pytree prefix of the positional arguments, or UNSPECIFIED
    out_shardings: Any
    donated: Sequence[bool]
    keep_unused: bool = False
    device: Any = None
    options: Mapping[str, Any] | None = None


class Traced:
    """A function traced at the types of its arguments. `.program` is what it does; `.lower()` plans and partitions it."""

    def __init__(self, call: Call, traced: TracedProgram) -> None:
        self.call = call
        self.traced = traced
        self.program: Program = traced.program
        self.committed = False  # whether anything names a device; known once the mesh is

    @property
    def fun_name(self) -> str:
        return self.program.name

    @property
    def jaxpr(self) -> Program:
        return self.program

    @property
    def out_info(self) -> Any:
        return tree.unflatten(self.traced.out_tree, [OutInfo(t.shape, t.dtype) for t in self.program.output_types])

    def plan(self) -> Plan:
        """The placements alone, without partitioning."""
        mesh, annotations = self.placements()
        return make_plan(self.program, mesh, annotations)

    def placements(self) -> tuple[Any, Annotations]:
        """The mesh, and a spec for every input and output that somebody placed."""
        call, program = self.call, self.program
        given = self._in_shardings()
        outs = broadcast(call.out_shardings, self.traced.out_tree, "out_shardings")
        mesh = self._mesh(given, outs)
        in_context = current_mesh() is not None
        inputs: list[PartitionSpec | None] = []
        for i, var in enumerate(program.inputs):
            name = self._input_name(i)
            if i < len(given) and given[i] is not UNSPECIFIED:
                self._check_committed(i, given[i], mesh)
                inputs.append(spec_for(given[i], var.shape, mesh, lambda n=name: f"in_shardings for {n}", in_context))
            else:
                inputs.append(self._committed_spec(i, mesh))
        outputs = [
            spec_for(s, var.shape, mesh, lambda i=i: f"out_shardings for {self._output_name(i)}", in_context)
            for i, (var, s) in enumerate(zip(program.outputs, outs, strict=True))
        ]
        return mesh, Annotations(inputs, outputs)

    def _in_shardings(self) -> list[Any]:
        count = len(self.call.keys)
        if self.call.in_shardings is UNSPECIFIED:
            return [UNSPECIFIED] * count
        args_tree = tree.structure(tree.unflatten(self.call.in_tree, [0] * count)[0])
        prefix = self.call.in_shardings
        if isinstance(prefix, list):
            prefix = tuple(prefix)
        if args_tree.num_leaves != count:
            raise keywords_not_placed(self.call.title, sorted(tree.unflatten(self.call.in_tree, [0] * count)[1]))
        return broadcast(prefix, args_tree, "in_shardings")

    def _mesh(self, given: Sequence[Any], outs: Sequence[Any]) -> Any:
        call = self.call
        named = [(f"in_shardings for {n}", s) for n, s in zip(call.names, given, strict=True)]
        named += [(f"out_shardings for {self._output_name(i)}", s) for i, s in enumerate(outs)]
        if call.device is not None:
            from sharding.named import SingleDeviceSharding

            named.append(("device", SingleDeviceSharding(call.device)))
        committed = [
            (f"argument {self._input_name(i)}", key.sharding)
            for i, key in enumerate(self.input_keys)
            if key.committed and key.sharding is not None
        ]
        mesh = find_mesh(call.title, named, committed, self.traced.mesh)
        self.committed = mesh is not None
        return default_mesh() if mesh is None else mesh

    @property
    def input_keys(self) -> list[LeafKey]:
        """Of the arguments and then of the captured arrays."""
        return [*self.call.keys, *(x._key for x in self.traced.captured)]

    def _input_name(self, i: int) -> str:
        return self.call.names[i] if i < len(self.call.names) else f"captured array {i - len(self.call.names)}"

    def _output_name(self, i: int) -> str:
        dummy = tree.unflatten(self.traced.out_tree, list(range(len(self.program.outputs))))
        return tree.path_names(dummy, "result")[i]

    def _committed_spec(self, i: int, mesh: Any) -> PartitionSpec | None:
        key = self.input_keys[i]
        if not key.committed or not isinstance(key.sharding, NamedSharding) or key.sharding.mesh != mesh:
            return None
        return whole_spec(key.sharding, key.type.rank)

    def _check_committed(self, i: int, asked: Any, mesh: Any) -> None:
        """A committed argument that is elsewhere than in_shardings say is an error, not a silent move."""
        key = self.input_keys[i]
        if not key.committed or key.sharding is None or not isinstance(asked, Sharding | PartitionSpec):
            return
        wanted = asked if isinstance(asked, Sharding) else NamedSharding(mesh, asked)
        if not fits(key, wanted):
            raise ShardingError(
                f"argument {self._input_name(i)} {key.type} is committed to {spec_of(key.sharding)},"
                f" but in_shardings say {spec_of(wanted)}\n"
                f"  fix: meshjit.device_put({self._input_name(i)}, sharding) before the call,"
                " or leave in_shardings out to use the argument's own"
            )

    def lower(self) -> Lowered:
        """Plan, partition and emit."""
        mesh, annotations = self.placements()
        donated = [i for i, d in enumerate(self.call.donated) if d]
        lowering = lower(self.program, mesh, annotations, donated)
        self._warn_unused(lowering, donated)
        return Lowered(self, lowering)

    def _warn_unused(self, lowering: Lowering, donated: Sequence[int]) -> None:
        """As JAX, warn of donated arrays that no result can take the memory of; a Python number is no loss."""
        unused = [i for i in donated if i not in lowering.aliases and self.call.keys[i].sharding is not None]
        if unused:
            listed = ", ".join(f"{self._input_name(i)} {self.call.keys[i].type}" for i in unused)
            warnings.warn(
                f"{self.call.title}: donated memory was not used: {listed}\n"
                "  a result can take it if it has the same shape and dtype on every device, and none is left that has\n"
                "  fix: do not donate it, or delete it yourself with x.delete()",
                stacklevel=stack_level(),
            )


class Lowered:
    """A per-device program with explicit collectives, not yet compiled."""

    def __init__(self, traced: Traced, lowering: Lowering) -> None:
        self.traced = traced
        self.lowering = lowering

    @property
    def plan(self) -> Plan:
        return self.lowering.plan

    @property
    def in_tree(self) -> Any:
        return self.traced.call.in_tree

    @property
    def out_tree(self) -> Any:
        return self.traced.traced.out_tree

    def as_text(self, dialect: str | None = None) -> str:
        """`stablehlo` (the default), `meshjit` (the annotated Program) or `local` (the per-device Program)."""
        if dialect in (None, "stablehlo"):
            return self.lowering.text
        if dialect == "meshjit":
            return print_program(self.plan.program, self.plan.placements, elide=True)
        if dialect == "local":
            return print_program(self.lowering.local, elide=True)
        raise ValueError(f"unknown dialect {dialect!r}: use 'stablehlo', 'meshjit' or 'local'")

    def compile(self, compiler_options: Mapping[str, Any] | None = None) -> Compiled:
        options = {**(self.traced.call.options or {}), **(compiler_options or {})}
        traced = self.traced
        return Compiled(self, Executable(self.lowering, traced.traced.out_weak, options, traced.committed))


__all__ = ["Call", "Compiled", "Lowered", "MeshFinder", "OutInfo", "Traced"]
