"""Where the arguments and results of one call were said to live: the mesh, and a spec for each that somebody placed."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from meshjit.api.call import Call
from meshjit.api.shardings import (
    UNSPECIFIED,
    broadcast,
    check_count,
    check_key_specs,
    device_mesh,
    find_mesh,
    keywords_not_placed,
    spec_for,
    spec_of,
)
from meshjit.core.explicit import explicit_part, pin_of
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.plan.make import Annotations
from meshjit.runtime.array import LeafKey
from meshjit.runtime.shardings import cuts_alike, default_mesh, fits, mesh_of, spec_on
from meshjit.trace import Traced as TracedProgram, line_of, user_source
from meshjit.trace.meshes import require_axes
from meshjit.trees import WORDS as tree
from sharding.mesh import AbstractMesh, Mesh, current_mesh
from sharding.named import NamedSharding, Sharding, SingleDeviceSharding, is_auto
from sharding.spec import PartitionSpec, ShardingError, entry_axes, padded, placement_of

SHOWN: Final = 8  # names in a message


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


def in_shardings_of(call: Call) -> list[Any]:
    """One per leaf of the arguments."""
    count, prefix = len(call.keys), call.in_shardings
    if prefix is UNSPECIFIED or prefix is None or is_auto(prefix):  # of all arguments, those by keyword, too
        return [prefix] * count
    args, kwargs = tree.unflatten(call.in_tree, [0] * count)
    if kwargs:
        raise keywords_not_placed(call.title, sorted(kwargs))
    prefix = tuple(prefix) if isinstance(prefix, list) else prefix
    check_count(call.title, prefix, args, "in_shardings")
    return broadcast(prefix, tree.structure(args), "in_shardings")


def _on_context(sharding: Any) -> Any:
    """A spec is one on the mesh of the context, whichever mesh arguments are on. What that mesh cannot say is left as it is."""
    context = current_mesh()
    if not isinstance(sharding, PartitionSpec) or not isinstance(context, Mesh) or sharding.unreduced or sharding.reduced:
        return sharding
    try:
        return NamedSharding(context, sharding)
    except ShardingError:
        return sharding


class _Finder:
    def __init__(self, call: Call, traced: TracedProgram) -> None:
        self.call, self.traced = call, traced
        self.sound = set[tuple[PartitionSpec, tuple[int, ...]]]()  # specs on the mesh of the call, and shapes that they fit
        self.keys: list[LeafKey] = [*call.keys, *(x._key for x in traced.captured)]
        self.shardings = [_on_context(s) for s in in_shardings_of(call)]
        self.outs = [_on_context(s) for s in broadcast(call.out_shardings, traced.out_tree, "out_shardings")]
        inputs = [k.type.rank for k in call.keys]
        check_key_specs(self.shardings, call.in_tree, inputs, lambda i: f"in_shardings for {self._input_name(i)}")
        outputs = [v.type.rank for v in traced.program.outputs]
        check_key_specs(self.outs, traced.out_tree, outputs, lambda i: f"out_shardings for {self._output_name(i)}")

    def find(self) -> Placements:
        named_mesh = self._mesh()
        mesh = default_mesh() if named_mesh is None else named_mesh
        require_axes(self.traced.program, mesh)
        inputs = [self._input(i, mesh) for i in range(len(self.keys))]
        outputs = [
            self._output(i, s, var.shape, mesh)
            for i, (var, s) in enumerate(zip(self.traced.program.outputs, self.outs, strict=True))
        ]
        return Placements(mesh, Annotations(inputs, outputs), named_mesh is not None)

    def _output(self, i: int, asked: Any, shape: tuple[int, ...], mesh: Any) -> PartitionSpec | None:
        """Where out_shardings, or else its type, in explicit axes, say that a result is."""
        spec = self._spec(asked, shape, mesh, lambda: f"out_shardings for {self._output_name(i)}")
        if spec is not None:
            return spec
        sharding = self.traced.shardings[i] if self.traced.shardings else None
        if sharding is None or sharding.mesh.axis_names != mesh.axis_names:
            return None
        pin, constraint = pin_of(sharding.spec, sharding.mesh), self._constraints.get(self.traced.program.outputs[i])
        if constraint is None or explicit_part(constraint, len(pin), sharding.mesh) != sharding.spec:
            return pin
        further = zip(pin, padded(constraint, len(pin)), strict=True)  # of automatic axes, which the type does not name
        return pin.update(partitions=[asked if entry_axes(own) else own for own, asked in further])

    @functools.cached_property
    def _constraints(self) -> dict[Var, PartitionSpec]:
        """What constraints say of the values that they give."""
        return {v: e.op.seed(e.params) for e in self.traced.program.eqns if e.op.seed is not None for v in e.outputs}

    def _input(self, i: int, mesh: Any) -> PartitionSpec | None:
        key = self.keys[i]
        sharding = self.shardings[i] if i < len(self.shardings) else UNSPECIFIED
        if sharding is UNSPECIFIED or ((sharding is None or is_auto(sharding)) and key.committed):
            return _committed_spec(key, mesh)
        self._check_committed(i, sharding, mesh)
        return self._spec(sharding, key.type.shape, mesh, lambda: f"in_shardings for {self._input_name(i)}")

    def _spec(self, sharding: Any, shape: tuple[int, ...], mesh: Any, name: Callable[[], str]) -> PartitionSpec | None:
        """`spec_for`, once for what many leaves of a tree have in common."""
        alike = (sharding.spec, shape) if type(sharding) is NamedSharding and sharding.mesh is mesh else None
        if alike in self.sound:
            return sharding.spec
        spec = spec_for(sharding, shape, mesh, name)
        if alike is not None:
            self.sound.add(alike)
        return spec

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
        chosen = None if call.automatic is None else call.automatic.mesh
        return find_mesh(call.title, named, self._committed(range(len(call.keys))), traced.mesh, inside, chosen, self._captured())

    def _committed(self, numbers: Iterable[int]) -> list[tuple[str, Sharding]]:
        """Names and shardings of those inputs that are committed, and that no sharding brings elsewhere."""
        return [
            (self.call.titled_name(i), key.sharding)
            for i, key in ((i, self.keys[i]) for i in numbers)
            if key.committed and key.sharding is not None and not self._is_brought(i)
        ]

    def _captured(self) -> list[Sharding]:
        """Where the function's captured arrays lie, those on most devices first."""
        committed = [sharding for _, sharding in self._committed(range(len(self.call.keys), len(self.keys)))]
        return sorted(committed, key=lambda sharding: -mesh_of(sharding).size)

    def _is_brought(self, i: int) -> bool:
        """Whether in_shardings say for an argument what its own sharding says, on devices of their own: it is moved there."""
        key, asked = self.keys[i], self.shardings[i] if i < len(self.shardings) else None
        if key.sharding is None or not isinstance(asked, NamedSharding | SingleDeviceSharding):
            return False
        return not isinstance(mesh_of(asked), AbstractMesh) and cuts_alike(key.sharding, asked, key.type.rank)

    def _check_committed(self, i: int, asked: Any, mesh: Any) -> None:
        """A committed argument that is cut otherwise than in_shardings say is an error, not a silent move."""
        key = self.keys[i]
        if not key.committed or key.sharding is None or not isinstance(asked, Sharding | PartitionSpec):
            return
        target = asked if isinstance(asked, Sharding) else NamedSharding(mesh, asked)
        if not fits(key, target) and not self._is_brought(i):
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


