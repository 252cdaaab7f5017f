"""ShapedArray: what `typeof` says of a value: shape, dtype, and in explicit axes its placement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.core.explicit import typed
from meshjit.core.keys import KeyType
from meshjit.core.memories import MemorySpace
from meshjit.core.types import TensorType, is_inexact
from meshjit.core.varying import REDUCED, UNREDUCED, marked
from meshjit.trace.explicit import nowhere
from meshjit.trace.float0 import FLOAT0
from sharding.manual_type import ManualAxisType
from sharding.named import NamedSharding
from sharding.spec import padded


@dataclass(frozen=True)
class Float0Type:
    """The type of derivatives with respect to integers: no Program has such values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = FLOAT0
    weak_type: bool = False

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"float0[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, init=False)
class ShapedArray:
    """The type of one value (`jax.core.ShapedArray(shape, dtype)`). `str` gives `float32[8@X,4]`: dim 0 is sharded over the
    explicit axis X. `memory_space` is the memory that it lies in: `float32<host>[8,4]`.

    `sharding` is on an AbstractMesh, with an entry per dim; on a mesh without axes where there is none. `manual_axis_type` says
    how the value stands to the axes of shard_map around it, `vma` over which of them it differs from device to device."""

    type: TensorType
    weak_type: bool
    sharding: NamedSharding
    manual_axis_type: ManualAxisType = ManualAxisType()
    memory_space: MemorySpace = MemorySpace.Device

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        weak_type: bool = False,
        *,
        sharding: NamedSharding | None = None,
        manual_axis_type: ManualAxisType = ManualAxisType(),  # noqa: B008 - it has no state
        memory_space: MemorySpace = MemorySpace.Device,
    ) -> None:
        sharding = nowhere(len(shape)) if sharding is None else sharding.with_spec(padded(sharding.spec, len(shape)))
        kind: Any = dtype if isinstance(dtype, KeyType) else np.dtype(dtype)
        type = TensorType(tuple(shape), kind)
        values = type, weak_type, sharding, manual_axis_type, memory_space
        names = "type", "weak_type", "sharding", "manual_axis_type", "memory_space"
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)

    def update(self, **changes: Any) -> ShapedArray:
        """The same with another `shape`, `dtype`, `weak_type`, `sharding` or `memory_space`."""
        own: dict[str, Any] = {"shape": self.shape, "dtype": self.dtype, "weak_type": self.weak_type}
        own["manual_axis_type"], own["memory_space"] = self.manual_axis_type, self.memory_space
        if changes.get("shape", self.shape) == self.shape:
            own["sharding"] = self.sharding
        return ShapedArray(**{**own, **changes})

    def to_tangent_aval(self) -> ShapedArray | Float0Type:
        """The type of a tangent: of integers, dtype float0."""
        return self if is_inexact(self.dtype) else Float0Type(self.shape)

    @property
    def mat(self) -> ManualAxisType:
        return self.manual_axis_type

    @property
    def vma(self) -> frozenset[str]:
        return self.manual_axis_type.varying

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> int:
        return self.type.size

    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        """`float32[8@X,4]`; with short_dtypes `f32[8@X,4]`."""
        manual = self.manual_axis_type
        sums = marked(manual.unreduced, UNREDUCED) | marked(manual.reduced, REDUCED)
        text = typed(self.type, self.sharding.spec, self.vma | sums)
        dtype, dims = text[: text.index("[")], text[text.index("[") :]
        return f"{dtype if short_dtypes else self.dtype.name}{self.memory_space.mark}{dims}"

    def __str__(self) -> str:
        return f"{'~' if self.weak_type else ''}{self.str_short()}"

    def __repr__(self) -> str:
        return f"ShapedArray({self.str_short()}{', weak_type=True' if self.weak_type else ''})"


@dataclass(frozen=True)
class AbstractRef:
    """The type of a Ref (`jax.ref.AbstractRef`): of what it holds, `inner_aval`. `str` gives `Ref{float32[3]}`."""

    inner_aval: ShapedArray
    memory_space: Any = None
    kind: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner_aval.shape

    @property
    def dtype(self) -> Any:
        return self.inner_aval.dtype

    @property
    def ndim(self) -> int:
        return self.inner_aval.ndim

    @property
    def size(self) -> int:
        return self.inner_aval.size

    @property
    def weak_type(self) -> bool:
        return self.inner_aval.weak_type

    @property
    def sharding(self) -> Any:
        return self.inner_aval.sharding

    def __str__(self) -> str:
        return f"Ref{{{self.inner_aval.str_short()}}}"

    __repr__ = __str__
