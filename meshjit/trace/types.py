"""ShapedArray: what `typeof` says of a value: shape, dtype, and in explicit axes its placement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.core.explicit import typed
from meshjit.core.types import TensorType
from sharding.named import NamedSharding


@dataclass(frozen=True)
class ShapedArray:
    """The type of one value (`jax.core.ShapedArray`). `str` gives `f32[8@X,4]`: dim 0 is sharded over the explicit axis X.

    `sharding` is on an AbstractMesh, with an entry per dim; on a mesh without axes where there is none. `vma` are the manual
    axes over which the value differs from device to device."""

    type: TensorType
    weak_type: bool
    sharding: NamedSharding
    vma: frozenset[str] = frozenset()

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
        """`float32[8@X,4]`; with short_dtypes as `str` gives it."""
        text = str(self)
        return text if short_dtypes else f"{self.dtype.name}{text[text.index('[') :]}"

    def __str__(self) -> str:
        return typed(self.type, self.sharding.spec, self.vma)

    __repr__ = __str__
