"""How far two arrays are apart, elementwise, with tolerances by dtype; nan equals nan, and infinities equal themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from meshjit.core.program import Eqn
from meshjit.core.types import DTYPES, is_inexact
from meshjit.simulate.evaluate import evaluate_eqn

Array = np.ndarray[Any, Any]

# Relative error that the rounding of one equation explains: some hundred units in the last place.
TOLERANCES = {
    DTYPES[name]: bound
    for name, bound in {
        "f64": 1e-9, "c128": 1e-9, "f32": 1e-4, "c64": 1e-4, "f16": 8e-3, "bf16": 4e-2, "f8e4m3fn": 0.3, "f8e5m2": 0.6,
    }.items()
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """The largest relative error of `got` and where it is; how many elements are beyond the tolerance."""

    error: float
    index: tuple[int, ...]
    got: Any
    want: Any
    count: int
    size: int

    @property
    def agrees(self) -> bool:
        return self.count == 0

    def __str__(self) -> str:
        where = f"[{', '.join(map(str, self.index))}]"
        return f"{where} is {self.got!s} instead of {self.want!s}; {self.count} of {self.size} elements differ"


def difference(got: Array, want: Array, magnitude: Array | None = None, tolerance: float = 1.0) -> Difference:
    """The relative error per element is |got - want| / (|want| + magnitude).

    `magnitude` is the size of what was added up to give `want` (a sum that cancels is not wrong for its last digits);
    left out, the median of the elements that are not zero. `tolerance` multiplies the bound of the dtype. Dtypes other
    than floats must be equal.
    """
    if got.size == 0:
        return Difference(0.0, (), None, None, 0, 0)
    with np.errstate(all="ignore"):
        if is_inexact(want.dtype):
            errors = _relative_errors(_wide(got), _wide(want), magnitude, want.dtype)
            bad = errors > TOLERANCES[want.dtype] * tolerance
        else:
            bad = np.asarray(got != want)
            errors = np.where(bad, np.inf, 0.0)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(errors)), errors.shape))
    return Difference(float(errors[worst]), worst, got[worst], want[worst], int(bad.sum()), got.size)


def _relative_errors(got: Array, want: Array, magnitude: Array | None, dtype: np.dtype[Any]) -> Array:
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    finite = np.isfinite(want)
    if magnitude is None:
        sizes = np.abs(want[finite & (want != 0)])
        magnitude = np.asarray(np.median(sizes) if sizes.size else 0.0)
    floor = float(ml_dtypes.finfo(dtype).tiny) / TOLERANCES[dtype]  # denormals may be flushed to zero
    errors = np.abs(got - want) / (np.abs(want) + np.where(np.isfinite(magnitude), magnitude, 0.0) + floor)
    return np.where(same, 0.0, np.where(finite & np.isfinite(got), errors, np.inf))


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def magnitudes(eqn: Eqn, operands: Sequence[Array]) -> list[Array] | None:
    """Per result the size of what an equation adds up, where it is linear: the same of the operands' absolute values.

    Of jointly linear operands one after another, so that `subtract` adds. None for other equations.
    """
    groups = eqn.op.linear_groups(eqn.input_types, eqn.params)
    absolute = [np.abs(x) if is_inexact(x.dtype) else x for x in operands]
    absolute = [x.astype(t.dtype) for x, t in zip(absolute, eqn.input_types, strict=True)]
    numbers = {i for group in groups for i in group}
    totals: list[Array] | None = None
    for group in groups:
        for i in group:
            terms = [
                np.zeros_like(x) if j in group and j != i else absolute[j] if j in numbers else x
                for j, x in enumerate(operands)
            ]
            found = [np.abs(_wide(r)) for r in evaluate_eqn(eqn, terms)]
            totals = found if totals is None else [a + b for a, b in zip(totals, found, strict=True)]
    return totals
