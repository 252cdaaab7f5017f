"""What an op's own `partition` rule is given: one equation, its operands already local and placed as the plan asks.

A rule builds local equations by calling ops on Vars (a builder is active) and returns the local results. Dims whose
extent does not divide hold padding at the end of the last shards; its content is unspecified, so a rule that lets
elements of different places meet masks it first (`mask`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshjit.core.program import Eqn, Var
from meshjit.core.target import Target
from meshjit.core.types import TensorType
from sharding.axes import AxisRef
from sharding.mesh import BaseMesh
from sharding.spec import Placement


@dataclass(frozen=True)
class LocalEquation:
    """One equation in the middle of partitioning."""

    eqn: Eqn  # global types and params
    operands: tuple[Var, ...]  # local Vars
    operand_placements: tuple[Placement, ...]
    result_placements: tuple[Placement, ...]  # partial over the axes of sharded reduction factors
    assignment: Mapping[str, tuple[AxisRef, ...]]  # factor -> axes
    mesh: BaseMesh
    target: Target
    index: Callable[[Sequence[AxisRef]], Var]  # i32[] linear index of this device along axes, major to minor
    mask: Callable[[Var, int, int, Sequence[AxisRef], Any], Var]  # (local, dim, global extent, axes, fill): padding -> fill
    bring: Callable[[int, Placement], Var]  # (operand number, placement): its local Var under another placement
    moved: Callable[[Var, TensorType, Placement, Placement], Var]  # (local, global type, its placement, another): under that one
    manual: frozenset[str] = frozenset()  # axes along which the code around the equation runs once each

    @property
    def params(self) -> Mapping[str, Any]:
        return self.eqn.params

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that are the equation's own to compute over."""
        return tuple(name for name in self.mesh.axis_names if name not in self.manual)

    @functools.cached_property
    def result_types(self) -> tuple[TensorType, ...]:
        """Local types of the results."""
        return tuple(
            t.with_shape(p.local_shape(t.shape, self.mesh))
            for t, p in zip(self.eqn.output_types, self.result_placements, strict=True)
        )
