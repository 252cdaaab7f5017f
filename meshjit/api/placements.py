"""Where the arguments and results of one call were said to live: the mesh, and a spec for each that somebody placed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshjit import tree
from meshjit.api.call import Call
from meshjit.api.shardings import (
    UNSPECIFIED,
    broadcast,
    check_count,
    device_mesh,
    find_mesh,
    keywords_not_placed,
    spec_for,
    spec_of,
)
from meshjit.core.explicit import pin_of
from meshjit.plan.make import Annotations
from meshjit.runtime.array import LeafKey
from meshjit.runtime.executable import default_mesh, fits, spec_on
from meshjit.trace import Traced as TracedProgram, line_of
from sharding.named import NamedSharding, Sharding, is_auto
from sharding.spec import PartitionSpec, ShardingError


@dataclass(frozen=True)
class Placements:
    """`committed`: somebody named devices, so that results stay on them."""

    mesh: Any
    annotations: Annotations
    committed: bool


def placements(call: Call, traced: TracedProgram) -> Placements:
    """What the call's shardings, its committed arguments and the mesh context say together.

    ShardingError where they contradict each other, or a spec does not fit its array."""
    return _Finder(call, traced).find()


class _Finder:
    def __init__(self, call: Call, traced: TracedProgram) -> None:
        self.call, self.traced = call, traced
        self.keys: list[LeafKey] = [*call.keys, *(x._key for x in traced.captured)]
        self.shardings = self._in_shardings()
        self.outs = broadcast(call.out_shardings, traced.out_tree, "out_shardings")

    def find(self) -> Placements:
        named_mesh = self._mesh()
        mesh = default_mesh() if named_mesh is None else named_mesh
        inputs = [self._input(i, mesh) for i in range(len(self.keys))]
        outputs = [
            self._output(i, s, var.shape, mesh)
            for i, (var, s) in enumerate(zip(self.traced.program.outputs, self.outs, strict=True))
        ]
        return Placements(mesh, Annotations(inputs, outputs), named_mesh is not None)

    def _output(self, i: int, asked: Any, shape: tuple[int, ...], mesh: Any) -> PartitionSpec | None:
        """Where out_shardings, or else its type, in explicit axes, say that a result is."""
        spec = spec_for(asked, shape, mesh, lambda: f"out_shardings for {self._output_name(i)}")
        if spec is not None:
            return spec
        sharding = self.traced.shardings[i] if self.traced.shardings else None
        return None if sharding is None or sharding.mesh.axis_names != mesh.axis_names else pin_of(sharding.spec, sharding.mesh)

    def _input(self, i: int, mesh: Any) -> PartitionSpec | None:
        key = self.keys[i]
        sharding = self.shardings[i] if i < len(self.shardings) else UNSPECIFIED
        if sharding is UNSPECIFIED or ((sharding is None or is_auto(sharding)) and key.committed):
            return _committed_spec(key, mesh)
        self._check_committed(i, sharding, mesh)
        return spec_for(sharding, key.type.shape, mesh, lambda: f"in_shardings for {self._input_name(i)}")

    def _in_shardings(self) -> list[Any]:
        """One per leaf of the arguments."""
        count = len(self.call.keys)
        prefix = self.call.in_shardings
        if prefix is UNSPECIFIED:
            return [UNSPECIFIED] * count
        args, kwargs = tree.unflatten(self.call.in_tree, [0] * count)
        if kwargs:
            raise keywords_not_placed(self.call.title, sorted(kwargs))
        prefix = tuple(prefix) if isinstance(prefix, list) else prefix
        check_count(self.call.title, prefix, args, "in_shardings")
        return broadcast(prefix, tree.structure(args), "in_shardings")

    def _mesh(self) -> Any:
        """The one mesh that all who name one agree on, or None."""
        call, traced = self.call, self.traced
        inside = "a sharding constraint inside"
        if traced.mesh_source is not None:
            inside += f", at {line_of(traced.mesh_source)},"
        if call.device is not None:  # as in JAX, arguments that live elsewhere are moved there
            return device_mesh(call.title, call.device, traced.mesh, inside)
        named = [(f"in_shardings for {n}", s) for n, s in zip(call.names, self.shardings, strict=True)]
        named += [(f"out_shardings for {self._output_name(i)}", s) for i, s in enumerate(self.outs)]
        committed = [
            (self.call.titled_name(i), key.sharding)
            for i, key in enumerate(self.keys)
            if key.committed and key.sharding is not None
        ]
        return find_mesh(call.title, named, committed, traced.mesh, inside)

    def _check_committed(self, i: int, asked: Any, mesh: Any) -> None:
        """A committed argument that is elsewhere than in_shardings say is an error, not a silent move."""
        key = self.keys[i]
        if not key.committed or key.sharding is None or not isinstance(asked, Sharding | PartitionSpec):
            return
        target = asked if isinstance(asked, Sharding) else NamedSharding(mesh, asked)
        if not fits(key, target):
            name = self._input_name(i)
            raise ShardingError(
                f"argument {name} {key.type} is committed to {spec_of(key.sharding)},"
                f" but in_shardings say {spec_of(target)}\n"
                f"  fix: meshjit.device_put({name}, sharding) before the call,"
                " or leave in_shardings out to use the argument's own"
            )

    def _input_name(self, i: int) -> str:
        return self.call.input_name(i)

    @functools.cached_property
    def _output_names(self) -> Sequence[str]:
        return output_names(self.traced)

    def _output_name(self, i: int) -> str:
        return self._output_names[i]


def _committed_spec(key: LeafKey, mesh: Any) -> PartitionSpec | None:
    """Committed arrays stay where they are; others go where propagation likes."""
    return spec_on(mesh, key.sharding, key.type.rank) if key.committed and key.sharding is not None else None


def output_names(traced: TracedProgram) -> Sequence[str]:
    """`result['loss']` for every output."""
    dummy = tree.unflatten(traced.out_tree, list(range(traced.out_tree.num_leaves)))
    return tree.path_names(dummy, "result")
