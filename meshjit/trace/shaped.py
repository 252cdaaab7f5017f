"""What is known of one value, as the type that users see."""

from __future__ import annotations

from typing import Any

from meshjit.core.memories import MemorySpace
from meshjit.core.varying import NOWHERE, REDUCED, UNREDUCED, Axes, marked, with_mark
from meshjit.trace.explicit import visible_sharding
from meshjit.trace.program import argument_of
from meshjit.trace.types import ShapedArray
from sharding.manual_type import ManualAxisType


def shaped_array_of(x: Any) -> ShapedArray:
    """The type of an array, a traced value or a number; TypeError for anything else."""
    argument = argument_of(x, "x")
    type, sharding, manual = argument.type, visible_sharding(x, argument.type.rank), _manual(argument.varying)
    space = MemorySpace.of(argument.memory)
    return ShapedArray(type.shape, type.dtype, argument.weak, sharding=sharding, manual_axis_type=manual, memory_space=space)


def axes_of(manual: ManualAxisType | None) -> Axes:
    """The axes, with their marks, along which a value of this type varies."""
    if manual is None:
        return NOWHERE
    return manual.varying | marked(manual.unreduced, UNREDUCED) | marked(manual.reduced, REDUCED)


def _manual(axes: Axes) -> ManualAxisType:
    return ManualAxisType(*(with_mark(axes, mark) for mark in ("", UNREDUCED, REDUCED)))