def pinned(
    places: Placements, call: Call, pins: Mapping[str, PartitionSpec | NamedSharding], types: Sequence[TensorType]
) -> Placements:
    """The same with the arguments that `pins` name elsewhere. ValueError for a name of none, TypeError for what is no spec.
    `types` are those of all inputs, captured arrays last."""
    if not isinstance(pins, Mapping):
        fix = f"names with specs: pins={{{call.input_name(0)!r}: P('x')}}"
        raise TypeError(f"{call.title}: pins={pins!r} is no dict\n  fix: {fix}")
    if not pins:
        return places
    names = [call.input_name(i) for i in range(len(places.annotations.inputs))]
    unknown = [name for name in pins if name not in names]
    if unknown:
        near = difflib.get_close_matches(str(unknown[0]), names, n=1)
        shown = f"{', '.join(names[:SHOWN])}{', …' if len(names) > SHOWN else ''}"
        fix = near[0] if near else f"one of {shown}"
        raise ValueError(f"{call.title}: pins name {unknown[0]!r}, which is no argument\n  fix: {fix}")
    inputs = list(places.annotations.inputs)
    for i, name in enumerate(names):
        if name in pins:
            pin = _spec_of_pin(pins[name], types[i].shape, places.mesh, f"pins for {name}")
            _check_pin(call, name, pin, call.keys[i] if i < len(call.keys) else None, inputs[i])
            inputs[i] = pin
    return replace(places, annotations=Annotations(inputs, places.annotations.outputs))


def _spec_of_pin(pin: Any, shape: Sequence[int], mesh: Any, name: str) -> PartitionSpec:
    if not isinstance(pin, PartitionSpec | NamedSharding):
        fix = "a PartitionSpec, such as P('x', None); leave out what may lie anywhere"
        raise TypeError(f"{name}: {pin!r} is no spec\n  fix: {fix}")
    spec = spec_for(pin, shape, mesh, lambda: name)
    assert spec is not None
    return spec


def _check_pin(call: Call, name: str, pin: PartitionSpec, key: LeafKey | None, annotated: PartitionSpec | None) -> None:
    """ValueError where in_shardings, or the array itself, say that the argument lives elsewhere than its pin says."""
    if annotated is None or key is None or _agree(pin, annotated, key.type.rank):
        return
    here, there = (f" at {line_of(source)}" if source is not None else "" for source in (user_source(), call.source))
    if key.committed:
        other, fix = f"the argument is committed to {annotated}", "leave the pin out, or pass an array that is not committed"
    else:
        other, fix = f"in_shardings say {annotated}{there}", "leave one of them out; AUTO in in_shardings lets pins say it"
    raise ValueError(f"{call.title}: pins say that {name} {key.type} is {pin}{here}, but {other}\n  fix: {fix}")


def _agree(pin: PartitionSpec, annotated: PartitionSpec, rank: int) -> bool:
    """Whether two specs name the same axes in the dims of which both say something."""
    sides = [[*spec, *[None] * (rank - len(spec))] for spec in (pin, annotated)]
    return all(
        PartitionSpec.UNCONSTRAINED in pair or placement_of(PartitionSpec(pair[0]), 1) == placement_of(PartitionSpec(pair[1]), 1)
        for pair in zip(*sides, strict=True)
    )


def _committed_spec(key: LeafKey, mesh: Any) -> PartitionSpec | None:
    """Committed arrays stay where they are; others go where propagation likes."""
    return spec_on(mesh, key.sharding, key.type.rank) if key.committed and key.sharding is not None else None


def output_names(traced: TracedProgram) -> Sequence[str]:
    """`result['loss']` for every output."""
    return tree.names_in(traced.out_tree, "result")
