"""How products are computed: `lax.DotAlgorithm`, and those with names, `lax.DotAlgorithmPreset`, as `precision=`."""

from __future__ import annotations

import enum
from dataclasses import astuple, dataclass
from typing import Any

import ml_dtypes
import numpy as np

from meshjit.core.types import short_name


@dataclass(frozen=True)
class DotAlgorithm:
    """An algorithm of matrix products (`jax.lax.DotAlgorithm`), as StableHLO's dot_general has it.

    The factors are rounded to the precision types and added up in the accumulation type, which is also the result's. The counts
    say into how many parts a factor is taken apart, and how many products of parts are added up; with imprecise accumulation
    some steps may have fewer bits. Which algorithms there are is a matter of the platform: on CPU those with names alone, and not
    all of them (NotImplementedError, a ValueError too, when a program is compiled)."""

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """Algorithms by name, factor_factor_sum (`jax.lax.DotAlgorithmPreset`). X3, X6, X9: so many products of parts of bfloat16 or
    TF32 stand for one of float32. FAST_ACCUM adds up with fewer bits."""

    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()

    def __repr__(self) -> str:
        return f"DotAlgorithmPreset.{self.name}"

    __str__ = __repr__

    @property
    def accumulation_type(self) -> Any:
        """The dtype that products are added up in; None where it is the result's."""
        return _DTYPES.get(self.name.lower().replace("any_f8", "any").split("_")[2]) if self.name != "DEFAULT" else None

    @property
    def storage_types(self) -> tuple[np.dtype[Any], ...]:
        """The dtypes that factors may have; others are converted to the first. () for those of any dtype of 8 bits."""
        if self.name == "DEFAULT" or self.name.startswith("ANY"):
            return ()
        if self.name == "BF16_BF16_F32":
            return _DTYPES["bf16"], _DTYPES["f32"]
        return (_DTYPES["f32" if "_X" in self.name or self.name.startswith("TF32") else self.name.lower().split("_")[0]],)


_DTYPES: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
}  # fmt: skip


def algorithm_of(precision: Any) -> DotAlgorithm | DotAlgorithmPreset | None:
    """The algorithm that `precision=` says, if it says one: itself, or its name."""
    if isinstance(precision, str):
        precision = DotAlgorithmPreset.__members__.get(precision)
    if precision is DotAlgorithmPreset.DEFAULT:
        return None
    return precision if isinstance(precision, DotAlgorithm | DotAlgorithmPreset) else None


def text_of(algorithm: DotAlgorithm | DotAlgorithmPreset) -> str:
    """What the param `precision` of `dot_general` has: the name, or the fields in their order."""
    if isinstance(algorithm, DotAlgorithmPreset):
        return algorithm.name
    fields = astuple(algorithm)
    return " ".join([*(short_name(np.dtype(f)) for f in fields[:3]), *(str(int(f)) for f in fields[3:])])
