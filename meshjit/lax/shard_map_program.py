"""The Program of whole arrays that a function of shards is, and the values in it that all devices have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder, Program
from meshjit.core.types import TensorType
from meshjit.lax.shard_map_checks import named
from meshjit.trace import Tracer, user_source
from meshjit.trace.common import Operand
from meshjit.trace.evaluators import run_program
from sharding.mesh import BaseMesh
from sharding.spec import PartitionSpec, padded

Specs = Sequence[PartitionSpec]


@dataclass(frozen=True)
class Frame:
    """What a call of shard_map says of its body: over which axes of the mesh it is, whether it is known what varies over them,
    and whether the compiler spreads it over others."""

    name: str
    mesh: BaseMesh
    axes: tuple[tuple[str, int], ...]
    checked: bool
    auto: bool

    def program(self, body: Program, in_specs: Specs, out_specs: Specs) -> Program:
        params = {
            "mesh": self.axes,
            "in_specs": tuple(padded(s, v.rank) for s, v in zip(in_specs, body.inputs, strict=True)),
            "out_specs": tuple(padded(s, v.rank) for s, v in zip(out_specs, body.outputs, strict=True)),
            "checked": self.checked,
            "auto": self.auto,
            "body": body,
        }
        types = [self._whole(v.type, s) for v, s in zip(body.inputs, in_specs, strict=True)]
        with Builder(self.name) as builder, builder.at(user_source()):
            return builder.build(builder.emit(REGISTRY["manual"], [builder.input(t) for t in types], params))

    def _whole(self, shard: TensorType, spec: PartitionSpec) -> TensorType:
        counts = [self.mesh.axes_size(axes) for axes in named(spec, shard.rank)]
        return shard.with_shape(tuple(n * count for n, count in zip(shard.shape, counts, strict=True)))

    def value(self, part: Program, leaves: Sequence[Any], operands: Sequence[Any], in_specs: Specs) -> Any:
        """The result of a part of the body, the same on all devices. `leaves`: its operands, those of the body by number. None
        where one of them has no value."""
        values = [_outside(operands[x.number] if isinstance(x, Operand) else x) for x in leaves]
        if any(x is None for x in values):
            return None
        specs = [in_specs[x.number] if isinstance(x, Operand) else PartitionSpec() for x in leaves]
        return run_program(self.program(part, specs, [PartitionSpec()]), values, [False], self.mesh)[0]


def _outside(x: Any) -> Any:
    """What a value is outside of all traces; None where nobody knows."""
    return x.tracing.value(x.variable) if isinstance(x, Tracer) else x
